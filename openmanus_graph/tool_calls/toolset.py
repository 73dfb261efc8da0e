"""`Toolset`: the tools that a run offers, with their schemas made ready, checked and invoked."""

import difflib
import inspect
from collections import Counter
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
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool, ManusToolRuntime
from openmanus_graph.state.mcp_server import SERVER_TOOL_PREFIX
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.state.validation import schema_problems, validation_problems
from openmanus_graph.tool_calls.declaration import (
    declared_traits,
    flow_traits,
    traits_of,
    with_idempotency_key,
)

ARGUMENTS: Mapping[str, Sequence[str]] = {
    "path": ("file_path", "filepath", "file", "filename", "file_name"),
    "file_text": ("content", "contents", "text", "file_content"),
    "old_str": ("old_string", "old_text"),
    "new_str": ("new_string", "new_text", "insert_text"),
    "command": ("cmd", "script", "shell_command", "code", "input"),
    "code": ("python", "python_code", "source", "source_code", "script", "command", "cmd", "input"),
    "action": ("command", "cmd"),
    "lines": ("view_range", "line_range"),
    "view_range": ("lines", "line_range"),
    "url": ("link", "uri", "address", "href"),
    "urls": ("url", "link", "links"),
    "query": ("q", "search_query", "search"),
    "inquire": ("question", "inquiry"),
    "response": ("answer",),
    "answer_schema": ("schema", "json_schema", "response_schema", "output_schema"),
}
"""Names that are understood, by the argument that is meant."""
FIRST_LINE, LAST_LINE, RANGE = "start_line", "end_line", "lines"
"""Two usual arguments that are understood as one."""
_ONLY_NAMED: Mapping[str, Sequence[str]] = {
    "lines": ("offset", "limit"),
    "view_range": ("offset", "limit", FIRST_LINE, LAST_LINE),
}
"""Names whose values may be meant in more than one way: the refusal names the argument."""
TOOLS: Mapping[str, Sequence[str]] = {
    "bash": (
        "shell", "sh", "terminal", "exec", "execute", "run", "cmd", "run_bash", "execute_bash",
        "bash_execute", "run_command", "execute_command", "run_shell", "run_shell_command",
        "shell_command", "run_terminal_cmd", "run_in_terminal",
    ),
    "python_execute": (
        "python", "ipython", "jupyter", "run_python", "execute_python", "run_code",
        "execute_code", "code_interpreter", "code_execution", "python_interpreter", "python_repl",
        "execute_ipython_cell",
    ),
    "str_replace_editor": (
        "write", "write_file", "create", "create_file", "save_file", "edit", "edit_file",
        "replace_in_file", "str_replace", "insert", "undo_edit", "editor", "text_editor",
        "file_editor", "str_replace_based_edit_tool", "list_files", "list_dir", "list_directory",
    ),
    "read_file": ("read", "open_file", "view_file", "cat", "load_file", "get_file", "file_read"),
    "browser_use": (
        "browser", "web_browser", "browse", "open_browser", "navigate", "goto", "go_to_url",
        "click", "click_element", "input_text", "get_state", "scroll_down", "extract_content",
    ),
    "fetch_page": ("fetch", "fetch_url", "web_fetch", "open_url", "read_url", "get_page", "curl"),
    "web_search": ("search", "google", "google_search", "search_web", "internet_search"),
    "ask_human": ("ask", "ask_user", "ask_question", "ask_followup_question", "user_input"),
    "terminate": ("finish", "done", "end", "stop", "submit", "complete", "attempt_completion"),
}  # fmt: skip
"""Names of no tool, by the tool that is meant."""


def with_declared_names(tool: BaseTool, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments with the names that the tool declares, where no other is meant.

    Only of tools declared here: what a foreign one means by a name is its author's affair. What
    remains unclear stays as it is, and validation says so.
    """
    schema = tool.args_schema
    if not (declared_traits(tool) and isinstance(schema, type) and issubclass(schema, BaseModel)):
        return dict(args)
    known = schema.model_fields
    args = _with_range(known, args)
    meant: dict[str, str] = {}
    for name in args.keys() - known.keys():
        free = [one for one, usual in ARGUMENTS.items() if name in usual and one in known]
        if len(free) == 1 and free[0] not in args:
            meant[name] = free[0]
    uses = Counter(meant.values())
    return {
        meant[name] if uses[meant.get(name, "")] == 1 else name: value
        for name, value in args.items()
    }


def _with_range(known: Collection[str], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put a first and a last line into the one argument of a tool that only reads lines."""
    given = args.keys() & {FIRST_LINE, LAST_LINE}
    if RANGE not in known or RANGE in args or not given:
        return args
    rest = {name: value for name, value in args.items() if name not in given}
    return {**rest, RANGE: [args.get(FIRST_LINE) or 1, args.get(LAST_LINE) or -1]}


def argument_meant(name: str, known: Collection[str]) -> str:
    """Return the argument that a wrong name probably means; empty if there is none."""
    usual = (*ARGUMENTS.items(), *_ONLY_NAMED.items())
    found = next((one for one, names in usual if one in known and name in names), "")
    return found or _closest(name, known)


def no_such_tool(name: str, known: Collection[str], shown: Collection[str] = ()) -> str:
    """Return an error sentence for a made-up name: the tool that it means, and what exists.

    Args:
        name: As the model wrote it.
        known: The tools that there are.
        shown: Those that the sentence lists, of those that `search_tools` does not find; all of
            them if it is empty.
    """
    plain = name.casefold().replace("-", "_")
    usual = next((tool for tool, names in TOOLS.items() if plain in names), None)
    if usual is None:
        close = _closest(name, known)
        meant = f" Did you mean {close}?" if close else ""
    else:
        meant = f" Use {usual}." if usual in known else ""
    hidden = len(known) - len(shown or known)
    others = f", and {hidden} more that search_tools finds" if hidden else ""
    return f"There is no tool {name!r}.{meant} There are: {', '.join(shown or known)}{others}."


def _closest(name: str, known: Collection[str]) -> str:
    """Return the known name that is spelled most like another; empty if none is close."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")


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
        *,
        untrusted_prompt: bool = False,
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
        self.untrusted_prompt = untrusted_prompt or any(
            bool(traits_of(tool).changed) for tool in self.tools.values()
        )
        """Whether requests hold untrusted text from the start: instructions, or descriptions."""
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
        return name in self.tools and traits_of(self.tools[name]).effect != "read_only"

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
        given: Any = [call]
        if call["name"] in self._without_state:  # with the call alone, all channels are read
            given = ToolCallWithContext(
                __type="tool_call_with_context", tool_call=cast("ToolCall", call), state={}
            )
        token = _call_runtime.set(runtime)
        try:
            results: Any = await self._node.ainvoke(given, config)
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


def _takes_only(arguments: Collection[str], tool: BaseTool) -> bool:
    """Say whether a tool is a function that is given these arguments, and nothing else."""
    function = getattr(tool, "coroutine", None) or getattr(tool, "func", None)
    if function is None:
        return False
    try:
        return set(inspect.signature(function).parameters) == set(arguments)
    except ValueError:  # written in C
        return False


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
