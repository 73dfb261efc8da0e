"""What tool calls are called, on a terminal and on the page.

A title is a template, which the page translates, and its values.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

Args = Mapping[str, Any]
Title = tuple[str, dict[str, str]]

MAX_CHARS = 300
"""The longest title; a terminal also cuts it to its width."""


def describe_call(tool: str, args: Args) -> str:
    """Describe in one line what a call does; by name and arguments if the tool is not known."""
    template, values = call_title(tool, args)
    line = " ".join(template.format_map(values).split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"


def call_title(tool: str, args: Args) -> Title:
    """Return the title of a call, each value in one line."""
    try:
        template, values = _TITLES[tool](args)
    except (KeyError, TypeError, ValueError, AttributeError):  # a model may send anything
        given = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items())
        template, values = "{call}", {"call": f"{tool}({', '.join(given)})"}
    return template, {name: " ".join(str(v).split())[:MAX_CHARS] for name, v in values.items()}


def with_titles(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event with the titles of its calls."""
    if event["type"] == "tool_start":
        return {**event, "title": call_title(event["tool"], event["args"])}
    if event["type"] == "interrupt":
        calls = [{**one, "title": call_title(one["tool"], one["args"])} for one in event["calls"]]
        return {**event, "calls": calls}
    return {**event}


def _code(sign: str, code: str) -> tuple[str, dict[str, Any]]:
    """Return the first line of code that does something, and how many lines there are."""
    lines = [line for line in code.splitlines() if line.strip()]
    telling = [line for line in lines if not line.lstrip().startswith(("#", "import ", "from "))]
    first = (telling or lines or [""])[0].strip()
    values = {"sign": sign, "code": first, "n": len(lines)}
    return "{sign} {code}  (… {n} lines)" if len(lines) > 1 else "{sign} {code}", values


def _edit(args: Args) -> tuple[str, dict[str, Any]]:
    path = args["path"]
    match args["command"]:
        case "view":
            between = args.get("view_range")
            if not isinstance(between, list):
                return "look at {path}", {"path": path}
            lines = f"{between[0]}-{between[1]}"
            return "look at {path}, lines {lines}", {"path": path, "lines": lines}
        case "create":
            count = len(str(args["file_text"]).splitlines())
            many = "write {path}, 1 line" if count == 1 else "write {path}, {n} lines"
            return many, {"path": path, "n": count}
        case "str_replace":
            return "edit {path}", {"path": path}
        case "insert":
            values = {"path": path, "n": args["insert_line"]}
            return "insert into {path} after line {n}", values
        case _:
            return "undo the last edit of {path}", {"path": path}


def _read(args: Args) -> tuple[str, dict[str, Any]]:
    for part in ("lines", "pages"):
        if args.get(part):
            return f"read {{path}}, {part} {{part}}", {"path": args["path"], "part": args[part]}
    return "read {path}", {"path": args["path"]}


def _browse(args: Args) -> tuple[str, dict[str, Any]]:
    rest = (str(value) for name, value in args.items() if name != "action" and value is not None)
    return "browser: {action}", {"action": f"{args['action']} {' '.join(rest)}"}


def _pages(args: Args) -> tuple[str, dict[str, Any]]:
    urls = args.get("urls") or args["url"]
    return "read {path}", {"path": urls if isinstance(urls, str) else " ".join(urls)}


def _shell(args: Args) -> tuple[str, dict[str, Any]]:
    command = str(args.get("command") or "").strip()
    if not command:
        return "a new shell" if args.get("restart") else "look at the background commands", {}
    return _code("$", command)


def _plan(args: Args) -> tuple[str, dict[str, Any]]:
    return "plan: {what}", {"what": f"{args['command']} {args.get('title') or ''}"}


def _reach(args: Args) -> tuple[str, dict[str, Any]]:
    values = {"address": args["address"], "why": args.get("why") or "-"}
    return "allow programs to reach {address} (refused before: {why})", values


def _delegate(args: Args) -> tuple[str, dict[str, Any]]:
    return "ask {agent}: {task}", {"agent": args["agent"], "task": args["task"]}


_TITLES: Mapping[str, Callable[[Args], tuple[str, dict[str, Any]]]] = {
    "bash": _shell,
    "python_execute": lambda args: _code("python:", args["code"]),
    "str_replace_editor": _edit,
    "read_file": _read,
    "reach_host": _reach,
    "browser_use": _browse,
    "web_search": lambda args: ("search: {query}", {"query": args["query"]}),
    "fetch_page": _pages,
    "crawl4ai": _pages,
    "ask_human": lambda args: ("ask you: {question}", {"question": args["inquire"]}),
    "create_chat_completion": lambda _: ("write the answer", {}),
    "delegate": _delegate,
    "terminate": lambda args: ("end: {status}", {"status": args["status"]}),
    "planning": _plan,
}
