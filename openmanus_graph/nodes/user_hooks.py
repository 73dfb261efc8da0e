"""The user's hooks at the start and the end of a run, and where it waits for a person.

Those around tool calls are in `tool_calls.call_hooks`.
"""

import asyncio
import json
import uuid
from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.errors import GraphInterrupt

from openmanus_graph.conversation import history
from openmanus_graph.model_calls.recorder import awaited_fact
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.hooks import NOTHING, TRANSCRIPT, HookResult, has_hooks, run_hooks
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import put_file
from openmanus_graph.state.json_values import as_object
from openmanus_graph.state.manus import Origin

BLOCKED = "[A hook of the user blocked this message.]"
_STOP_ID = "stop-hook-"
"""Begins the ids of messages by which hooks let a run continue."""


async def hooks_at_prompt(
    session: Session, messages: Sequence[AnyMessage], run: str, emit: Emit
) -> HookResult:
    """Run the hooks of a session's first message, and of each message that begins a run."""
    user = history.last_user_message(messages)
    begins = user is not None and messages[-1] is user and not session.is_nested
    if user is None or not begins or history.ENVIRONMENT_KEY in user.additional_kwargs:
        return NOTHING
    replay, fact = current_replay(), f"hooks of {run}"
    recorded = replay is not None and replay.has_fact(fact)
    if not recorded and not has_hooks(session, "SessionStart", "UserPromptSubmit"):
        return NOTHING
    await _write_transcript(session, messages)

    async def told() -> list[str]:
        began = session.cached_across_runs("SessionStart hooks", list[str])
        source = "resume" if any(isinstance(one, AIMessage) for one in messages) else "startup"
        names = () if began else (source,)
        began.append(run)
        started = await run_hooks(session, "SessionStart", {"source": source}, emit, names)
        submitted = await run_hooks(session, "UserPromptSubmit", {"prompt": user.text}, emit)
        why = (submitted.stops or submitted.reason or BLOCKED) if submitted.refuses else ""
        return [why, "\n".join(filter(None, (started.context, submitted.context)))]

    refusal, context = await awaited_fact(session, fact, told)
    return HookResult("deny" if refusal else "", refusal, context)


async def hooks_at_stop(
    session: Session, messages: Sequence[AnyMessage], emit: Emit
) -> list[HumanMessage]:
    """Run the hooks at a run's end. Return the message with which the run continues, if any."""
    if not has_hooks(session, "Stop") or session.is_nested:
        return []
    await _write_transcript(session, messages)
    again = any(str(one.id).startswith(_STOP_ID) for one in history.newest_first(messages))
    about = {"stop_hook_active": again, "last_assistant_message": history.last_text(messages)}
    result = await run_hooks(session, "Stop", about, emit)
    if result.decision != "deny" or result.stops is not None:
        return []
    message = history.steering_message(f"{_STOP_ID}{uuid.uuid4()}", result.reason)
    # What a hook writes may come from a file, and verifies nothing.
    message.additional_kwargs[history.ORIGIN_KEY] = Origin(words="", urls=[], tainted=True)
    return [message]


async def hooks_at_question(session: Session, waiting: GraphInterrupt, emit: Emit) -> None:
    """Run the hooks that tell a person that a run waits for them."""
    for asked in waiting.args[0] if waiting.args and not session.is_nested else ():
        value = as_object(asked.value)
        kind = "permission_prompt" if value.get("kind") == "approval" else "elicitation_dialog"
        question = str(value.get("question") or "The agent waits for you.")
        about = {"message": question, "notification_type": kind}
        await run_hooks(session, "Notification", about, emit, (kind,))


async def _write_transcript(session: Session, messages: Sequence[AnyMessage]) -> None:
    """Write the conversation where hooks are told that it is: a line of JSON for each message."""
    said = (("assistant" if one.type == "ai" else "user", one.text) for one in messages)
    lines = [{"type": who, "message": {"role": who, "content": text}} for who, text in said]
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    path = session.workspace.private / TRANSCRIPT
    await asyncio.to_thread(put_file, session.workspace, path, data)
