"""Reads what a reply means for its run: calls, the answer, or what is asked about. Pure."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.conversation.announcements import (
    NamedFiles,
    announces_work,
    names_things,
    says_next_action,
    says_something,
)
from openmanus_graph.conversation.history import (
    CLOSING_KEY,
    NOTES_KEY,
    STEP_KEY,
    UNREAD_CALL_KEY,
    is_cut_text,
    last_reply,
    last_text,
    last_user_message,
    newest_first,
    task_text_of,
    texts,
)
from openmanus_graph.conversation.odd_values import odd_value
from openmanus_graph.conversation.outcome import ResponseFormat, ends_run, validated
from openmanus_graph.errors import ToolError

ReplyKind = Literal[
    "calls", "answer", "cut", "empty", "announcement", "unread_call", "unstructured"
]
ANSWER_MARK = re.compile(
    r"(?:\A|\n)[^\w\n]{0,6}(?:(?:the|my|final|die|la|el|a) )*"
    r"(?:answer|antwort|réponse|respuesta|resposta|risposta"
    r"|antwoord|svar|vastaus|válasz|răspuns|odpowiedź|odpověď|cevap|yanıt|jawaban|jibu|trả lời"
    r"|ответ|відповідь|απάντηση|الإجابة|الجواب|תשובה|उत्तर|คำตอบ|答案|回答|答え|답변|답)"
    r"[^\w\n:：]{0,4}(?:[:：][^\w\n]{0,3}|\n)\s*",
    re.IGNORECASE,
)
"""The line before an answer that was asked for, as `reply_announced` wants it."""
NO_FILES = NamedFiles()
MOST_ASKED: dict[ReplyKind, int] = {
    "announcement": 1,
    "unread_call": 1,
    "unstructured": 3,
    "cut": 8,
}
"""How often in a row the model is asked about such a reply before the run fails; others count
towards being stuck."""


@dataclass(frozen=True)
class ReplyReading:
    """What the model's newest reply is."""

    kind: ReplyKind
    structured: Any = None
    """The validated object, where an answer has to be one."""
    answer: str = ""
    """The answer, where it is only a part of the reply's text."""
    asked: int = 0
    """How often in a row the model was asked about such replies before this one."""

    @property
    def failed(self) -> bool:
        """Whether the model was asked often enough."""
        return self.asked >= MOST_ASKED.get(self.kind, sys.maxsize)


def read_reply(
    messages: Sequence[AnyMessage],
    response_format: ResponseFormat | None,
    files: NamedFiles = NO_FILES,
) -> ReplyReading:
    """Read the newest reply of a conversation.

    With a response format, a text is the answer only if it parses and validates.

    Args:
        messages: The conversation, which ends with the reply, its results or an interjection.
        response_format: What the caller wants as an answer, if anything.
        files: What has become of those that the task names.
    """
    without_calls = replies_without_calls(messages)
    if not without_calls:
        return ReplyReading("calls")
    reply, text = without_calls[-1], last_text(messages)
    cut = sum(map(is_cut_text, without_calls[:-1]))
    asked = sum(1 for earlier in without_calls[:-1] if earlier.text.strip()) - cut
    if is_cut_text(reply):
        return ReplyReading("cut", asked=cut)
    if not reply.text.strip():
        return ReplyReading("empty")
    if response_format is not None:
        try:
            return ReplyReading("answer", _parsed(text, response_format))
        except (ValueError, RecursionError, ToolError):
            return ReplyReading("unstructured", asked=asked)
    return _read_text(reply, text, messages, files, asked)


def _read_text(
    reply: AIMessage, text: str, messages: Sequence[AnyMessage], files: NamedFiles, asked: int
) -> ReplyReading:
    """Read a whole text, which is the answer unless it makes or announces calls."""
    task, worked = task_of(messages), has_worked(messages)
    if asked and (mark := ANSWER_MARK.search(text)) and (marked := text[mark.end() :].strip()):
        empty = names_things(task) and not says_something(marked, task)
        if empty and says_next_action(marked, task, whole=True, asked=True):
            return ReplyReading("announcement", asked=asked)
        return ReplyReading("answer", answer=marked)
    if UNREAD_CALL_KEY in reply.additional_kwargs:
        return ReplyReading("unread_call", asked=asked)
    if announces_work(
        text, task=task, worked=worked, files=_asked_for(files, messages), asked=asked > 0
    ):
        return ReplyReading("announcement", asked=asked)
    return ReplyReading("answer")


def _asked_for(files: NamedFiles, messages: Sequence[AnyMessage]) -> NamedFiles:
    """Return the files, none of them as missing where the newest calls failed: the text says so."""
    results = next((m for m in newest_first(messages) if m.type == "tool"), None)
    failed = isinstance(results, ToolMessage) and results.status == "error"
    return replace(files, missing=()) if failed else files


def replies_without_calls(messages: Sequence[AnyMessage]) -> list[AIMessage]:
    """Return the replies without calls at the end of a conversation, oldest first.

    Those before an interjection, a result or a closing turn do not count.
    """
    replies: list[AIMessage] = []
    for message in reversed(messages):
        if not isinstance(message, AIMessage) or CLOSING_KEY in message.additional_kwargs:
            break
        if message.tool_calls or message.invalid_tool_calls:
            break
        replies.append(message)
    return replies[::-1]


def answer_beside_calls(messages: Sequence[AnyMessage], files: NamedFiles = NO_FILES) -> str:
    """Return what the model said beside its calls that can stand as the answer; else nothing.

    The text of the newest reply counts, and an earlier one that says something of its own, unless a
    file that the task names is not there.

    Args:
        messages: The conversation.
        files: What has become of those that the task names.
    """
    task, worked, newest = task_of(messages), has_worked(messages), last_reply(messages)
    for message, text in texts(messages):
        if {CLOSING_KEY, UNREAD_CALL_KEY} & message.additional_kwargs.keys():
            continue  # it says what was not done then
        if announces_work(text, task=task, worked=worked, files=files, asked=True):
            continue
        if message is newest or (says_something(text, task) and not files.missing):
            return text
    return ""


def task_of(messages: Sequence[AnyMessage]) -> str:
    """Return what the person said to begin the run; of a step of a plan its text."""
    message = last_user_message(messages)
    if message is None:
        return ""
    kwargs = message.additional_kwargs
    return str(kwargs[STEP_KEY]) if STEP_KEY in kwargs else task_text_of(message)


def has_worked(messages: Sequence[AnyMessage]) -> bool:
    """Say whether the run has called a tool, or was shown a picture that it is about.

    A compacted conversation has only notes of calls. A call that only ends the run does no work.
    """
    message = last_user_message(messages)
    given = message.additional_kwargs if message is not None else {}
    if NOTES_KEY in given or given.get("images"):
        return True
    return any(m.type == "tool" and not ends_run(m) for m in newest_first(messages))


def _parsed(text: str, response_format: ResponseFormat) -> Any:
    bare = text.removeprefix("```json").removeprefix("```").removesuffix("```")
    found: object = json.loads(bare)
    if what := odd_value(found):
        raise ValueError(f"it holds {what}")
    return validated(found, response_format)
