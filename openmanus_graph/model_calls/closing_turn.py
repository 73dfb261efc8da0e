"""The closing turn: at a limit the model is asked once more, for what is done and what is not.

Its request is the one that the limit forbade, with the same system prompt, tools and messages:
providers refuse a history with calls and no tools, and have its beginning in their cache.
"""

import time
from dataclasses import replace

from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.history import CLOSING_KEY
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, LimitReason, RunStopping, limit_name
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.reducers import Usage, no_usage


async def closing_turn(
    call: ModelCall, session: Session, emit: Emit, reason: LimitReason, started: float
) -> tuple[AIMessage | None, Usage]:
    """Return what the model says at the end, and what that cost; None if there is no room for it.

    Calls in its reply are dropped: nothing of them is run.

    Args:
        call: The one that the limit forbade.
        session: Of the run.
        emit: Takes the events.
        reason: The limit.
        started: When the agent step began, on the monotonic clock.
    """
    if call.closing_room != "keep" or not call.progress.steps:
        return None, no_usage()
    limit, _ = limit_name(reason, session.settings, call.progress.usage)
    elapsed_s = call.progress.elapsed_s + time.monotonic() - started
    closing = replace(
        call,
        request_suffix=render("closing_turn", limit=limit),
        progress=replace(call.progress, elapsed_s=elapsed_s),
        counts_as_step=False,
        closing_room="use",
    )
    try:
        reply, usage = await call_model(closing, session, emit)
    except LimitReached as limit_reached:
        return None, limit_reached.spent
    except RunStopping:
        return None, no_usage()
    except (GraphBubbleUp, ConfigError):
        raise
    except Exception as error:  # noqa: BLE001  # the run has stopped at its limit, whatever this is
        notice(emit, f"The model could not be asked for a last word: {error}")
        return None, error.spent if isinstance(error, ModelError) else no_usage()
    text = reply.text.strip()
    if not text:
        return None, usage
    return (
        AIMessage(
            text,
            id=reply.id,
            additional_kwargs={CLOSING_KEY: True},
            usage_metadata=reply.usage_metadata,
            response_metadata=reply.response_metadata,
        ),
        usage,
    )
