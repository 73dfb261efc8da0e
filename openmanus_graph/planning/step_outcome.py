"""The outcome of a step's run, from its executor's state: the result, written files, evidence."""

import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage, convert_to_messages

from openmanus_graph.backends.files.file_content import content_head
from openmanus_graph.conversation.history import is_steering
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.recorder import recorded_fact
from openmanus_graph.model_calls.summaries import cut_middle
from openmanus_graph.prompts import render
from openmanus_graph.runtime.atomic_files import status
from openmanus_graph.runtime.limits import LimitReason
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import (
    HOME_FOLDER,
    Workspace,
    find,
    opened_file,
    opened_folder,
)
from openmanus_graph.safety.provenance import strings_in
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.manus import Usage, no_usage
from openmanus_graph.state.planning import Outcome, StepRun

_FILE_NAME = re.compile(r"(?<![\w./+@%-])[\w./+@%-]*\w")
_QUOTED_NAME = re.compile(r"[\"']([^\"'\n]{1,200})[\"']")
_MAX_NAME_CHARS = 200
_MAX_FILE_NAMES = 500
"""Limit of the names read from one reply's calls."""
_SizeAndTime = tuple[int, int]
_OUR_STATUSES = ("finished", "failed", "stopped", "cancelled")


@dataclass(frozen=True)
class StepLimits:
    """The limits of one step's run."""

    seconds: float
    seconds_of_all: bool
    """Whether `seconds` is the rest of the whole plan's time, not the step's own limit."""
    max_steps: int
    """Model calls."""
    max_steps_of_all: bool
    """Whether `max_steps` is the whole plan's limit."""

    def of_all(self, reason: str | None) -> LimitReason | None:
        """Return the limit of the whole plan that a stop reason means, None if it is the step's."""
        if reason == "budget":
            return "budget"
        if reason == "timeout":
            return "timeout" if self.seconds_of_all else None
        return "max_steps" if reason == "max_steps" and self.max_steps_of_all else None


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of an executor's run."""

    kind: Outcome
    text: str
    """Its answer, or why there is none."""
    usage: Usage
    steps: int = 0
    """Model calls as an agent."""
    elapsed_s: float = 0.0
    """Run time as the agent counted it, resumed runs included."""
    messages: Sequence[AnyMessage] = ()


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
    counted: Usage | None = values.get("usage") if "run_message" in values else None
    return StepOutcome(
        kind=kind,
        text=text,
        usage=counted or _reported_usage(messages[asked:]),
        steps=_number(values, "step_count"),
        elapsed_s=_number(values, "elapsed_s"),
        messages=messages,
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
    match reason if status else "":
        case "":
            return "It ended without an answer."
        case "terminate":
            return text or "Its agent gave it up."
        case "max_steps":
            return f"It was not done after {limits.max_steps} model calls.{said}".rstrip()
        case "timeout":
            return f"It was not done after {limits.seconds:g} s.{said}".rstrip()
        case "stuck":
            return f"Its last steps repeated themselves without any result.{said}".rstrip()
        case _:
            return text or "It failed."


def _reported_usage(messages: Sequence[AnyMessage]) -> Usage:
    usage = no_usage()
    for message in messages:
        if isinstance(message, AIMessage) and (used := message.usage_metadata) is not None:
            usage["input_tokens"] += used["input_tokens"]
            usage["cached_tokens"] += used.get("input_token_details", {}).get("cache_read", 0)
            usage["output_tokens"] += used["output_tokens"]
            usage["model_calls"] += 1
    return usage


def _number(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    return value if isinstance(value, int | float) and "run_message" in values else 0


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


SHOWN_RESULT_CHARS, RESULTS_CHARS = 2000, 8000
"""Limits of one tool's result, and of all results that are kept (the newest)."""
PERSON_CHARS = 3000
FILES_CHARS = 12_000
"""For the heads of all files."""
_ARGS_CHARS = 300
_MOST_FILES = 12
_MOST_NAMES = 500
_ASK_TOOL, _QUESTION = "ask_human", "inquire"


def run_evidence(messages: Sequence[AnyMessage]) -> str:
    """Return the user's messages and the tools' results in a step's run; empty without any."""
    calls = {
        str(call["id"]): call["args"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    lines: list[str] = []
    for message in messages:
        if is_steering(message):
            lines.append(message.text)
        elif isinstance(message, ToolMessage) and message.name == _ASK_TOOL:
            question = calls.get(message.tool_call_id, {}).get(_QUESTION, "")
            lines.append(f"Asked {question!r}: {message.text}")
    person = cut_middle("\n".join(lines), PERSON_CHARS)
    results = [
        f"{one.name} {cut_middle(str(calls.get(one.tool_call_id, '')), _ARGS_CHARS)}\n"
        f"{cut_middle(one.text, SHOWN_RESULT_CHARS)}"
        for one in messages
        if isinstance(one, ToolMessage) and one.name != _ASK_TOOL
    ]
    parts = (
        ("What the person said in it:", person),
        ("What its tools said, the newest last:", "\n\n".join(_newest(results))),
    )
    return "\n\n".join(f"{head}\n{mark_untrusted(text)}" for head, text in parts if text)


def _newest(results: Sequence[str]) -> list[str]:
    left, first = RESULTS_CHARS, len(results)
    while first and len(results[first - 1]) <= left:
        first -= 1
        left -= len(results[first])
    return list(results[first:])


def attempt_text(step_run: StepRun) -> str:
    """Return why a step's newest attempt failed, with its report and what its tools said."""
    notes, result = step_run["notes"], step_run["result"]
    parts = [mark_untrusted(notes)]
    if result not in notes:
        parts.append(f"Its executor had reported:\n{mark_untrusted(result)}")
    return "\n\n".join(filter(None, (*parts, step_run.get("evidence", ""))))


async def evidence_text(step_run: StepRun, session: Session) -> str:
    """Return all evidence about a step: its report, its run and its files."""

    def read() -> str:
        return file_heads(_named_files(step_run, session.workspace), session.workspace)

    return render(
        "plan_evidence",
        report=mark_untrusted(step_run["result"]),
        run=step_run.get("evidence", ""),
        files=await recorded_fact(session, f"files to judge {attempt_name(step_run)} by", read),
    )


def attempt_name(step_run: StepRun) -> str:
    return f"step {step_run['id']}, attempt {step_run['attempt']}"


def _named_files(step_run: StepRun, workspace: Workspace) -> list[str]:
    """Return the files that a step's check, its changes and its texts name."""
    texts = (step_run["done_when"], *step_run["files"], step_run["result"], step_run["text"])
    named = dict.fromkeys(name for text in texts for name in islice(names_in(text), _MOST_NAMES))
    files: dict[str, None] = {}
    for name in named:
        try:
            found = find(workspace, name)
        except ToolError:
            continue
        if found is not None and found.is_file:
            files[found.path] = None
    return list(files)[:_MOST_FILES]


def file_heads(paths: Sequence[str], workspace: Workspace) -> str:
    """Return the beginnings of files, marked as text from outside. Blocks."""
    chars = FILES_CHARS // max(1, len(paths))
    heads: list[str] = []
    for path in paths:
        try:
            with opened_file(workspace, path) as file:
                heads.append(content_head(file, path, chars))
        except (OSError, ToolError) as error:
            heads.append(f"{path}: {error}")
    return mark_untrusted("\n\n".join(heads)) if heads else "none that are there"
