"""`delegate`: another agent does a part of the work, as a graph inside the call's task."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolRuntime
from pydantic import WithJsonSchema

from openmanus_graph.conversation import history
from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.answer_sources import judged_claims, source_of, supported
from openmanus_graph.conversation.replies import tool_ending
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.model_calls import budget
from openmanus_graph.planning import executor_run
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import changed_files, take_baseline
from openmanus_graph.runtime.limits import recursion_limit
from openmanus_graph.runtime.session import WORKER_SEPARATOR, Session
from openmanus_graph.runtime.session_registry import WORKER_KEY, close_session
from openmanus_graph.runtime.tool_runtime import CallRuntime, Subagents, call_runtime
from openmanus_graph.runtime.workspace import find
from openmanus_graph.safety.provenance import origin_in, seen_links
from openmanus_graph.safety.value_labels import handed_on, openings_since
from openmanus_graph.state.tool_traits import Effects, InformationFlow, Limits, Observation
from openmanus_graph.tool_calls.declaration import manus_tool
from openmanus_graph.tools import web_traits

MAX_DEPTH = 2
"""Levels of subagents below the agent that a person runs."""
DEPTH_KEY = "openmanus_helper_depth"
"""Metadata of a subagent's run: its level."""
NAME_CHARS = 4
"""Characters of the call's key in the subagent's name; enough to be unique within a run."""
LAST_CALLS, CALL_CHARS = 5, 200
"""The calls that are listed of a subagent that did not finish, and the characters of each."""
_LONGEST_S = 7 * 24 * 3600.0
"""The subagent's own limits, `step_timeout_s` and the run's, end it long before."""


@manus_tool(
    effect="workspace",
    timeout_s=_LONGEST_S,
    untrusted=True,
    reads_files=True,
    effects=Effects(runs_agent=True),
    flow=InformationFlow(composed=True),
    limits=Limits(stops_itself=True),
)
async def delegate(  # the model is not shown `runtime`
    agent: str,
    task: str,
    runtime: ToolRuntime[Any, Any],
    files: Annotated[
        list[str] | None, WithJsonSchema({"type": "array", "items": {"type": "string"}})
    ] = None,
) -> Observation:
    """Have a subagent do a large, independent part of the work. Several in one reply run at once.

    Args:
        agent: manus (general), browser, swe (software), data_analysis, or another that there is.
        task: All that it must know, and what to hand over: it sees nothing of this conversation.
        files: Paths that it needs; it works in the same folder.
    """
    call = call_runtime(runtime)
    subagents = call.subagents
    if subagents is None:
        raise TrustedToolError("There are no agents to delegate to here. Do the work yourself.")
    depth = int((subagents.config.get("metadata") or {}).get(DEPTH_KEY, 0))
    if depth >= MAX_DEPTH:
        raise TrustedToolError(
            "The subagent of a subagent cannot delegate further. Do the work yourself."
        )
    session = call.session
    executor = await _executor(session, subagents, agent)
    exist = [await asyncio.to_thread(find, session.workspace, path) for path in files or []]
    if missing := [path for path, found in zip(files or [], exist, strict=True) if found is None]:
        raise ToolError(f"Nothing was delegated: there is no {', '.join(missing)}. Correct files.")
    message = task_message(
        call,
        task,
        files or [],
        runtime.state.get("messages", []),
        tainted=call.untrusted_prompt,
    )
    name = f"{agent}-{call.key[:NAME_CHARS]}"
    places = session.cached(
        (delegate.name, "places"), lambda: asyncio.Semaphore(session.settings.max_parallel_steps)
    )
    metadata: dict[str, Any] = {
        **executor_run.metadata_inside(subagents.config, name, name),
        DEPTH_KEY: depth + 1,
    }
    # The limit of LangChain, in which the tool runs, would end it after 25 supersteps.
    config: RunnableConfig = {"recursion_limit": recursion_limit(executor), **subagents.config}
    config["metadata"] = {**config.get("metadata", {}), **metadata}
    run = executor_run.ExecutorRun(
        executor,
        [message],
        subagent_limits(call),
        session,
        outer_context=runtime.context,
        config=config,
    )
    event = {
        "id": name,
        "call_id": runtime.tool_call_id or "",
        "executor": agent,
        "namespace": subagents.config.get("configurable", {}).get("checkpoint_ns", ""),
    }
    async with places:
        return await _observed(run, message, call, metadata[WORKER_KEY], event)


async def _observed(
    run: executor_run.ExecutorRun,
    message: HumanMessage,
    call: CallRuntime,
    worker: str,
    event: dict[str, str],
) -> Observation:
    """Run a subagent, and return its result with the files it made. `event` names it."""
    session, started, origin = call.session, time.monotonic(), origin_in(message)
    subagents = cast("Subagents", call.subagents)
    call.emit({"type": "step_start", "status": "in_progress", **event})
    await asyncio.to_thread(take_baseline, session.workspace, call.key, fresh=False)
    shared = budget_of(session, subagents, origin.get("openings") if origin else None)
    with budget.sharing(shared), budget.exclude_from_external_calls():
        outcome = await run.run()
    # What it held open ends with it; where it waits for a person it stays.
    await asyncio.to_thread(close_session, f"{session.key}{WORKER_SEPARATOR}{worker}")
    found = await asyncio.to_thread(changed_files, session.workspace, call.key)
    named = executor_run.named_files([file["path"] for file in found], outcome.messages)
    files = sorted({*named, *run.written_files.written_files})
    done = outcome.kind == "succeeded"
    seconds = max(time.monotonic() - started, outcome.elapsed_s)
    spent = {"seconds": seconds, "cost_usd": outcome.usage["cost_usd"]}
    call.emit({"type": "step_end", "status": "completed" if done else "blocked", **event, **spent})
    text = result_text(outcome, event["id"], files)
    links = await asyncio.to_thread(seen_links, text, outcome.messages, web_traits())
    openings = await asyncio.to_thread(openings_since, outcome.messages, web_traits())
    return Observation(
        text, failed=not done, usage=outcome.usage, links=links, openings=openings,
        unsupported=executor_run.unsupported_claims(outcome),
    )  # fmt: skip


async def _executor(session: Session, subagents: Subagents, agent: str) -> executor_run.Executor:
    known: executor_run.ExecutorSet = await session.cached_off_loop(
        executor_run.ExecutorSet, lambda: executor_run.collect_executors(subagents.graphs())
    )
    if agent not in known.executors:
        names = ", ".join(known.names)
        raise TrustedToolError(f"There is no agent {agent!r} to delegate to. Available: {names}.")
    return known.executors[agent]


def task_message(
    call: CallRuntime,
    task: str,
    files: Sequence[str],
    messages: Sequence[AnyMessage],
    *,
    tainted: bool = False,
) -> HumanMessage:
    """Return the subagent's task. A model wrote it, so its words verify nothing.

    The messages are those of the agent that delegates. Its prompt is `tainted` if it holds
    untrusted text.
    """
    traits = web_traits()
    urls = seen_links(task, messages, traits)
    origin = handed_on(messages, traits, urls, tainted=tainted)
    needed = f"Files that you need: {', '.join(files)}" if files else ""
    text = render("subagent_task", task=task.strip(), files=needed)
    extra: dict[str, Any] = {
        history.ORIGIN_KEY: origin,
        history.STEP_KEY: task,
        history.HANDOVER_KEY: True,
        history.GIVEN_KEY: supported(
            task, [*map(source_of, judged_claims(task, "", messages, NamedFiles()))]
        ),
    }
    return HumanMessage(text, id=f"subagent-{call.key}", additional_kwargs=extra)


def subagent_limits(call: CallRuntime) -> executor_run.StepLimits:
    """Return the limits of a subagent's run: those of a step, or the rest of the run's."""
    settings = call.session.settings
    left_s = call.time_limit.seconds if call.time_limit is not None else _LONGEST_S
    return executor_run.StepLimits(
        seconds=min(settings.step_timeout_s, left_s),
        seconds_of_all=left_s <= settings.step_timeout_s,
        max_steps=settings.max_steps,
        max_steps_of_all=settings.max_steps_set,
    )


def budget_of(
    session: Session, subagents: Subagents, openings: Mapping[str, int] | None = None
) -> budget.SharedBudget:
    """Return the budget that a run's subagents share with each other and with the outer run."""
    around = budget.shared_budget()
    if around is not None:
        around.count_earlier(session.key, subagents.progress)
        return around
    key = (budget.SharedBudget, subagents.progress.steps)  # those of one agent step share one
    return session.cached(
        key, lambda: budget.SharedBudget(session.settings, subagents.progress, openings)
    )


def result_text(outcome: executor_run.StepOutcome, name: str, files: Sequence[str]) -> str:
    """Return what the agent that delegated reads."""
    said = outcome.text
    if outcome.kind == "failed":
        said = f"The subagent {name} did not do it. {outcome.text}"
    elif outcome.kind != "succeeded":
        said = f"A limit of the whole run ({outcome.kind}) stopped the subagent {name}. {said}"
    listed = f"Files it changed: {', '.join(files)}" if files else ""
    doubts = executor_run.doubts_of(outcome)
    done = "" if outcome.kind == "succeeded" else unfinished_work(outcome.messages, said)
    return "\n\n".join(filter(None, (said.strip(), doubts, done, listed)))


def unfinished_work(messages: Sequence[AnyMessage], said: str) -> str:
    """Return the last words and calls of a subagent that did not finish; empty if there are none.

    What the result says anyway is not repeated.
    """
    if tool_ending(messages) is not None:  # it gave up, and said why
        return ""
    newest = history.last_text(messages)
    lines = [f"It said last: {newest}"] if newest and newest not in said else []
    ends = {m.tool_call_id: m.status for m in messages if isinstance(m, ToolMessage)}
    made = [call for m in messages if isinstance(m, AIMessage) for call in m.tool_calls]
    if made:
        lines.append(f"It made {len(made)} calls, the last ones:")
    for call in made[-LAST_CALLS:]:
        # Without names of arguments: who quotes those seems to write a call as text.
        args = " ".join(", ".join(map(str, call["args"].values())).split())
        shown = f"{args[:CALL_CHARS]}..." if len(args) > CALL_CHARS else args
        how = {"success": "", "error": " (failed)"}.get(ends.get(call["id"] or "", ""), " (no end)")
        lines.append(f"- {call['name']}: {shown}{how}")
    return "\n".join(lines)
