"""Finds tools: by the words of `search_tools`, and by wrong names in a call.

Only tools that `search_tools` found are described to the model. A request begins with its tools, so
each change of them costs the provider's cache: `think` appends what was found, in the order in
which it was found, and removes nothing.
"""

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import PrivateAttr
from typing_extensions import override

from openmanus_graph.prompts import render
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.state.validation import schema_problems

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


def no_such_tool(name: str, known: Collection[str], shown: Collection[str] = ()) -> str:
    """Return an error sentence for a made-up name: the tool that it means, and what exists.

    It lists the tools `shown`, of those that `search_tools` does not find, or all.
    """
    plain = name.casefold().replace("-", "_")
    usual = next((tool for tool, names in TOOLS.items() if plain in names), None)
    if usual is None:
        close = closest(name, known)
        meant = f" Did you mean {close}?" if close else ""
    else:
        meant = f" Use {usual}." if usual in known else ""
    hidden = len(known) - len(shown or known)
    others = f", and {hidden} more that search_tools finds" if hidden else ""
    return f"There is no tool {name!r}.{meant} Available: {', '.join(shown or known)}{others}."


def closest(name: str, known: Collection[str]) -> str:
    """Return the known name that is spelled most like another; empty if none is close."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")
