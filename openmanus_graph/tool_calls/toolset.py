"""The tools that a run offers, with their schemas made ready; each agent step resolves them.

An agent's own tools stay the same during a run; those of MCP servers may come and go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from openmanus_graph.config.mcp import check_servers
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.model_calls.candidates import pictures_reach_a_model
from openmanus_graph.model_calls.flight_recorder import fact_of_run
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool, ManusToolRuntime
from openmanus_graph.safety.policy import wrong_arguments
from openmanus_graph.state.mcp_server import SERVER_TOOL_PREFIX, MCPServer
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.state.validation import schema_problems, validation_problems
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.declaration import flow_traits, traits_of
from openmanus_graph.tool_calls.idempotency import with_idempotency_key
from openmanus_graph.tool_calls.tool_search import ToolSearch
from openmanus_graph.tool_calls.usual_names import argument_meant, no_such_tool

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.server_tools import ServerTools

    ServerToolsResolver = Callable[..., Awaitable[ServerTools]]

ADD = "+"
"""Begins the name of an optional tool that is to be offered as well."""
_LONGEST_LIMIT_S = 1e9
"""More than any call takes, and no more than a clock can add."""
_call_runtime: ContextVar[CallRuntime] = ContextVar("call_runtime")
"""From `Toolset.invoke` to `_add_call_runtime`; LangGraph's `ToolNode` stands between them."""


class Toolset:
    """Immutable; made anew in a run only when its servers' tools change: schemas cost time."""

    def __init__(
        self,
        tools: Mapping[str, BaseTool],
        selection: Sequence[str] | None,
        searched: Collection[str] = (),
    ) -> None:
        # Those of servers come and go.
        selection = selection and [
            name for name in selection if name in tools or not name.startswith(SERVER_TOOL_PREFIX)
        ]
        unknown = [name for name in selection or () if name not in tools]
        if unknown:
            raise ConfigError(
                f"There is no tool {', '.join(unknown)}. There are: {', '.join(tools)}."
            )
        self.tools = {name: tools[name] for name in (tools if selection is None else selection)}
        self.searched = frozenset(searched)
        """Tools that models are sent only once `search_tools` has found them."""
        self.definitions = [_definition(tool) for tool in self.tools.values()]
        self.schemas: dict[str, dict[str, Any]] = {
            tool["function"]["name"]: tool["function"].get("parameters", {})
            for tool in map(_whole_definition, self.tools.values())
        }
        """JSON schemas of the arguments, by tool; all defaults are named."""
        own = {
            name: tool for name, tool in self.tools.items() if not isinstance(tool, JsonSchemaTool)
        }
        self._node = ToolNode(
            list(own.values()), handle_tool_errors=False, awrap_tool_call=_add_call_runtime
        )
        self._schemas = {name: tool.tool_call_schema for name, tool in own.items()}
        self._limited = {
            name for name in own if "timeout_s" in self.schemas[name].get("properties", {})
        }
        """Tools that take a time limit and keep it themselves."""
        self.self_stopping = self._limited | {
            n for n, tool in own.items() if traits_of(tool).stops_itself
        }
        """Tools that end their work at the time limit and return what there is."""
        if any(isinstance(schema, dict) for schema in self._schemas.values()):
            schema_problems({}, None)  # loads the checker now: later it would stop the event loop

    @cached_property
    def traits(self) -> dict[str, Traits]:
        """The traits of each tool, with the destinations of those that declare none."""
        return flow_traits(self.tools)

    def loaded_definitions(self, loaded: Sequence[str]) -> list[dict[str, Any]]:
        """Return what models are sent when these tools have been found, in the order given."""
        if not self.searched:
            return self.definitions
        named = {one["function"]["name"]: one for one in self.definitions}
        always = [one for name, one in named.items() if name not in self.searched]
        return always + [named[name] for name in loaded if name in self.searched]

    def find(self, name: str) -> BaseTool:
        """Return a tool. ToolError, naming what exists, for a name the model made up."""
        if name in self.tools:
            return self.tools[name]
        shown = [one for one in self.tools if one not in self.searched]
        raise ToolError(no_such_tool(name, self.tools, shown))

    def may_change_files(self, name: str) -> bool:
        """Say whether some call of a tool may change files of the workspace."""
        return name in self.tools and traits_of(self.tools[name]).effect != "pure"

    async def invoke(
        self, call: Mapping[str, Any], runtime: CallRuntime, config: RunnableConfig
    ) -> ToolMessage | Command[Any]:
        """Run a tool by LangGraph's `ToolNode`, which fills in what the model is not shown.

        Args:
            call: In LangChain's form, with valid arguments.
            runtime: What tools of ours may use.
            config: Of the node.

        Raises:
            Exception: Whatever the tool raises.
        """
        token = _call_runtime.set(runtime)
        try:
            results: Any = await self._node.ainvoke([call], config)
        finally:
            _call_runtime.reset(token)
        if isinstance(results, dict):
            results = cast("dict[str, Any]", results)["messages"]
        return cast("ToolMessage | Command[Any]", results[0])  # one call, one result

    def with_defaults(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's arguments together with the defaults of those that were left out."""
        properties: Mapping[str, Any] = self.schemas[name].get("properties", {})
        defaults: dict[str, Any] = {
            key: described["default"]
            for key, described in properties.items()
            if isinstance(described, dict) and "default" in described  # a server's may be `true`
        }
        return {**defaults, **args}

    def own_limit_s(self, name: str, args: Mapping[str, Any]) -> float | None:
        """Return the seconds that a call's `timeout_s` allows, as its tool will read it.

        None without that argument, or if it says nothing. The arguments must be valid.
        """
        if name not in self._limited:
            return None
        schema: Any = self._schemas[name]
        if isinstance(schema, dict):
            named: Any = self.with_defaults(name, args).get("timeout_s")
        else:
            named = getattr(schema.model_validate(dict(args)), "timeout_s", None)
        if not isinstance(named, int | float):
            return None
        return min(_LONGEST_LIMIT_S, max(1.0, named))

    def check(self, name: str, args: Mapping[str, Any]) -> None:
        """Validate a call's arguments. ToolError says which is wrong and what is expected."""
        if problems := self.problems(name, args):
            raise ToolError(
                f"{name} was not run. {'; '.join(problems)}. Call it again with correct arguments."
            )

    def problems(self, name: str, args: Mapping[str, Any]) -> list[str]:
        """Say what is wrong with a call's arguments, and what is expected."""
        if isinstance(tool := self.tools[name], JsonSchemaTool):
            return list(tool.problems(args))
        schema: Any = self._schemas[name]
        if isinstance(schema, dict):
            return list(schema_problems(cast("dict[str, Any]", schema), dict(args)))
        return _pydantic_problems(schema, args)


async def _add_call_runtime(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    """Let our tools find the `CallRuntime` in their `ToolRuntime`."""
    found = cast("ToolRuntime[Any, Any]", request.runtime)  # its stub knows no context
    call = _call_runtime.get()
    ours = replace(request, runtime=ManusToolRuntime.of(found, call))
    return await execute(with_idempotency_key(ours, call.idempotency_key))


def _definition(tool: BaseTool) -> dict[str, Any]:
    """Return what models are sent: without defaults that say no more than leaving out does."""
    definition = _whole_definition(tool)
    if not isinstance(tool.args_schema, type):  # somebody else's schema stays as it is
        return definition
    properties = definition["function"].get("parameters", {}).get("properties", {})
    for described in properties.values():
        if described.get("default", True) in (None, False, ""):
            del described["default"]
    return definition


def _whole_definition(tool: BaseTool) -> dict[str, Any]:
    if not isinstance(tool, JsonSchemaTool):
        return convert_to_openai_tool(tool)
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _pydantic_problems(schema: type[BaseModel], args: Mapping[str, Any]) -> list[str]:
    known = schema.model_fields
    problems = []
    if schema.model_config.get("extra") != "allow":
        problems = [
            f"There is no argument {name!r} ({f'did you mean {meant}? ' if meant else ''}"
            f"there are: {', '.join(known) or 'none'})"
            for name in args
            if name not in known and name not in {field.alias for field in known.values()}
            for meant in [argument_meant(name, known)]
        ]
    try:
        schema.model_validate(dict(args))
    except ValidationError as error:
        problems += validation_problems(error)
    return problems


async def tool_call_request(call: Mapping[str, Any], config: RunnableConfig) -> ToolCallRequest:
    """Return LangGraph's request for a call, with the state read from the graph's channels.

    Only `ToolNode` knows how to read them; copied into each task, a long conversation would be
    stored as often as there are calls.

    Args:
        call: In LangChain's form.
        config: Of the node.
    """
    found: list[ToolCallRequest] = []

    async def keep(request: ToolCallRequest, execute: Any) -> ToolMessage:
        found.append(request)
        return ToolMessage("", tool_call_id=request.tool_call["id"] or "")

    await ToolNode([], awrap_tool_call=keep).ainvoke([call], config)
    return found[0]


def _run_toolset(
    agent: Agent,
    session: Session,
    absent: Mapping[str, str],
    server_tools: Sequence[BaseTool] = (),
) -> Toolset:
    """Return the toolset of the session's current run; made anew when the servers' tools change."""

    def make() -> Toolset:
        settings = session.settings
        tools = {name: tool for name, tool in agent.tools.items() if name not in absent}
        if settings.response_format is not None and agent.structured_tool is not None:
            answer = agent.structured_tool(settings.response_format)
            tools[answer.name] = answer
        tools |= {tool.name: tool for tool in server_tools}
        tools, selection = _selected(tools, agent.optional, settings.tools)
        toolset = Toolset(*_searched(tools, selection, settings.search_tools_above))
        if wrong := wrong_arguments(settings.rules, toolset.schemas):
            raise ConfigError(wrong)
        return toolset

    return session.cached((agent, Toolset, tuple(map(id, server_tools))), make)


def _selected(
    tools: dict[str, BaseTool], optional: Sequence[BaseTool], selection: Sequence[str] | None
) -> tuple[dict[str, BaseTool], Sequence[str] | None]:
    """Return the tools with the optional ones that are wanted, and which of all are offered.

    Args:
        tools: The agent's.
        optional: What may be added.
        selection: Names; `+NAME` adds one to all others that are selected, or to all.
    """
    added = [name.removeprefix(ADD) for name in selection or () if name.startswith(ADD)]
    plain = selected_alone(selection)
    known = {tool.name: tool for tool in optional if tool.name in added}
    if missing := [name for name in added if name not in known and name not in tools]:
        raise ConfigError(
            f"There is no tool {', '.join(missing)} to add. There are: "
            f"{', '.join(tool.name for tool in optional)}."
        )
    return tools | known, None if plain is None else [*plain, *added]


def selected_alone(selection: Sequence[str] | None) -> list[str] | None:
    """Return the names that are to be offered instead of all; None if all are.

    Args:
        selection: Names; those that begin with `+` are offered as well as the others.
    """
    if selection is None:
        return None
    plain = [name for name in selection if not name.startswith(ADD)]
    return None if selection and not plain else plain


def _searched(
    tools: dict[str, BaseTool], selection: Sequence[str] | None, most: int
) -> tuple[dict[str, BaseTool], Sequence[str] | None, Collection[str]]:
    """Return the tools with `search_tools`, if those of servers are too many, and which these are.

    Args:
        tools: All of them.
        selection: Names of those that are offered; None: all.
        most: Tools of servers that are sent to models without it.
    """
    names = tools if selection is None else [name for name in selection if name in tools]
    of_servers = [name for name in names if name.startswith(SERVER_TOOL_PREFIX)]
    if len(of_servers) <= most:
        return tools, selection, ()
    search = ToolSearch.over([tools[name] for name in of_servers])
    chosen = None if selection is None else [*selection, search.name]
    return {**tools, search.name: search}, chosen, of_servers


@dataclass(frozen=True)
class ResolvedTools:
    """The tools of one agent step."""

    toolset: Toolset
    changes: tuple[str, ...] = ()
    """What the model should be told about changes of the servers."""
    fatal_reason: str = ""
    """Why the run cannot go on without the servers; empty if it can."""
    acknowledge: Callable[[], None] = lambda: None
    """To be called when the model has been told the changes."""


async def resolve_tools(
    agent: Agent, session: Session, emit: Emit, *, refresh: bool = False
) -> ResolvedTools:
    """Return the tools that an agent step offers; within it always the same.

    Args:
        agent: Whose run it is.
        session: Of the run.
        emit: Takes notices about servers.
        refresh: Look at the servers again, as each agent step does at its start.

    Raises:
        ConfigError: An agent that needs servers has none, or what they need is not installed.
    """
    known: ResolvedTools | None = None if refresh else session.resolved.get(agent)
    if known is not None:
        return known
    absent = await absent_tools(agent, session)
    for name, why in absent.items():
        text = f"{name} is not offered. {why}"
        session.cached(text, partial(notice, emit, text))
    replay = current_replay()  # which starts no servers
    servers = () if replay is not None else servers_of(agent, session.settings)
    if replay is not None and (offered := replay.server_tools()) is not None:
        # Only here and below: a run without servers loads nothing of them.
        from openmanus_graph.tool_calls.recorded_servers import recorded_server_tools

        resolved = ResolvedTools(
            toolset=_run_toolset(agent, session, absent, recorded_server_tools(offered, session)),
            changes=tuple(offered["changes"]),
        )
    elif servers:
        resolve_server_tools = await asyncio.to_thread(load_client)
        found = await resolve_server_tools(
            servers, session, emit, fresh=refresh, needed=agent.needs_servers
        )
        resolved = ResolvedTools(
            toolset=_run_toolset(agent, session, absent, found.tools),
            changes=tuple(change.text for change in found.changes),
            fatal_reason=found.fatal_reason if agent.needs_servers else "",
            acknowledge=found.acknowledge,
        )
        if refresh:
            from openmanus_graph.tool_calls.recorded_servers import record_server_tools

            await record_server_tools(session, found.tools, resolved.changes)
    elif agent.needs_servers and replay is None:
        raise ConfigError(
            f"The agent {agent.name} works with the tools of MCP servers, and there is none. "
            "Name one by --server NAME, URL or COMMAND, or in mcp.json."
        )
    else:
        resolved = ResolvedTools(_run_toolset(agent, session, absent))
    session.resolved[agent] = resolved
    return resolved


async def absent_tools(agent: Agent, session: Session) -> Mapping[str, str]:
    """Return why some of an agent's tools cannot be offered in the session's run, by name.

    Raises:
        ConfigError: The agent can do nothing without one of them, or the person has named it.
    """
    declared = {name: traits_of(tool) for name, tool in agent.tools.items()}
    depending = {n: t for n, t in declared.items() if t.needs_pictures or t.unavailable}
    settings = session.settings
    absent: dict[str, str] = session.find_cached((agent, absent_tools)) or {}
    if depending and not absent:
        sees = await pictures_reach_a_model(settings)
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


_BLIND = (
    "The model is not known to see pictures: choose one that does by --model, set vision_model, or "
    "[llm] sees_images = true if this one sees."
)


def servers_of(agent: Agent, settings: Settings) -> tuple[MCPServer, ...]:
    """Return the servers of a run: the graph's own, then the configured ones."""
    configured = settings.mcp_servers if agent.takes_configured else ()
    servers = (*agent.servers, *configured)
    check_servers(servers)
    return tuple(server for server in servers if server.enabled)


def load_client() -> "ServerToolsResolver":
    """Import the MCP client, which takes most of a second. Blocks.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        from openmanus_graph.backends.mcp.server_tools import resolve_server_tools
    except ModuleNotFoundError as error:
        raise ConfigError(
            "MCP servers are configured. Install what they need: pip install "
            "'openmanus-graph[mcp]' (in a clone: uv sync --extra mcp)."
        ) from error
    return resolve_server_tools
