"""The pure functions of `compaction`: which messages are kept, and which become a summary.

The user's messages, the answers to them, and the newest turns are kept word for word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.conversation.history import (
    BEFORE_KEY,
    COMPACT_KEY,
    ENVIRONMENT_KEY,
    NOTES_KEY,
    ORIGIN_KEY,
    TASK_KEY,
    VERIFIED_KEY,
    Environment,
    environment_of,
    is_cut_text,
    is_steering,
    last_user_message,
    task_text_of,
    with_text,
)
from openmanus_graph.conversation.stuck import KEPT_STEPS_KEY, AgentStep, KeptSteps, recent_steps
from openmanus_graph.prompts import render
from openmanus_graph.runtime.output import MARK
from openmanus_graph.safety.provenance import person_words
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.manus import Origin

MESSAGE_PIECES, MOST_PIECES = 2, 12
"""Pieces of one message, and of all: each is a paid request."""
MARK_CHARS = 60
"""Room for the words that say how much was left out."""
DIGEST_SUMMARY_SHARE = 0.6
"""The most that an earlier summary takes of a digest."""
LINE_CHARS = 200
DIGESTED_CHARS = 200_000
_TAGS_CHARS = len(mark_untrusted(""))
_TAG = re.compile(r"</?untrusted-")
_FACT = re.compile(r"\d|[/\\@=]")
"""A part of a figure, a path, an address or a value."""


@dataclass(frozen=True)
class DividedConversation:
    past: list[AnyMessage]
    """Earlier user messages, each with the answer it got."""
    task: HumanMessage
    """The user message that began the current run."""
    task_text: str
    summary: str
    old: list[AnyMessage]
    """To be summarized, including the newest results that are only kept in part."""
    environment: Environment
    """The facts about the agent's environment, of all user messages."""
    began: int
    steering: list[AnyMessage]
    """Messages of the user during the run, before the newest turns."""
    kept: list[AnyMessage]
    steps: Sequence[AgentStep]
    """The run's last steps, which `detect_stuck` compares, including old ones."""

    def with_summary(
        self, summary: str, verified: Mapping[str, Any], before: str = ""
    ) -> list[AnyMessage]:
        """Return the shortened conversation, with the values that the whole one had verified.

        `before` is the id of the checkpoint that holds the whole one.
        """
        text = render("compacted_task", task=self.task_text, summary=summary)
        extra = {**self.task.additional_kwargs, TASK_KEY: self.task_text, NOTES_KEY: summary}
        extra.pop(COMPACT_KEY, None)
        if ENVIRONMENT_KEY in extra:
            extra[ENVIRONMENT_KEY] = self.environment
        extra[VERIFIED_KEY], extra[BEFORE_KEY] = dict(verified), before
        extra[KEPT_STEPS_KEY] = KeptSteps(
            steps=[*map(list, self.steps)], messages=len(self.steering) + len(self.kept)
        )
        if (words := person_words(self.task)) != self.task_text:  # its parts are one text now
            extra.setdefault(ORIGIN_KEY, Origin(words=words, urls=[], tainted=True))
        first = HumanMessage(with_text(self.task, text), id=self.task.id, additional_kwargs=extra)
        return [*self.past, first, *self.steering, *map(_uncounted, self.kept)]


def divide(
    history: Sequence[AnyMessage], past_chars: int, kept_chars: int, newest_chars: int = 0
) -> DividedConversation:
    """Divide a conversation, with limits for earlier runs, the newest turns and the newest turn."""
    task = last_user_message(history) or HumanMessage("")
    began = next((n for n, message in enumerate(history) if message is task), 0)
    past = _past(history[:began], past_chars)
    run = history[began + 1 :]
    start, kept = last_turns(run, kept_chars, max(kept_chars, newest_chars))
    left = {id(message) for message in past}
    passed = run[:start]
    in_part = [whole for whole, one in zip(run[start:], kept, strict=False) if whole is not one]
    old = [message for message in history[:began] if id(message) not in left]
    summaries = (
        str(one.additional_kwargs.get(NOTES_KEY, "")) for one in (task, *reversed(history[:began]))
    )
    return DividedConversation(
        past=[_plain(message) for message in past],
        task=task,
        task_text=task_text_of(task),
        summary=next(filter(None, summaries), ""),  # the newest one
        old=[*old, *(message for message in passed if not is_steering(message)), *in_part],
        environment=environment_of(history[: began + 1]),
        began=began,
        steering=[message for message in passed if is_steering(message)],
        kept=kept,
        steps=recent_steps(history),
    )


def _past(messages: Sequence[AnyMessage], max_chars: int) -> list[AnyMessage]:
    """Return the newest earlier user messages that fit and, if there is room, their answers."""
    kept, oldest = set[int](), len(messages)
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, HumanMessage):
            chars = len(task_text_of(message))
            if chars > max_chars:
                break
            max_chars -= chars
            kept.add(position)
            oldest = position
    for position in _answers(messages):
        max_chars -= len(messages[position].text)
        if max_chars < 0 or position < oldest:
            break
        kept.add(position)
    return [messages[position] for position in sorted(kept)]


def _answers(messages: Sequence[AnyMessage]) -> Iterator[int]:
    """Yield the position of the last text without calls after each user message, newest first."""
    answered = False
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, HumanMessage):
            answered = False
        elif not (answered or _calls(message)) and message.type == "ai" and message.text.strip():
            answered = True
            yield position


def _plain(message: AnyMessage) -> AnyMessage:
    """Remove summary and environment from an earlier user message: the newest one has them all."""
    if not isinstance(message, HumanMessage):
        return _uncounted(message)
    if not {NOTES_KEY, ENVIRONMENT_KEY} & message.additional_kwargs.keys():
        return message
    ours = (TASK_KEY, NOTES_KEY, BEFORE_KEY, VERIFIED_KEY, KEPT_STEPS_KEY, ENVIRONMENT_KEY)
    own = {k: v for k, v in message.additional_kwargs.items() if k not in ours}
    content = with_text(message, task_text_of(message))
    return HumanMessage(content, id=message.id, additional_kwargs=own)


def last_turns(
    messages: Sequence[AnyMessage], max_chars: int, newest_chars: int
) -> tuple[int, list[AnyMessage]]:
    """Return the position and the messages of the newest whole turns that fit.

    A call is never separated from its result. The newest results, which the model has not seen, are
    shortened if necessary. A text that it is writing stays whole, however long it is.
    """
    start, chars = len(messages), 0
    while start and isinstance(piece := messages[start - 1], AIMessage) and is_cut_text(piece):
        start -= 1  # the pieces of one cut text
    for position in range(len(messages) - 1, -1, -1):
        chars += size_of(messages[position])
        if chars > max_chars:
            break
        if messages[position].type == "ai":
            start = min(start, position)
    if start < len(messages) or not messages:
        return start, list(messages[start:])
    newest = max((n for n, m in enumerate(messages) if m.type == "ai"), default=len(messages))
    turn = messages[newest:]
    results = [len(message.text) for message in turn if isinstance(message, ToolMessage)]
    free_chars = newest_chars - sum(map(size_of, turn)) + sum(results)
    if not turn or free_chars < 0:
        return start, []
    each = _fair_share(results, free_chars)
    return newest, [
        message.model_copy(update={"content": _cut_again(message.text, each)})
        if isinstance(message, ToolMessage) and len(message.text) > each
        else message
        for message in turn
    ]


def _fair_share(sizes: Sequence[int], free_chars: int) -> int:
    """Return the length to cut the longest to, so that all fit; shorter ones stay whole."""
    for number, size in enumerate(sorted(sizes)):
        each = free_chars // (len(sizes) - number)
        if size > each:
            return each
        free_chars -= size
    return max(sizes, default=0)


def size_of(message: AnyMessage) -> int:
    """Return the characters of a message, its calls included."""
    return len(message.text) + len(str(_calls(message) or ""))


def transcript(messages: Sequence[AnyMessage]) -> list[str]:
    return [line for line in map(_line, messages) if line]


def transcript_pieces(texts: Sequence[str], piece_chars: int) -> list[str]:
    """Divide a transcript as `pieces_of` does; a text that is far too long loses its middle."""
    # A little less than the pieces hold, so that the mark of what is missing stays in one piece.
    most = MESSAGE_PIECES * (piece_chars - MARK_CHARS)
    return pieces_of([cut_middle(text, most) for text in texts], piece_chars)


def pieces_of(texts: Iterable[str], piece_chars: int) -> list[str]:
    """Divide texts into at most `MOST_PIECES` pieces of about a length; the middle is left out."""
    pieces: list[str] = []
    for text in texts:
        while len(text) > piece_chars:
            pieces.append(text[:piece_chars])
            text = text[piece_chars:]
        if pieces and len(pieces[-1]) + len(text) < piece_chars:
            pieces[-1] += f"\n{text}"
        else:
            pieces.append(text)
    if len(pieces) <= MOST_PIECES:
        return pieces
    half = MOST_PIECES // 2
    left_out = sum(map(len, pieces[half:-half]))
    first, *rest = pieces[-half:]
    return [*pieces[:half], f"[... {left_out} characters left out ...]\n{first}", *rest]


def cut_middle(text: str, max_chars: int) -> str:
    """Return the text, or its head and tail with a note of how much was left out."""
    if len(text) <= max_chars:
        return text
    half = max(0, max_chars - MARK_CHARS) // 2
    tail = text[len(text) - half :]
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{tail}"


def _cut_again(text: str, max_chars: int) -> str:
    """Cut a result; its mark of where the whole of it is stays."""
    mark = next((one for one in text.splitlines() if MARK.fullmatch(one)), None)
    if mark is None or len(mark) > max_chars // 2:
        return cut_middle(text, max_chars)
    head, _, tail = text.partition(f"{mark}\n")
    half = (max_chars - len(mark) - MARK_CHARS) // 2
    head, tail = head[:half], tail[max(0, len(tail) - half) :]
    more = len(text) - len(mark) - len(head) - len(tail)
    return f"{head}\n{mark}\n[... {more} more characters around it left out ...]\n{tail}"


def cut_summary(summary: str, max_chars: int) -> str:
    """Return a summary, or its head and tail; text from outside in it stays marked as such."""
    if len(summary) <= max_chars or not _TAG.search(summary):
        return cut_middle(summary, max_chars)
    # A tag may be left out, so that the whole rest is marked again.
    return mark_untrusted(cut_middle(summary, max_chars - _TAGS_CHARS))


def digest(summary: str, texts: Sequence[str], max_chars: int) -> str:
    """Return a replacement for a summary that could not be written: the earlier one, and lines.

    Lines with a figure, a path, an address or a value are preferred, and newer ones to older ones.
    They are marked as text from outside, since the tags around them may be left out.
    """
    whole = "\n".join(filter(None, (summary, mark_untrusted("\n".join(texts)))))
    if len(whole) <= max_chars:
        return whole
    summary = cut_summary(summary, int(DIGEST_SUMMARY_SHARE * max_chars))
    free_chars = (
        max_chars - len(render("compaction_digest", summary=summary, lines="")) - _TAGS_CHARS
    )
    lines = (line for text in texts for line in cut_middle(text, DIGESTED_CHARS).splitlines())
    parts = (part for line in lines for part in _parts(line.strip()))
    shown = list(dict.fromkeys(parts))
    with_facts = [line for line in reversed(shown) if _FACT.search(line)]
    chosen = set[str]()
    for line in (*with_facts, *reversed(shown)):
        if line not in chosen and len(line) < free_chars:
            free_chars -= len(line) + 1
            chosen.add(line)
    kept = "\n".join(line for line in shown if line in chosen)
    return render("compaction_digest", summary=summary, lines=mark_untrusted(kept))


def _parts(line: str) -> list[str]:
    return [line[start : start + LINE_CHARS] for start in range(0, len(line), LINE_CHARS)]


def _line(message: AnyMessage) -> str:
    text = message.text.strip()
    if isinstance(message, HumanMessage):
        text = task_text_of(message)
    made = [f"calls {call['name']} {call['args']}" for call in _calls(message)]
    said = " ".join(filter(None, (text, *made)))
    return f"{message.type}: {said}" if said else ""


def _calls(message: AnyMessage) -> list[Any]:
    if not isinstance(message, AIMessage):
        return []
    return [*message.tool_calls, *message.invalid_tool_calls]


def _uncounted(message: AnyMessage) -> AnyMessage:
    if not isinstance(message, AIMessage):
        return message
    return message.model_copy(update={"usage_metadata": None})
