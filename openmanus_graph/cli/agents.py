"""The agents that `--agent` can name."""

from importlib import import_module
from typing import Any

from openmanus_graph.errors import ConfigError

AGENTS = {
    "manus": "openmanus_graph.graphs.manus:build_manus_graph",
    "browser": "openmanus_graph.graphs.browser:build_browser_graph",
}
DEFAULT_AGENT = "manus"


def check_agent(name: str | None) -> None:
    """Refuse an agent that does not exist. ConfigError names those that do."""
    if name is not None and name not in AGENTS:
        raise ConfigError(f"There is no agent {name!r}. There are: {', '.join(AGENTS)}.")


def build_agent(name: str, **arguments: Any) -> Any:
    """Build an agent's graph. ConfigError names the agents that exist."""
    check_agent(name)
    module, _, builder = AGENTS[name].partition(":")
    return getattr(import_module(module), builder)(**arguments)
