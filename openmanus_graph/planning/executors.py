"""The executors of a plan: graphs by name, which run its steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.pregel import Pregel

from openmanus_graph.errors import ConfigError
from openmanus_graph.planning.plan import EXECUTOR_NAME
from openmanus_graph.runtime.system_exit import guard_system_exit

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
        """Their names, in order."""
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

    Args:
        executors: Graphs with `messages` in their state.
        describe: Returns a one-line description of an executor whose graph has none.

    Raises:
        ConfigError: There is none, one is no graph, or a name cannot be used in a plan.
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
        return f"Executor {name!r} is no compiled graph: {graph!r}."
    if "messages" not in graph.channels:
        return f"Executor {name!r} has no `messages` in its state."
    return None
