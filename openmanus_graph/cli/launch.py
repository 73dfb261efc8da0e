"""From a command's options to a run and its exit code."""

import asyncio
import contextlib
import datetime
import logging
import secrets
import shlex
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmanus_graph.agents import DEFAULT_AGENT, FLOW
from openmanus_graph.cli.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.errors import ConfigError
from openmanus_graph.models.failure_words import redact

if TYPE_CHECKING:
    from openmanus_graph.cli.runner import Run
    from openmanus_graph.state.context import Context


def launch(plan: "Callable[[], Run]", output: OutputOptions) -> int:
    """Make a run and see it through.

    Returns:
        The exit code.
    """
    with log_file(output.log):
        from openmanus_graph.cli.person import TerminalPerson
        from openmanus_graph.cli.runner import run_graph
        from openmanus_graph.cli.signals import leave_with
        from openmanus_graph.cli.views import make_view
        from openmanus_graph.models.build import close_models

        run = plan()

        async def once() -> int:
            try:
                code = await run_graph(run, view, TerminalPerson(view))
                leave_with(code)
                return code
            finally:
                await close_models()

        with make_view(output) as view:
            return asyncio.run(once())


def new_thread() -> str:
    """Name a new thread: when it began, and something to tell it from others."""
    now = datetime.datetime.now(tz=datetime.UTC).astimezone()
    # In the form of a UUID: LangGraph's server takes no other names.
    rest = secrets.token_hex(9)
    return f"{now:%Y%m%d-%H%M-%S}{rest[:2]}-{rest[2:6]}-{rest[6:]}"


def take_thread(given: InputOptions, options: RunOptions) -> tuple[str, str, RunOptions]:
    """Return thread, agent and options; a thread that exists brings its own, unless given again."""
    if given.thread is None:
        return new_thread(), given.agent or DEFAULT_AGENT, options
    if not given.thread.strip():
        raise ConfigError("The thread's name is empty. Leave --thread out to begin a new one.")
    from openmanus_graph.cli.threads import find_thread

    known = find_thread(given.thread)
    if known is None:
        return given.thread, given.agent or DEFAULT_AGENT, options
    agent = given.agent or known.agent
    if known.status == "waiting" and FLOW in (agent, known.agent):
        raise ConfigError(
            f"Thread {known.id} waits for an answer, and a new task would drop its plan. Answer it "
            f"(openmanus resume {shlex.quote(known.id)} --approve, --reject or --answer TEXT), or "
            "give the task another --thread."
        )
    return known.id, agent, options.over(known.options)


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
    )


def prepare_input(
    text: str, given: InputOptions, context: "Context", thread: str
) -> dict[str, Any]:
    """Copy the given files into the workspace and make the run's input."""
    from openmanus_graph.cli.runner import user_message
    from openmanus_graph.config import resolve_settings
    from openmanus_graph.workspace import Workspace

    settings = resolve_settings(context, thread)
    workspace = Workspace(settings.workspace, settings.protected)
    workspace.prepare()
    names = [_copy(_existing(path), workspace.root) for path in given.file or ()]
    images = [_keep_image(_existing(path), workspace) for path in given.image or ()]
    if names:
        text = f"{text}\n\nFiles in the workspace: {', '.join(names)}"
    return user_message(text, images)


def _existing(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise ConfigError(f"There is no file {path}.")
    return found


def _copy(source: Path, folder: Path) -> str:
    target = folder / source.name
    if target.exists() and target.samefile(source):
        return source.name
    if target.exists() and target.read_bytes() != source.read_bytes():
        raise ConfigError(
            f"{target} exists already with other content. Rename {source} or that file."
        )
    shutil.copyfile(source, target)
    return source.name


def _keep_image(source: Path, workspace: Any) -> str:
    from openmanus_graph.files.image_header import read_image

    data = source.read_bytes()
    image = read_image(data)
    if image is None:
        raise ConfigError(f"{source} is no whole picture (png, jpg, gif or webp).")
    kept: Path = workspace.keep(data, f".{image.media_type.partition('/')[2]}")
    return str(workspace.relative(kept))


class _WithoutSecrets(logging.Formatter):
    """Libraries log addresses with their passwords, and errors with what a server repeated."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record without what looks like a secret."""
        return redact(super().format(record))


@contextlib.contextmanager
def log_file(path: str | None) -> Generator[None]:
    """Write the log to a file meanwhile. ConfigError when it cannot be written."""
    if path is None:
        yield
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The log file {path} cannot be written: {error.strerror}.") from error
    handler.setFormatter(_WithoutSecrets("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
