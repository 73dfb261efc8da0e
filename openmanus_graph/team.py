"""Who does the steps of a plan: graphs by name."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.pregel import Pregel

from openmanus_graph.agents import default_executors, describe_agent
from openmanus_graph.errors import ConfigError
from openmanus_graph.exits import contained_graph
from openmanus_graph.plans import EXECUTOR_NAME

Executor = Pregel[Any, Any, Any, Any]
log = logging.getLogger(__name__)
Executors = Executor | Sequence[Executor] | Mapping[str, Executor]


@dataclass(frozen=True, eq=False)
class Team:
    """The executors of one planning graph; the first does what names nobody."""

    executors: Mapping[str, Executor]

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return list(self.executors)

    def roster(self) -> str:
        """Describe them for the model that plans, a line each."""
        return "\n".join(f"- {name}{_words(name, graph)}" for name, graph in self.executors.items())


def make_team(executors: Executors) -> Team:
    """Collect the executors. A single graph, or a list, gets names as in OpenManus.

    Raises:
        ConfigError: There is none, one is no graph, or a name cannot stand in a plan.
    """
    team = dict(_named(executors))
    if not team:
        raise ConfigError("A planning graph needs at least one executor.")
    for name, graph in team.items():
        if problem := _problem(name, graph):
            raise ConfigError(problem)
    return Team({name: contained_graph(graph) for name, graph in team.items()})


def default_team() -> Team:
    """Collect the agents that there are. Those of others that are no executors are left out."""
    found: dict[str, Any] = {}
    for name, graph in default_executors().items():
        if problem := _problem(name, graph):
            log.warning("%s", problem)
        else:
            found[name] = graph
    return Team(found)


def _problem(name: str, graph: Any) -> str | None:
    """Say why something is no executor."""
    if not EXECUTOR_NAME.fullmatch(name):
        return f"Executor {name!r}: a name has letters, digits, _ and - only."
    if not isinstance(graph, Pregel):
        return f"Executor {name!r} is no compiled graph: {graph!r}."
    if "messages" not in graph.channels:
        return f"Executor {name!r} has no `messages` in its state."
    return None


def _named(executors: Any) -> Mapping[str, Any]:
    if isinstance(executors, Mapping):
        return executors  # pyright: ignore[reportUnknownVariableType]  # checked by the caller
    if isinstance(executors, Sequence):
        return {f"agent_{index}": graph for index, graph in enumerate(executors)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return {"default": executors}


def _words(name: str, graph: Executor) -> str:
    """Return what a graph says of itself: `with_config(metadata={"description": ...})`."""
    metadata = (graph.config or {}).get("metadata") or {}
    description = metadata.get("description") or describe_agent(name)
    return f": {description}" if description else ""
