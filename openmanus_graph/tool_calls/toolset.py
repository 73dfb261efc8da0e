"""`Toolset`: the tools that a run offers. Prepares their schemas, checks and invokes calls."""

import asyncio
import base64
import inspect
import mimetypes
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolCallWithContext
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.middleware import added_messages
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool, ManusToolRuntime
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import SERVER_TOOL_PREFIX
from openmanus_graph.state.json_values import as_object
from openmanus_graph.state.manus import ManusState
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.state.validation import schema_problems, validation_problems
from openmanus_graph.tool_calls.arguments import argument_meant
from openmanus_graph.tool_calls.declaration import flow_traits, traits_of, with_idempotency_key
from openmanus_graph.tool_calls.tool_search import no_such_tool

_LONGEST_LIMIT_S = 3600.0
"""The most that a call can name; a setting may be longer."""
_call_runtime: ContextVar[CallRuntime] = ContextVar("call_runtime")
"""From `Toolset.invoke` to `_add_call_runtime`, through LangGraph's `ToolNode`."""


class Toolset:
    """Immutable. A run makes another one only when its servers' tools change: schemas cost time."""

    def __init__(
        self,
        tools: Mapping[str, BaseTool],
        selection: Sequence[str] | None,
        searched: Collection[str] = (),
        *,
        untrusted_prompt: bool = False,
        code_mode: bool = False,
    ) -> None:
        # Those of servers come and go.
        selection = selection and [
            name for name in selection if name in tools or not name.startswith(SERVER_TOOL_PREFIX)
        ]
        unknown = [name for name in selection or () if name not in tools]
        if unknown:
            raise ConfigError(
                f"There is no tool {', '.join(unknown)}. Available: {', '.join(tools)}."
            )
        self.tools = {name: tools[name] for name in (tools if selection is None else selection)}
        self.untrusted_prompt = untrusted_prompt or any(
            bool(traits_of(tool).changed) for tool in self.tools.values()
        )
        """Whether requests hold untrusted text from the start: instructions, or descriptions."""
        self.code_mode = code_mode
        """Whether programs may call the tools."""
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
        self._without_state = {
            name
            for name, tool in own.items()
            if _takes_only(self.schemas[name].get("properties", ()), tool)
        }
        """Tools that are given what the model writes, so that none can look at the state."""
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
        """Return what models are sent once these tools have been found, in the order given."""
        if not self.searched:
            return self.definitions
        named = {one["function"]["name"]: one for one in self.definitions}
        always = [one for name, one in named.items() if name not in self.searched]
        return always + [named[name] for name in loaded if name in self.searched]

    def find(self, name: str) -> BaseTool:
        """Return a tool. ToolError names the existing tools if there is none."""
        if name in self.tools:
            return self.tools[name]
        shown = [one for one in self.tools if one not in self.searched]
        raise ToolError(no_such_tool(name, self.tools, shown))

    def may_change_files(self, name: str) -> bool:
        """Return True if some call of a tool may change files of the workspace."""
        return name in self.tools and traits_of(self.tools[name]).effect != "read_only"

    async def invoke(
        self,
        name: str,
        args: Mapping[str, Any],
        call_id: str,
        runtime: CallRuntime,
        config: RunnableConfig,
        serializer: StrictSerializer,
    ) -> Observation:
        """Run a tool; a LangChain tool by `ToolNode`, which fills in what the model is not shown.

        Exception: whatever the tool raises.
        """
        tool = self.find(name)
        if isinstance(tool, JsonSchemaTool):
            return await tool.observe(args, runtime)
        call = ToolCall(type="tool_call", id=call_id, name=name, args=dict(args))
        given: Any = [call]
        if name in self._without_state:  # with the call alone, all channels are read
            given = ToolCallWithContext(__type="tool_call_with_context", tool_call=call, state={})
        token = _call_runtime.set(runtime)
        try:
            results: Any = await self._node.ainvoke(given, config)
        finally:
            _call_runtime.reset(token)
        if isinstance(results, dict):
            results = cast("dict[str, Any]", results)["messages"]
        message, update = results[0], None  # one call, one result
        if isinstance(message, Command):
            message, update = split_command(
                cast("Command[Any]", message), name, call_id, serializer
            )
        if isinstance(message.artifact, Observation):
            return message.artifact
        failed = message.status == "error"
        if isinstance(message.content, str):
            return Observation(message.content or "(no output)", failed=failed, update=update)
        workspace = runtime.session.workspace
        found = await asyncio.to_thread(read_blocks, message, failed, workspace)
        return replace(found, update=update)

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
        """Return what is wrong with a call's arguments, and what is expected."""
        if isinstance(tool := self.tools[name], JsonSchemaTool):
            return list(tool.problems(args))
        schema: Any = self._schemas[name]
        if isinstance(schema, dict):
            return schema_problems(as_object(schema), dict(args))
        return _pydantic_problems(schema, args)


async def _add_call_runtime(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    """Add the `CallRuntime` to the `ToolRuntime` of our tools."""
    found = cast("ToolRuntime[Any, Any]", request.runtime)  # its stub knows no context
    call = _call_runtime.get()
    ours = replace(request, runtime=ManusToolRuntime.of(found, call))
    return await execute(with_idempotency_key(ours, call.idempotency_key))


def read_blocks(message: ToolMessage, failed: bool, workspace: Workspace) -> Observation:
    """Read the content blocks of a LangChain tool's result; pictures become files. Blocks."""
    images: list[str] = []
    for block in message.content_blocks:
        if block["type"] == "image" and "base64" in block:
            suffix = mimetypes.guess_extension(block.get("mime_type", "")) or ".png"
            kept = workspace.keep(base64.b64decode(block["base64"]), suffix)
            images.append(workspace.relative(kept))
    shown = f"Pictures: {', '.join(images)}" if images else "(no output)"
    return Observation(str(message.text) or shown, images=tuple(images), failed=failed)


def split_command(
    command: Command[Any], name: str, call_id: str, serializer: StrictSerializer
) -> tuple[ToolMessage, str]:
    """Return a command's message for the call, and what else it writes to the state, serialised.

    ToolError: it is more than an update, or writes what is the graph's own.
    """
    update = command.update
    if command.goto or command.graph is not None or not isinstance(update, Mapping):
        raise ToolError(
            f"{name} returned a Command that is more than an update of the state, which "
            "this graph does not carry out. Return Command(update={...})."
        )
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", update))
    if own := sorted(given.keys() & (ManusState.__annotations__.keys() - {"messages"})):
        raise ToolError(f"{name} may not write {', '.join(own)}, which is the graph's own.")
    try:
        added = added_messages(given)
    except ConfigError as error:
        raise ToolError(str(error)) from error
    messages: list[Any] = added.pop("messages", [])
    results = [one for one in messages if getattr(one, "tool_call_id", "") == call_id]
    if not results:
        raise ToolError(f"{name} returned a Command without a ToolMessage for its call.")
    others = [one for one in messages if one not in results]
    written = {**added, "messages": others} if others else added
    try:
        return results[-1], serializer.to_text(written)
    except ConfigError as error:
        raise ToolError(f"What {name} writes to the state is refused. {error}") from error


def _takes_only(arguments: Collection[str], tool: BaseTool) -> bool:
    """Return True if a tool is a function that is given these arguments, and nothing else."""
    function = getattr(tool, "coroutine", None) or getattr(tool, "func", None)
    if function is None:
        return False
    try:
        return set(inspect.signature(function).parameters) == set(arguments)
    except ValueError:  # written in C
        return False


def _definition(tool: BaseTool) -> dict[str, Any]:
    """Return what models are sent, without defaults that mean the same as leaving out."""
    definition = _whole_definition(tool)
    if not isinstance(tool.args_schema, type):  # the schema of somebody else is kept
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
    """
    found: list[ToolCallRequest] = []

    async def keep(request: ToolCallRequest, execute: Any) -> ToolMessage:
        found.append(request)
        return ToolMessage("", tool_call_id=request.tool_call["id"] or "")

    made = {"type": "tool_call", "id": call["id"], "name": call["name"], "args": call["args"]}
    await ToolNode([], awrap_tool_call=keep).ainvoke([made], config)
    return found[0]
