"""`run_step`: one step of the plan, done by its executor's graph."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from openmanus_graph.artifacts import changed_files, take_baseline
from openmanus_graph.errors import ConfigError
from openmanus_graph.events import step_event
from openmanus_graph.flow import RESULT_CHARS
from openmanus_graph.models.condensed import cut_middle
from openmanus_graph.provenance import ORIGIN_KEY, passed_on
from openmanus_graph.registry import LANE_KEY, enter_session
from openmanus_graph.settings import Settings
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import StepState
from openmanus_graph.state.reducers import Usage, no_usage
from openmanus_graph.team import Executor
from openmanus_graph.tools import web_tools
from openmanus_graph.tools.declaration import Traits, traits_of
from openmanus_graph.watching import STEP_KEY

GRACE_S = 10.0
"""Time that an executor with a limit of its own has to end after it."""


@dataclass(frozen=True)
class Outcome:
    """What an executor's run came to."""

    kind: Literal["succeeded", "failed", "budget"]
    text: str
    usage: Usage
    messages: Sequence[AnyMessage] = ()


async def run_step(
    step: StepState, runtime: Runtime[Context], *, executor: Executor
) -> dict[str, Any]:
    """Invoke the executor on the step; whatever it raises is a failure of this step alone."""
    started = time.monotonic()
    session = await enter_session(runtime)
    job, run = step["job"], step["message_id"]
    runtime.stream_writer(step_event("step_start", job, "in_progress"))
    await asyncio.to_thread(take_baseline, session.workspace, run, anew=False)
    context = step_context(runtime.context, step, session.settings)
    limit_s = context.timeout_s or session.settings.step_timeout_s
    # One of ours ends itself, and tells what it spent.
    grace_s = GRACE_S if executor.context_schema is Context else 0
    clock = asyncio.timeout(limit_s + grace_s)
    try:
        async with clock:
            outcome = read_outcome(await _invoke(executor, step, context))
    except (GraphBubbleUp, ConfigError):
        raise  # a question to a person, a drain, or settings that nobody but a person can mend
    except Exception as error:  # noqa: BLE001  # an executor that raises fails its step, not the plan
        why = f"{type(error).__name__}: {error}"
        if clock.expired():
            why = f"It did not end within {limit_s:g} s."
        outcome = Outcome("failed", why, no_usage())
    found = await asyncio.to_thread(changed_files, session.workspace, run)
    links = await asyncio.to_thread(passed_on, outcome.text, outcome.messages, web_traits())
    seconds = time.monotonic() - started
    update = {
        "outcome": outcome.kind,
        "result": cut_middle(outcome.text, RESULT_CHARS),
        "links": links,
        "files": named_files([file["path"] for file in found], outcome.messages),
        "seconds": job["seconds"] + seconds,
        "cost_usd": job["cost_usd"] + outcome.usage["cost_usd"],
    }
    return {
        "steps": {job["id"]: update},
        "usage": outcome.usage,
        "elapsed_s": step["elapsed_s"] + seconds,
    }


def web_traits() -> dict[str, Traits]:
    """Return what is declared of the tools whose links one step may hand to the next."""
    return {tool.name: traits_of(tool) for tool in web_tools()}


def step_context(given: Any, step: StepState, settings: Settings) -> Context:
    """Return the context of a step's run: the flow's own, with the step's share of its limits."""
    context = given if isinstance(given, Context) else Context()
    job, limit_s = step["job"], settings.step_timeout_s
    if settings.timeout_s is not None:
        limit_s = max(1.0, min(limit_s, settings.timeout_s - step["elapsed_s"]))
    return replace(
        context,
        workspace=str(settings.workspace),
        max_cost_usd=job["max_cost_usd"] or None,
        max_total_tokens=job["max_total_tokens"],
        timeout_s=limit_s,
        response_format=None,
        prompts=None,
    )


async def _invoke(executor: Executor, step: StepState, context: Context) -> Mapping[str, Any]:
    around = get_config().get("metadata") or {}
    lane = f"{around.get(LANE_KEY, '')}/{step['job']['lane']}"
    config: RunnableConfig = {"metadata": {LANE_KEY: lane, STEP_KEY: step["job"]["id"]}}
    extra = {ORIGIN_KEY: step["origin"], "images": step["images"]}
    message = HumanMessage(step["prompt"], id=step["message_id"], additional_kwargs=extra)
    ours = context if executor.context_schema is Context else None
    result: dict[str, Any] = await executor.ainvoke({"messages": [message]}, config, context=ours)
    return result


def read_outcome(result: Mapping[str, Any]) -> Outcome:
    """Understand what an executor returns: manus's output, or any graph's messages."""
    messages: Sequence[AnyMessage] = result.get("messages") or ()
    last = messages[-1].text.strip() if messages and messages[-1].type == "ai" else ""
    text = str(result.get("answer") or last)
    status, reason = result.get("status"), result.get("stop_reason")
    if status == "finished" or (status is None and text):
        return Outcome("succeeded", text, _usage(result), messages)
    why = f"It ended as {status} ({reason}). {text}".strip() if status else "It gave no answer."
    return Outcome("budget" if reason == "budget" else "failed", why, _usage(result), messages)


def _usage(result: Mapping[str, Any]) -> Usage:
    usage: Usage | None = result.get("usage")
    return usage or no_usage()


def named_files(paths: Sequence[str], messages: Sequence[AnyMessage]) -> list[str]:
    """Return the changed files that a run's calls name: steps side by side share the workspace."""
    said = "\n".join(
        str(call["args"]) for message in messages for call in getattr(message, "tool_calls", ())
    )
    return [path for path in paths if path.rpartition("/")[2] in said]
