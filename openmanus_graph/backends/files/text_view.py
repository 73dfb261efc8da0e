"""How lines of a file are shown to the model: numbered, cut in the middle when long."""

from openmanus_graph.backends.files.text_file import printable
from openmanus_graph.errors import ToolError

MAX_VIEW_CHARS = 16_000
MAX_LINE_CHARS = 2_000
_AROUND = 4


def checked_range(view_range: list[int] | None, total: int) -> tuple[int, int]:
    """Read a `view_range`, 1-based, -1 for the last line; ToolError if it names no lines."""
    if view_range is None:
        return 1, total
    if len(view_range) != 2:
        raise ToolError("view_range takes two numbers: [first line, last line], -1 = the end.")
    first, last = view_range
    if not 1 <= first <= max(total, 1):
        raise ToolError(f"view_range begins at {first}; the file has lines 1 to {total}.")
    if last != -1 and last < first:
        raise ToolError(f"view_range ends at {last}, before its beginning {first}.")
    return first, total if last == -1 else min(last, total)


def numbered(lines: list[str], first: int, last: int) -> str:
    """Show lines as `cat -n` does; the middle of too long a stretch is left out."""
    head, used = _fitting(lines, range(first, last + 1), MAX_VIEW_CHARS * 2 // 3)
    if len(head) == last - first + 1:
        return "\n".join(head)
    rest = range(last, first + len(head) - 1, -1)
    tail, _ = _fitting(lines, rest, MAX_VIEW_CHARS - used)
    left_out = last - first + 1 - len(head) - len(tail)
    if not left_out:
        return "\n".join([*head, *reversed(tail)])
    begin = first + len(head)
    notice = (
        f"[lines {begin}-{begin + left_out - 1} of {len(lines)} left out; "
        f"see more with view_range=[{begin}, {begin + max(len(head), 1) - 1}]]"
    )
    return "\n".join([*head, notice, *reversed(tail)])


def snippet(lines: list[str], first: int, last: int) -> str:
    """Show changed lines and a few around them."""
    first, last = max(1, first - _AROUND), min(len(lines), last + _AROUND)
    return numbered(lines, first, last) if lines else "(the file is empty now)"


def _fitting(lines: list[str], numbers: range, room: int) -> tuple[list[str], int]:
    """Take numbered lines while they fit; always at least one."""
    taken: list[str] = []
    used = 0
    for number in numbers:
        row = f"{number:6}\t{_cut(lines[number - 1])}"
        used += len(row) + 1
        if used > room and taken:
            return taken, used - len(row) - 1
        taken.append(row)
    return taken, used


def _cut(line: str) -> str:
    text = printable(line.rstrip("\r\n"))
    if len(text) <= MAX_LINE_CHARS:
        return text
    return f"{text[:MAX_LINE_CHARS]} [{len(text) - MAX_LINE_CHARS} more characters in this line]"
