"""The final summary: at a limit the model is asked once more, for what is done and what is not.

Its request is the one that the limit forbade, with the same system prompt, tools and messages:
providers refuse a history with calls and no tools, and have its beginning in their cache.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.errors import GraphBubbleUp

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.evidence import is_echo
from openmanus_graph.conversation.history import (
    SUMMARY_KEY,
    UNREAD_CALL_KEY,
    cut_by,
    is_steering,
    last_text,
)
from openmanus_graph.conversation.replies import read_reply, task_of
from openmanus_graph.conversation.text_calls import read_text_calls
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.compaction import ModelCallResult
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import Limit, LimitReached, RunStopping
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.manus import Usage, add_usage, no_usage

CUT_MARK = "\n\n[This text was cut off by {cause}.]"


async def close_run(
    call: ModelCall, result: ModelCallResult, started: float, session: Session, emit: Emit
) -> ModelCallResult:
    """Return the result of a run's last agent step, with the run's answer.

    It is the text of the final summary. Without one it is what the model said last, and which limit
    ended the run.

    Args:
        call: The agent step's.
        result: Of that call; holds the limit, if one forbade it.
        started: When the agent step began, on the monotonic clock.
    """
    if not isinstance(result.ended, LimitReached):
        return result
    limit = result.ended.limit
    emit(limit.event())
    progress = replace(
        call.progress,
        usage=add_usage(call.progress.usage, result.usage),
        elapsed_s=call.progress.elapsed_s + time.monotonic() - started,
    )
    call = replace(call, history=result.compacted or call.history, progress=progress)
    reply, structured = None, None
    if call.keeps_reserve and not is_closed(call.history):
        raw, usage = await _ask(call, limit, session, emit)
        result = replace(result, usage=add_usage(result.usage, usage))
        if raw is not None:
            reply, structured = _read(raw, call, session)
    if reply is None:
        answer = "\n\n".join(filter(None, (last_text(call.history), limit.text())))
        return replace(result, answer=answer)
    return replace(result, reply=reply, answer=reply.text, structured=structured)


def is_closed(messages: Sequence[AnyMessage]) -> bool:
    """Return True if a conversation ends with a final summary, of the part before a limit."""
    newest = next((one for one in reversed(messages) if not is_steering(one)), None)
    return newest is not None and SUMMARY_KEY in newest.additional_kwargs


async def _ask(
    call: ModelCall, limit: Limit, session: Session, emit: Emit
) -> tuple[AIMessage | None, Usage]:
    """Return the model's reply and its cost; None if there is no room for it, or it failed."""
    summary = replace(
        call,
        reminder=render("final_summary", limit=limit.words()),
        counts_as_step=False,
        says_what_is_left=False,
        keeps_reserve=False,
        only_answer=True,
    )
    try:
        return await call_model(summary, session, emit)
    except LimitReached as limit_reached:
        return None, limit_reached.spent
    except RunStopping:
        return None, no_usage()
    except (GraphBubbleUp, ConfigError):
        raise
    except Exception as error:  # noqa: BLE001  # the run has stopped at its limit, whatever this is
        notice(emit, f"The model could not be asked for a final summary: {error}")
        return None, error.spent if isinstance(error, ModelError) else no_usage()


def _read(raw: AIMessage, call: ModelCall, session: Session) -> tuple[AIMessage | None, Any]:
    """Return a final summary as a reply without calls, and the object in it that is requested."""
    text, metadata = raw.text.strip(), raw.response_metadata
    said = AIMessage(text, response_metadata=metadata)
    structured = read_reply([said], session.settings.response_format).structured
    if structured is None and (found := read_text_calls(text, call.tools)):
        text = found[0]
    unread = structured is None and UNREAD_CALL_KEY in raw.additional_kwargs
    if not text or unread or is_echo(text, task_of(call.history), delivered=True):
        return None, None
    if cause := cut_by(raw):
        text += CUT_MARK.format(cause=cause)
    reply = AIMessage(
        text,
        id=raw.id,
        additional_kwargs={SUMMARY_KEY: True},
        usage_metadata=raw.usage_metadata,
        response_metadata=metadata,
    )
    return reply, structured
