"""The report of an evaluation as one HTML page: no script, nothing loaded, all texts escaped."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.interfaces.service.batch import BatchResult
from openmanus_graph.interfaces.service.evals.evaluation import (
    REGRESSIONS,
    Change,
    Evaluation,
    TaskFigures,
)
from openmanus_graph.interfaces.service.evals.suite import Verdict
from openmanus_graph.runtime.output import printable

UNKNOWN = "–"
OUTCOMES = {"passed": "passed", "failed": "failed", "not_done": "not done", "error": "broken check"}
"""The outcomes of attempts in the order in which they are shown, with their names."""
_MOST_CHARS = 2000
_PAGE = Path(__file__).with_name("report.html")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 560, 150, 44, 16, 12


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.3g} %"


def dollars(value: float | None) -> str:
    return UNKNOWN if value is None else f"${value:.3g}"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g} s"


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def passed_of(task: TaskFigures | None) -> str:
    return UNKNOWN if task is None or not task.counted else f"{task.passed}/{task.counted}"


def headline(evaluation: Evaluation) -> list[tuple[str, str]]:
    repeat = evaluation.about.repeat
    found = [("pass@1" if repeat > 1 else "passed", percent(evaluation.pass_at(1)))]
    if repeat > 1:
        found.append((f"pass@{repeat}", percent(evaluation.pass_at(repeat))))
        found.append((f"pass^{repeat}", percent(evaluation.pass_all(repeat))))
    outcomes = evaluation.outcomes()
    found += [(name, str(outcomes[kind])) for kind, name in OUTCOMES.items() if outcomes[kind]]
    if evaluation.left:
        found.append(("left", str(evaluation.left)))
    return [*found, ("cost", dollars(evaluation.cost_usd))]


def reason(result: BatchResult, verdict: Verdict) -> str:
    """Return why an attempt did not pass: what its checks said, or how its run ended."""
    if verdict.outcome == "not_done":
        asked = "It asks: " if result.status == "waiting" else ""
        return _shown(f"{verdict.where}. {asked}{result.answer}")
    said = [f"{one.check}: {one.said}" for one in verdict.findings if one.outcome != "holds"]
    return _shown("\n".join(said))


def _shown(text: str) -> str:
    """Return a text of an agent or a check as it may be shown: not too long, without keys."""
    text = redact_secrets(text)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]} ..."


def differences(change: Change) -> Sequence[str]:
    """Show by how much cost, steps and time have grown, each with its sign; `=` for no change."""
    figures = (
        (change.difference("cost_usd"), dollars),
        (change.difference("steps"), number),
        (change.difference("elapsed_s"), seconds),
    )
    shown: list[str] = []
    for value, show in figures:
        sign = "+" if value and value > 0 else ""
        shown.append("=" if value == 0 else f"{sign}{show(value)}".replace("$-", "-$"))
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
    columns = [
        ("cost", dollars, [task.cost_usd for task in now.tasks]),
        ("steps", number, [task.steps for task in now.tasks]),
        ("time", seconds, [task.elapsed_s for task in now.tasks]),
    ]
    rows: list[str] = []
    for place, task in enumerate(now.tasks):
        counts = task.outcomes + Counter(left=task.left)
        total = sum(counts.values())
        outcomes = _bars(
            (counts[kind] / total, kind, f"{name}: {counts[kind]} of {total}")
            for name, kind in kinds
            if counts[kind]
        )
        cells = [f"{passed_of(task)}{outcomes}"]
        for _, show, values in columns:
            most = max(value or 0 for value in values)
            share = (values[place] or 0) / most if most else 0
            cells.append(f"{show(values[place])}{_bars([(share, 'bar', '')])}")
        rows.append(_row((_text(task.id), *cells)))
    mean = " (means of the attempts)" if now.about.repeat > 1 else ""
    head = _row(("task", "passed", *(name for name, _, _ in columns)), cell="th")
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
    """Draw a bar of parts, each with its share, colour and title."""
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
