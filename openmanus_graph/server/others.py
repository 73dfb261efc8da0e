"""The graphs of agents that other packages bring, under their names: the server looks them up here.

A package that cannot be loaded costs its own agent, not the server.
"""

import logging
from typing import Any

from openmanus_graph.agents import agent_names, build_agent, is_ours
from openmanus_graph.errors import ConfigError
from openmanus_graph.registry import SessionKeeper

log = logging.getLogger(__name__)


def built_agents() -> dict[str, Any]:
    """Build the agents that are not ours; their runs are seen as ours are."""
    graphs: dict[str, Any] = {}
    for name in agent_names():
        if not is_ours(name):
            try:
                graphs[name] = build_agent(name).with_config(callbacks=[SessionKeeper()])
            except ConfigError as error:
                log.warning("no agent %s: %s", name, error)
    return graphs


globals().update(built_agents())
