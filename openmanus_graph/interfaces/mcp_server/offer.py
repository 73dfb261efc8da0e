"""The offered tools, and their descriptions for MCP, made from their declarations."""

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from langchain_core.tools import BaseTool

from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.system_exit import guard_tool_system_exit
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools import closing_tools, data_analysis_tools, planner_tools
from openmanus_graph.tools.planning import planning


def offered_tools(names: Sequence[str] | None, configured: Sequence[str] | None) -> list[BaseTool]:
    """Choose the tools to offer.

    A client's own agent asks its person, answers and ends by itself: our tools for that belong to
    our agents' loop and are never offered.

    Args:
        names: What the person named; None is all.
        configured: The configuration's `tools`, which counts when nothing was named.

    Raises:
        ConfigError: A named tool does not exist, or is none to offer.
    """
    closing = {tool.name for tool in closing_tools()}
    known = {
        tool.name: guard_tool_system_exit(tool)
        for tool in (*planner_tools(), *data_analysis_tools())
        if tool.name not in closing
    }
    for name in names or ():
        if name in closing:
            raise ConfigError(
                f"{name} belongs to the loop of our own agents and cannot be offered. "
                f"There are: {', '.join(known)}."
            )
        if name not in known:
            raise ConfigError(f"There is no tool {name!r}. There are: {', '.join(known)}.")
    if names is not None:
        return [known[name] for name in dict.fromkeys(names)]
    return [tool for name, tool in known.items() if configured is None or name in configured]


def describe(definition: Mapping[str, Any], tool: BaseTool) -> types.Tool:
    """Return a tool as MCP describes it.

    Args:
        definition: Its schema as models get it.
        tool: Its declaration.
    """
    function = definition["function"]
    parameters: dict[str, Any] = function.get("parameters") or {}
    return types.Tool(
        name=function["name"],
        description=function.get("description", ""),
        input_schema={"type": "object", "properties": {}, **parameters},
        annotations=annotations(traits_of(tool), remembers=function["name"] == planning.name),
    )


def annotations(traits: Traits, *, remembers: bool = False) -> types.ToolAnnotations:
    """Turn a tool's effect class into MCP's hints.

    Args:
        traits: One whose effect depends on the arguments is described by what it may do at worst.
        remembers: It keeps something with the client's session, so that it does not merely read.
    """
    pure = traits.effect == "pure"
    outside = traits.untrusted or traits.addresses is not None or callable(traits.effect)
    return types.ToolAnnotations(
        read_only_hint=pure and not remembers,
        destructive_hint=not pure,
        idempotent_hint=pure and not remembers,
        open_world_hint=outside or traits.effect == "external",
    )
