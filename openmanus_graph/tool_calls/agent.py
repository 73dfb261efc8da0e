"""What makes one agent differ from another, and which tools its runs offer.

An agent's own tools stay the same during a run; those of MCP servers may come and go.
"""

import asyncio
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import packages_distributions
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.config.mcp import check_servers
from openmanus_graph.conversation.replies import ResponseFormat
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.model_calls.recorder import fact_of_run
from openmanus_graph.model_calls.run_models import asks_small_model, run_models
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.middleware import with_hook
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import guard_tool_system_exit
from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.safety.policy import wrong_arguments
from openmanus_graph.state.context import SERVER_TOOL_PREFIX, MCPServer
from openmanus_graph.state.interrupts import REACH_HOST
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.tool_search import ToolSearch
from openmanus_graph.tool_calls.toolset import Toolset

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.listed_tools import DescribedTool
    from openmanus_graph.backends.mcp.tool import ServerTools
    from openmanus_graph.runtime.middleware import Middleware

    ServerToolsResolver = Callable[..., Awaitable[ServerTools]]

ToolLike = BaseTool | Callable[..., Any] | MCPServer
PROMPTS = ("system", "next_step")


@dataclass(frozen=True, eq=False)
class Agent:
    """The definition that the nodes of one graph share; `with_tools` completes it."""

    name: str
    system_prompt: str
    """Name of the agent's own prompt, see `prompts`."""
    text: str = field(default="", kw_only=True)
    """The agent's own prompt, if a file describes the agent."""
    ending: str
    """Name of its part that says how a run ends: a step of a plan has another one."""
    tools: Mapping[str, BaseTool] = field(default_factory=dict[str, BaseTool])
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The texts that the builder's caller replaced."""
    servers: tuple[MCPServer, ...] = ()
    """MCP servers that the builder's caller passed."""
    takes_configured: bool = False
    """Whether it also uses the servers of the configuration."""
    needs_servers: bool = False
    """Whether its run is over when no server is left."""
    needed_tool: str = ""
    """The tool without which it cannot work; empty if there is none."""
    structured_tool: Callable[[ResponseFormat], BaseTool] | None = None
    """Makes the tool that delivers an answer in the caller's format."""
    optional: Callable[[], Sequence[BaseTool]] = tuple[BaseTool, ...]
    """Returns the tools that a run's settings may add."""
    subagents: Callable[[], Mapping[str, Any]] | None = None
    """Returns the agents to which it may delegate, as graphs by name. May block."""
    middleware: tuple["Middleware", ...] = ()
    """LangChain's `AgentMiddleware`s around and between the agent steps, the outermost first."""
    serializer: StrictSerializer = field(default_factory=StrictSerializer)
    """Stores calls' `Command`s in the ledger; it knows the app's own types."""


def with_tools(
    agent: Agent, tools: Iterable[ToolLike], prompts: Mapping[str, str] | None = None
) -> Agent:
    """Return the agent with these tools, those of its middleware, and these prompts.

    ConfigError: two tools with one name, something that is not a tool, or an unknown prompt.
    """
    found: dict[str, BaseTool] = {}
    given = [*tools, *(tool for one in agent.middleware for tool in getattr(one, "tools", ()))]
    servers = tuple(server for server in given if isinstance(server, MCPServer))
    check_servers(servers)
    own = (tool for tool in given if not isinstance(tool, MCPServer))
    for tool in map(guard_tool_system_exit, map(_as_tool, own)):
        if tool.name in found:
            origins = " and ".join(map(_origin, (found[tool.name], tool)))
            raise ConfigError(
                f"Two tools are named {tool.name!r}, from {origins}. Rename one of them, or "
                "uninstall the package that brings it."
            )
        found[tool.name] = tool
    if unknown := set(prompts or {}) - set(PROMPTS):
        raise ConfigError(f"There is no prompt {sorted(unknown)}. Available: {', '.join(PROMPTS)}.")
    return replace(agent, tools=found, prompts=dict(prompts or {}), servers=servers)


def _as_tool(tool: BaseTool | Callable[..., Any]) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if not callable(tool):
        raise ConfigError(
            f"{tool!r} is not a tool. Pass a LangChain tool, a documented function or an MCPServer."
        )
    is_async = inspect.iscoroutinefunction(tool)
    try:
        return StructuredTool.from_function(
            func=None if is_async else tool, coroutine=tool if is_async else None
        )
    except ValueError as error:
        raise ConfigError(f"{tool!r} cannot be a tool: {error}.") from error


def _origin(tool: BaseTool) -> str:
    """Return the package that a tool comes from, or its module."""
    module = _module(tool)
    packages = packages_distributions().get(module.partition(".")[0], [])
    return f"the package {' or '.join(dict.fromkeys(packages))}" if packages else module


def _module(tool: BaseTool) -> str:
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    return str(getattr(inspect.unwrap(function) if function else type(tool), "__module__", ""))


LATER_TOOLS = frozenset({
    "ask_human", "browser_use", "computer_use", "crawl4ai", "data_visualization", "delegate",
    "fetch_page", "memory", "planning", "read_untrusted", "str_replace_editor", "web_search",
})  # fmt: skip
"""Tools that a small model has to find by `search_tools`."""
MOST_FOR_SMALL = 6
ADD = "+"
"""Begins the name of an optional tool that is offered in addition."""
_BLIND = (
    "The model is not known to see pictures: choose one that does by --model, set vision_model, or "
    "[llm] sees_images = true if this one sees."
)


@dataclass(frozen=True)
class ResolvedTools:
    toolset: Toolset
    changes: tuple[str, ...] = ()
    """Changes of the servers, for the model."""
    fatal_reason: str = ""
    """Why the run cannot continue without the servers; empty if it can."""
    acknowledge: Callable[[], None] = lambda: None
    """To be called when the model has read the changes."""


async def resolve_tools(
    agent: Agent, session: Session, emit: Emit, *, refresh: bool = False
) -> ResolvedTools:
    """Return the tools that an agent step offers; within it always the same.

    ConfigError: an agent that needs servers has none, or what they need is not installed.

    Args:
        refresh: Look at the servers again, as each agent step does at its start.
    """
    known: ResolvedTools | None = None if refresh else session.resolved.get(agent)
    if known is not None:
        return known
    absent = await absent_tools(agent, session)
    for name, why in absent.items():
        text = f"{name} is not offered. {why}"
        session.cached(text, partial(notice, emit, text))
    replay = current_replay()  # which starts no servers
    servers: tuple[MCPServer, ...] = ()
    if replay is None:
        configured = session.settings.mcp_servers if agent.takes_configured else ()
        servers = (*agent.servers, *configured)
        check_servers(servers)
        servers = tuple(server for server in servers if server.enabled)
    if replay is not None and (offered := replay.server_tools()) is not None:
        tools = recorded_server_tools(offered, session)
        toolset = await _run_toolset(agent, session, absent, tools)
        resolved = ResolvedTools(toolset, changes=tuple(offered["changes"]))
    elif servers:
        resolve_server_tools = await asyncio.to_thread(load_client)
        found = await resolve_server_tools(
            servers, session, emit, fresh=refresh, needed=agent.needs_servers
        )
        resolved = ResolvedTools(
            toolset=await _run_toolset(agent, session, absent, found.tools),
            changes=tuple(change.text for change in found.changes),
            fatal_reason=found.fatal_reason if agent.needs_servers else "",
            acknowledge=found.acknowledge,
        )
        if refresh:
            await record_server_tools(session, found.tools, resolved.changes)
    elif agent.needs_servers and replay is None:
        raise ConfigError(
            f"The agent {agent.name} works with the tools of MCP servers, and there is none. "
            "Name one by --mcp-server NAME, URL or COMMAND, or in mcp.json."
        )
    else:
        resolved = ResolvedTools(await _run_toolset(agent, session, absent))
    session.resolved[agent] = resolved
    return resolved


async def _run_toolset(
    agent: Agent,
    session: Session,
    absent: Mapping[str, str],
    server_tools: Sequence[BaseTool] = (),
) -> Toolset:
    """Return the toolset of the session's current run: a new one if the servers' tools change."""
    small = await asks_small_model(session)

    def make() -> Toolset:
        settings = session.settings
        tools = {name: tool for name, tool in agent.tools.items() if name not in absent}
        if settings.response_format is not None and agent.structured_tool is not None:
            answer = agent.structured_tool(settings.response_format)
            tools[answer.name] = answer
        tools |= {tool.name: tool for tool in server_tools}
        library = (*(settings.tools or ()), f"{ADD}search_library")
        wanted = library if settings.library else settings.tools
        tools, selection = _selected(tools, agent.optional, wanted)
        names = [*tools] if selection is None else [name for name in selection if name in tools]
        searched = [name for name in names if name.startswith(SERVER_TOOL_PREFIX)]
        if len(searched) <= settings.search_tools_above:
            searched = []
        if small and len(names) > MOST_FOR_SMALL:
            searched += [name for name in names if name in LATER_TOOLS]
        if searched:
            search = ToolSearch.over([tools[name] for name in searched])
            tools = {**tools, search.name: search}
            selection = None if selection is None else [*selection, search.name]
        if code_mode := uses_code_mode(agent, settings, tools.values(), small=small):
            tools = {name: _told_of_tools(tool) for name, tool in tools.items()}
        asking = _question_of_programs(agent, settings, tools)
        tools, searched = {**tools, **asking}, [*searched, *asking]
        selection = selection and [*selection, *asking]
        untrusted = settings.untrusted_instructions
        toolset = Toolset(
            tools, selection, searched, untrusted_prompt=untrusted, code_mode=code_mode
        )
        if wrong := wrong_arguments(settings.rules, toolset.schemas):
            raise ConfigError(wrong)
        return toolset

    return session.cached((agent, Toolset, small, tuple(map(id, server_tools))), make)


def _question_of_programs(
    agent: Agent, settings: Settings, tools: Mapping[str, BaseTool]
) -> dict[str, BaseTool]:
    """Return the tool that is called when a host was refused to a program; models never see it."""
    sandboxed = any(traits_of(tool).sandboxed for tool in tools.values())
    if settings.sandbox.network != "ask" or not sandboxed:
        return {}
    return {tool.name: tool for tool in agent.optional() if tool.name == REACH_HOST}


def uses_code_mode(
    agent: Agent, settings: Settings, tools: Iterable[BaseTool], *, small: bool = False
) -> bool:
    """Return True if code may call the tools of a run.

    Hooks around tool calls would not see such calls, and code on another machine has other files.
    A small model solved no more tasks with it, and used more tokens (bench/README.md).
    """
    if settings.code_mode == "off" or settings.sandbox.mode == "ssh":
        return False
    if with_hook(agent.middleware, "wrap_tool_call"):
        return False
    if settings.code_mode == "on" or small:
        return settings.code_mode == "on"
    return any(
        isinstance(tool, JsonSchemaTool) or not _module(tool).startswith("openmanus_graph.")
        for tool in tools
    )


def _told_of_tools(tool: BaseTool) -> BaseTool:
    text = f"{tool.description}\n{render('code_mode')}"
    calls_tools = traits_of(tool).calls_tools
    return tool.model_copy(update={"description": text}) if calls_tools else tool


def _selected(
    tools: dict[str, BaseTool],
    optional: Callable[[], Sequence[BaseTool]],
    selection: Sequence[str] | None,
) -> tuple[dict[str, BaseTool], Sequence[str] | None]:
    """Return the tools with the wanted optional ones, and which of all are offered.

    In the selection `+NAME` adds a tool to all others that are selected, or to all.
    """
    added = [name.removeprefix(ADD) for name in selection or () if name.startswith(ADD)]
    plain = selected_alone(selection)
    others: dict[str, BaseTool] = {}
    if added:
        others = {tool.name: tool for tool in optional() if tool.name not in tools}
    if missing := [name for name in added if name not in others and name not in tools]:
        raise ConfigError(
            f"There is no tool {', '.join(missing)} to add. Available: {', '.join(others)}."
        )
    known = {name: others[name] for name in added if name in others}
    return tools | known, None if plain is None else [*plain, *added]


def selected_alone(selection: Sequence[str] | None) -> list[str] | None:
    """Return the names that are offered instead of all, without `+NAME`; None if all are."""
    if selection is None:
        return None
    plain = [name for name in selection if not name.startswith(ADD)]
    return None if selection and not plain else plain


async def absent_tools(agent: Agent, session: Session) -> Mapping[str, str]:
    """Return why some of an agent's tools cannot be offered in the session's run, by name.

    ConfigError: the agent cannot work without one of them, or the person has named it.
    """
    declared = {name: traits_of(tool) for name, tool in agent.tools.items()}
    depending = {n: t for n, t in declared.items() if t.needs_pictures or t.unavailable}
    settings = session.settings
    absent: dict[str, str] = session.find_cached((agent, absent_tools)) or {}
    if depending and not absent:
        sees = await run_models(session).see_pictures()
        for name, traits in depending.items():
            why = _BLIND if traits.needs_pictures and not sees else ""
            if not why and traits.unavailable is not None:
                look = partial(traits.unavailable, settings.sandbox)
                why = await fact_of_run(session, f"why {name} is unavailable", look)
            absent |= {name: why} if why else {}
        session.cached((agent, absent_tools), lambda: absent)
    for name in {agent.needed_tool, *(settings.tools or ())} & absent.keys():
        raise ConfigError(f"The agent {agent.name} cannot have {name}. {absent[name]}")
    return absent


def load_client() -> "ServerToolsResolver":
    """Import the MCP client, which takes most of a second. Blocks.

    ConfigError: it is not installed.
    """
    try:
        from openmanus_graph.backends.mcp.tool import resolve_server_tools
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"MCP servers are configured, which need the extra `mcp`. {install_extra('mcp')}"
        ) from error
    return resolve_server_tools


async def record_server_tools(
    session: Session, tools: "Sequence[DescribedTool]", changes: Sequence[str]
) -> None:
    """Record what servers offer to an agent step, once and after each change."""

    def described() -> dict[str, Any]:
        rows = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "argument_schema": tool.argument_schema,
                "traits": {key: one for key, one in asdict(tool.traits).items() if one is not None},
            }
            for tool in tools
        ]
        return {"tools": rows, "changes": [*changes]}

    key = (record_server_tools, tuple(map(id, tools)), tuple(changes))
    offered: dict[str, Any] = session.cached(key, described)
    session.server_tools = session.cached((*key, "name"), lambda: _name_of(offered))
    await fact_of_run(session, session.server_tools, lambda: offered)


def recorded_server_tools(offered: Mapping[str, Any], session: Session) -> Sequence[BaseTool]:
    """Return the tools that servers had offered, the same objects as long as they are the same."""
    # Only here: a run without servers loads nothing of them.
    from openmanus_graph.backends.mcp.listed_tools import RecordedTool

    def make() -> tuple[RecordedTool, ...]:
        return tuple(
            RecordedTool.model_validate({**described, "traits": Traits(**described["traits"])})
            for described in offered["tools"]
        )

    return session.cached((RecordedTool, _name_of(offered)), make)


def _name_of(offered: Mapping[str, Any]) -> str:
    text = json.dumps(offered, sort_keys=True, default=str)
    return f"MCP tools {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
