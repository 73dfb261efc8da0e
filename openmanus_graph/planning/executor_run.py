"""One run of an executor inside another run: a step of a plan, or a subagent's task."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.pregel import Pregel

from openmanus_graph.errors import ConfigError
from openmanus_graph.planning.plan import EXECUTOR_NAME
from openmanus_graph.planning.step_outcome import (
    StepLimits,
    StepOutcome,
    WrittenFiles,
    messages_in,
    outcome_at,
    read_outcome,
)
from openmanus_graph.runtime.events import PLAN_STEP_KEY, plan_step_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import guard_system_exit
from openmanus_graph.runtime.session_registry import WORKER_KEY
from openmanus_graph.state.context import Context

Executor = Pregel[Any, Any, Any, Any]
Describe = Callable[[str], str]
Executors = Executor | Sequence[Executor] | Mapping[str, Executor]


@dataclass(frozen=True, eq=False)
class ExecutorSet:
    """The executors of one planning graph; the first is the default."""

    executors: Mapping[str, Executor]
    describe: Describe = field(default=lambda _: "")
    """Returns the description of an executor whose graph has none."""

    @property
    def names(self) -> list[str]:
        return list(self.executors)

    def roster(self) -> str:
        """Describe the executors for the planning model, one line each."""
        lines: list[str] = []
        for name, graph in self.executors.items():
            # Set by `with_config(metadata={"description": ...})`.
            metadata = (graph.config or {}).get("metadata") or {}
            description = metadata.get("description") or self.describe(name)
            lines.append(f"- {name}: {description}" if description else f"- {name}")
        return "\n".join(lines)


def collect_executors(executors: Executors, describe: Describe = lambda _: "") -> ExecutorSet:
    """Collect the executors. A single graph, or a list, gets names as in OpenManus.

    Raises:
        ConfigError: There is none, one is not a graph, or a name cannot be used in a plan.
    """
    if isinstance(executors, Mapping):
        graphs = dict(executors)
    elif isinstance(executors, Sequence):
        graphs = {f"agent_{index}": graph for index, graph in enumerate(executors)}
    else:
        graphs = {"default": executors}
    if not graphs:
        raise ConfigError("A planning graph needs at least one executor.")
    for name, graph in graphs.items():
        if problem := executor_problem(name, graph):
            raise ConfigError(problem)
    return ExecutorSet({name: guard_system_exit(graph) for name, graph in graphs.items()}, describe)


def executor_problem(name: str, graph: Any) -> str | None:
    """Return why an object cannot be an executor; None if it can."""
    if not EXECUTOR_NAME.fullmatch(name):
        return f"Executor {name!r}: a name has letters, digits, _ and - only."
    if not isinstance(graph, Pregel):
        return f"Executor {name!r} is not a compiled graph: {graph!r}."
    if "messages" not in graph.channels:
        return f"Executor {name!r} has no `messages` in its state."
    return None


GRACE_S = 10.0
"""Extra time for executors that end themselves at their own limit."""


class ExecutorRun:
    """One run of an executor. Its state and written files are recorded while it runs.

    `config` names the session of the run, see `metadata_inside`.
    """

    def __init__(
        self,
        executor: Executor,
        messages: Sequence[AnyMessage],
        limits: StepLimits,
        session: Session,
        *,
        outer_context: Any,
        config: RunnableConfig,
    ) -> None:
        self._executor, self._config = executor, config
        self._ours = executor.context_schema is Context
        self._limits = limits
        settings = session.settings
        self._context = replace(
            outer_context if isinstance(outer_context, Context) else Context(),
            workspace=str(settings.workspace),
            max_steps=limits.max_steps,
            max_cost_usd=settings.max_cost_usd,
            max_total_tokens=settings.max_total_tokens,
            timeout_s=limits.seconds,
            review_plan=False,
            response_format=None,
            prompts=None,
        )
        self._messages = list(messages)
        self._values: dict[str, Any] = {"messages": self._messages}
        self.written_files = WrittenFiles(session.workspace)

    @property
    def values_to_resume(self) -> Mapping[str, Any]:
        """The state to continue from after a limit; only messages of a third-party graph."""
        return self._values if self._ours else {"messages": messages_in(self._values)}

    async def run(self) -> StepOutcome:
        """Run the executor to its end, or to its time limit."""
        # Our own graphs end themselves at their limit.
        clock = asyncio.timeout(self._limits.seconds + (GRACE_S if self._ours else 0))
        asked = len(self._messages)
        try:
            async with clock:
                await self._stream()
            return read_outcome(self._values, self._limits, asked)
        except ParentCommand as error:
            goal = cast("Any", error.args[0]).goto or "nobody"
            why = f"It handed over to {goal}, which does not run here."
            return outcome_at(self._values, "failed", why, asked)
        except (GraphBubbleUp, ConfigError):
            raise  # a question to the user, a drain, or settings that only the user can correct
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
        states = self._executor.astream(
            {"messages": self._messages},
            self._config,
            context=self._context if self._ours else None,
            stream_mode="values",
        )
        async with contextlib.aclosing(states):  # type: ignore[type-var]  # it is a generator
            async for values in states:
                self._values, messages = values, messages_in(values)
                if not self.written_files.has_read(messages):
                    await asyncio.to_thread(self.written_files.follow, messages)


def metadata_inside(around: RunnableConfig, worker: str, name: str) -> dict[str, Any]:
    """Return the metadata of a run inside a node: the session that it uses, and its plan step."""
    outer = (around.get("metadata") or {}).get(WORKER_KEY, "")
    inner = f"{plan_step_of(around)}/{name}".lstrip("/")
    return {WORKER_KEY: f"{outer}/{worker}", PLAN_STEP_KEY: inner}


def named_files(paths: Sequence[str], messages: Sequence[AnyMessage]) -> list[str]:
    """Return the changed files that a run's calls name: other steps change files at once."""
    said = "\n".join(
        str(call["args"]) for message in messages for call in getattr(message, "tool_calls", ())
    )
    return [path for path in paths if path.rpartition("/")[2] in said]
