"""Reads what a reply means for its run: calls, the answer, the end, or a question. Pure."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage
from pydantic import BaseModel, ValidationError

from openmanus_graph.conversation import answer_sources, evidence, history, proof
from openmanus_graph.conversation.announcements import (
    NamedFiles,
    announces_work,
    names_things,
    says_next_action,
    says_something,
)
from openmanus_graph.conversation.loose_json import odd_value
from openmanus_graph.conversation.stuck import detect_stuck
from openmanus_graph.errors import ToolError
from openmanus_graph.state.context import AnswerCheck
from openmanus_graph.state.manus import Claims, ClaimSource, no_claims
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.validation import schema_problems, validation_problems

ResponseFormat = dict[str, Any] | type[BaseModel]
Ending = Literal["answer", "success", "failure"]
NO_TASK = (
    "There is no task: no message of the user says or shows anything. "
    'Give one, e.g. {"messages": [{"role": "user", "content": "..."}]}.'
)

ReplyKind = Literal[
    "calls", "answer", "cut", "empty", "announcement", "unread_call", "unstructured", "hollow",
    "echo", "figures", "unmade", "unread", "unproven",
]  # fmt: skip
NO_FILES = NamedFiles()
MOST_NAMED, MOST_SOURCES = 20, 1000
"""Claims that the model is asked about at once, and that the state keeps with their sources."""
MOST_ASKED: dict[ReplyKind, int] = {"empty": sys.maxsize, "unstructured": 3, "cut": 8}
"""How often in a row the model is asked about such a reply before the run fails; once for others.

Empty replies count towards being stuck.
"""


@dataclass(frozen=True)
class AnswerRules:
    files: NamedFiles = NamedFiles()
    check: AnswerCheck = "off"
    shown: str = ""
    """Texts of the system prompt that are not ours."""
    observations: answer_sources.Observations = answer_sources.Observations()

    @property
    def strict(self) -> bool:
        """Whether the model is not believed without proof."""
        return self.check == "fail"


def answer_rules(
    settings: Settings,
    files: NamedFiles,
    observations: answer_sources.Observations,
    *,
    small: bool = False,
) -> AnswerRules:
    """Return the rules of a run, whose model may be treated as a `small` one."""
    shown = "\n".join([settings.instructions, *settings.prompts.values()])
    check = settings.answer_check or ("fail" if small else "mark")
    return AnswerRules(files, check, shown, observations)


@dataclass(frozen=True)
class ReplyReading:
    kind: ReplyKind
    structured: Any = None
    answer: str = ""
    """The answer, if it is only a part of the reply's text."""
    asked: int = 0
    """How often in a row the model was asked about such replies before this one."""
    what: str = ""
    """The claims or files that it is about."""
    gives_up: bool = False
    claims: Claims = field(default_factory=no_claims)
    sources: Sequence[ClaimSource] = ()

    @property
    def failed(self) -> bool:
        """Whether the model was asked often enough."""
        return self.kind not in ("calls", "answer") and self.asked >= MOST_ASKED.get(self.kind, 1)


def read_reply(
    messages: Sequence[AnyMessage],
    response_format: ResponseFormat | None,
    rules: AnswerRules = AnswerRules(),
) -> ReplyReading:
    """Read the newest reply of a conversation that ends with it, its results or a steering message.

    With a response format, a text is the answer only if it parses and validates.
    """
    without_calls = replies_without_calls(messages)
    if not without_calls:
        return ReplyReading("calls")
    reply, text = without_calls[-1], history.last_text(messages)
    cut = sum(map(history.is_cut_text, without_calls[:-1]))
    asked = sum(1 for earlier in without_calls[:-1] if earlier.text.strip()) - cut
    if history.is_cut_text(reply):
        return ReplyReading("cut", asked=cut)
    if not reply.text.strip():
        return ReplyReading("empty")
    if response_format is not None:
        try:
            bare = text.removeprefix("```json").removeprefix("```").removesuffix("```")
            made: object = json.loads(bare)
            if not odd_value(made):
                return ReplyReading("answer", validated(made, response_format))
        except (ValueError, RecursionError, ToolError):
            pass
        return ReplyReading("unstructured", asked=asked)
    return _read_text(reply, text, messages, rules, asked)


def _read_text(
    reply: AIMessage, text: str, messages: Sequence[AnyMessage], rules: AnswerRules, asked: int
) -> ReplyReading:
    """Read a whole text, which is the answer unless it calls, announces or says nothing."""
    task, worked, files = task_of(messages), has_worked(messages), rules.files
    if (
        asked
        and (mark := evidence.ANSWER_MARK.search(text))
        and (marked := text[mark.end() :].strip())
    ):
        # A model that has worked and marks its answer is believed, unless it is a small one.
        trusted = worked and not rules.strict
        empty = not trusted and names_things(task) and not says_something(marked, task)
        if (
            empty
            and not evidence.is_quoted(marked, messages, strict=rules.strict)
            and says_next_action(marked, task, whole=not worked, asked=True)
        ):
            return ReplyReading("announcement", asked=asked)
        return judge_answer(marked, text, messages, rules, asked)
    wrapped = evidence.plain_answer(text, task) != text
    if history.UNREAD_CALL_KEY in reply.additional_kwargs and not wrapped:
        return ReplyReading("unread_call", asked=asked)
    worked |= bool(files.missing) and proof.denies(text, files.missing)  # it says what came of them
    files = replace(files, missing=proof.unmade_files(text, task, files))
    announces = announces_work(text, task=task, worked=worked, files=files, asked=asked > 0)
    if announces and not evidence.is_quoted(text, messages, strict=rules.strict):
        return ReplyReading("announcement", asked=asked)
    return judge_answer(text, text, messages, rules, asked)


def judge_answer(
    said: str, text: str, messages: Sequence[AnyMessage], rules: AnswerRules, asked: int
) -> ReplyReading:
    """Return the reading of what a reply `said`, which could be the answer."""
    task, files = task_of(messages), rules.files
    quoted = evidence.is_quoted(said, messages, strict=rules.strict)
    answer = said if quoted else evidence.plain_answer(said, task)
    if not quoted and evidence.is_hollow(said, task, delivered=files.delivered):
        return ReplyReading("hollow", asked=asked)
    gives_up = rules.strict and evidence.gives_up(answer)
    for kind, what in _undone(answer, task, messages, rules):
        if what and not (kind == "unproven" and gives_up):
            return ReplyReading(kind, asked=asked, what=what)
    reading = ReplyReading("answer", answer="" if answer == text else answer, gives_up=gives_up)
    if rules.check == "off" or gives_up:
        return reading
    echoes = not quoted and evidence.is_echo(said, task, delivered=files.delivered)
    known = (task, messages, files, rules.shown, rules.observations)
    findings = [] if echoes else answer_sources.judged_claims(answer, *known)
    missing = [one.claim.text for one in findings if one.kind == "not_found"]
    lacking = 1 if echoes else len(missing)
    asks = echoes or rules.check == "ask"
    if lacking and (rules.strict or (asks and not asked)):
        what = ", ".join(dict.fromkeys(missing[:MOST_NAMED]))
        return ReplyReading("echo" if echoes else "figures", asked=asked, what=what)
    found = len(findings) - len(missing)
    claims = Claims(found=found, not_found=lacking, checked=found + lacking)
    sources = [answer_sources.source_of(one) for one in findings[:MOST_SOURCES]]
    return replace(reading, claims=claims, sources=sources)


def _undone(
    answer: str, task: str, messages: Sequence[AnyMessage], rules: AnswerRules
) -> Iterator[tuple[ReplyKind, str]]:
    """Yield what was not done and an answer may hide, with its files or calls."""
    files = rules.files
    if evidence.is_unread(task, messages, files):
        yield "unread", ", ".join(files.given)
    yield "unmade", ", ".join(proof.unmade_files(answer, task, files))
    if rules.strict:
        yield "unmade", ", ".join(proof.unchanged_files(answer, task, files))
        yield "unmade", ", ".join(files.invalid)
        # They may be meant to be elsewhere, so this is only for models that are not believed.
        yield "unmade", "" if proof.denies(answer, files.folders) else ", ".join(files.folders)
        for name in proof.emptied_files(task, files):
            yield "unproven", f"{name} has lost most of what it held"
        yield "unproven", proof.lack_of_proof(answer, task, messages, delivered=files.delivered)


def replies_without_calls(messages: Sequence[AnyMessage]) -> list[AIMessage]:
    """Return the replies at the end that are no summaries and have no calls, oldest first."""
    replies: list[AIMessage] = []
    for message in reversed(messages):
        if not isinstance(message, AIMessage) or history.SUMMARY_KEY in message.additional_kwargs:
            break
        if message.tool_calls or message.invalid_tool_calls:
            break
        replies.append(message)
    return replies[::-1]


def asked_about_ending(messages: Sequence[AnyMessage]) -> int:
    """Return how often in a row the model was asked about replies before it ended the run."""
    before = messages[: len(messages) - len(history.last_results(messages)) - 1]
    texts_before = [one for one in replies_without_calls(before) if one.text.strip()]
    return len(texts_before) + int(asked_to_end_before(messages))


def asks_again(messages: Sequence[AnyMessage]) -> bool:
    """Return True if the newest reply is the first empty one, non-answer or repetition."""
    replies = [one for one in replies_without_calls(messages) if not history.is_cut_text(one)]
    return len(replies) == 1 if replies else detect_stuck(messages).repeats == 2


def answer_beside_calls(messages: Sequence[AnyMessage], files: NamedFiles = NO_FILES) -> str:
    """Return the text next to the newest calls that can be the answer; empty if there is none.

    What the model gave the call that ends the run comes first. The text of the newest reply counts.
    An earlier one counts if it adds something to the task, and no file that the task names is
    missing.
    """
    task, worked, newest = task_of(messages), has_worked(messages), history.last_reply(messages)
    ending = {m.tool_call_id for m in history.last_results(messages) if history.ends_run(m)}
    announces = partial(announces_work, task=task, worked=worked, files=files, asked=True)
    for call in newest.tool_calls if newest else ():
        if call["id"] in ending and (given := str(call["args"].get("answer") or "").strip()):
            # A model that has worked and names it the answer is believed.
            return "" if not worked and announces(given) else given
    for message, text in history.texts(messages):
        if {history.SUMMARY_KEY, history.UNREAD_CALL_KEY} & message.additional_kwargs.keys():
            continue  # it says what was not done then
        if announces(text):
            continue
        if message is newest or (says_something(text, task) and not files.missing):
            return text
    return ""


def task_of(messages: Sequence[AnyMessage]) -> str:
    """Return what the person said to begin the run, or the text of a plan's step."""
    message = history.last_user_message(messages)
    if message is None:
        return ""
    kwargs = message.additional_kwargs
    return str(kwargs.get(history.STEP_KEY, history.task_text_of(message)))


def has_worked(messages: Sequence[AnyMessage]) -> bool:
    """Return True if a call of the run succeeded, or it was shown a picture that it is about.

    A compacted conversation has only notes of calls. A call that only ends the run does no work.
    """
    message = history.last_user_message(messages)
    given = message.additional_kwargs if message is not None else {}
    if history.NOTES_KEY in given or given.get("images"):
        return True
    return any(map(evidence.has_succeeded, history.newest_first(messages)))


@dataclass(frozen=True)
class ToolEnding:
    ending: Ending
    text: str
    structured: Any
    failed: tuple[str, ...]
    """Failed calls of the same reply, because of which the run continues."""


def tool_ending(messages: Sequence[AnyMessage]) -> ToolEnding | None:
    """Return the request of the newest results to end the run, if there is one.

    It counts only if no other call of the step failed. `terminate(failure)` always counts.
    """
    results = history.last_results(messages)
    result = next(filter(history.ends_run, results), None)
    if result is None:
        return None
    failed = tuple(other.name or "?" for other in results if other.status == "error")
    asked: dict[str, Any] = result.artifact
    ending: Ending = asked["ends_run"]
    failed = () if ending == "failure" else failed
    return ToolEnding(ending, result.text, asked.get("structured"), failed)


def asked_to_end_before(messages: Sequence[AnyMessage]) -> bool:
    """Return True if the previous step also asked to end the run, and could have."""
    before = tool_ending(messages[: len(messages) - len(history.last_results(messages)) - 1])
    return before is not None and not before.failed


def tool_outcome(ending: ToolEnding, said: str) -> dict[str, Any] | None:
    """Return the state update that ends a run as a tool requested; None if it lacks an answer.

    `said` is the answer in the text next to the calls, if there is one.
    """
    if ending.ending == "answer":
        ended = {"status": "finished", "stop_reason": "answer", "structured": ending.structured}
        return {**ended, "answer": ending.text}
    if ending.ending == "failure":
        answer = said or "The task could not be done."
        return {"status": "failed", "stop_reason": "terminate", "answer": answer}
    return {"status": "finished", "stop_reason": "terminate", "answer": said} if said else None


def failure(sentence: str) -> dict[str, Any]:
    return {"status": "failed", "stop_reason": "error", "answer": sentence}


def validated(value: Any, response_format: ResponseFormat) -> Any:
    """Return an object as plain data. A ToolError tells the model what is wrong."""
    if isinstance(response_format, dict):
        problems = schema_problems(response_format, value)
        if problems:
            raise ToolError(f"That does not fit the schema. {'; '.join(problems)}.")
        return value
    try:
        return response_format.model_validate(value).model_dump(mode="json")
    except ValidationError as error:
        details = "; ".join(validation_problems(error))
        raise ToolError(f"That does not fit the schema. {details}.") from error
