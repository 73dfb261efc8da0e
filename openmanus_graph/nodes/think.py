"""`think`: one model call, and what it means for the run."""

import asyncio
import datetime
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite, Send

from openmanus_graph.agent import Agent
from openmanus_graph.artifacts import take_baseline
from openmanus_graph.carried import carried_by
from openmanus_graph.chains import open_chains
from openmanus_graph.events import Emit, notice
from openmanus_graph.history import (
    has_task,
    last_user_message,
    recently_called,
)
from openmanus_graph.inbox import Inbox, announce, open_inbox
from openmanus_graph.limits import LimitReached, Progress
from openmanus_graph.lost import lost, still_held
from openmanus_graph.models.call_model import LiveState, ModelCall
from openmanus_graph.models.compaction import Thought, call_with_room
from openmanus_graph.models.failures import ModelError
from openmanus_graph.models.storable import cut_by
from openmanus_graph.outcome import NO_TASK, answers, failure
from openmanus_graph.policy import unknown_tools
from openmanus_graph.prompts import lost_hint, servers_news
from openmanus_graph.registry import enter_session, running_session
from openmanus_graph.sessions import Session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput, ManusState
from openmanus_graph.state.plan import no_plans
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.tools import tool_names
from openmanus_graph.tools.offered import offered_tools
from openmanus_graph.tools.stopping import pause

BROWSER, BROWSER_HANDLE = "browser_use", "browser"
RECENT_MESSAGES = 3
"""As long as one of these used the browser, requests carry its state."""

ManusUpdate = dict[str, Any]  # an update may hold `Overwrite`, which no TypedDict can say


async def think(state: ManusState, runtime: Runtime[Context], *, agent: Agent) -> ManusUpdate:
    """Ask the model for the next step. A new user message begins a run and resets its counts."""
    started = time.monotonic()
    session = await enter_session(runtime)
    begun = begin_run(state, session.line)
    if begun:
        run, fork = begun["run_message"], bool(session.line)
        await asyncio.to_thread(take_baseline, session.workspace, run, anew=fork)
        for warning in odd_rules(agent, session):
            notice(runtime.stream_writer, warning)
    now: ManusState = {**state, **begun}  # type: ignore[typeddict-item]  # begun's keys are the state's
    inbox = await open_inbox(session)
    known = await inbox.known(state.get("remarks", []), begun=bool(begun))
    told = await inbox.unread(known)
    progress = Progress.of(now)
    offered = await offered_tools(agent, session, runtime.stream_writer, new_step=True)
    hopeless = offered.gone if has_task(now["messages"]) else NO_TASK
    if hopeless:
        return {**begun, **failure(hopeless)}
    held = now.get("held", {})
    live = session.identities()
    gone = lost(held, live)
    call = ModelCall(
        system=system_prompt(agent, session, now),
        history=[*now["messages"], *told] if told else now["messages"],
        steering=steering(agent, session, now, gone, offered.news),
        tools=offered.toolset,
        progress=progress,
        step=progress.steps + 1,
        counted=True,
        live=live_state(session, now),
        pause=pause,
    )
    announce(told, runtime.stream_writer)
    thought = await call_with_room(call, session, runtime.stream_writer)
    elapsed_s = progress.elapsed_s + time.monotonic() - started
    update: ManusUpdate = {
        **begun,
        "usage": Overwrite(thought.usage) if begun else thought.usage,
        "elapsed_s": Overwrite(elapsed_s) if begun else elapsed_s,
        "branch": session.on_line(now["branch"]) + ("+" if thought.compacted else ""),
    }
    if begun and state.get("granted"):
        update["granted"] = Overwrite([])
    if thought.reply is not None:
        offered.told()
        if held != still_held(held, live):
            update["held"] = Overwrite(still_held(held, live))
    if state.get("status") is not None:  # a run that had ended goes on
        update |= {"status": None, "stop_reason": None, "answer": "", "artifacts": []}
    update |= outcome_of(thought, call, session, runtime.stream_writer)
    return update | await said_in(thought, told, known, inbox, update, runtime.stream_writer)


async def said_in(
    thought: Thought,
    told: Sequence[HumanMessage],
    known: Sequence[str],
    inbox: Inbox,
    update: ManusUpdate,
    emit: Emit,
) -> ManusUpdate:
    """Return what a step adds to the conversation: remarks that were read, and the reply.

    Args:
        thought: What the model calls brought.
        told: The remarks that the request had.
        known: Ids of those read before.
        inbox: May hold more by now.
        update: What the step means for the run. A remark that came while the answer was written
            takes it back: the person has not had the last word.
        emit: Takes the events.
    """
    if thought.reply is None and not thought.compacted:
        return {"messages": []}  # nothing was read
    answered = update.get("stop_reason") == "answer"
    late = await inbox.unread([*known, *ids_of(told)]) if answered else []
    announce(late, emit)
    said = [*([] if thought.reply is None else [thought.reply]), *late]
    whole = thought.compacted
    return {
        "messages": Overwrite([*whole, *said]) if whole else [*told, *said],
        "remarks": [*known, *ids_of(told), *ids_of(late)],
        **({"status": None, "stop_reason": None} if late else {}),
    }


def ids_of(messages: Sequence[AnyMessage]) -> list[str]:
    """Return the ids of messages that have one."""
    return [message.id for message in messages if message.id]


def outcome_of(thought: Thought, call: ModelCall, session: Session, emit: Emit) -> ManusUpdate:
    """Return what a model call means for the run: how it ends, or that a step was taken."""
    if isinstance(thought.ended, LimitReached):
        emit({"type": "limit", "reason": thought.ended.reason})
        return {"status": "stopped", "stop_reason": thought.ended.reason}
    if isinstance(thought.ended, ModelError):
        return failure(thought.ended.sentence)
    if thought.reply is None:
        return {}
    ends, structured = answers(thought.reply, session.settings.response_format)
    if not ends:
        return {"step_count": call.step}
    if cause := cut_by(thought.reply):
        notice(emit, f"The answer was cut off by {cause}.")
    return {
        "step_count": call.step,
        "status": "finished",
        "stop_reason": "answer",
        "structured": structured,
    }


def begin_run(state: ManusState, line: str) -> ManusUpdate:
    """Return the fresh counts of a run that a new or edited user message begins, else nothing.

    Args:
        state: Before this step.
        line: Names the fork that this is, if it is one.
    """
    messages = state["messages"]
    message = last_user_message(messages)
    message_id = (message.id if message else None) or "start"
    turned = line not in state.get("branch", "")
    edited = turned and message is not None and messages[-1] is message
    if state.get("run_message") == message_id and not edited:
        return {}
    return {
        "run_message": message_id,
        "branch": message_id,
        "run_date": datetime.datetime.now(tz=datetime.UTC).astimezone().date().isoformat(),
        "step_count": 0,
        "elapsed_s": 0.0,
        "usage": no_usage(),
        "hint": "",
        "structured": None,
        **carried_by(message),
    }


def odd_rules(agent: Agent, session: Session) -> Iterator[str]:
    """Yield what is odd about the policy's rules, as far as the tools tell."""
    rules = [rule for rule in session.settings.rules if rule.tool not in agent.tools]
    if rules:
        yield from unknown_tools(rules, [*agent.tools, *tool_names()])


def system_prompt(agent: Agent, session: Session, state: ManusState) -> str:
    """Render the agent's system prompt, or the caller's own."""
    settings = session.settings
    own = settings.prompts.get("system") or agent.prompts.get("system")
    if own is not None:
        return own
    return agent.system_prompt(
        workspace=str(settings.workspace),
        date=state["run_date"],
        instructions=settings.instructions,
    )


def steering(
    agent: Agent,
    session: Session,
    state: ManusState,
    gone: list[str],
    news: Sequence[str] = (),
) -> str:
    """Return what this request says at its end, and no later one.

    Args:
        agent: May have a next-step prompt.
        session: May have another one.
        state: May hold a hint.
        gone: What was lost with the processes of tools.
        news: Of MCP servers.
    """
    next_step = session.settings.prompts.get("next_step") or agent.prompts.get("next_step", "")
    told = lost_hint(gone) if gone else ""
    servers = servers_news(news) if news else ""
    return "\n\n".join(filter(None, (next_step, state.get("hint", ""), told, servers)))


def live_state(session: Session, state: ManusState) -> LiveState | None:
    """Return who tells what the browser shows now, while it is in use."""
    recent = recently_called(state["messages"], BROWSER, RECENT_MESSAGES)
    if not recent or session.find(BROWSER_HANDLE) is None:
        return None
    from openmanus_graph.browser.steering import state_for_request

    return partial(state_for_request, session)


async def route_after_think(state: ManusState, *, agent: Agent) -> list[Send] | str:
    """Send each chain of calls to `act`; an outcome ends the run; the rest is looked into.

    Async, as its sister, because LangGraph runs other routers in a thread. It takes no runtime:
    there is none where a checkpoint is edited, and the agent's own tools are all that is known.
    """
    if state.get("stop_reason"):
        return "terminate"
    session = running_session()
    offered = session and session.offered.get(agent)
    chains = await open_chains(offered.toolset.tools if offered else agent.tools, state["messages"])
    if not chains:
        return "stuck_check"
    elapsed_s, plans = state.get("elapsed_s", 0.0), state.get("plans") or no_plans()
    return [
        Send(
            "act",
            ActInput(
                calls=chain,
                branch=state["branch"],
                elapsed_s=elapsed_s,
                usage=state["usage"],
                held=state.get("held", {}),
                plans=plans,
                granted=state.get("granted", []),
            ),
        )
        for chain in chains
    ]
