"""The nodes of the executors: one step of the plan, done by its executor's graph."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.runtime import Runtime

from openmanus_graph.conversation.history import HANDOVER_KEY, ORIGIN_KEY, STEP_KEY
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.model_calls.condensed import cut_middle
from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.planning.evidence import run_evidence
from openmanus_graph.planning.executors import Executor, ExecutorSet
from openmanus_graph.planning.flow import (
    MAX_ATTEMPTS,
    current_step,
    is_limit,
    pause_run,
    resumed_messages,
)
from openmanus_graph.planning.plan_view import emit_step_event
from openmanus_graph.planning.step_outcome import (
    StepLimits,
    StepOutcome,
    WrittenFiles,
    messages_in,
    outcome_at,
    read_outcome,
)
from openmanus_graph.planning.step_texts import RESULT_CHARS, RESULTS_CHARS
from openmanus_graph.runtime.artifacts import changed_files, take_baseline
from openmanus_graph.runtime.run_observer import PLAN_STEP_KEY, plan_step_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import WORKER_KEY, enter_session
from openmanus_graph.safety.provenance import passed_on
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import StepState
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools import web_tools

GRACE_S = 10.0
"""Time that an executor with a limit of its own has to end after it."""


async def execute_step(
    step: StepState, runtime: Runtime[Context], *, executor: Executor
) -> dict[str, Any]:
    """Invoke the executor on the step; whatever it raises is a failure of this step alone."""
    started = time.monotonic()
    session = await enter_session(runtime)
    wave, step_run, run = wave_of(session, step), current_step(step), step["message_id"]
    emit_step_event(session, runtime.stream_writer, "step_start", step_run, "in_progress")
    await asyncio.to_thread(take_baseline, session.workspace, run, anew=False)
    executor_run = ExecutorRun(executor, step, runtime.context, session)
    with sharing(wave.budget):
        outcome = await executor_run.outcome()
    found = await asyncio.to_thread(changed_files, session.workspace, run)
    urls = await asyncio.to_thread(passed_on, outcome.text, outcome.messages, web_traits())
    seconds = max(time.monotonic() - started, outcome.elapsed_s)
    paused_by_limit = is_limit(outcome.kind)
    written = executor_run.written_files.written_files
    is_answer = bool(step.get("task")) and outcome.kind == "succeeded"
    result = cut_middle(outcome.text, RESULTS_CHARS if is_answer else RESULT_CHARS)
    update = {
        "attempt": step_run["attempt"],
        "outcome": outcome.kind,
        "paused_run": pause_run(executor_run.values_to_resume, run) if paused_by_limit else None,
        "result": "" if paused_by_limit else result,
        "urls": urls,
        "evidence": "" if paused_by_limit else run_evidence(outcome.messages),
        "files": named_files([file["path"] for file in found], outcome.messages),
        "written_files": sorted({*step_run["written_files"], *written}),
        "seconds": step_run["seconds"] + seconds,
        "cost_usd": step_run["cost_usd"] + outcome.usage["cost_usd"],
    }
    return {
        "steps": {step_run["id"]: update},
        "usage": outcome.usage,
        "step_count": outcome.steps,
        "elapsed_s": max(wave.elapsed_s, step["before"]["elapsed_s"] + seconds),
    }


async def missing_executor(
    step: StepState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Fail a step whose executor was there when the plan was made; trying again would not help."""
    step_run = current_step(step)
    there = ", ".join(executors.names)
    why = f"There is no executor {step_run['executor']} any more; there is: {there}."
    failed = {"outcome": "failed", "result": why, "failures": MAX_ATTEMPTS - 1}
    return {"steps": {step_run["id"]: {"attempt": step_run["attempt"], **failed}}}


class ExecutorRun:
    """One run of an executor, whose state and written files are recorded as it goes."""

    def __init__(self, executor: Executor, step: StepState, given: Any, session: Session) -> None:
        self._executor, self._step = executor, step
        self._ours = executor.context_schema is Context
        self._limits = step_limits(step, session.settings)
        self._context = step_context(given, self._limits, session.settings)
        self._messages = step_messages(step)
        self._values: dict[str, Any] = {"messages": self._messages}
        self.written_files = WrittenFiles(session.workspace)

    @property
    def values_to_resume(self) -> Mapping[str, Any]:
        """The state to go on with, if a limit ended the run; of a foreign graph the messages."""
        return self._values if self._ours else {"messages": messages_in(self._values)}

    async def outcome(self) -> StepOutcome:
        """Run the executor to its end, or to its time limit."""
        # One of ours ends itself.
        clock = asyncio.timeout(self._limits.seconds + (GRACE_S if self._ours else 0))
        asked = len(self._messages)
        try:
            async with clock:
                await self._stream()
            return read_outcome(self._values, self._limits, asked)
        except ParentCommand as error:
            goal = cast("Any", error.args[0]).goto or "nobody"
            why = f"It handed over to {goal}, which is no part of a plan."
            return outcome_at(self._values, "failed", why, asked)
        except (GraphBubbleUp, ConfigError):
            raise  # a question to a person, a drain, or settings that only a person can correct
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return outcome_at(self._values, "failed", "It cancelled itself.", asked)
        except Exception as error:  # noqa: BLE001  # a step that raises fails alone, not the plan
            if not clock.expired():
                why = f"{type(error).__name__}: {error}"
                return outcome_at(self._values, "failed", why, asked)
            if limit := self._limits.of_all("timeout"):
                return outcome_at(self._values, limit, "", asked)
            why = f"It did not end within {self._limits.seconds:g} s."
            return outcome_at(self._values, "failed", why, asked)

    async def _stream(self) -> None:
        around, step_run = get_config(), current_step(self._step)
        worker = f"{(around.get('metadata') or {}).get(WORKER_KEY, '')}/{step_run['worker']}"
        plan_step = f"{plan_step_of(around)}/{step_run['id']}".lstrip("/")
        config: RunnableConfig = {"metadata": {WORKER_KEY: worker, PLAN_STEP_KEY: plan_step}}
        states = self._executor.astream(
            {"messages": self._messages},
            config,
            context=self._context if self._ours else None,
            stream_mode="values",
        )
        async with contextlib.aclosing(states):  # type: ignore[type-var]  # it is a generator
            async for values in states:
                self._values = values
                await asyncio.to_thread(self.written_files.follow, messages_in(values))


@cache
def web_traits() -> dict[str, Traits]:
    """Return the traits of the tools whose links one step may hand to the next."""
    return {tool.name: traits_of(tool) for tool in web_tools()}


def step_limits(step: StepState, settings: Settings) -> StepLimits:
    """Return what bounds a step's run: its own limits, or what is left of the plan's."""
    left_s = float("inf")
    if settings.timeout_s is not None:
        left_s = max(0.1, settings.timeout_s - step["before"]["elapsed_s"])
    return StepLimits(
        seconds=min(settings.step_timeout_s, left_s),
        seconds_of_all=left_s <= settings.step_timeout_s,
        max_steps=settings.max_steps,
        max_steps_of_all=settings.max_steps_set,
    )


def step_context(given: Any, limits: StepLimits, settings: Settings) -> Context:
    """Return the context of a step's run: the flow's own, within the step's limits."""
    context = given if isinstance(given, Context) else Context()
    return replace(
        context,
        workspace=str(settings.workspace),
        max_steps=limits.max_steps,
        max_cost_usd=settings.max_cost_usd,
        max_total_tokens=settings.max_total_tokens,
        timeout_s=limits.seconds,
        review_plan=False,
        response_format=None,
        prompts=None,
    )


def step_messages(step: StepState) -> list[AnyMessage]:
    """Return what a step's run is given: its task, or the conversation of its paused run."""
    step_run = current_step(step)
    if step_run["paused_run"] is not None:
        return resumed_messages(step_run["paused_run"], step["message_id"])
    task = step.get("task", "")
    extra: dict[str, Any] = {
        ORIGIN_KEY: step["origin"],
        STEP_KEY: f"{task}\n\n{step_run['text']}".strip(),
        HANDOVER_KEY: not task,
        "images": step["images"],
    }
    return [HumanMessage(step["prompt"], id=step["message_id"], additional_kwargs=extra)]


def named_files(paths: Sequence[str], messages: Sequence[AnyMessage]) -> list[str]:
    """Return the changed files that a run's calls name: steps side by side share the workspace."""
    said = "\n".join(
        str(call["args"]) for message in messages for call in getattr(message, "tool_calls", ())
    )
    return [path for path in paths if path.rpartition("/")[2] in said]
