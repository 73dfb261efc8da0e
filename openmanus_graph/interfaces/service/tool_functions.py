"""Functions of a person's that are called in place of an agent's tools."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_tools
from openmanus_graph.tool_calls.declaration import with_function


def load_function(address: str) -> Callable[..., Any]:
    """Load a function of a module.

    Args:
        address: `module:function`; the module may lie in the current folder, or in the one that
            stands before it: `/folder/module:function`.

    Raises:
        ConfigError: It cannot be loaded.
    """
    place, _, function = address.rpartition(":")
    folder, _, module = place.rpartition("/")
    sys.path.insert(0, folder or str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"The function {address} cannot be loaded: {error}.") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ConfigError(f"{address} is no function, but {type(found).__name__}.")
    return cast("Callable[..., Any]", found)


def replaced_tools(agent: str, functions: Mapping[str, str]) -> list[BaseTool]:
    """Return an agent's tools, some of which call functions.

    Args:
        agent: Its name in the catalogue.
        functions: Their addresses, by the names of the tools.

    Raises:
        ConfigError: A function cannot be loaded, or the agent has no such tool of its own.
    """
    tools = {tool.name: tool for tool in agent_tools(agent)}
    for name, address in functions.items():
        if not isinstance(tool := tools.get(name), StructuredTool):
            raise ConfigError(
                f"The agent {agent} has no tool {name!r} of its own that a function could replace."
            )
        tools[name] = with_function(tool, load_function(address))
    return list(tools.values())
