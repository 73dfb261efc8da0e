"""Finds tools: by the words of `search_tools`, and by wrong names in a call.

Only tools that `search_tools` found are described to the model. A request begins with its tools, so
each change of them costs the provider's cache: `think` appends what was found, in the order in
which it was found, and removes nothing.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, PrivateAttr
from typing_extensions import override

from openmanus_graph.prompts import render
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.state.validation import schema_problems
from openmanus_graph.tool_calls.declaration import declared_traits

SEARCH_TOOLS = "search_tools"
MOST_LOADED = 5
"""Tools that words load at once; any number can be named."""
MOST_NAMED = 15
"""Further ones that a result names."""
MOST_NAMES_CHARS = 4000
"""Of the names in the description."""
_LINE_CHARS = 120
_NAME_WEIGHT = 3
_SHORT = 2
"""Characters of words that begin too many others."""
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words for what you want to do, or names."}
    },
    "required": ["query"],
    "additionalProperties": False,
}


class ToolSearch(JsonSchemaTool):
    """Searches these tools."""

    _tools: Mapping[str, BaseTool] = PrivateAttr()

    @classmethod
    def over(cls, tools: Sequence[BaseTool]) -> "ToolSearch":
        """Return the tool that searches others."""
        search = cls(
            name=SEARCH_TOOLS,
            description=render(
                "search_tools", count=str(len(tools)), names=_names([tool.name for tool in tools])
            ),
            parameters=_SCHEMA,
            traits=Traits(effect="read_only"),
        )
        search._tools = {tool.name: tool for tool in tools}
        return search

    @override
    def problems(self, args: Mapping[str, Any]) -> list[str]:
        return list(schema_problems(_SCHEMA, dict(args)))

    @override
    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> Observation:
        query = str(args["query"])
        named = [name for name in re.split(r"[\s,;]+", query) if name in self._tools]
        found = named or matching_tools(query, self._tools.values())
        loaded, others = (named, []) if named else (found[:MOST_LOADED], found[MOST_LOADED:])
        if not loaded:
            return Observation(
                f"No tool matches {query!r}. Try other words, such as {_names(self._tools)}."
            )
        lines = ["You can call these from now on:", *(_line(self._tools[name]) for name in loaded)]
        if others:
            lines += ["These match as well; search for their names to load them:"]
            lines += [_line(self._tools[name]) for name in others[:MOST_NAMED]]
        return Observation(
            "\n".join(lines), update=StrictSerializer().to_text({"loaded_tools": loaded})
        )


def matching_tools(query: str, tools: Iterable[BaseTool]) -> list[str]:
    """Return the names of the tools that match some words of a query, best first.

    A word counts the more, the fewer tools have it; in a name it counts several times.
    """
    words = {word.rstrip("s") or word for word in _words(query)}
    texts = {tool.name: (_words(tool.name), _words(tool.description)) for tool in tools}
    scores = dict.fromkeys(texts, 0.0)
    for word in words:
        named = {tool for tool, (name, _) in texts.items() if _has(name, word)}
        having = named | {tool for tool, (_, about) in texts.items() if _has(about, word)}
        for tool in having:
            rarity = math.log(1 + len(texts) / len(having))
            scores[tool] += rarity * (_NAME_WEIGHT if tool in named else 1)
    matching = [tool for tool, score in scores.items() if score > 0]
    return sorted(matching, key=lambda tool: -scores[tool])


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


def _has(words: set[str], wanted: str) -> bool:
    """Return True if a word is among others, or begins one of them."""
    long = len(wanted) > _SHORT
    return wanted in words or (long and any(word.startswith(wanted) for word in words))


def _names(names: Iterable[str]) -> str:
    listed, rest = "", list(names)
    while rest and len(listed) + len(rest[0]) < MOST_NAMES_CHARS:
        listed += f", {rest.pop(0)}" if listed else rest.pop(0)
    return f"{listed} ... and {len(rest)} more" if rest else listed


def _line(tool: BaseTool) -> str:
    first = " ".join(tool.description.split())
    return f"- {tool.name}: {first[:_LINE_CHARS]}{' ...' if len(first) > _LINE_CHARS else ''}"


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
    """Return a call's arguments with the names that the tool declares, if the meaning is clear.

    Only for tools declared here: the author of another tool decides what its names mean. Unclear
    names are kept, and validation reports them.
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

    It lists the tools `shown`, of those that `search_tools` does not find, or all.
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
    return f"There is no tool {name!r}.{meant} Available: {', '.join(shown or known)}{others}."


def _closest(name: str, known: Collection[str]) -> str:
    """Return the known name that is spelled most like another; empty if none is close."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")
