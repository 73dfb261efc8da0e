"""The catalogue of agents and flows, by name: the package's own, and those of third parties."""

import logging
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from openmanus_graph import tools
from openmanus_graph.config.claude_files import ClaudeFile, usable_prompts
from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.errors import ConfigError
from openmanus_graph.planning.plan import EXECUTOR_NAME

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

DEFAULT_AGENT = "manus"
FLOW = "planning"
"""The one that `openmanus plan` runs."""

Builder = Callable[..., Any]


@dataclass(frozen=True)
class _OwnAgent:
    """An agent or flow of ours: `build_NAME_graph` and `graph` in `graphs/NAME.py`."""

    description: str
    """What it is for, for planners and other agents."""
    tools: "Callable[[], list[BaseTool]]"
    """Returns its tools, those of MCP servers left out."""
    executor: bool = True
    """Whether it does steps of plans, by default."""


RESTART_NODES = ("begin", "think", "schedule")
"""The node at which a run that a limit ended resumes, one for each kind of our graphs."""
_OWN_AGENTS = {
    "manus": _OwnAgent("general: Python, shell, files, the web", tools.default_tools),
    "browser": _OwnAgent("the web: operates pages, searches, reads", tools.browser_tools),
    "swe": _OwnAgent(
        "software: finds, reproduces, fixes and tests in a repository", tools.swe_tools
    ),
    "data_analysis": _OwnAgent(
        "data: cleans, computes, draws charts, writes reports", tools.data_analysis_tools
    ),
    "research": _OwnAgent(
        "research: reads the web and the user's documents, reports with sources",
        tools.research_tools,
        executor=False,
    ),
    "desktop": _OwnAgent(
        "desktop programs: uses them by mouse and keyboard", tools.desktop_tools, executor=False
    ),
    "mcp": _OwnAgent("the tools of MCP servers, and nothing else", tools.mcp_tools, executor=False),
    "planner": _OwnAgent(
        "one agent that keeps a plan and works it off", tools.planner_tools, executor=False
    ),
    FLOW: _OwnAgent("plans, and has others do the steps", tools.default_tools, executor=False),
}
_STORAGE = {"checkpointer", "store"}
"""Arguments of builders that change nothing but where the graph's runs are kept."""
_registered: dict[str, Builder] = {}
_building: ContextVar[tuple[str, ...]] = ContextVar("openmanus_building", default=())
"""Agents whose builder runs here; another thread or task may be building the same ones."""
log = logging.getLogger(__name__)


def register_agent(name: str, builder: Builder) -> None:
    """Make an agent or flow known in this process: to `--agent`, and as an executor of plans.

    Args:
        name: Letters, digits, `_` and `-`.
        builder: Takes what `build_manus_graph` takes and returns a compiled graph with `messages`.

    Raises:
        ConfigError: The name cannot be used, or belongs to one of ours.
    """
    if not EXECUTOR_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name for an agent: use letters, digits, _ and -.")
    if name in _OWN_AGENTS:
        raise ConfigError(f"There is an agent {name!r} already. Choose another name.")
    _registered[name] = builder


@cache
def file_agents() -> dict[str, ClaudeFile]:
    """Return the agents that files describe, by name. Blocks at first."""
    return usable_prompts("agents")


def agent_names() -> list[str]:
    ours = [*dict.fromkeys([*_OWN_AGENTS, *_registered, *file_agents()])]
    return [*ours, *(point.name for point in installed("agents") if point.name not in ours)]


def is_ours(name: str) -> bool:
    return name in _OWN_AGENTS


def graph_address(name: str) -> str:
    """Return the address of one of our built agents, `MODULE:graph`."""
    return f"openmanus_graph.graphs.{name}:graph"


def agent_tools(name: str) -> "list[BaseTool]":
    """Return the tools of one of our agents; none for those of third parties."""
    return _OWN_AGENTS[name].tools() if name in _OWN_AGENTS else []


def check_agent(name: str | None) -> None:
    """Refuse an agent that does not exist. ConfigError names those that do."""
    if name is not None and name not in agent_names():
        raise ConfigError(f"There is no agent {name!r}. Available: {', '.join(agent_names())}.")


def build_agent(name: str, **arguments: Any) -> Any:
    """Build an agent's graph. ConfigError: there is none, or a third party's cannot be built.

    If only the storage differs, one of ours is a copy of its module's graph. They share the tools,
    whose schemas take longer to make than a short run.
    """
    check_agent(name)
    # A flow is built each time: its executors are the agents known by then.
    if is_ours(name) and name != FLOW and _STORAGE.issuperset(arguments):
        return _built(name).copy(arguments)
    before = _building.set((*_building.get(), name))
    try:
        builder = _builder(name)
        try:
            graph = builder(**arguments)
        except Exception as error:
            if is_ours(name):
                raise
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"The agent {name!r} cannot be built. {why}") from error
    finally:
        _building.reset(before)
    if is_ours(name):
        return graph
    from langgraph.pregel import Pregel
    from langgraph.pregel.protocol import PregelProtocol

    from openmanus_graph.runtime.session_keeper import guard_system_exit

    if not isinstance(graph, PregelProtocol):
        raise ConfigError(f"The agent {name!r} is not a compiled graph, but {graph!r}.")
    return guard_system_exit(graph) if isinstance(graph, Pregel) else graph  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def restart_node(graph: Any) -> str | None:
    """Return the node at which a run that a limit ended resumes with a higher one."""
    return next((name for name in RESTART_NODES if name in graph.nodes), None)


def describe_agent(name: str) -> str:
    """Return what an agent is for, in one line; empty if that is not known."""
    if name in _OWN_AGENTS:
        return _OWN_AGENTS[name].description
    if name not in agent_names():
        return ""
    if name in file_agents():
        return file_agents()[name].about
    return (_builder(name).__doc__ or "").strip().partition("\n")[0]


def default_executors() -> dict[str, Any]:
    """Build the agents that do the steps of plans, without third parties' that cannot."""
    from openmanus_graph.planning.executor_run import executor_problem  # loads LangGraph

    names = (
        name for name in agent_names() if name not in _OWN_AGENTS or _OWN_AGENTS[name].executor
    )
    found: dict[str, Any] = {}
    for name, graph in _build_all(names).items():
        if problem := executor_problem(name, graph):
            log.warning("%s", problem)
        else:
            found[name] = graph
    return found


def third_party_agents() -> dict[str, Any]:
    return _build_all(name for name in agent_names() if name not in _OWN_AGENTS)


def _build_all(names: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        if name in _building.get():
            continue  # a flow that plans does not do its own steps
        try:
            found[name] = _built(name) if is_ours(name) else build_agent(name)
        except Exception as error:  # noqa: BLE001  # one broken package must not take all along
            log.warning("The agent %s cannot be built: %s", name, error)
    return found


def _built(name: str) -> Any:
    """Return a copy of a module's graph whose state shows every key, unlike the served one's."""
    graph = import_module(graph_address(name).partition(":")[0]).graph
    return graph.copy({"stream_channels": [*graph.builder.channels]})


def _builder(name: str) -> Builder:
    if name in _registered:
        return _registered[name]
    if name in file_agents():
        described = import_module("openmanus_graph.graphs.described")
        return partial(described.build_described_graph, file_agents()[name])
    if name in _OWN_AGENTS:
        module = import_module(f"openmanus_graph.graphs.{name}")
        return getattr(module, f"build_{name}_graph")  # type: ignore[no-any-return]  # ours
    return load(installed("agents")[name], "agent")  # type: ignore[no-any-return]  # a package's
