"""`think`: one model call, and what it means for the run.

`think` itself is the list of steps; the functions of each step follow it in that order.
"""

import asyncio
import datetime
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite, Send

from openmanus_graph.backends.browser.action_specs import HANDLE as BROWSER_HANDLE
from openmanus_graph.backends.desktop.requirements import HANDLE as DESKTOP_HANDLE
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.interjections import interjection_reader
from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.history import (
    HANDOVER_KEY,
    cut_by,
    has_task,
    last_user_message,
    recently_called,
)
from openmanus_graph.conversation.outcome import NO_TASK, failure
from openmanus_graph.conversation.replies import read_reply, task_of
from openmanus_graph.model_calls.budget import keeps_closing_reserve
from openmanus_graph.model_calls.call_model import LiveState, ModelCall, ReadState
from openmanus_graph.model_calls.closing_turn import close_run, is_closed
from openmanus_graph.model_calls.compaction import ModelCallResult, call_with_compaction
from openmanus_graph.model_calls.flight_recorder import (
    INSTRUCTIONS,
    SKILLS,
    awaited_fact,
    fact_of_run,
    recorded_fact,
    without_data,
)
from openmanus_graph.model_calls.surroundings import surroundings
from openmanus_graph.planning.flow import state_of_paused_run
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import find_named_files, take_baseline
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.interjections import InterjectionReader, announce
from openmanus_graph.runtime.limits import LimitReached, Progress, sleep_unless_stopped
from openmanus_graph.runtime.middleware import with_hook, with_updates
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session, lost_state, open_state
from openmanus_graph.runtime.session_registry import enter_session, running_session
from openmanus_graph.runtime.skills import copy_skills
from openmanus_graph.safety.policy import unknown_tools
from openmanus_graph.safety.untrusted_text import mark_untrusted
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput, ManusState
from openmanus_graph.state.plan import no_plans
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.chains import open_chains
from openmanus_graph.tool_calls.toolset import ResolvedTools, resolve_tools
from openmanus_graph.tools import tool_names
from openmanus_graph.tools.memory import memory, memory_prompt

if TYPE_CHECKING:
    from openmanus_graph.model_calls.model_middleware import ModelCallHooks

BROWSER, DESKTOP, READ_FILE = "browser_use", "computer_use", "read_file"
RECENT_MESSAGES = 3
"""As long as one of these used the browser or the desktop, requests carry its state."""

ManusUpdate = dict[str, Any]  # an update may hold `Overwrite`, which no TypedDict can say


@dataclass(frozen=True)
class Turn:
    """One pass of `think`: what its steps share. `begin_turn` makes it, nothing changes it."""

    agent: Agent
    session: Session
    runtime: Runtime[Context]
    emit: Emit
    started: float
    """On the monotonic clock."""
    saved: ManusState
    """As the checkpoint has it."""
    begun: ManusUpdate
    """What a new run resets; empty while a run goes on."""
    state: ManusState
    """Both together: what this step works with."""
    progress: Progress
    """How far the run had come before this agent step."""
    live_handles: frozenset[str]
    """Identities of the handles that this process has as the step begins."""
    browser_restorable: bool
    """Whether the browser has ended, and opens again with its cookies and tabs."""
    interjections: InterjectionReader
    read_before: Sequence[str]
    """Ids of the interjections that earlier requests had."""
    unread: Sequence[HumanMessage]
    """The interjections that this request has."""


async def think(
    state: ManusState, runtime: Runtime[Context], *, agent: Agent
) -> ManusUpdate | list[ManusUpdate | Command[Any]]:
    """Ask the model for the next step. A new user message begins a run and resets its counts."""
    turn = await begin_turn(state, runtime, agent)
    tools = await resolve_tools(agent, turn.session, turn.emit, refresh=True)
    if reason := tools.fatal_reason if has_task(turn.state["messages"]) else NO_TASK:
        return {**turn.begun, **failure(reason)}
    middleware = model_middleware(turn, tools)
    call = await build_call(turn, tools, middleware)
    announce(turn.unread, turn.emit)
    result = await call_with_compaction(call, turn.session, turn.emit)
    result = await close_run(call, result, turn.started, turn.session, turn.emit)
    if result.answered:
        tools.acknowledge()
    update = await apply_reply(turn, call, result)
    update |= await snapshot_before_calls(turn, tools, result)
    return update if middleware is None else with_updates(update, middleware.updates)


async def begin_turn(state: ManusState, runtime: Runtime[Context], agent: Agent) -> Turn:
    """Find the run's session, begin the run if a new user message does, and read what is new."""
    started = time.monotonic()
    session = await enter_session(runtime)
    begun = await begin_run(state, session, agent, runtime.stream_writer)
    now: ManusState = {**state, **begun}  # type: ignore[typeddict-item]  # begun's keys are the state's
    interjections = await interjection_reader(session)
    read_before = await interjections.record_read(state.get("interjections", []), begun=bool(begun))
    return Turn(
        agent=agent,
        session=session,
        runtime=runtime,
        emit=runtime.stream_writer,
        started=started,
        saved=state,
        begun=begun,
        state=now,
        progress=replayed_time(Progress.of(now)),
        live_handles=frozenset(session.identities()),
        browser_restorable=await browser_restorable(now, session),
        interjections=interjections,
        read_before=read_before,
        unread=await interjections.unread(read_before),
    )


def replayed_time(progress: Progress) -> Progress:
    """Return a run's progress; in a replay with the time that the recorded run had taken."""
    replay = current_replay()
    return progress if replay is None else replace(progress, elapsed_s=replay.elapsed_s())


async def begin_run(state: ManusState, session: Session, agent: Agent, emit: Emit) -> ManusUpdate:
    """Begin a run if a new user message does: record the workspace's files, check the policy.

    Returns:
        What the run resets in the state; empty while a run goes on.
    """
    if begun := fresh_counts(state, session.fork_id):
        begun["run_date"] = await recorded_fact(session, "date", today)
        run, anew = begun["run_message"], bool(session.fork_id)
        session.files_may_differ = bool(session.lineage.came_back)  # no call was made yet
        await asyncio.to_thread(take_baseline, session.workspace, run, anew=anew)
        rules = [rule for rule in session.settings.rules if rule.tool not in agent.tools]
        for warning in unknown_tools(rules, [*agent.tools, *tool_names()]) if rules else ():
            notice(emit, warning)
    return begun


def fresh_counts(state: ManusState, fork_id: str) -> ManusUpdate:
    """Return the fresh counts of a run that a new or edited user message begins, else nothing.

    Args:
        state: Before this agent step.
        fork_id: Names the fork that this is, if it is one.
    """
    messages = state["messages"]
    message = last_user_message(messages)
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
        **state_of_paused_run(message),
    }


def today() -> str:
    """Return the date where the run takes place."""
    return datetime.datetime.now(tz=datetime.UTC).astimezone().date().isoformat()


def model_middleware(turn: Turn, tools: ResolvedTools) -> "ModelCallHooks | None":
    """Return the `wrap_model_call` hooks around this agent step's model call; None without any."""
    hooks = with_hook(turn.agent.middleware, "wrap_model_call")
    if not hooks:
        return None
    # Only here, as it imports `langchain.agents`, a tenth of the time to start.
    from openmanus_graph.model_calls.model_middleware import ModelCallHooks

    return ModelCallHooks(hooks, tools.toolset.tools, turn.state, turn.runtime, turn.session)


async def build_call(
    turn: Turn, tools: ResolvedTools, middleware: "ModelCallHooks | None"
) -> ModelCall:
    """Return the model call of this agent step: from the state, with a suffix of its own."""
    messages = turn.state["messages"]
    return ModelCall(
        system=await system_prompt(turn, tools),
        history=[*messages, *turn.unread] if turn.unread else messages,
        request_suffix=request_suffix(turn, tools),
        tools=tools.toolset.loaded_definitions(turn.state.get("loaded_tools", ())),
        progress=turn.progress,
        step=turn.progress.steps + 1,
        traits=tools.toolset.traits,
        counts_as_step=True,
        live_state=live_state(turn.session, turn.state),
        sleep=sleep_unless_stopped,
        middleware=middleware,
        keeps_reserve=keeps_closing_reserve(turn.progress.steps),
        says_what_is_left=True,
    )


async def system_prompt(turn: Turn, tools: ResolvedTools) -> str:
    """Return the agent's system prompt with its surroundings, or the caller's own."""
    settings = turn.session.settings
    own = settings.prompts.get("system") or turn.agent.prompts.get("system")
    if own is not None:
        return f"{own}\n\n{render('text_from_outside')}"
    where = await surroundings(turn.session, turn.agent.tools, turn.state["run_date"])
    asked = last_user_message(turn.state["messages"])
    hands_over = asked is not None and asked.additional_kwargs.get(HANDOVER_KEY, False)
    ending = render("step_ending" if hands_over else turn.agent.ending)
    parts = [render(turn.agent.system_prompt, ending=ending), where]
    if memory.name in tools.toolset.tools:
        parts.append(await memory_prompt(turn.session))
    instructions = await fact_of_run(turn.session, INSTRUCTIONS, lambda: settings.instructions)
    if instructions:
        parts.append(render("project_instructions", instructions=instructions))
    if READ_FILE in turn.agent.tools:
        parts.append(await fact_of_run(turn.session, SKILLS, partial(skills_text, turn.session)))
    return "\n\n".join(filter(None, parts))


def skills_text(session: Session) -> str:
    """Put the run's skills where the model reads them, and return what it is told. Blocks."""
    skills = session.settings.skills
    if not skills:
        return ""
    return render(
        "skills",
        folder=str(copy_skills(skills, session.workspace)),
        skills="\n".join(f"- {skill.name}: {skill.description}" for skill in skills),
    )


def request_suffix(turn: Turn, tools: ResolvedTools) -> str:
    """Return what this request says at its end, and no later one."""
    prompts = turn.session.settings.prompts
    next_step = prompts.get("next_step") or turn.agent.prompts.get("next_step", "")
    known = turn.state.get("handle_state", {})
    if turn.browser_restorable:
        known = {
            name: one for name, one in known.items() if not name.startswith(f"{BROWSER_HANDLE}:")
        }
    lost = lost_state(known, turn.live_handles)
    parts = (
        next_step,
        turn.state.get("hint", ""),
        render("resumed") if is_closed(turn.state["messages"]) else "",
        render("lost_handle_state", lost_state=_listed(lost)) if lost else "",
        render("kept_browser") if turn.browser_restorable else "",
        render("server_changes", changes=_listed(tools.changes)) if tools.changes else "",
    )
    return "\n\n".join(filter(None, parts))


def _listed(items: Iterable[str]) -> str:
    """List what pages, programs and servers named."""
    return mark_untrusted("\n".join(f"- {item}" for item in items))


def live_state(session: Session, state: ManusState) -> LiveState | None:
    """Return what the browser or the desktop shows, while one is in use: the one used last."""
    messages, live = state["messages"], session.identities()
    for last in range(1, RECENT_MESSAGES + 1):
        if recently_called(messages, BROWSER, last) and _is_open(BROWSER_HANDLE, live):
            # Only here: a run that needs no browser loads nothing of it.
            from openmanus_graph.backends.browser.observation import state_for_request

            read = partial(state_for_request, session, after_observation=last == 1)
            return LiveState("The browser shows now:", _recorded_state(session, read))
        if recently_called(messages, DESKTOP, last) and _is_open(DESKTOP_HANDLE, live):
            from openmanus_graph.backends.desktop.actions import state_for_request

            read = partial(state_for_request, session, after_observation=last == 1)
            shown = _recorded_state(session, read)
            return LiveState("The screen shows now:", shown, needs_pictures=True)
    return None


def _is_open(handle: str, live: Collection[str]) -> bool:
    return any(identity.startswith(f"{handle}:") for identity in live)


def _recorded_state(session: Session, read: ReadState) -> ReadState:
    """Have what a live handle shows written into the flight record."""

    async def recorded(picture: bool) -> tuple[str, str | None]:
        text, shown = await awaited_fact(
            session, "live state", partial(read, picture), without_data
        )
        return text, shown

    return recorded


async def browser_restorable(state: ManusState, session: Session) -> bool:
    """Say whether the browser has ended, and opens again with the tabs that were kept of it."""
    states, live = state.get("handle_state", {}), session.identities()
    if not lost_state(states, live, f"{BROWSER_HANDLE}:"):
        return False
    # A thread imports it, and only here: a run that needs no browser loads nothing of it.
    kept = await asyncio.to_thread(import_module, "openmanus_graph.backends.browser.kept_state")
    return await recorded_fact(session, "kept browser", partial(kept.has_kept_tabs, session))


async def apply_reply(turn: Turn, call: ModelCall, result: ModelCallResult) -> ManusUpdate:
    """Return the state's update: what was spent, what the reply means, and what was said."""
    elapsed_s = turn.progress.elapsed_s + time.monotonic() - turn.started
    branch = turn.session.on_fork(turn.state["branch"])
    update: ManusUpdate = {
        **reset_state(turn.begun, turn.saved),
        "usage": Overwrite(result.usage) if turn.begun else result.usage,
        "elapsed_s": Overwrite(elapsed_s) if turn.begun else elapsed_s,
        "branch": branch + ("+" if result.compacted else ""),
    }
    if result.answered:  # the request has said what ended with its process
        known = turn.state.get("handle_state", {})
        still_open = open_state(known, turn.live_handles)
        update |= {"handle_state": Overwrite(still_open)} if still_open != known else {}
    update |= await outcome_of(turn, call, result)
    return update | await new_messages(turn, result, answered=update.get("stop_reason") == "answer")


def reset_state(begun: ManusUpdate, saved: ManusState) -> ManusUpdate:
    """Return what a run that begins, or goes on after its end, resets in the state.

    Args:
        begun: From `begin_run`.
        saved: As the checkpoint has it.
    """
    reset = dict(begun)
    if begun and saved.get("standing_approvals"):
        reset["standing_approvals"] = Overwrite([])
    if saved.get("status") is not None:  # it had ended, and goes on
        reset |= {"status": None, "stop_reason": None, "answer": "", "artifacts": []}
    return reset


async def new_messages(turn: Turn, result: ModelCallResult, *, answered: bool) -> ManusUpdate:
    """Return what the agent step adds to the conversation: interjections it read, and the reply.

    Args:
        turn: The agent step.
        result: Of the model call.
        answered: Whether the reply is the answer. An interjection that came while it was written
            takes it back: the person has the last word.
    """
    if result.reply is None and not result.compacted:
        return {"messages": []}  # nothing was read
    read = [*turn.read_before, *ids_of(turn.unread)]
    late = await turn.interjections.unread(read) if answered else []
    announce(late, turn.emit)
    new = [*([] if result.reply is None else [result.reply]), *late]
    compacted = result.compacted
    return {
        "messages": Overwrite([*compacted, *new]) if compacted else [*turn.unread, *new],
        "interjections": [*read, *ids_of(late)],
        **({"status": None, "stop_reason": None} if late else {}),
    }


def ids_of(messages: Sequence[AnyMessage]) -> list[str]:
    """Return the ids of messages that have one."""
    return [message.id for message in messages if message.id]


async def outcome_of(turn: Turn, call: ModelCall, result: ModelCallResult) -> ManusUpdate:
    """Return what a model call means for the run: how it ends, or that an agent step was taken."""
    if isinstance(result.ended, LimitReached):
        ended = {"status": "stopped", "stop_reason": result.ended.reason, "hint": ""}
        return {**ended, "answer": result.answer, "structured": result.structured}
    if isinstance(result.ended, ModelError):
        return failure(result.ended.sentence)
    if result.reply is None:
        return {}
    if result.reply.tool_calls:
        return {"step_count": call.step}
    said = [*(result.compacted or call.history), result.reply]
    run = turn.state["run_message"]
    look = partial(find_named_files, turn.session.workspace, run, task_of(said))
    found = await recorded_fact(turn.session, f"named files of {run}", lambda: asdict(look()))
    files = NamedFiles(**found)
    reading = read_reply(said, turn.session.settings.response_format, files)
    if reading.kind != "answer":
        return {"step_count": call.step}
    if cause := cut_by(result.reply):
        notice(turn.emit, f"The answer was cut off by {cause}.")
    return {
        "step_count": call.step,
        "status": "finished",
        "stop_reason": "answer",
        "structured": reading.structured,
        "answer": reading.answer,
    }


async def snapshot_before_calls(
    turn: Turn, tools: ResolvedTools, result: ModelCallResult
) -> ManusUpdate:
    """Take a snapshot of the files before the first calls of a run that may change some.

    After going back the state may name an older one than was restored.
    """
    calls = result.reply.tool_calls if result.reply is not None else ()
    changing = any(tools.toolset.may_change_files(call["name"]) for call in calls)
    if not changing and not turn.session.lineage.came_back:
        return {}
    return await snapshot_files(turn.session, turn.saved, turn.emit, only_first=True)


async def route_after_think(state: ManusState, *, agent: Agent) -> list[Send] | str:
    """Send each chain of calls to `act`; an outcome ends the run; the rest is looked into.

    Async, as its sister, because LangGraph runs other routers in a thread. It takes no runtime:
    there is none where a checkpoint is edited, and the agent's own tools are all that is known.
    """
    if state.get("stop_reason"):
        return "terminate"
    return await sends_of_calls(state, agent) or "stuck_check"


async def sends_of_calls(state: ManusState, agent: Agent) -> list[Send]:
    """Return a task for each chain of open calls that can begin now."""
    session = running_session()
    resolved = session and session.resolved.get(agent)
    chains = await open_chains(
        resolved.toolset.tools if resolved else agent.tools,
        state["messages"],
        state.get("approved_values", []),
        network=session is not None and session.settings.sandbox.network,
    )
    elapsed_s, plans = state.get("elapsed_s", 0.0), state.get("plans") or no_plans()
    return [
        Send(
            "act",
            ActInput(
                calls=chain,
                branch=state["branch"],
                elapsed_s=elapsed_s,
                usage=state["usage"],
                step_count=state.get("step_count", 0),
                handle_state=state.get("handle_state", {}),
                plans=plans,
                standing_approvals=state.get("standing_approvals", []),
                approved_values=state.get("approved_values", []),
            ),
        )
        for chain in chains
    ]
