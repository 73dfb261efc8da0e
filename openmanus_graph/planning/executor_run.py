"""One run of an executor inside another run: a step of a plan, or a subagent's task."""

import asyncio
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.pregel import Pregel

from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.answer_sources import judged_claims, source_of
from openmanus_graph.conversation.claims import claims_in
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.planning.plan import EXECUTOR_NAME
from openmanus_graph.prompts import render
from openmanus_graph.runtime.atomic_files import status
from openmanus_graph.runtime.events import PLAN_STEP_KEY, plan_step_of
from openmanus_graph.runtime.limits import LimitReason
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import guard_system_exit
from openmanus_graph.runtime.session_registry import WORKER_KEY
from openmanus_graph.runtime.workspace import HOME_FOLDER, Workspace, opened_folder
from openmanus_graph.safety.provenance import strings_in
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ClaimSource, Usage, no_usage
from openmanus_graph.state.planning import Outcome

Executor = Pregel[Any, Any, Any, Any]
Describe = Callable[[str], str]
Executors = Executor | Sequence[Executor] | Mapping[str, Executor]


@dataclass(frozen=True, eq=False)
class ExecutorSet:
    """The executors of one planning graph; the first is the default."""

    executors: Mapping[str, Executor]
    describe: Describe = field(default=lambda _: "")
    """Returns the description of an executor whose graph has none."""

    @property
    def names(self) -> list[str]:
        return list(self.executors)

    def roster(self) -> str:
        """Describe the executors for the planning model, one line each."""
        lines: list[str] = []
        for name, graph in self.executors.items():
            # Set by `with_config(metadata={"description": ...})`.
            metadata = (graph.config or {}).get("metadata") or {}
            description = metadata.get("description") or self.describe(name)
            lines.append(f"- {name}: {description}" if description else f"- {name}")
        return "\n".join(lines)


def collect_executors(executors: Executors, describe: Describe = lambda _: "") -> ExecutorSet:
    """Collect executors, named as in OpenManus if they are a list. ConfigError if one is wrong."""
    if isinstance(executors, Mapping):
        graphs = dict(executors)
    elif isinstance(executors, Sequence):
        graphs = {f"agent_{index}": graph for index, graph in enumerate(executors)}
    else:
        graphs = {"default": executors}
    if not graphs:
        raise ConfigError("A planning graph needs at least one executor.")
    for name, graph in graphs.items():
        if problem := executor_problem(name, graph):
            raise ConfigError(problem)
    return ExecutorSet({name: guard_system_exit(graph) for name, graph in graphs.items()}, describe)


def executor_problem(name: str, graph: Any) -> str | None:
    """Return why an object cannot be an executor; None if it can."""
    if not EXECUTOR_NAME.fullmatch(name):
        return f"Executor {name!r}: a name has letters, digits, _ and - only."
    if not isinstance(graph, Pregel):
        return f"Executor {name!r} is not a compiled graph: {graph!r}."
    if "messages" not in graph.channels:
        return f"Executor {name!r} has no `messages` in its state."
    return None


_FILE_NAME = re.compile(r"(?<![\w./+@%-])[\w./+@%-]*\w")
_QUOTED_NAME = re.compile(r"[\"']([^\"'\n]{1,200})[\"']")
_MAX_NAME_CHARS = 200
_MAX_FILE_NAMES = 500
_SizeAndTime = tuple[int, int]
_OUR_STATUSES = ("finished", "failed", "stopped", "cancelled")


@dataclass(frozen=True)
class StepLimits:
    seconds: float
    seconds_of_all: bool
    """Whether `seconds` is the rest of the whole plan's time, not the step's own limit."""
    max_steps: int
    """Model calls."""
    max_steps_of_all: bool

    def of_all(self, reason: str | None) -> LimitReason | None:
        """Return the limit of the whole plan that a stop reason means, None if it is the step's."""
        if reason == "budget":
            return "budget"
        if reason == "timeout":
            return "timeout" if self.seconds_of_all else None
        return "max_steps" if reason == "max_steps" and self.max_steps_of_all else None


@dataclass(frozen=True)
class StepOutcome:
    kind: Outcome
    text: str
    usage: Usage
    steps: int = 0
    """Model calls as an agent."""
    elapsed_s: float = 0.0
    """Run time as the agent counted it, resumed runs included."""
    messages: Sequence[AnyMessage] = ()
    sources: Sequence[ClaimSource] = ()
    """Where the claims of its text and of its reports come from."""


MOST_DOUBTS, MOST_SOURCES = 20, 300
"""Claims that are named in a report's note, and that a step keeps with their sources."""


def unsupported_claims(outcome: StepOutcome) -> list[str]:
    """Return the claims of a report that its run has no source for: all, if it made no call."""
    if not any(isinstance(one, ToolMessage) for one in outcome.messages):
        return [one.text for one in claims_in(outcome.text)]
    missing = (one for one in outcome.sources if one["kind"] == "not_found" and not one["file"])
    return [one["text"] for one in missing]


def doubts_of(outcome: StepOutcome) -> str:
    """Return the note that a report carries to who reads it; empty if all was found."""
    missing = [one["text"] for one in outcome.sources if one["kind"] == "not_found"]
    named = ", ".join(dict.fromkeys(missing[:MOST_DOUBTS]))
    return render("claims_not_found", claims=named) if missing else ""


def read_outcome(values: Mapping[str, Any], limits: StepLimits, asked: int) -> StepOutcome:
    """Read an outcome from the state of one of our agents, or from any graph's messages."""
    messages = messages_in(values)
    answer = values.get("answer")
    text = messages[-1].text.strip() if messages and messages[-1].type == "ai" else ""
    if isinstance(answer, str) and answer:
        text = answer
    status, reason = values.get("status"), values.get("stop_reason")
    if status not in _OUR_STATUSES:  # a third-party graph, whose `status` may mean anything
        status = None
    if limit := limits.of_all(reason) if status == "stopped" else None:
        return outcome_at(values, limit, text, asked)
    if status == "finished" or (status is None and text):
        return outcome_at(values, "succeeded", text, asked)
    return outcome_at(values, "failed", _failure_text(status, reason, text, limits), asked)


def outcome_at(values: Mapping[str, Any], kind: Outcome, text: str, asked: int) -> StepOutcome:
    """Return an outcome with the usage in the executor's state."""
    messages = messages_in(values)
    own: Mapping[str, Any] = values if "run_message" in values else {}
    usage: Usage = own.get("usage") or _reported_usage(messages[asked:])
    numbers = {name: one for name, one in own.items() if isinstance(one, int | float)}
    steps, elapsed_s = numbers.get("step_count", 0), numbers.get("elapsed_s", 0)
    sources: Any = own.get("sources") or ()
    if not own and text:  # a third-party graph checks nothing
        task = messages[0].text if messages else ""
        found = judged_claims(text, task, messages, NamedFiles())
        sources = [source_of(one) for one in found]
    return StepOutcome(
        kind, text, usage, cast("int", steps), elapsed_s, messages, sources[:MOST_SOURCES]
    )


def messages_in(values: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the messages of a graph's state as LangChain messages, whatever their form."""
    found: Any = values.get("messages")
    if not isinstance(found, list | tuple):
        return []
    try:
        return convert_to_messages(found)  # type: ignore[return-value]  # it says less
    except (TypeError, ValueError, LookupError, NotImplementedError):
        return []


def _failure_text(status: Any, reason: Any, text: str, limits: StepLimits) -> str:
    last_text = text.rpartition("\n\n")[0]  # without the sentence that the agent's limit added
    said = f" It said last: {last_text}" if last_text else ""
    if not status or reason == "":
        return "It ended without an answer."
    reasons = {
        "max_steps": f"It was not done after {limits.max_steps} model calls.",
        "timeout": f"It was not done after {limits.seconds:g} s.",
        "stuck": "Its last steps repeated themselves without any result.",
    }
    if (why := reasons.get(str(reason))) is not None:
        return f"{why}{said}".rstrip()
    return text or ("Its agent gave it up." if reason == "terminate" else "It failed.")


def _reported_usage(messages: Sequence[AnyMessage]) -> Usage:
    usage = no_usage()
    for message in messages:
        if isinstance(message, AIMessage) and (used := message.usage_metadata) is not None:
            usage["input_tokens"] += used["input_tokens"]
            usage["cached_tokens"] += used.get("input_token_details", {}).get("cache_read", 0)
            usage["output_tokens"] += used["output_tokens"]
            usage["model_calls"] += 1
    return usage


class WrittenFiles:
    """Finds the changed files among those that a step's conversation names."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen = 0
        self._stamps: dict[str, _SizeAndTime | None] = {}
        self._changed: set[str] = set()

    @property
    def written_files(self) -> list[str]:
        """The files, relative to the workspace."""
        return sorted(self._changed)

    def has_read(self, messages: Sequence[AnyMessage]) -> bool:
        return len(messages) == self._seen

    def follow(self, messages: Sequence[AnyMessage]) -> None:
        """Read the new messages of the conversation. Call it as soon as there are any. Blocks."""
        new = messages[self._seen :] if len(messages) >= self._seen else ()
        self._seen = len(messages)
        if any(isinstance(message, ToolMessage) for message in new):
            now = self._sizes_and_times(self._stamps)
            for path, before in self._stamps.items():
                if now[path] is not None and now[path] != before:
                    self._changed.add(path)
            self._stamps = now
        for message in new:
            if isinstance(message, AIMessage):
                self._watch([call["args"] for call in message.tool_calls])

    def _watch(self, arguments: Sequence[Any]) -> None:
        names = dict.fromkeys(name for text in strings_in(arguments) for name in names_in(text))
        new: list[str] = []
        for name in islice(names, _MAX_FILE_NAMES):
            with suppress(ToolError):
                path = self._workspace.relative(self._workspace.resolve(name))
                if HOME_FOLDER not in PurePath(path).parts:
                    new.append(path)
        self._stamps = self._sizes_and_times(new) | self._stamps

    def _sizes_and_times(self, paths: Iterable[str]) -> dict[str, _SizeAndTime | None]:
        """Return the size and time of files; None for what is not a file."""
        by_folder = defaultdict[str, list[str]](list)
        for path in paths:
            by_folder[path.rpartition("/")[0]].append(path)
        found = dict[str, _SizeAndTime | None]()
        for folder, inside in by_folder.items():
            found |= dict.fromkeys(inside)
            with (
                suppress(OSError),
                opened_folder(self._workspace, self._workspace.root / folder) as descriptor,
            ):
                for path in inside:
                    with suppress(OSError):  # no name that a file can have
                        known = status(descriptor, PurePath(path).name)
                        if known is not None and not stat.S_ISDIR(known.st_mode):
                            found[path] = known.st_size, known.st_mtime_ns
        return found


def names_in(text: str) -> Iterator[str]:
    """Yield possible file names, one by one: a single long regex search would block threads."""
    if len(text) < _MAX_NAME_CHARS and "\n" not in text:
        yield text
    yield from (found[1] for found in _QUOTED_NAME.finditer(text))
    yield from (found[0] for found in _FILE_NAME.finditer(text))


GRACE_S = 10.0
"""Extra time for executors that end themselves at their own limit."""


class ExecutorRun:
    """One run of an executor. Its state and written files are recorded while it runs."""

    def __init__(
        self,
        executor: Executor,
        messages: Sequence[AnyMessage],
        limits: StepLimits,
        session: Session,
        *,
        outer_context: Any,
        config: RunnableConfig,
    ) -> None:
        self._executor, self._config = executor, config
        self._ours = executor.context_schema is Context
        self._limits = limits
        settings = session.settings
        self._context = replace(
            outer_context if isinstance(outer_context, Context) else Context(),
            workspace=str(settings.workspace),
            max_steps=limits.max_steps,
            max_cost_usd=settings.max_cost_usd,
            max_total_tokens=settings.max_total_tokens,
            timeout_s=limits.seconds,
            review_plan=False,
            response_format=None,
            prompts=None,
        )
        # Set for an agent whose file names a model; another provider has another address.
        model = str(((executor.config or {}).get("metadata") or {}).get("openmanus_model") or "")
        if model:
            self._context = replace(self._context, model=model, base_url=None)
        self._messages = list(messages)
        self._values: dict[str, Any] = {"messages": self._messages}
        self.written_files = WrittenFiles(session.workspace)

    @property
    def values_to_resume(self) -> Mapping[str, Any]:
        """The state to continue from after a limit; only messages of a third-party graph."""
        return self._values if self._ours else {"messages": messages_in(self._values)}

    async def run(self) -> StepOutcome:
        """Run the executor to its end, or to its time limit."""
        # Our own graphs end themselves at their limit.
        clock = asyncio.timeout(self._limits.seconds + (GRACE_S if self._ours else 0))
        asked, kind, why = len(self._messages), cast("Outcome", "failed"), ""
        try:
            async with clock:
                await self._stream()
            return read_outcome(self._values, self._limits, asked)
        except ParentCommand as error:
            goal = cast("Any", error.args[0]).goto or "no node"
            why = f"It handed over to {goal}, which does not run here."
        except (GraphBubbleUp, ConfigError):
            raise  # a question to the user, a drain, or settings that only the user can correct
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            why = "It cancelled itself."
        except Exception as error:  # noqa: BLE001  # a step that raises fails alone, not the plan
            if not clock.expired():
                why = f"{type(error).__name__}: {error}"
            elif limit := self._limits.of_all("timeout"):
                kind = limit
            else:
                why = f"It did not end within {self._limits.seconds:g} s."
        return outcome_at(self._values, kind, why, asked)

    async def _stream(self) -> None:
        states = self._executor.astream(
            {"messages": self._messages},
            self._config,
            context=self._context if self._ours else None,
            stream_mode="values",
        )
        async with aclosing(states):  # type: ignore[type-var]  # it is a generator
            async for values in states:
                self._values, messages = values, messages_in(values)
                if not self.written_files.has_read(messages):
                    await asyncio.to_thread(self.written_files.follow, messages)


def metadata_inside(around: RunnableConfig, worker: str, name: str) -> dict[str, Any]:
    """Return the metadata of a run inside a node: the session that it uses, and its plan step."""
    outer = (around.get("metadata") or {}).get(WORKER_KEY, "")
    inner = f"{plan_step_of(around)}/{name}".lstrip("/")
    return {WORKER_KEY: f"{outer}/{worker}", PLAN_STEP_KEY: inner}


def named_files(paths: Sequence[str], messages: Sequence[AnyMessage]) -> list[str]:
    """Return the changed files that a run's calls name: other steps change files at once."""
    said = "\n".join(
        str(call["args"]) for message in messages for call in getattr(message, "tool_calls", ())
    )
    return [path for path in paths if path.rpartition("/")[2] in said]
