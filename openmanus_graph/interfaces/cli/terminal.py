"""A run at a terminal or for a program: what shows its events, and who answers its questions."""

import asyncio
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from openmanus_graph.interfaces.cli.call_view import call_texts, end_mark, first_lines, label
from openmanus_graph.interfaces.cli.console import SafeConsole
from openmanus_graph.interfaces.cli.process import StdinLines, write_out
from openmanus_graph.interfaces.service.call_titles import describe_call
from openmanus_graph.interfaces.service.run_view import claims_line, source_lines
from openmanus_graph.interfaces.service.runner import EventSink
from openmanus_graph.interfaces.service.threads import short_id
from openmanus_graph.planning.plan import MARKS, PlanError, is_plan_request, plan_of_request
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.output import money, printable
from openmanus_graph.safety.open_beneath import shown as quoted_name
from openmanus_graph.state.interrupts import read_decision_on
from openmanus_graph.state.planning import shown_after

SHOWN_FILES = 20
NAME_CELLS, TEXT_CELLS = 16, 24
"""Maximum width of a name; minimum width of a step's text, below which facts are left out."""
_OTHER_REPLIES = {
    "approval": " (or --reject; of several: --all, or one by --id)",
    "unknown_outcome": " (or --reject, or --answer TEXT)",
}
_PLAN_REPLIES = """\
Continue with: [bold]openmanus resume {thread} --approve[/]
  or:          [bold]openmanus resume {thread} --answer "WHAT TO CHANGE"[/]  (it is planned again)
               [bold]openmanus show {thread} --plan > plan.json[/]  (edit it, then)
               [bold]openmanus resume {thread} --answer "$(cat plan.json)"[/]
               [bold]openmanus resume {thread} --reject[/]  (nothing is done)"""
_COLOURS = {"completed": "green", "blocked": "red", "in_progress": "cyan"}
EDIT = "e"
QUESTION_PROMPT = "Your answer: "
PROMPTS = {
    "approval": "[a]pprove, {always}[e]dit, [r]eject WHY, or = RESULT: ",
    "unknown_outcome": "[a]pprove, [r]eject WHY, or type its result: ",
}
PLAN_PROMPT = "[a]pprove, [e]dit, [r]eject, or say what to change: "
CHOICES = {
    "approval": ("a", "always", EDIT, "r ", "= "),
    "unknown_outcome": ("a", "r ", "= "),
}
"""What the arrow keys put into the line. Of an approval, the letters need no Enter."""
ALWAYS_CHARS, REASONING_CHARS = 200, 400
NO_DECISION = "That is not a decision, and nothing was done."


class JsonSink:
    """One JSON event per line on stdout; the sources of claims only if asked for."""

    def __init__(self, *, sources: bool = False) -> None:
        self.sources = sources

    def show(self, event: Mapping[str, Any]) -> None:
        if not self.sources:
            event = {key: value for key, value in event.items() if key != "sources"}
        write_out(json.dumps(event, ensure_ascii=False, default=str) + "\n")
        if event["type"] == "final" and event["status"] == "cancelled":
            sys.stderr.write(f"Continue with: {event['resume']}\n")


class TerminalSink:
    """Shows progress to a person on stderr; only the answer goes to stdout.

    It never overwrites what it wrote, so that files, pipes and logs get the same.
    """

    def __init__(
        self, *, quiet: bool = False, wrap_words: bool = False, sources: bool = False
    ) -> None:
        self.console = SafeConsole(stderr=True, highlight=False, soft_wrap=not wrap_words)
        self.quiet = quiet
        self.sources = sources
        self.started = time.monotonic()
        self.step, self.line_open = 0, False
        self.streamed = ""
        """What the newest model call has streamed."""
        self.workspace = ""
        self.checklist = Checklist()
        self.has_line = False
        """Whether it is a chat, whose input line is below what is shown."""
        self.reviewing = False
        """Whether the open question is about a plan."""
        self.question = ""
        """Id of the one that was shown or asked last."""
        self.asked: dict[str, int] = {}
        """The numbers of the questions that wait together, by their ids."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show an event, unless it is only for programs."""
        kind = str(event["type"])
        if self.quiet and kind not in ("final", "interrupt", "limit"):
            return
        if (show := getattr(self, f"_{kind}", None)) is not None:
            show(event)

    def _run_start(self, event: Mapping[str, Any]) -> None:
        self._begin(event)
        facts = f"{event['agent']} · {event['model']} · thread {short_id(event['thread'])}"
        self._line(f"[bold]{escape(facts)}[/]\n[dim]files in {escape(self.workspace)}[/]")

    def _begin(self, event: Mapping[str, Any]) -> None:
        self.workspace, self.started = str(event["workspace"]), time.monotonic()
        self.checklist, self.reviewing, self.asked = Checklist(), False, {}

    def name_question(self, asked: Mapping[str, Any]) -> None:
        """Name the call that the next prompt is about, if several wait or another was shown."""
        number, many = self.asked.get(asked["id"], 1), len(self.asked)
        if many > 1 or self.question != asked["id"]:
            titles = [describe_call(one["tool"], one["args"]) for one in asked["calls"]]
            what = "; ".join(titles) or " ".join(asked["question"].split())
            what = f"Question {number} of {many}: {what}" if many > 1 else what
            self._line(f"{label(asked)}[magenta]? {escape(printable(what))}[/]")
        self.question, self.asked = asked["id"], self.asked if number < many else {}

    def _think_start(self, event: Mapping[str, Any]) -> None:
        if not event.get("plan_step"):  # a subagent counts its own
            self.step = int(event["step"])
        self.streamed = ""
        self._end_line()
        self._doing(event, "thinking")

    def _token(self, event: Mapping[str, Any]) -> None:
        if self.checklist or event.get("plan_step"):
            return  # steps that run in parallel would write into each other's lines
        self.streamed += event["text"]
        self._stream(event["text"])

    def _stream(self, text: str) -> None:
        self.console.print(Text(printable(text)), end="")
        self.line_open = True

    def _think_end(self, event: Mapping[str, Any]) -> None:
        self._end_line()
        self._doing(event, "" if event["tool_calls"] else "answered")

    def _tool_start(self, event: Mapping[str, Any]) -> None:
        shown = printable(json.dumps(event["args"], ensure_ascii=False))
        shown = shown if len(shown) <= 160 else f"{shown[:160]}…"
        self._doing(event, event["tool"])
        place = label(event) or (f"[cyan]{self.step}[/] " if self.step else "")  # resumed in a step
        self._line(f"{place}[bold]{escape(event['tool'])}[/] {escape(shown)}")

    def _tool_end(self, event: Mapping[str, Any]) -> None:
        self._doing(event, "")
        place = label(event) or "  "
        self._line(
            f"{place}{end_mark(event)} {escape(event['tool'])} [dim]{event['seconds']:.2f} s[/]"
        )
        for line in first_lines(event["output"], 200):
            self.console.print(Text(f"    {line}", style="dim"))

    def _notice(self, event: Mapping[str, Any]) -> None:
        style = {"info": "dim", "warning": "yellow", "error": "red"}[event["level"]]
        text = printable(event["text"])
        if text.startswith("Reasoning: ") and (more := len(text) - REASONING_CHARS) > 0:
            text = f"{text[:REASONING_CHARS]}… and {more:,} more characters"
        self._line(f"{label(event)}[{style}]{escape(text)}[/]")

    def _plan(self, event: Mapping[str, Any]) -> None:
        if event.get("plan_step"):
            return  # a plan inside a step is not shown
        self.checklist.update(event)
        for line in self.checklist.changed_lines():
            self._line(line)

    _plan_change = _plan

    def _limit(self, event: Mapping[str, Any]) -> None:
        if not self.quiet:
            self._line(f"[yellow]limit reached: {escape(event['reason'])}[/]")

    def _interrupt(self, event: Mapping[str, Any]) -> None:
        self._line(f"{label(event)}[magenta]? {escape(printable(event['question']))}[/]")
        self.question = event["id"]
        self.asked.setdefault(event["id"], len(self.asked) + 1)
        self.reviewing = is_plan_request(event)
        if self.reviewing:
            return  # the question shows the plan as people read it
        for call in event["calls"]:
            for text in call_texts(call, self.workspace):
                self.console.print(Text.assemble("  ", text))

    def _final(self, event: Mapping[str, Any]) -> None:
        self._end_line()
        if not self.quiet:
            self._summary(event)
        status, reason, answer = event["status"], event["stop_reason"], event["answer"]
        if reason == "error":
            self._line(f"[red]{escape(answer)}[/]")
        if event["resume"] is not None:
            thread = escape(shlex.quote(short_id(event["thread"])))
            command = escape(event["resume"].replace(event["thread"], short_id(event["thread"])))
            line = f"Continue with: [bold]{command}{_OTHER_REPLIES.get(reason, '')}[/]"
            if self.has_line:
                allow = "/approve[/], or [bold]" if reason in CHOICES else ""
                line = f"Continue with: [bold]{allow}/resume[/]"
            plan = self.reviewing and not self.has_line
            self._line(_PLAN_REPLIES.format(thread=thread) if plan else line)
        # On a terminal the answer was just streamed; it is not shown twice.
        was_shown = reason == "answer" or answer.strip() == self.streamed.strip()
        was_shown &= sys.stdout.isatty() and not self.quiet and not self.checklist
        was_shown |= self.has_line and status == "cancelled"
        if answer and status != "waiting" and reason != "error" and not was_shown:
            self._answer(answer)
        for line in source_lines(event["sources"]) if self.sources else ():
            self.console.print(Text(printable(line)))

    def _answer(self, answer: str) -> None:
        write_out(printable(answer).rstrip() + "\n")

    def _summary(self, event: Mapping[str, Any]) -> None:
        usage = event["usage"]
        tokens = f"{usage['input_tokens']:,} in ({usage['cached_tokens']:,} cached), "
        table = Table(show_header=False, box=None, padding=(0, 1))
        table.add_row("status", f"{event['status']} ({event['stop_reason']})")
        table.add_row("steps", self.checklist.progress if self.checklist else str(self.step))
        table.add_row("tokens", f"{tokens}{usage['output_tokens']:,} out")
        table.add_row("cost", money(usage["cost_usd"]))
        table.add_row("time", f"{time.monotonic() - self.started:.1f} s")
        if line := claims_line(event["claims"]):
            table.add_row("claims", line)
        for index, line in enumerate(file_lines(event["artifacts"])):
            table.add_row("" if index else "files", Text(line))
        self.console.print(table)

    def _doing(self, event: Mapping[str, Any], what: str) -> None:
        self.checklist.doing[str(event.get("plan_step", "")).partition("/")[0]] = what

    def _line(self, markup: str) -> None:
        self._end_line()
        self.console.print(printable(markup))

    def _end_line(self) -> None:
        if self.line_open:
            self.console.print()
            self.line_open = False


def file_lines(artifacts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each of the first files of a run, and how many more there are."""
    lines = [
        f"{quoted_name(artifact['path'])} ({artifact['size']:,} bytes)"
        for artifact in artifacts[:SHOWN_FILES]
    ]
    more = len(artifacts) - SHOWN_FILES
    return [*lines, f"and {more:,} more"] if more > 0 else lines


class Checklist:
    """The steps of a plan, and what the running ones do. False until there are steps."""

    def __init__(self) -> None:
        self._plan: Mapping[str, Any] = {}
        """Title and steps."""
        self._steps: Sequence[Mapping[str, Any]] = ()
        self._lines: dict[str, str] = {}
        """The line of each step as it was last written."""
        self.doing: dict[str, str] = {}
        """What each step does; that of an empty name is what the plan itself does."""
        self._started: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._steps)

    def update(self, event: Mapping[str, Any]) -> None:
        self._plan = shown_after(self._plan, event)
        self._steps = self._plan.get("steps", ())
        under_way = {str(s["id"]) for s in self._steps if s["status"] == "in_progress"}
        now = time.monotonic()
        self._started = {name: self._started.get(name, now) for name in under_way}

    def changed_lines(self) -> Iterator[str]:
        """Yield the title, once, and the lines of the steps that changed."""
        if not self._lines:
            yield f"[bold]{escape(printable(self._plan['title']))}[/]"
        for step in self._steps:
            line = _step_line(step)
            if self._lines.get(step["id"]) != line:
                yield line
            self._lines[step["id"]] = line

    @property
    def progress(self) -> str:
        done = sum(step["status"] == "completed" for step in self._steps)
        return f"{done} of {len(self._steps)} completed"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render up to half a screen: the steps around the first running one."""
        steps, room = self._steps, max(3, console.height // 2 - 2)
        active = [n for n, step in enumerate(steps) if step["status"] == "in_progress"]
        start = min(max(0, (active or [0])[0] - 1), max(0, len(steps) - room))
        shown = steps[start : start + room]
        facts = filter(None, (self.progress, self.doing.get("")))
        head = f"{' · '.join(facts)} · {printable(self._plan['title'])}"
        yield Text(head, style="bold", no_wrap=True, overflow="ellipsis")
        if start:
            yield Text(f"… {start} above", style="dim")
        yield self.rows(options.max_width, shown)
        if left := len(steps) - start - len(shown):
            yield Text(f"… {left} below", style="dim")

    def rows(self, width: int, steps: Sequence[Mapping[str, Any]] | None = None) -> Group:
        """Render each step, by default all, in one line, cutting its text if it is too long."""
        steps = self._steps if steps is None else steps
        names = _aligned([printable(str(step["id"])) for step in steps])
        columns = list(zip(*map(self._facts, steps), strict=True))
        facts = [" ".join(row) for row in zip(*map(_aligned, columns), strict=True)]
        room = width - 6 - max(map(cell_len, (*names, ""))) - max(map(cell_len, (*facts, "")))
        if room < TEXT_CELLS and columns:  # then show only the time
            facts = _aligned(columns[1])
            room = width - 6 - cell_len(names[0]) - cell_len(facts[0])
        texts = _aligned([" ".join(printable(one["text"]).split()) for one in steps], max(1, room))
        rows: list[Text] = []
        for step, name, text, fact in zip(steps, names, texts, facts, strict=True):
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
        spent = money(step.get("cost_usd") or 0) if step.get("seconds") else ""
        last = self.doing.get(str(step["id"]), "") if under_way is not None else ""
        return str(step["executor"]), f"{seconds:.1f} s" if seconds else "", spent, last


def _step_line(step: Mapping[str, Any]) -> str:
    facts = [str(step["executor"])]
    if step.get("seconds"):
        facts += [f"{step['seconds']:.1f} s", money(step.get("cost_usd") or 0)]
    if step["depends_on"] and step["status"] == "not_started":
        facts.append(f"after {', '.join(step['depends_on'])}")
    shown = escape(printable(", ".join(facts)))
    mark, text = escape(MARKS[step["status"]]), escape(printable(step["text"]))
    return f"{mark} [bold]{escape(printable(step['id']))}[/] {text} [dim]({shown})[/]"


def _aligned(texts: Sequence[str], most: int = NAME_CELLS) -> list[str]:
    """Return the texts in the same width: that of the longest, and at most so many cells."""
    cut = [
        text if cell_len(text) <= most else f"{set_cell_size(text, most - 1)}…" for text in texts
    ]
    width = max(map(cell_len, cut), default=0)
    return [set_cell_size(text, width) for text in cut]


class TerminalInput:
    """The person at the terminal."""

    def __init__(self, sink: EventSink) -> None:
        self.sink = sink

    async def answer(self, interrupt: Any) -> Any | None:
        """Return the answer to a question, None if there is no terminal or the input ends."""
        lines = StdinLines()
        if isinstance(self.sink, JsonSink) or not lines.interactive:
            return None
        asked = interrupt_event(interrupt)
        if isinstance(self.sink, TerminalSink):
            self.sink.name_question(asked)
        if is_plan_request(asked):
            return await _review_plan(lines, plan_of_request(asked))
        if asked["kind"] != "question":
            return await _decision(lines, asked)
        while (typed := await lines.ask(QUESTION_PROMPT)) is not None:
            if typed.strip() or "browser" in asked:  # there, Enter says that it is done
                return typed
        return None


async def _decision(lines: StdinLines, asked: Mapping[str, Any]) -> str | None:
    """Ask about a call until there is a decision, None at the end of the input."""
    kind = asked["kind"]
    scope = " ".join(printable(str(asked.get("always", ""))).split())[:ALWAYS_CHARS]
    prompt = PROMPTS[kind].format(always=f"[always] for {scope}, " if scope else "")
    choices, letters = CHOICES[kind], f"a{EDIT}" if kind == "approval" else ""
    while (typed := await lines.ask(prompt, choices=choices, letters=letters)) is not None:
        if kind == "approval" and typed.strip().lower() == EDIT:
            typed = await _edited_arguments(lines, asked["calls"])
            if not typed:
                continue
        if typed and read_decision_on(kind, typed) is not None:
            return typed
        sys.stderr.write(f"{NO_DECISION}\n")
    return None


async def _review_plan(lines: StdinLines, plan: str) -> Any | None:
    """Ask about a plan until there is an answer; an unchanged plan in the editor is none."""
    from openmanus_graph.nodes.create_plan import read_review  # most runs do not need it

    while (typed := await lines.ask(PLAN_PROMPT)) is not None:
        if typed.strip().lower() == EDIT:
            edited = await asyncio.to_thread(_edited_text, plan)
            if edited is not None:
                return edited
            continue
        problem = NO_DECISION
        try:
            if read_review(typed) is not None:
                return typed
        except PlanError as error:
            problem = f"That cannot be done: {error}."
        sys.stderr.write(f"{problem}\n")
    return None


async def _edited_arguments(lines: StdinLines, calls: Sequence[Mapping[str, Any]]) -> str | None:
    """Return an edit decision as JSON, None if nothing was typed.

    What is not an object of arguments comes back to be corrected.
    """
    draft = ""
    if len(calls) == 1:
        draft = json.dumps(calls[0]["args"], ensure_ascii=False)
        if printable(draft) != draft:  # the editor must show all that it holds
            draft = json.dumps(calls[0]["args"])
    while draft := (await lines.ask("New arguments, as JSON: ", draft=draft) or "").strip():
        try:
            args = json.loads(draft)
        except (ValueError, RecursionError) as error:
            sys.stderr.write(f"That is not JSON: {error}. Correct it, or empty the line.\n")
            continue
        if isinstance(args, dict):
            return json.dumps({"type": "edit", "args": {"args": args}})
        sys.stderr.write('Write the arguments as an object, such as {"command": "ls"}.\n')
    return None


def _edited_text(text: str) -> str | None:
    """Let the person edit a text; None if it was not changed."""
    import click

    try:
        edited = click.edit(text, extension=".json")
    except (click.ClickException, UnicodeError) as error:
        sys.stderr.write(f"The editor failed: {error}. Set EDITOR.\n")
        return None
    return None if edited == text else edited
