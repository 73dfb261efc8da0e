"""A tool call as a person reads it: in one line, as a diff, or as it will happen."""

import difflib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from rich.markup import escape
from rich.text import Text

from openmanus_graph.interfaces.service.call_titles import Args, describe_call
from openmanus_graph.runtime.output import printable
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath

DiffLine = tuple[Literal["+", "-", " ", "…"], str]

MAX_FILE_BYTES = 2 << 20
"""Of a file whose lines are numbered in the diff of a call that will change it."""
OUTPUT_LINES = 6
WHOLE = 1 << 30
_EDITED = {
    "create": ("", "file_text"),
    "str_replace": ("old_str", "new_str"),
    "insert": ("", "new_str"),
}
"""The arguments with the old and the new text, by the editor's command."""
_DIFF_MARKS = {"old_str": "- ", "new_str": "+ "}
_DIFF_STYLES = {"+": "green", "-": "red", " ": "dim", "…": "dim"}
_NUMBERED = re.compile(r" *(\d+)\t(.*)")
"""A line of a file in the result of an edit."""


def edit_diff(
    tool: str, args: Args, max_lines: int, *, output: str = "", content: str = ""
) -> Iterator[DiffLine]:
    """Yield the lines that a call of the editor changes in its file; nothing for other calls.

    They have the numbers of the file's lines if these are known: from the result of the edit
    (`output`), or from the file's content before it.
    """
    names = _EDITED.get(str(args.get("command")))
    if tool != "str_replace_editor" or names is None:
        return
    before, after = (str(args.get(name) or "").splitlines() for name in names)
    if args["command"] == "create":
        before, first = content.splitlines(), 1
    else:
        first = _first_line(args, output, content)
    diff = difflib.unified_diff(before, after, n=2, lineterm="")
    lines, old, new = list[DiffLine](), 0, 0
    for line in itertools.islice(diff, 2, None):
        mark: Any = line[0]  # "+", "-" or " "; "@" begins a part
        if mark == "@":
            begins = [int(one) for one in re.findall(r"[-+](\d+)", line)]
            old, new = (first - 1 + max(one, 1) for one in begins)
            continue
        number = f"{old if mark == '-' else new:4} " if first else ""
        lines.append((mark, f"{number}{line[1:]}"))
        old, new = old + (mark != "+"), new + (mark != "-")
    yield from lines[:max_lines]
    if len(lines) > max_lines:
        yield "…", f"{len(lines) - max_lines} more lines"


def _first_line(args: Args, output: str, content: str) -> int:
    """Return the number of the first line that an edit changes or adds; 0 if it is not known."""
    if args["command"] == "insert" and isinstance(args.get("insert_line"), int):
        return int(args["insert_line"]) + 1
    if (place := content.find(str(args.get("old_str")))) >= 0:
        return content.count("\n", 0, place) + 1
    shown = [match.groups() for line in output.splitlines() if (match := _NUMBERED.match(line))]
    changed = str(args.get("new_str") or "").splitlines()
    for at, (number, _) in enumerate(shown):
        there = [text for _, text in shown[at : at + len(changed)]]
        if changed and all(new in text for new, text in zip(changed, there, strict=False)):
            return int(number)
    return 0


def diff_texts(lines: Iterator[DiffLine], max_chars: int) -> list[Text]:
    return [Text(f"{mark} {line[:max_chars]}", style=_DIFF_STYLES[mark]) for mark, line in lines]


def first_lines(output: str, max_chars: int) -> list[str]:
    """Return the first lines of a tool's output, each cut, and how many more there are."""
    lines = printable(output).splitlines()
    more = len(lines) - OUTPUT_LINES
    shown = [line[:max_chars] for line in lines[:OUTPUT_LINES]]
    return [*shown, f"… {more} more lines"] if more > 0 else shown


def call_texts(call: Mapping[str, Any], workspace: str) -> Iterator[Text]:
    """Yield a call as it will happen: texts unescaped and whole, an edit as a diff of its file."""
    tool, args = printable(call["tool"]), call["args"]
    if not any(isinstance(one, str) and printable(one) != one for one in args.values()):
        try:
            with open_beneath(Path(workspace), str(args.get("path")), limit=MAX_FILE_BYTES) as file:
                content = file.read().decode("utf-8", "replace")
        except (OSError, UnsafeFileError, ValueError):
            content = ""  # a new file, or the call will fail
        if diff := diff_texts(edit_diff(tool, args, WHOLE, content=content), WHOLE):
            yield from (Text(describe_call(tool, args)), *diff)
            return
    yield Text(tool)
    for name, value in args.items():
        plain = isinstance(value, str) and printable(value) == value  # else what is hidden is shown
        lines = str(value if plain else json.dumps(value, ensure_ascii=False)).split("\n")
        if len(lines) == 1 and name not in _DIFF_MARKS:
            yield Text(printable(f"  {name}: {lines[0]}"))
        else:
            yield Text(printable(f"  {name}:"))
            for line in lines:
                yield Text(printable(f"    {_DIFF_MARKS.get(name, '')}{line}"))


def end_mark(event: Mapping[str, Any]) -> str:
    if event.get("by_person"):
        return "[magenta]= your result for[/]"
    return "[green]✓[/]" if event["ok"] else "[red]✗[/]"


def label(event: Mapping[str, Any]) -> str:
    """Return a label with an event's plan step, because steps run in parallel."""
    step = event.get("plan_step")
    return f"[cyan]{escape(printable(f'[{step}]'))}[/] " if step else ""
