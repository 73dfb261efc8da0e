"""The plan of a run on the terminal: a live checklist below the progress lines."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from openmanus_graph.planning.plan import MARKS
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.plan import shown_after

NAME_CELLS, TEXT_CELLS = 16, 24
"""Maximum width of a name; minimum width of a step's text, below which facts are left out."""
_COLOURS = {"completed": "green", "blocked": "red", "in_progress": "cyan"}


class Checklist:
    """The plan's steps, and what the running ones are doing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._plan: Mapping[str, Any] = {}
        """Title and steps."""
        self._lines: dict[str, str] = {}
        """The line of each step as last written without a terminal."""
        self._doing: dict[str, str] = {}
        self._started: dict[str, float] = {}
        self._overall = ""

    def __bool__(self) -> bool:
        """Say whether there is a plan."""
        return bool(self._steps)

    @property
    def _steps(self) -> Sequence[Mapping[str, Any]]:
        steps: Sequence[Mapping[str, Any]] = self._plan.get("steps", ())
        return steps

    def update(self, event: Mapping[str, Any]) -> Iterator[str]:
        """Apply an event of the plan; yield the lines to print where there is no live display."""
        self._plan = shown_after(self._plan, event)
        under_way = {str(s["id"]) for s in self._steps if s["status"] == "in_progress"}
        now = time.monotonic()
        self._started = {name: self._started.get(name, now) for name in under_way}
        if self._is_live_terminal():
            self.show()
            return
        if not self._lines:
            yield f"[bold]{escape(printable(self._plan['title']))}[/]"
        for step in self._steps:
            line = _line(step)
            if self._lines.get(step["id"]) != line:
                yield line
            self._lines[step["id"]] = line

    def doing(self, step: str, what: str) -> None:
        """Note what a step is doing; an empty name means the plan itself."""
        if step:
            self._doing[step] = what
        else:
            self._overall = what

    def show(self) -> None:
        """Show the live display, if there is a plan and a terminal."""
        if self._live is None and self._steps and self._is_live_terminal():
            self._live = Live(
                console=self._console,
                get_renderable=lambda: self,
                transient=True,
                redirect_stdout=False,  # the answer goes there as it is
                redirect_stderr=False,
            )
            self._live.start()

    def hide(self) -> None:
        """Remove the live display, for a question or at the run's end."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def all_steps(self) -> Group:
        """Return all steps, for the summary."""
        return self._rows(self._steps, self._console.width)

    @property
    def progress(self) -> str:
        """Say how many steps are completed."""
        done = sum(step["status"] == "completed" for step in self._steps)
        return f"{done} of {len(self._steps)} completed"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render up to half a screen: the steps around the first running one."""
        steps, room = self._steps, max(3, console.height // 2 - 2)
        active = [n for n, step in enumerate(steps) if step["status"] == "in_progress"]
        start = min(max(0, (active or [0])[0] - 1), max(0, len(steps) - room))
        shown = steps[start : start + room]
        title = printable(self._plan["title"])
        head = f"{self.progress}{' · ' if self._overall else ''}{self._overall} · {title}"
        yield _row(head, style="bold")
        if start:
            yield _row(f"… {start} above", style="dim")
        yield self._rows(shown, options.max_width)
        if left := len(steps) - start - len(shown):
            yield _row(f"… {left} below", style="dim")

    def _is_live_terminal(self) -> bool:
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def _rows(self, steps: Sequence[Mapping[str, Any]], width: int) -> Group:
        """Render each step in one line, cutting its text where it is too long."""
        names = _aligned([printable(str(step["id"])) for step in steps])
        columns = list(zip(*map(self._facts, steps), strict=True))
        facts = [" ".join(row) for row in zip(*map(_aligned, columns), strict=True)]
        room = width - 6 - max(map(cell_len, (*names, ""))) - max(map(cell_len, (*facts, "")))
        if room < TEXT_CELLS and columns:  # then show only the time
            facts = _aligned(columns[1])
            room = width - 6 - cell_len(names[0]) - cell_len(facts[0])
        texts = [_cut(" ".join(printable(step["text"]).split()), max(1, room)) for step in steps]
        rows: list[Text] = []
        columns_of_row = zip(steps, names, _aligned(texts, max(1, room)), facts, strict=True)
        for step, name, text, fact in columns_of_row:
            row = Text(no_wrap=True, overflow="crop")
            row.append(f"{MARKS[step['status']]} ", style=_COLOURS.get(step["status"], ""))
            row.append(f"{name} ", style="bold").append(f"{text} ").append(fact, style="dim")
            rows.append(row)
        return Group(*rows)

    def _facts(self, step: Mapping[str, Any]) -> tuple[str, str, str, str]:
        """Return executor, time, cost, and what the step is doing or why it is not done."""
        seconds = float(step.get("seconds") or 0)
        under_way = self._started.get(str(step["id"]))
        if under_way is not None:
            seconds += time.monotonic() - under_way
        spent = f"${step.get('cost_usd') or 0:.4f}" if step.get("seconds") else ""
        last = self._doing.get(str(step["id"]), "") if under_way is not None else ""
        return str(step["executor"]), f"{seconds:.1f} s" if seconds else "", spent, last


def _line(step: Mapping[str, Any]) -> str:
    """Return a step as a line of markup."""
    facts = [str(step["executor"])]
    if step.get("seconds"):
        facts += [f"{step['seconds']:.1f} s", f"${step.get('cost_usd', 0.0):.4f}"]
    if step["depends_on"] and step["status"] == "not_started":
        facts.append(f"after {', '.join(step['depends_on'])}")
    shown = escape(printable(", ".join(facts)))
    mark, text = escape(MARKS[step["status"]]), escape(printable(step["text"]))
    return f"{mark} [bold]{escape(printable(step['id']))}[/] {text} [dim]({shown})[/]"


def _row(text: str, *, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _cut(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else f"{set_cell_size(text, cells - 1)}…"


def _aligned(texts: Sequence[str], most: int = NAME_CELLS) -> list[str]:
    """Pad the texts of a column to the same width."""
    cut = [_cut(text, most) for text in texts]
    width = max(map(cell_len, cut), default=0)
    return [set_cell_size(text, width) for text in cut]
