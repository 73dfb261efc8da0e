"""The names that models often give to tools and arguments, by the name that is meant.

Where an argument cannot be mistaken for another, its call is run as it is meant. Elsewhere the
refusal names the right one. A made-up tool is never run: its call may mean another one's effect.
"""

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel

from openmanus_graph.tool_calls.declaration import declared_traits

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
