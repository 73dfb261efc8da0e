"""Sets up a run from the given options: its thread, context and input."""

import datetime
import os
import secrets
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, FLOW
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.runner import Run
    from openmanus_graph.runtime.workspace import Workspace
    from openmanus_graph.state.context import Context
    from openmanus_graph.state.plan import Origin

MAX_FILE_BYTES = 4 << 30
"""Of a file that is brought into the workspace."""
MAX_IMAGE_BYTES = 256 << 20
"""Of a picture, sound or video."""
CHUNK = 1 << 20


def new_thread() -> str:
    """Return an id for a new thread: its start time and a random part."""
    now = datetime.datetime.now(tz=datetime.UTC).astimezone()
    # In the form of a UUID, because LangGraph's server accepts no other ids.
    rest = secrets.token_hex(9)
    return f"{now:%Y%m%d-%H%M-%S}{rest[:2]}-{rest[2:6]}-{rest[6:]}"


def take_thread(given: InputOptions, options: RunOptions) -> tuple[str, str, RunOptions]:
    """Return thread, agent and options; those of an existing thread are the defaults."""
    given = _with_latest(given)
    if given.thread is None:
        return new_thread(), given.agent or DEFAULT_AGENT, options
    if not given.thread.strip():
        raise ConfigError("The thread's name is empty. Leave --thread out to begin a new one.")
    from openmanus_graph.backends.persistence.threads import DAMAGED
    from openmanus_graph.interfaces.service.threads import (
        find_thread,
        whole_thread,
        with_stored,
    )

    known = find_thread(given.thread)
    if known is None:
        return given.thread, given.agent or DEFAULT_AGENT, options
    if known.status == DAMAGED and given.agent is None:
        whole_thread(known.id)
    agent = given.agent or known.agent
    if known.status == "waiting" and FLOW in (agent, known.agent):
        raise ConfigError(
            f"Thread {known.id} waits for an answer, and a new task would drop its plan. Answer it "
            f"(openmanus resume {shlex.quote(known.id)} --approve, --reject or --answer TEXT), or "
            "give the task another --thread."
        )
    return known.id, agent, with_stored(options, known)


def _with_latest(given: InputOptions) -> InputOptions:
    """Name the latest thread, if that is what the person wants to go on with."""
    if not given.latest:
        return given
    if given.thread is not None:
        raise ConfigError("--continue takes the latest thread; leave it or --thread away.")
    from openmanus_graph.interfaces.service.threads import thread_id

    return replace(given, thread=thread_id(None), latest=False)


def new_run(
    text: str,
    given: InputOptions,
    taken: tuple[str, str, RunOptions],
    *,
    origin: "Origin | None" = None,
    compact: bool = False,
) -> "Run":
    """Return the run of a task on the thread, agent and options that `take_thread` returned.

    Args:
        text: The task.
        given: Its files and pictures.
        taken: What `take_thread` returned.
        origin: What of the text the user typed, if that is not all of it.
        compact: Make notes of the thread's conversation first.
    """
    from openmanus_graph.interfaces.service.runner import Run

    thread, agent, options = taken
    context = to_context(options)
    return Run(
        thread=thread,
        agent=agent,
        task=text,
        context=context,
        options=options.stored(),
        make_input=lambda: prepare_input(
            text, given, context, thread, origin=origin, compact=compact
        ),
        graph_arguments=graph_arguments(agent, options),
    )


def graph_arguments(agent: str, options: RunOptions) -> "dict[str, Any]":
    """Return what the agent's graph is built with: the tools that functions replace.

    Raises:
        ConfigError: A function cannot be loaded any more, or the agent has no such tool.
    """
    if not options.replaced_tools:
        return {}
    from openmanus_graph.interfaces.service.tool_functions import replaced_tools

    return {"tools": replaced_tools(agent, options.replaced_tools)}


def to_context(options: RunOptions) -> "Context":
    """Turn options into a run's context."""
    from pydantic import SecretStr

    from openmanus_graph.state.context import Context

    return Context(
        model=options.model,
        base_url=options.base_url,
        workspace=options.workspace,
        max_steps=options.max_steps,
        max_cost_usd=options.max_cost_usd,
        max_total_tokens=options.max_tokens,
        timeout_s=options.timeout,
        sandbox=options.sandbox,
        network=options.network,
        allow_hosts=tuple(options.allow_host) if options.allow_host else None,
        policy=options.policy,
        mcp_servers=tuple(options.server) if options.server else None,
        browser={"secrets": list(map(SecretStr, options.secret))} if options.secret else None,
        review_plan=options.review_plan,
        config=options.config,
        prompts=options.prompts,
    )


def prepare_input(
    text: str,
    given: InputOptions,
    context: "Context",
    thread: str,
    *,
    origin: "Origin | None" = None,
    compact: bool = False,
) -> dict[str, Any]:
    """Copy the given files into the workspace and make the run's input."""
    from openmanus_graph.config import resolve_settings
    from openmanus_graph.interfaces.service.runner import user_message
    from openmanus_graph.runtime.workspace import Workspace
    from openmanus_graph.safety.provenance import origin_of_parts

    settings = resolve_settings(context, thread)
    workspace = Workspace.of(settings)
    workspace.prepare()
    names = [_copy_file(path, workspace) for path in given.file or ()]
    images = [_save_image(path, workspace) for path in given.image or ()]
    origin = origin or origin_of_parts(text, text, names=bool(names))
    return user_message(name_files(text, names), images, origin, compact=compact)


def name_files(text: str, names: Sequence[str]) -> str:
    """Return a task with the names of the files that came with it."""
    from openmanus_graph.conversation.environment import ATTACHED

    return f"{text}\n\n{ATTACHED}{', '.join(names)}".lstrip() if names else text


def _copy_file(source: str, workspace: "Workspace") -> str:
    """Copy a file into the workspace, or find it there, and return its name."""
    from openmanus_graph.interfaces.service.user_files import opened_input
    from openmanus_graph.runtime.workspace import find, incoming_file, opened_file

    name = Path(source).name
    with opened_input(source, MAX_FILE_BYTES, workspace) as file:
        try:
            if find(workspace, name) is not None:
                with opened_file(workspace, name) as known:
                    if not _are_equal(file, known):
                        raise ConfigError(
                            f"{workspace.root / name} exists already with other content. Rename "
                            f"{source} or that file."
                        )
                return name
            with incoming_file(workspace, name, replace=False) as copy:
                shutil.copyfileobj(file, copy)
        except ToolError as error:
            raise ConfigError(f"{source} cannot be copied into the workspace: {error}") from error
    return name


def _are_equal(one: BinaryIO, other: BinaryIO) -> bool:
    if os.path.sameopenfile(one.fileno(), other.fileno()):
        return True
    pairs = iter(lambda: (one.read(CHUNK), other.read(CHUNK)), (b"", b""))
    return all(first == second for first, second in pairs)


def _save_image(source: str, workspace: "Workspace") -> str:
    """Copy a picture, sound or video to our own files of the thread, and return its path there."""
    from openmanus_graph.backends.files.file_content import read_picture
    from openmanus_graph.backends.files.file_kinds import image_type, media_suffix
    from openmanus_graph.interfaces.service.user_files import read_input

    data = read_input(source, MAX_IMAGE_BYTES, workspace)
    suffix, why = media_suffix(data), ""
    if picture := image_type(data):
        try:
            read_picture(data)
            suffix = f".{picture.partition('/')[2]}"
        except ToolError as error:
            why = f": {error}"
    if suffix is None:
        raise ConfigError(
            f"{source} is no whole picture (png, jpg, gif, webp, bmp, tiff, avif or heic), and no "
            f"sound or video (wav, mp3, ogg, flac, m4a, mp4, mov or webm){why}."
        )
    return str(workspace.relative(workspace.keep(data, suffix)))
