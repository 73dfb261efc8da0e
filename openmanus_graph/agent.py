"""What makes one agent differ from another: name, tools and prompts."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.errors import ConfigError
from openmanus_graph.prompts import SystemPrompt

ToolLike = BaseTool | Callable[..., Any]
PROMPTS = ("system", "next_step")


@dataclass(frozen=True, eq=False)
class Agent:
    """The definition that the nodes of one graph share."""

    name: str
    tools: Mapping[str, BaseTool]
    prompts: Mapping[str, str]
    """The texts that the builder's caller replaced."""
    system_prompt: SystemPrompt


def define_agent(
    name: str,
    tools: Iterable[ToolLike],
    prompts: Mapping[str, str] | None,
    system_prompt: SystemPrompt,
) -> Agent:
    """Collect an agent's tools.

    Args:
        name: Of the graph.
        tools: LangChain tools, or functions with a docstring.
        prompts: Texts that replace the agent's own: `system`, `next_step`.
        system_prompt: The agent's own.

    Raises:
        ConfigError: Two tools with one name, something that is no tool, or an unknown prompt.
    """
    found: dict[str, BaseTool] = {}
    for tool in map(contained, map(_as_tool, tools)):
        if tool.name in found:
            raise ConfigError(f"Two tools are named {tool.name!r}. Rename one of them.")
        found[tool.name] = tool
    unknown = set(prompts or {}) - set(PROMPTS)
    if unknown:
        raise ConfigError(f"There is no prompt {sorted(unknown)}. There are: {', '.join(PROMPTS)}.")
    return Agent(name, found, dict(prompts or {}), system_prompt)


def contained(tool: BaseTool) -> BaseTool:
    """Keep a tool from ending the process.

    A `SystemExit` inside an asyncio task stops the event loop before anybody can catch it, so
    it is turned into an ordinary error where it is raised.
    """
    if not isinstance(tool, StructuredTool):
        return tool
    return tool.model_copy(
        update={"func": _without_exit(tool.func), "coroutine": _without_async_exit(tool.coroutine)}
    )


def _without_exit(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if function is None:
        return None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return call


def _without_async_exit(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if function is None:
        return None

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return call


def _as_tool(tool: ToolLike) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if not callable(tool):
        raise ConfigError(f"{tool!r} is no tool. Pass a LangChain tool or a documented function.")
    try:
        if inspect.iscoroutinefunction(tool):
            return StructuredTool.from_function(coroutine=tool)
        return StructuredTool.from_function(func=tool)
    except ValueError as error:
        raise ConfigError(f"{tool!r} cannot be a tool: {error}.") from error
