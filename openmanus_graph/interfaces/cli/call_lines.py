"""What a tool call does, in one line for a person; and what an edit changes, as a diff."""

import difflib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

Args = Mapping[str, Any]
DiffLine = tuple[Literal["+", "-", " ", "…"], str]

MAX_CHARS = 300
"""Of one line: the view cuts it to the terminal's width."""
_CONTEXT_LINES = 2


def describe_call(tool: str, args: Args) -> str:
    """Say in one line what a call does; a tool that is not known by its name and arguments."""
    describe = _DESCRIPTIONS.get(tool)
    try:
        text = describe(args) if describe else _by_arguments(tool, args)
    except (KeyError, TypeError, ValueError, AttributeError):  # a model may send anything
        text = _by_arguments(tool, args)
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"


def edit_diff(tool: str, args: Args, max_lines: int) -> Iterator[DiffLine]:
    """Yield what a call of the editor changes in its file, a line each; nothing for other calls."""
    if tool != "str_replace_editor":
        return
    old, new = "", ""
    match args.get("command"):
        case "create":
            new = str(args.get("file_text") or "")
        case "str_replace":
            old, new = str(args.get("old_str") or ""), str(args.get("new_str") or "")
        case "insert":
            new = str(args.get("new_str") or "")
        case _:
            return
    lines = list(_diff(old.splitlines(), new.splitlines()))
    yield from lines[:max_lines]
    if len(lines) > max_lines:
        yield "…", f"{len(lines) - max_lines} more lines"


def _diff(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    lines = difflib.unified_diff(old, new, n=_CONTEXT_LINES, lineterm="")
    for line in itertools.islice(lines, 2, None):  # after the names of the two files
        if not line.startswith("@@"):
            mark: Any = line[0]  # "+", "-" or " "
            yield mark, line[1:]


def _by_arguments(tool: str, args: Args) -> str:
    given = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items())
    return f"{tool}({', '.join(given)})"


def _code(prefix: str, code: str) -> str:
    """Return the first line of code that does something, and how many lines there are."""
    lines = [line for line in code.splitlines() if line.strip()]
    telling = [line for line in lines if not line.lstrip().startswith(("#", "import ", "from "))]
    first = (telling or lines or [""])[0].strip()
    return f"{prefix}{first}{f'  (… {len(lines)} lines)' if len(lines) > 1 else ''}"


def _edit(args: Args) -> str:
    path, command = args["path"], args["command"]
    match command:
        case "view":
            between = args.get("view_range")
            lines = f", lines {between[0]}-{between[1]}" if isinstance(between, list) else ""
            return f"look at {path}{lines}"
        case "create":
            count = len(str(args["file_text"]).splitlines())
            return f"write {path}, {count} line{'' if count == 1 else 's'}"
        case "str_replace":
            return f"edit {path}"
        case "insert":
            return f"insert into {path} after line {args['insert_line']}"
        case _:
            return f"take back the last edit of {path}"


def _read(args: Args) -> str:
    part = next((f", {key} {args[key]}" for key in ("lines", "pages") if args.get(key)), "")
    return f"read {args['path']}{part}"


def _browse(args: Args) -> str:
    rest = (str(value) for name, value in args.items() if name != "action" and value is not None)
    return f"browser: {args['action']} {' '.join(rest)}"


def _pages(args: Args) -> str:
    urls = args.get("urls") or args["url"]
    return f"read {urls if isinstance(urls, str) else ' '.join(urls)}"


def _shell(args: Args) -> str:
    command = str(args.get("command") or "").strip()
    if not command:
        return "a new shell" if args.get("restart") else "look at the background commands"
    return _code("$ ", command)


_DESCRIPTIONS: Mapping[str, Callable[[Args], str]] = {
    "bash": _shell,
    "python_execute": lambda args: _code("python: ", args["code"]),
    "str_replace_editor": _edit,
    "read_file": _read,
    "browser_use": _browse,
    "web_search": lambda args: f"search: {args['query']}",
    "fetch_page": _pages,
    "crawl4ai": _pages,
    "ask_human": lambda args: f"ask you: {args['inquire']}",
    "create_chat_completion": lambda _: "write the answer",
    "terminate": lambda args: f"end: {args['status']}",
    "planning": lambda args: f"plan: {args['command']} {args.get('title') or ''}",
}
