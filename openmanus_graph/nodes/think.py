"""`think`: one model call, and what it means for the run.

`think` is the list of steps; the functions of each step follow it in that order. `think_request`
builds the request.
"""

import asyncio
import datetime
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, cast

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite, Send

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.steering import announce, steering_reader
from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation import history, replies
from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.replies import NO_TASK, failure
from openmanus_graph.model_calls.call_model import ModelCall
from openmanus_graph.model_calls.compaction import ModelCallResult, call_with_compaction, close_run
from openmanus_graph.model_calls.recorder import recorded_fact
from openmanus_graph.model_calls.run_models import asks_small_model
from openmanus_graph.nodes.think_request import (
    AgentStep,
    ManusUpdate,
    browser_restorable,
    build_call,
    with_new_environment,
)
from openmanus_graph.nodes.user_hooks import BLOCKED, hooks_at_prompt, hooks_at_stop
from openmanus_graph.runtime import artifacts, limits, replaying, session_registry
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.middleware import with_hook, with_updates
from openmanus_graph.runtime.observations import observations_of
from openmanus_graph.runtime.session import Session, open_state
from openmanus_graph.safety.policy import unknown_tools
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput, ManusState, no_claims, no_usage
from openmanus_graph.tool_calls.agent import Agent, ResolvedTools, resolve_tools
from openmanus_graph.tool_calls.declaration import flow_traits
from openmanus_graph.tool_calls.questions import believed
from openmanus_graph.tool_calls.sequential_groups import open_groups
from openmanus_graph.tools import tool_names


async def think(
    state: ManusState, runtime: Runtime[Context], *, agent: Agent
) -> ManusUpdate | list[ManusUpdate | Command[Any]]:
    """Ask the model for the next step. A new user message begins a run and resets its counts."""
    step = await begin_step(state, runtime, agent)
    await asks_small_model(step.session, step.progress.steps + 1)
    tools = await resolve_tools(agent, step.session, step.emit, refresh=True)
    if reason := tools.fatal_reason if history.has_task(step.state["messages"]) else NO_TASK:
        return {**step.begun, **failure(reason)}
    run = step.state["run_message"]
    hooked = await hooks_at_prompt(step.session, step.state["messages"], run, step.emit)
    if hooked.refuses:
        blocked = step.state["messages"][-1].model_copy(update={"content": BLOCKED})
        return {**step.begun, **failure(hooked.reason), "messages": [blocked]}
    step = await with_new_environment(step, tools, hooked.context)
    middleware = None
    if hooks := with_hook(agent.middleware, "wrap_model_call"):
        # Only here, as it imports `langchain.agents`, a tenth of the time to start.
        from openmanus_graph.model_calls.model_middleware import ModelCallHooks

        offered = tools.toolset.tools
        middleware = ModelCallHooks(hooks, offered, step.state, runtime, step.session)
    call = await build_call(step, tools, middleware)
    announce(step.unread, step.emit)
    result = await call_with_compaction(call, step.session, step.emit)
    result = await close_run(call, result, step.started, step.session, step.emit)
    if result.answered:
        tools.acknowledge()
    update = await apply_reply(step, call, result)
    update |= await snapshot_before_calls(step, tools, result)
    return update if middleware is None else with_updates(update, middleware.updates)


async def begin_step(state: ManusState, runtime: Runtime[Context], agent: Agent) -> AgentStep:
    """Enter the session, begin a run if there is a new user message, and read steering messages."""
    started = time.monotonic()
    session = await session_registry.enter_session(runtime)
    begun = await begin_run(state, session, agent, runtime.stream_writer)
    now: ManusState = {**state, **begun}  # type: ignore[typeddict-item]  # begun's keys are the state's
    steering = await steering_reader(session)
    read_before = await steering.record_read(state.get("steering", []), begun=bool(begun))
    progress = limits.Progress.of(now)
    if (replay := replaying.current_replay()) is not None:  # the time of the recorded run counts
        progress = replace(progress, elapsed_s=replay.elapsed_s())
    return AgentStep(
        agent=agent,
        session=session,
        runtime=runtime,
        emit=runtime.stream_writer,
        started=started,
        saved=state,
        begun=begun,
        state=now,
        progress=progress,
        live_handles=frozenset(session.identities()),
        browser_restorable=await browser_restorable(now, session),
        steering=steering,
        read_before=read_before,
        unread=await steering.unread(read_before),
    )


async def begin_run(state: ManusState, session: Session, agent: Agent, emit: Emit) -> ManusUpdate:
    """Begin a run if a new user message does: record the workspace's files, check the policy.

    Returns:
        What the run resets in the state; empty if the run has begun before.
    """
    if begun := fresh_counts(state, session.fork_id):
        begun["run_date"] = await recorded_fact(session, "date", today)
        session.files_may_differ = bool(session.lineage.came_back)  # no call was made yet
        run, fresh = begun["run_message"], bool(session.fork_id)
        await asyncio.to_thread(artifacts.take_baseline, session.workspace, run, fresh=fresh)
        rules = [rule for rule in session.settings.rules if rule.tool not in agent.tools]
        for warning in unknown_tools(rules, [*agent.tools, *tool_names()]) if rules else ():
            notice(emit, warning)
    return begun


def fresh_counts(state: ManusState, fork_id: str) -> ManusUpdate:
    """Return the fresh counts of a run that a new or edited user message begins, else nothing."""
    messages = state["messages"]
    message = history.last_user_message(messages)
    message_id = (message.id if message else None) or "start"
    new_fork = fork_id not in state.get("branch", "")
    edited = new_fork and message is not None and messages[-1] is message
    if state.get("run_message") == message_id and not edited:
        return {}
    return {
        "run_message": message_id,
        "branch": message_id,
        "step_count": 0,
        "elapsed_s": 0.0,
        "usage": no_usage(),
        "hint": "",
        "structured": None,
        **history.resumed_state(message),
    }


def today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).astimezone().date().isoformat()


async def apply_reply(step: AgentStep, call: ModelCall, result: ModelCallResult) -> ManusUpdate:
    """Return the state's update: what was spent, what the reply means, and the new messages."""
    elapsed_s = step.progress.elapsed_s + time.monotonic() - step.started
    branch = step.session.on_fork(step.state["branch"])
    update: ManusUpdate = {
        **reset_state(step.begun, step.saved),
        "usage": Overwrite(result.usage) if step.begun else result.usage,
        "elapsed_s": Overwrite(elapsed_s) if step.begun else elapsed_s,
        "branch": branch + ("+" if result.compacted else ""),
    }
    if result.answered:  # the request has named what ended with its process
        known = step.state.get("handle_state", {})
        still_open = open_state(known, step.live_handles)
        update |= {"handle_state": Overwrite(still_open)} if still_open != known else {}
    update |= await outcome_of(step, call, result)
    return update | await new_messages(step, result, answered=update.get("stop_reason") == "answer")


def reset_state(begun: ManusUpdate, saved: ManusState) -> ManusUpdate:
    """Return the state's fields to reset when a run begins, or resumes after its end."""
    reset = dict(begun)
    if saved.get("status") is not None:  # it had ended
        reset |= {"status": None, "stop_reason": None, "answer": "", "artifacts": []}
        reset |= {"claims": no_claims(), "sources": []}
    return reset


async def new_messages(step: AgentStep, result: ModelCallResult, *, answered: bool) -> ManusUpdate:
    """Return what the agent step adds to the conversation: steering messages and the reply.

    A user message with a changed environment replaces the old one. If a steering message arrives
    while an answer is written, the run continues, so that the message is read.
    """
    if result.reply is None and not result.compacted:
        return {"messages": [*step.reported]}  # nothing was read
    late = await step.steering.unread([*step.read_before, *_ids(step.unread)]) if answered else []
    announce(late, step.emit)
    if answered and not late and result.reply is not None:
        said = [*step.state["messages"], result.reply]
        late = await hooks_at_stop(step.session, said, step.emit)
    new = [*([] if result.reply is None else [result.reply]), *late]
    compacted = result.compacted
    return {
        "messages": (
            Overwrite([*compacted, *new]) if compacted else [*step.reported, *step.unread, *new]
        ),
        "steering": [*step.read_before, *_ids([*step.unread, *late])],
        **({"status": None, "stop_reason": None} if late else {}),
    }


def _ids(messages: Sequence[AnyMessage]) -> list[str]:
    return [message.id for message in messages if message.id]


async def outcome_of(step: AgentStep, call: ModelCall, result: ModelCallResult) -> ManusUpdate:
    """Return the update for a model call's outcome: the end of the run, or one more agent step."""
    if isinstance(result.ended, limits.LimitReached):
        ended = {"status": "stopped", "stop_reason": result.ended.reason, "hint": ""}
        return {**ended, "answer": result.answer, "structured": result.structured}
    if isinstance(result.ended, ModelError):
        return failure(result.ended.sentence)
    if result.reply is None:
        return {}
    if result.reply.tool_calls:
        return {"step_count": call.step}
    said = [*(result.compacted or call.history), result.reply]
    run = step.state["run_message"]
    workspace, settings = step.session.workspace, step.session.settings
    given = workspace, run, replies.task_of(said), result.reply.text
    look = partial(artifacts.find_named_files, *given)
    found = await recorded_fact(step.session, f"named files of {run}", lambda: asdict(look()))
    small = await asks_small_model(step.session)
    seen = await observations_of(said, workspace, get_config())
    rules = replies.answer_rules(settings, NamedFiles(**found), seen, small=small)
    reading = await asyncio.to_thread(replies.read_reply, said, settings.response_format, rules)
    if reading.kind != "answer":
        return {"step_count": call.step}
    if cause := history.cut_by(result.reply):
        notice(step.emit, f"The answer was cut off by {cause}.")
    return {
        "step_count": call.step,
        "status": "failed" if reading.gives_up else "finished",
        "stop_reason": "terminate" if reading.gives_up else "answer",
        "structured": reading.structured,
        "answer": reading.answer,
        "claims": reading.claims,
        "sources": [*reading.sources],
    }


async def snapshot_before_calls(
    step: AgentStep, tools: ResolvedTools, result: ModelCallResult
) -> ManusUpdate:
    """Take a snapshot of the files before the first calls of a run that may change some.

    After going back, and in a fork, the state may name an older snapshot than the files are of.
    """
    calls = result.reply.tool_calls if result.reply is not None else ()
    changing = any(tools.toolset.may_change_files(call["name"]) for call in calls)
    lineage, named = step.session.lineage, step.saved.get("workspace_snapshot", "")
    if not changing and not lineage.came_back and lineage.snapshot in ("", named):
        return {}
    return await snapshot_files(step.session, step.saved, step.emit, only_first=True)


async def route_after_think(
    state: ManusState, config: RunnableConfig, *, agent: Agent
) -> list[Send] | str:
    """Send each sequential group of calls to `act`; an outcome ends the run.

    It takes no runtime: there is none when a checkpoint is edited. Then only the agent's own tools
    are known.
    """
    if state.get("stop_reason"):
        return "terminate"
    return await sends_of_calls(state, config, agent) or "stuck_check"


async def route_after_reply(state: ManusState) -> Literal["replied", "stuck_check", "terminate"]:
    """Show a new reply to the hooks. Without one the run has ended, or is to be stopped."""
    said = (one for one in reversed(state["messages"]) if not history.is_steering(one))
    newest, ended = next(said, None), state.get("stop_reason")
    if newest is not None and newest.type == "ai" and ended in (None, "answer"):
        return "replied"
    return "terminate" if ended else "stuck_check"


async def sends_of_calls(state: ManusState, config: RunnableConfig, agent: Agent) -> list[Send]:
    """Return a task for each sequential group of open calls that can begin now."""
    session = session_registry.running_session(config)
    resolved = session and session.resolved.get(agent)
    toolset = resolved.toolset if resolved else None
    groups = await open_groups(
        toolset.tools if toolset else agent.tools,
        toolset.traits if toolset else flow_traits(agent.tools),
        state["messages"],
        await believed(config, "value", state.get("approved_values", [])),
        network=session is not None and session.settings.sandbox.network != "off",
        tainted=toolset is not None and toolset.untrusted_prompt,
    )
    copied = {key: value for key, value in state.items() if key in ActInput.__annotations__}
    return [Send("act", cast("ActInput", {**copied, "calls": group})) for group in groups]


async def begin(
    state: ManusState, runtime: Runtime[Context], *, agent: Agent, first_node: str, loop_entry: str
) -> Command[Any]:
    """Reset the counts as `think` does, so that the hooks before it see a run that has begun.

    A node of graphs with hooks of middlewares before the first `think`. It goes to `first_node`
    when a run begins, to `loop_entry` when one resumes.
    """
    session = await session_registry.enter_session(runtime)
    begun = await begin_run(state, session, agent, runtime.stream_writer)
    update: dict[str, Any] = reset_state(begun, state)
    if begun:
        steering = await steering_reader(session)
        await steering.record_read(state.get("steering", []), begun=True)
        update |= {
            "steering": [],
            "usage": Overwrite(begun["usage"]),
            "elapsed_s": Overwrite(begun["elapsed_s"]),
            "branch": session.on_fork(begun["branch"]),
        }
    return Command(update=update, goto=first_node if begun else loop_entry)
