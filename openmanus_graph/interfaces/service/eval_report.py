"""The figures of an evaluation, how two evaluations differ, and the report as one HTML page.

The page has no script, loads nothing, and all texts in it are escaped.
"""

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Literal, TypeAlias

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import eval_suite as suite
from openmanus_graph.interfaces.service.batch import BatchResult, read_records
from openmanus_graph.interfaces.service.eval_suite import About, Verdict
from openmanus_graph.runtime.output import money, printable

REPORT = "report.html"
UNKNOWN = "–"
OUTCOMES = {"passed": "passed", "failed": "failed", "not_done": "not done", "error": "broken check"}
"""The outcomes of attempts in the order in which they are shown, with their names."""
_MOST_CHARS = 2000
_PAGE = Path(__file__).with_name(REPORT)
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 560, 150, 44, 16, 12
ChangeKind: TypeAlias = Literal[
    "now fails", "worse", "now passes", "better", "same", "unknown", "new", "gone"
]
REGRESSIONS = frozenset({"now fails", "worse", "unknown"})
"""The changes with which a comparison ends with exit code 1."""


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task. Costs, steps and times are means; None if there are no attempts."""

    id: str
    attempts: Sequence[tuple[BatchResult, Verdict]]
    """Those that are judged, the first attempt first."""
    left: int
    """Attempts without a verdict."""

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(verdict.outcome for _, verdict in self.attempts)

    @property
    def passed(self) -> int:
        return self.outcomes["passed"]

    @property
    def counted(self) -> int:
        """How many attempts are known to have passed or not: an error of a check says nothing."""
        return len(self.attempts) - self.outcomes["error"]

    @property
    def rate(self) -> float | None:
        return self.passed / self.counted if self.counted else None

    @property
    def cost_usd(self) -> float | None:
        return _mean(result.cost_usd for result, _ in self.attempts)

    @property
    def steps(self) -> float | None:
        return _mean(verdict.steps for _, verdict in self.attempts)

    @property
    def elapsed_s(self) -> float | None:
        return _mean(verdict.elapsed_s for _, verdict in self.attempts)


@dataclass(frozen=True)
class Evaluation:
    about: About
    tasks: Sequence[TaskFigures]

    @property
    def left(self) -> int:
        return sum(task.left for task in self.tasks)

    @property
    def cost_usd(self) -> float:
        """Of all attempts together."""
        return sum(result.cost_usd for task in self.tasks for result, _ in task.attempts)

    @property
    def has_passed(self) -> bool:
        return all(task.passed == self.about.repeat for task in self.tasks)

    @property
    def where(self) -> Counter[str]:
        verdicts = (verdict for task in self.tasks for _, verdict in task.attempts)
        return Counter(verdict.where for verdict in verdicts if verdict.where)

    def outcomes(self) -> Counter[str]:
        return sum((task.outcomes for task in self.tasks), Counter[str]())

    def pass_at(self, k: int) -> float | None:
        """Return pass@k: how likely one of k attempts at a task passes; None if unknown."""
        tasks = (task for task in self.tasks if task.counted >= k)
        return _mean(pass_at_k(task.counted, task.passed, k) for task in tasks)

    def pass_all(self, k: int) -> float | None:
        """Return pass^k: how likely all of k attempts at a task pass; None if unknown."""
        tasks = (task for task in self.tasks if task.counted >= k)
        return _mean(pass_hat_k(task.counted, task.passed, k) for task in tasks)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate without bias that one of k attempts passes, from c of n that did; k <= n."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Estimate without bias that all of k attempts pass, from c of n that did; k <= n."""
    return math.comb(c, k) / math.comb(n, k)


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def load_evaluation(folder: Path) -> Evaluation:
    """Read an evaluation. Blocks. ConfigError if the folder has none."""
    about = suite.load_about(folder)
    if about is None:
        raise ConfigError(f"There is no evaluation in {folder}: it has no {suite.ABOUT}.")
    results = {one.id: one for one in read_records(folder / suite.RESULTS, BatchResult)}
    verdicts = {one.attempt: one for one in read_records(folder / suite.VERDICTS, Verdict)}
    tasks: list[TaskFigures] = []
    for task in about.tasks:
        ids = [suite.attempt_id(task, number) for number in range(1, about.repeat + 1)]
        judged = [one for one in ids if one in results and one in verdicts]
        pairs = [(results[one], verdicts[one]) for one in judged]
        tasks.append(TaskFigures(task, pairs, about.repeat - len(pairs)))
    return Evaluation(about, tasks)


@dataclass(frozen=True)
class Change:
    id: str
    kind: ChangeKind
    before: TaskFigures | None
    after: TaskFigures | None
    other_checks: bool
    """Whether the task or its checks have changed."""

    def difference(self, field: str) -> float | None:
        """Return by how much a mean has grown; None if one of the two is unknown."""
        before, after = getattr(self.before, field, None), getattr(self.after, field, None)
        return None if before is None or after is None else after - before


def compare(before: Evaluation, after: Evaluation) -> Sequence[Change]:
    """Return the changes, regressions first, then in the order of the suite."""
    earlier = {task.id: task for task in before.tasks}
    later = {task.id: task for task in after.tasks}
    changes: list[Change] = []
    for name in later | earlier:
        figures = earlier.get(name), later.get(name)
        old, new = (
            {verdict.digest for _, verdict in one.attempts} if one else set[str]()
            for one in figures
        )
        changes.append(Change(name, _kind(*figures), *figures, bool(old and new) and old != new))
    return sorted(changes, key=lambda one: one.kind not in REGRESSIONS)


def _kind(before: TaskFigures | None, after: TaskFigures | None) -> ChangeKind:
    if after is None:
        return "gone"
    if before is None or before.rate is None:
        return "new"
    if after.rate is None:
        return "unknown"
    if after.rate == before.rate:
        return "same"
    if after.rate < before.rate:
        return "now fails" if after.rate == 0 else "worse"
    return "now passes" if before.rate == 0 else "better"


FIGURES = (
    ("cost", "cost_usd", "$", ""),
    ("steps", "steps", "", ""),
    ("time", "elapsed_s", "", " s"),
)
"""The figures of a task: name, field, and what is written before and after the number."""


def figure(value: float | None, before: str = "", after: str = "") -> str:
    if value is not None and before == "$":
        return f"{'-' if value < 0 else ''}{money(abs(value))}"
    return UNKNOWN if value is None else f"{before}{value:.3g}{after}"


def percent(share: float | None) -> str:
    return figure(None if share is None else 100 * share, after=" %")


def figures_of(task: TaskFigures) -> list[str]:
    return [figure(getattr(task, name), *signs) for _, name, *signs in FIGURES]


def passed_of(task: TaskFigures | None) -> str:
    return UNKNOWN if task is None or not task.counted else f"{task.passed}/{task.counted}"


def headline(evaluation: Evaluation) -> list[tuple[str, str]]:
    repeat, outcomes = evaluation.about.repeat, evaluation.outcomes()
    found = [("pass@1", percent(evaluation.pass_at(1)))]
    if repeat == 1:
        passed, total = outcomes.pop("passed", 0), evaluation.outcomes().total() + evaluation.left
        found = [("passed", f"{percent(evaluation.pass_at(1))} ({passed} of {total})")]
    else:
        found.append((f"pass@{repeat}", percent(evaluation.pass_at(repeat))))
        found.append((f"pass^{repeat}", percent(evaluation.pass_all(repeat))))
    found += [(name, str(outcomes[kind])) for kind, name in OUTCOMES.items() if outcomes[kind]]
    if evaluation.left:
        found.append(("left", str(evaluation.left)))
    return [*found, ("cost", figure(evaluation.cost_usd, "$"))]


def reason(result: BatchResult, verdict: Verdict) -> str:
    """Return why an attempt did not pass: what its checks said, or how its run ended."""
    if verdict.outcome == "not_done":
        asked = "It asks: " if result.status == "waiting" else ""
        return _shown(f"{verdict.where}. {asked}{result.answer}")
    said = [f"{one.check}: {one.said}" for one in verdict.findings if one.outcome != "holds"]
    return _shown("\n".join(said))


def _shown(text: str) -> str:
    text = redact_secrets(text)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]} ..."


def differences(change: Change) -> Sequence[str]:
    """Show by how much cost, steps and time have grown, each with its sign; `=` for no change."""
    shown: list[str] = []
    for _, field, *signs in FIGURES:
        value = change.difference(field)
        sign = "+" if value and value > 0 else ""
        text = f"{sign}{figure(value, *signs)}"
        shown.append("=" if value == 0 else text)
    return shown


def report_page(now: Evaluation, changes: Sequence[Change] | None) -> str:
    """Make the page of an evaluation. Blocks. `changes` are those since an earlier one, if any."""
    about = now.about
    words = [f"{len(now.tasks)} tasks", f"{about.repeat} attempts each", f"model {about.model}"]
    words += [f"agent {about.agent}", *(f"{name} {about.options[name]}" for name in about.options)]
    figures = (
        f"<div><dt>{_text(name)}</dt><dd>{value}</dd></div>" for name, value in headline(now)
    )
    sections = [
        _changes(changes) if changes is not None else "",
        _tasks(now),
        _where(now),
        _repeats(now),
        _attempts(now),
    ]
    return Template(_PAGE.read_text("utf-8")).substitute(
        title=_text(f"Evaluation of {about.suite}"),
        about=_text(", ".join(words)),
        figures="".join(figures),
        sections="\n".join(filter(None, sections)),
    )


def _text(text: str) -> str:
    return escape(printable(_shown(text)))


def _tasks(now: Evaluation) -> str:
    kinds = [*((name, kind) for kind, name in OUTCOMES.items()), ("left", "left")]
    whole = now.outcomes() + Counter(left=now.left)
    most = {
        field: max((getattr(task, field) or 0 for task in now.tasks), default=0)
        for _, field, *_ in FIGURES
    }
    rows: list[str] = []
    for task in now.tasks:
        counts = task.outcomes + Counter(left=task.left)
        total = sum(counts.values())
        outcomes = _bars(
            (counts[kind] / total, kind, f"{name}: {counts[kind]} of {total}")
            for name, kind in kinds
            if counts[kind]
        )
        cells = [f"{passed_of(task)}{outcomes}"]
        for text, (_, field, *_) in zip(figures_of(task), FIGURES, strict=True):
            share = (getattr(task, field) or 0) / most[field] if most[field] else 0
            cells.append(f"{text}{_bars([(share, 'bar', '')])}")
        rows.append(_row((_text(task.id), *cells)))
    mean = " (means of the attempts)" if now.about.repeat > 1 else ""
    head = _row(("task", "passed", *(name for name, *_ in FIGURES)), cell="th")
    table = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
    used = [(name, kind) for name, kind in kinds if whole[kind]]
    return f"<h2>Tasks{mean}</h2>{_legend(used)}{table}"


def _where(now: Evaluation) -> str:
    found = now.where.most_common()
    rows = [
        _row((_text(name), f"{count}{_bars([(count / found[0][1], 'failed', '')])}"))
        for name, count in found
    ]
    table = f'<table class="narrow">{"".join(rows)}</table>'
    return f"<h2>Where it failed</h2>{table}" if rows else ""


def _repeats(now: Evaluation) -> str:
    if now.about.repeat == 1:
        return ""
    counts = range(1, now.about.repeat + 1)
    one, every = [now.pass_at(k) for k in counts], [now.pass_all(k) for k in counts]
    names = [("pass@k: one of k attempts passes", "passed"), ("pass^k: all k pass", "bar")]
    head = _row(("k", "pass@k", "pass^k"), cell="th")
    rows = (
        _row((str(k), percent(first), percent(last)))
        for k, first, last in zip(counts, one, every, strict=True)
    )
    return (
        f"<h2>More attempts</h2>{_legend(names)}"
        f"{_lines([('passed', one), ('bar', every)], 'pass@k and pass^k by k')}"
        f'<table class="narrow">{head}{"".join(rows)}</table>'
    )


def _changes(changes: Sequence[Change]) -> str:
    rows: list[str] = []
    for change in changes:
        kind = "worse" if change.kind in REGRESSIONS else "same"
        kind = "better" if change.kind in ("now passes", "better") else kind
        others = " (other checks)" if change.other_checks else ""
        name = f'<span class="{kind}">{change.kind}{others}</span>'
        passed = f"{passed_of(change.before)} → {passed_of(change.after)}"
        rows.append(_row((_text(change.id), name, passed, *differences(change)), words=2))
    head = _row(("task", "change", "passed", "cost", "steps", "time"), cell="th", words=2)
    table = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
    return f"<h2>What changed</h2>{table}"


def _attempts(now: Evaluation) -> str:
    parts: list[str] = []
    for result, verdict in (pair for task in now.tasks for pair in task.attempts):
        how = f'<span class="{verdict.outcome}">{_text(verdict.where or "passed")}</span>'
        answer = result.answer if verdict.outcome != "not_done" else ""
        texts = filter(None, (reason(result, verdict), answer))
        parts.append(
            f"<details><summary><b>{_text(result.id)}</b> {how}</summary>"
            f"{''.join(f'<pre>{_text(text)}</pre>' for text in texts)}"
            f'<p class="about">openmanus show {_text(shlex.quote(result.thread))}</p></details>'
        )
    return f"<h2>Attempts</h2>{''.join(parts)}"


def _row(cells: Iterable[str], cell: str = "td", words: int = 1) -> str:
    """Make a row of a table. All but its first `words` cells are figures."""
    made = (
        f"<{cell}>{text}</{cell}>" if place < words else f'<{cell} class="number">{text}</{cell}>'
        for place, text in enumerate(cells)
    )
    return f"<tr>{''.join(made)}</tr>"


def _bars(parts: Iterable[tuple[float, str, str]]) -> str:
    drawn: list[str] = []
    for share, colour, title in parts:
        tip = f' title="{escape(title)}"' if title else ""
        style = f"width: {100 * share:.4g}%; background: var(--{colour})"
        drawn.append(f'<span style="{style}"{tip}></span>')
    return f'<div class="bars">{"".join(drawn)}</div>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = (
        f'<li><span style="background: var(--{colour})"></span>{escape(name)}</li>'
        for name, colour in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _lines(series: Sequence[tuple[str, Sequence[float | None]]], label: str) -> str:
    """Draw lines over 1, 2, 3 ... of shares between 0 and 1. None has no point.

    `series` has the colour and values of each line. `label` is for screen readers.
    """
    count = max(len(values) for _, values in series)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, count - 1)
    places = [_LEFT + step * at for at in range(count)]
    parts: list[str] = []
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    parts += [
        f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{at}</text>'
        for at, x in enumerate(places, 1)
    ]
    for colour, values in series:
        pairs = zip(places, values, strict=True)
        parts.extend(_line([(x, _y(value)) for x, value in pairs if value is not None], colour))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_TOP + _HEIGHT + 26}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _line(points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f"fill: none; stroke: var(--{colour}); stroke-width: 2"
    yield f'<polyline points="{path}" style="{style}"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill: var(--{colour})"/>'


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)
