"""Making room: a conversation that nears the model's window becomes notes and its last turns.

The task itself is kept word for word. The notes are written by the model; where even that call
fails, a mechanical digest stands in, so that compaction always succeeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.events import Emit, notice
from openmanus_graph.history import last_user_message
from openmanus_graph.limits import LimitReached
from openmanus_graph.models.call_model import ModelCall, call_model, window_of
from openmanus_graph.models.failures import ModelError
from openmanus_graph.prompts import compacted_task, compaction_request, compaction_system
from openmanus_graph.sessions import Session
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.tools.toolset import Toolset

FULL_AT = 0.75
"""Share of the window at which a conversation is compacted before the next call."""
KEPT_SHARE = 0.15
"""Share of the window that the last turns may take in the new conversation."""
CHARS_PER_TOKEN = 3
"""Low on purpose: too many notes are refused, too few only cost a little."""
RESULT_CHARS = 1500
TASK_KEY, NOTES_KEY = "openmanus_task", "openmanus_notes"
"""Where a compacted user message keeps its own words, and the notes."""


@dataclass(frozen=True)
class Thought:
    """What a step's model calls brought."""

    reply: AIMessage | None
    usage: Usage
    compacted: list[AnyMessage] | None = None
    """The conversation that goes on, where it had to be shortened."""
    ended: LimitReached | ModelError | None = None
    """Why there is no reply."""


async def call_with_room(call: ModelCall, session: Session, emit: Emit) -> Thought:
    """Call the model; a conversation that is too long is compacted, before or after a refusal.

    Raises:
        ConfigError: The model's settings are wrong.
    """
    window = await window_of(session.settings)
    thought = Thought(None, no_usage())
    if not is_full(call.history, window):
        thought = await _try(call, session, emit)
        too_long = isinstance(thought.ended, ModelError) and thought.ended.kind == "context_length"
        if not too_long or len(call.history) < 2:  # a task alone cannot be shortened
            return thought
    try:
        compacted, spent = await compact(call, window, session, emit)
    except LimitReached as limit:
        return Thought(None, no_usage(), ended=limit)
    spent_already = add_usage(call.progress.usage, spent)
    shorter = replace(call, history=compacted, progress=replace(call.progress, usage=spent_already))
    thought = await _try(shorter, session, emit)
    return replace(thought, usage=add_usage(spent, thought.usage), compacted=compacted)


async def _try(call: ModelCall, session: Session, emit: Emit) -> Thought:
    try:
        return Thought(*await call_model(call, session, emit))
    except (LimitReached, ModelError) as ended:
        return Thought(None, no_usage(), ended=ended)


def tokens_of(history: Sequence[AnyMessage]) -> int:
    """Estimate a conversation: the last reported figure, and what came after it."""
    for position in range(len(history) - 1, -1, -1):
        message = history[position]
        if isinstance(message, AIMessage) and message.usage_metadata:
            later = list(history[position + 1 :])
            return message.usage_metadata["total_tokens"] + count_tokens_approximately(later)
    return count_tokens_approximately(list(history))


def is_full(history: Sequence[AnyMessage], window: int) -> bool:
    """Say whether the next request would come near the window's end, and compaction would help.

    A task that fills the window by itself is kept all the same; the model's server has the word.
    """
    limit = FULL_AT * window
    task = last_user_message(history)
    if tokens_of(history) <= limit or task is None:
        return False
    return count_tokens_approximately([task]) < limit / 2


async def compact(
    call: ModelCall, window: int, session: Session, emit: Emit
) -> tuple[list[AnyMessage], Usage]:
    """Return a short conversation to go on with, and what the notes cost.

    Raises:
        LimitReached: The run's limits forbid the call that writes the notes.
    """
    task = last_user_message(call.history) or HumanMessage("")
    words = str(task.additional_kwargs.get(TASK_KEY) or task.text)
    earlier = str(task.additional_kwargs.get(NOTES_KEY, ""))
    kept = last_turns(call.history, int(KEPT_SHARE * window) * CHARS_PER_TOKEN)
    old = call.history[: len(call.history) - len(kept)]
    since = [message for message in old if message is not task]
    shown = "\n".join(filter(None, (earlier, transcript(since, window // 2 * CHARS_PER_TOKEN))))
    request = replace(
        call,
        system=compaction_system(),
        history=[HumanMessage(compaction_request(task=words, transcript=shown))],
        steering="",
        tools=Toolset({}, None),
    )

    def notices_only(event: dict[str, object]) -> None:
        if event["type"] == "notice":
            emit(event)

    try:
        reply, usage = await call_model(request, session, notices_only)
        notes = reply.text.strip()
    except ModelError as error:
        notice(emit, f"The notes could not be written by the model: {error.sentence}")
        notes, usage = "", no_usage()
    notice(emit, f"The conversation was compacted: {len(old)} messages became notes.", "info")
    notes = notes or "\n".join(filter(None, (earlier, transcript(since, 4000))))
    text = compacted_task(task=words, notes=notes)
    extra = {**task.additional_kwargs, TASK_KEY: words, NOTES_KEY: notes}
    first = HumanMessage(text, id=task.id, additional_kwargs=extra)
    return [first, *map(_uncounted, kept)], usage


def last_turns(history: Sequence[AnyMessage], max_chars: int) -> Sequence[AnyMessage]:
    """Return the newest whole turns that fit; a call is never parted from its result."""
    start, chars = len(history), 0
    for position in range(len(history) - 1, 0, -1):
        message = history[position]
        if message.type == "human":
            break
        chars += len(message.text) + len(str(getattr(message, "tool_calls", "")))
        if chars > max_chars:
            break
        if message.type == "ai":
            start = position
    return history[start:]


def transcript(messages: Sequence[AnyMessage], max_chars: int) -> str:
    """Write messages as text, long ones cut, the middle left out if it is too much."""
    text = "\n".join(filter(None, map(_line, messages)))
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[... {len(text) - max_chars} characters left out ...]\n{text[-half:]}"


def _line(message: AnyMessage) -> str:
    text = message.text.strip()
    if len(text) > RESULT_CHARS:
        text = f"{text[: RESULT_CHARS // 2]} [...] {text[-RESULT_CHARS // 2 :]}"
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    made = [f"calls {call['name']} {str(call['args'])[:RESULT_CHARS]}" for call in calls]
    said = " ".join(filter(None, (text, *made)))
    return f"{message.type}: {said}" if said else ""


def _uncounted(message: AnyMessage) -> AnyMessage:
    """Drop the reported usage: it counted the conversation that is gone."""
    if not isinstance(message, AIMessage):
        return message
    return message.model_copy(update={"usage_metadata": None})
