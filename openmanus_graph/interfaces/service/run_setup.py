"""Sets up a run from the given options: its thread, context, input and tools.

A file that the user names may be anywhere, and be a link. In the workspace programs may replace a
file by a link to another one, so there it must be in the workspace.
"""

import asyncio
import os
import shlex
import shutil
import sys
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.constants import START
from langgraph.types import Command, StateSnapshot
from pydantic import SecretStr

from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.steering import open_steering
from openmanus_graph.backends.persistence.threads import DAMAGED, Thread
from openmanus_graph.backends.sandbox import worktree
from openmanus_graph.backends.sandbox.choose import require_sandbox
from openmanus_graph.config.files import declared_fields
from openmanus_graph.config.resolve import database_url, resolve_settings, safe_name
from openmanus_graph.conversation.history import ATTACHED, COMPACT_KEY, ORIGIN_KEY
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.service import threads
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.interfaces.service.run_view import questions_of
from openmanus_graph.interfaces.service.runner import Run
from openmanus_graph.model_calls.run_models import prepare_models
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.observations import whole_conversation
from openmanus_graph.runtime.workspace import Workspace, find, incoming_file, opened_file
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath, read_whole
from openmanus_graph.safety.provenance import origin_of_parts
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import middleware_answer
from openmanus_graph.state.manus import Origin
from openmanus_graph.state.settings import Settings
from openmanus_graph.tool_calls.declaration import with_function

MAX_TEXT_BYTES = 256 << 20
"""Of a file that is read as a whole: tasks, prompts."""
MAX_FILE_BYTES = 4 << 30
"""Of a file that is copied into the workspace."""
MAX_IMAGE_BYTES = 256 << 20
"""Of a picture, sound or video."""
CHUNK = 1 << 20
_NO_THREAD = "server"
"""Thread id for resolving the settings before there is a thread."""


def new_thread() -> str:
    """Return an id for a new thread: a UUID, because LangGraph's server accepts no other ids."""
    return str(uuid.uuid4())


def take_thread(given: InputOptions, options: RunOptions) -> tuple[str, str, RunOptions]:
    """Return thread, agent and options; those of an existing thread are the defaults."""
    thread, agent, kept = _take_thread(given, options)
    if not given.wants_worktree:
        return thread, agent, kept
    if options.workspace or threads.find_thread(thread) is not None:
        raise ConfigError(
            "A worktree is made for a new thread, of the repository that the command is run in. "
            "Leave out --worktree and what implies it, or --workspace, --thread and --continue."
        )
    folder = worktree.new_folder(given.branch or f"openmanus-{safe_name(thread)}")
    return thread, agent, replace(options, workspace=str(folder))


def _take_thread(given: InputOptions, options: RunOptions) -> tuple[str, str, RunOptions]:
    thread = given.thread
    if given.latest:
        if thread is not None:
            raise ConfigError("--continue takes the latest thread; remove it or --thread.")
        thread = threads.thread_id(None)
    if thread is None:
        return new_thread(), given.agent or catalog.DEFAULT_AGENT, options
    if not thread.strip():
        raise ConfigError("The thread's name is empty. Leave --thread out to begin a new one.")
    known = threads.find_thread(threads.continued_id(thread))
    if known is None:
        return thread, given.agent or catalog.DEFAULT_AGENT, options
    if known.status == DAMAGED and given.agent is None:
        threads.whole_thread(known.id)
    agent = given.agent or known.agent
    if known.status == "waiting" and catalog.FLOW in (agent, known.agent):
        raise ConfigError(
            f"Thread {known.id} waits for an answer, and a new task would drop its plan. Answer it "
            f"(openmanus resume {shlex.quote(known.id)} --approve, --reject or --answer TEXT), or "
            "give the task another --thread."
        )
    return known.id, agent, threads.with_stored(options, known)


def new_run(
    text: str,
    given: InputOptions,
    taken: tuple[str, str, RunOptions],
    *,
    origin: Origin | None = None,
    compact: bool = False,
) -> Run:
    """Return the run of a task, on what `take_thread` returned.

    `origin` says which part of the text the user typed, if not all of it. With `compact`, the run
    makes a summary of the thread's conversation first.
    """
    thread, agent, options = taken
    context = to_context(options)
    return make_run(
        thread,
        agent,
        text,
        options,
        lambda: prepare_input(text, given, context, thread, origin=origin, compact=compact),
    )


def make_run(
    thread: str, agent: str, task: str, options: RunOptions, make_input: Callable[[], Any]
) -> Run:
    """Return a run with these options. ConfigError as `graph_arguments`."""
    if (described := catalog.file_agents().get(agent)) is not None:
        options = replace(options, model=options.model or described.model or None)
    context, stored = to_context(options), options.stored()
    worktree.worktree_at(Path(options.workspace or "."))  # refuses one that was removed
    return Run(thread, agent, task, context, stored, make_input, graph_arguments(agent, options))


def graph_arguments(agent: str, options: RunOptions) -> dict[str, Any]:
    """Return what the agent's graph is built with: the tools that functions replace.

    ConfigError if a function can no longer be loaded, or the agent has no such tool.
    """
    if not options.replaced_tools:
        return {}
    tools: dict[str, BaseTool] = {tool.name: tool for tool in catalog.agent_tools(agent)}
    for name, address in options.replaced_tools.items():
        if not isinstance(tool := tools.get(name), StructuredTool):
            raise ConfigError(
                f"The agent {agent} has no own tool {name!r} that a function could replace."
            )
        tools[name] = with_function(tool, load_function(address))
    return {"tools": list(tools.values())}


def load_function(address: str) -> Callable[..., Any]:
    """Load `module:function`, or `/folder/module:function`. ConfigError if that fails."""
    place, _, function = address.rpartition(":")
    folder, _, module = place.rpartition("/")
    sys.path.insert(0, folder or str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"The function {address} cannot be loaded: {error}.") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ConfigError(f"{address} is not a function, but {type(found).__name__}.")
    return cast("Callable[..., Any]", found)


def to_context(options: RunOptions) -> Context:
    may_send_to = tuple(options.may_send_to or ()) or None
    given: dict[str, Any] = {"prompts": options.prompts, "may_send_to": may_send_to}
    for one in declared_fields():
        value: Any = getattr(options, one.option, None) if one.option else None
        if value is None or value == []:
            continue
        if one.context:
            is_list = isinstance(value, list)
            given[one.context] = tuple(cast("list[str]", value)) if is_list else value
        else:  # `secrets` is the only option of a table; no log may show its values
            given[one.table] = {one.name: list(map(SecretStr, value))}
    return Context(**given)


def prepare_input(
    text: str,
    given: InputOptions,
    context: Context,
    thread: str,
    *,
    origin: Origin | None = None,
    compact: bool = False,
) -> dict[str, Any]:
    workspace = Workspace.of(resolve_settings(context, thread))
    if given.wants_worktree and worktree.worktree_at(workspace.root) is None:
        branch = given.branch or f"openmanus-{safe_name(thread)}"
        worktree.create(Path.cwd(), branch, workspace.root, given.commit)
    workspace.prepare()
    names = [_copy_file(path, workspace) for path in given.file or ()]
    images = [_save_image(path, workspace) for path in given.image or ()]
    origin = origin or origin_of_parts(text, text, names=bool(names))
    return user_message(name_files(text, names), images, origin, compact=compact)


def user_message(
    text: str, images: list[str], origin: Origin | None = None, *, compact: bool = False
) -> dict[str, Any]:
    extra: dict[str, Any] = {"images": images, COMPACT_KEY: compact, ORIGIN_KEY: origin}
    given = {key: value for key, value in extra.items() if value}
    return {"messages": [HumanMessage(text, id=str(uuid.uuid4()), additional_kwargs=given)]}


def name_files(text: str, names: Sequence[str]) -> str:
    return f"{text}\n\n{ATTACHED}{', '.join(names)}".lstrip() if names else text


@contextmanager
def opened_input(
    path: str | Path, limit: int, workspace: Workspace | None = None
) -> Generator[BinaryIO]:
    """Open a file that the user named, of at most `limit` bytes. Blocks.

    ConfigError if there is none, or it cannot be read.
    """
    with ExitStack() as opened:
        try:
            place = Path(path).expanduser().absolute()
            file = opened.enter_context(
                opened_file(workspace, str(place), limit=limit)
                if workspace is not None and place.is_relative_to(workspace.root)
                else open_beneath(Path("/"), place, limit=limit)
            )
        except (FileNotFoundError, NotADirectoryError, RuntimeError) as error:
            raise ConfigError(f"There is no file {path}.") from error
        except ToolError as error:
            missing = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
            raise ConfigError(f"There is no file {path}." if missing else str(error)) from error
        except UnsafeFileError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        yield file


def read_input(path: str | Path, limit: int, workspace: Workspace | None = None) -> bytes:
    """Return the content of a file that the user named. Blocks. ConfigError as `opened_input`."""
    with opened_input(path, limit, workspace) as file:
        return read_whole(file, str(path), limit)


def _copy_file(source: str, workspace: Workspace) -> str:
    name = Path(source).name
    with opened_input(source, MAX_FILE_BYTES, workspace) as file:
        try:
            if find(workspace, name) is not None:
                with opened_file(workspace, name) as known:
                    if not _are_equal(file, known):
                        raise ConfigError(
                            f"{workspace.root / name} already exists with other content. Rename "
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
    from openmanus_graph.backends.files.file_content import image_type, media_suffix, read_picture

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
            f"{source} is not a whole picture (png, jpg, gif, webp, bmp, tiff, avif or heic), and "
            f"no sound or video (wav, mp3, ogg, flac, m4a, mp4, mov or webm){why}."
        )
    return str(workspace.relative(workspace.keep(data, suffix)))


@dataclass(frozen=True)
class ResumeAnswer:
    answer: str | None = None
    approve: bool = False
    reject: bool = False
    reason: str = ""
    interrupt: str | None = None
    every: bool = False
    """It answers all open questions."""

    def value(self) -> Any:
        """Return the value to resume with, or None if no answer was given."""
        given = [self.answer is not None, self.approve, self.reject]
        if sum(given) > 1:
            raise ConfigError("Give one of --answer, --approve and --reject.")
        if self.every and (self.interrupt or not any(given)):
            raise ConfigError("--all goes with --approve, --reject or --answer, and without --id.")
        if self.approve:
            return {"decisions": [{"type": "approve"}]}
        if self.reject:
            return {"decisions": [{"type": "reject", "message": self.reason}]}
        return self.answer


def resuming_run(thread: str, reply: ResumeAnswer, options: RunOptions) -> Run:
    """Return the run that resumes a thread. ConfigError if there is no such thread."""
    known = threads.whole_thread(thread)

    def make_input() -> Any:
        return _next_input(asyncio.run(read_thread_state(thread, known.agent)), known, reply)

    return make_run(
        thread, known.agent, known.task, threads.with_stored(options, known), make_input
    )


@dataclass(frozen=True)
class ThreadState:
    state: StateSnapshot
    restart: Sequence[str]
    """The nodes from which a run that has ended is resumed."""
    has_unread_steering: bool
    """Whether there is a steering message that the run has not read."""


def _next_input(thread_state: ThreadState, known: Thread, reply: ResumeAnswer) -> Any:
    """Return the input that resumes a thread: an answer, None to continue, or a restart."""
    state = thread_state.state
    value = reply.value()
    cut_off = known.status == "running"
    if value is None and (unsaved := _unsaved_message(state, known, cut_off=cut_off)):
        return unsaved
    if state.interrupts:
        return _answer_command(state, value, reply)
    if value is not None:
        raise ConfigError("This thread has no open question. Resume it without an answer.")
    if state.tasks:  # `next` omits tasks that have ended in a step that is not saved yet
        return None
    if state.values.get("status") == "finished" or state.values.get("stop_reason") == "terminate":
        if cut_off:
            return None  # interrupted after its end: only the answer is still to be shown
        if not (thread_state.has_unread_steering and {"begin", "think"} & {*thread_state.restart}):
            raise ConfigError(
                "This thread is finished. Ask for more with: openmanus run --thread ID TASK."
            )
    return Command(goto=thread_state.restart)


def _unsaved_message(state: StateSnapshot, known: Thread, *, cut_off: bool) -> Any:
    """Return the newest user message as an input if no checkpoint has it, else None.

    It keeps its id, by which the ledger finds the effects of its run.
    """
    saved = state.values.get("messages", [])
    if saved and not cut_off:
        return None
    message = threads.open_threads().newest_message(known.id)
    if message is None:
        return None if saved else user_message(known.task, [])
    return None if message.id in {one.id for one in saved} else {"messages": [message]}


def _answer_command(state: StateSnapshot, value: Any, reply: ResumeAnswer) -> Any:
    asked = {waiting.id: waiting.value for waiting in state.interrupts}
    kinds = {waiting.id: interrupt_event(waiting)["kind"] for waiting in state.interrupts}
    wanted = reply.interrupt
    if wanted is not None and wanted not in asked:
        raise ConfigError(f"There is no question {wanted}. Open:{questions_of(state)}")
    if value is None:
        return None  # the question is asked again: on a terminal the user can answer it
    if reply.every:  # an approval answers no question
        chosen = [one for one in asked if reply.answer or kinds[one] != "question"]
    elif wanted is None and len(asked) > 1:
        choose = "choose one with --id, or --all of them"
        raise ConfigError(f"Several questions are open; {choose}:{questions_of(state)}")
    else:
        chosen = [wanted or next(iter(asked))]
    answers = {one: middleware_answer(asked[one], value) for one in chosen}
    return Command(resume=answers) if answers else None


async def read_thread_state(thread: str, agent: str, *, whole: bool = False) -> ThreadState:
    """Read a thread. With `whole`, its messages include what compaction has replaced."""
    url = await asyncio.to_thread(database_url)
    steering = await asyncio.to_thread(open_steering, url)
    has_unread_steering = any(not steering_text.read for steering_text in await steering.of(thread))
    async with open_checkpointer(url) as checkpointer:
        graph: Any = catalog.build_agent(agent, checkpointer=checkpointer)
        state: StateSnapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
        if whole:
            said = await whole_conversation(checkpointer, thread, state.values.get("messages", []))
            state = state._replace(values={**state.values, "messages": said})
        if known := catalog.restart_node(graph):
            restart = [known]
        else:  # the entry nodes of a third-party graph
            edges = getattr(getattr(graph, "builder", None), "edges", ())
            restart = sorted(end for start, end in edges if start == START)
            restart = restart or [next(name for name in graph.nodes if name != START)]
        return ThreadState(state, restart, has_unread_steering)


def ready_for_tools(options: RunOptions) -> tuple[Context, Settings]:
    """Check the settings and the sandbox. Most tools need no model: it may be missing. Blocks."""
    context = to_context(options)
    try:
        settings = resolve_settings(context, _NO_THREAD)
    except ConfigError as error:
        from openmanus_graph.backends.models.build import MissingModel

        context = replace(context, model=MissingModel(why=str(error)))
        settings = resolve_settings(context, _NO_THREAD)  # fails again unless it was the model
    for warning in settings.warnings:
        sys.stderr.write(f"{warning}\n")
    require_sandbox(settings.sandbox)
    return context, settings


def ready_for_runs(options: RunOptions, agent: str) -> Settings:
    """Check that an agent can run: its model and the home folder. Blocks."""
    settings = resolve_settings(to_context(options), _NO_THREAD)
    prepare_home(settings.home)
    catalog.build_agent(agent)
    asyncio.run(prepare_models(settings))
    return settings
