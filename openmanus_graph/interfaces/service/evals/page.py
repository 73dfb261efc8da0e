"""The report of an evaluation as one HTML page: no script, nothing loaded, all texts escaped."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.interfaces.service.batch_files import BatchResult
from openmanus_graph.interfaces.service.evals.evaluation import Evaluation, TaskFigures
from openmanus_graph.interfaces.service.evals.grading import Verdict
from openmanus_graph.runtime.output import printable

ChangeKind: TypeAlias = Literal[
    "now fails", "worse", "now passes", "better", "same", "unknown", "new", "gone"
]
REGRESSIONS = frozenset({"now fails", "worse", "unknown"})
"""What makes a comparison end with 1."""


@dataclass(frozen=True)
class Change:
    """How one task differs between two evaluations."""

    id: str
    kind: ChangeKind
    before: TaskFigures | None
    after: TaskFigures | None
    other_checks: bool
    """Whether the task or its checks were others then."""

    def difference(self, figure: Literal["cost_usd", "steps", "elapsed_s"]) -> float | None:
        """Return by how much a mean has grown; None if one of the two is unknown."""
        before = getattr(self.before, figure, None)
        after = getattr(self.after, figure, None)
        return None if before is None or after is None else after - before


def compare(before: Evaluation, after: Evaluation) -> Sequence[Change]:
    """Return the changes, regressions first, then in the order of the suite."""
    earlier = {task.id: task for task in before.tasks}
    later = {task.id: task for task in after.tasks}
    changes = [_change(name, earlier.get(name), later.get(name)) for name in later | earlier]
    return sorted(changes, key=lambda one: one.kind not in REGRESSIONS)


def _change(name: str, before: TaskFigures | None, after: TaskFigures | None) -> Change:
    digests = [
        {verdict.digest for _, verdict in figures.attempts} if figures else set[str]()
        for figures in (before, after)
    ]
    others = bool(digests[0] and digests[1]) and digests[0] != digests[1]
    return Change(name, _kind(before, after), before, after, others)


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


UNKNOWN = "–"
OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "not_done": "not done",
    "error": "broken check",
}
"""The outcomes of attempts in the order in which they are shown, with their names."""
_MOST_CHARS = 2000


def percent(share: float | None) -> str:
    """Show a share."""
    return UNKNOWN if share is None else f"{100 * share:.3g} %"


def dollars(value: float | None) -> str:
    """Show a cost."""
    return UNKNOWN if value is None else f"${value:.3g}"


def seconds(value: float | None) -> str:
    """Show a time."""
    return UNKNOWN if value is None else f"{value:.3g} s"


def number(value: float | None) -> str:
    """Show a mean."""
    return UNKNOWN if value is None else f"{value:.3g}"


def signed(text: str, value: float | None) -> str:
    """Return a shown difference with its sign; `=` for none."""
    if value is None:
        return UNKNOWN
    return "=" if not value else f"+{text}" if value > 0 else text.replace("$-", "-$")


def passed_of(task: TaskFigures | None) -> str:
    """Show how many attempts passed, of those that count."""
    return UNKNOWN if task is None or not task.counted else f"{task.passed}/{task.counted}"


def headline(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return the figures of a whole evaluation, with their names."""
    repeat = evaluation.about.repeat
    found = [("pass@1" if repeat > 1 else "passed", percent(evaluation.pass_at(1)))]
    if repeat > 1:
        found += [
            (f"pass@{repeat}", percent(evaluation.pass_at(repeat))),
            (f"pass^{repeat}", percent(evaluation.pass_all(repeat))),
        ]
    outcomes = evaluation.outcomes()
    found += [(name, str(outcomes[kind])) for kind, name in OUTCOMES.items() if outcomes[kind]]
    if evaluation.left:
        found.append(("left", str(evaluation.left)))
    return [*found, ("cost", dollars(evaluation.cost_usd))]


def reason(result: BatchResult, verdict: Verdict) -> str:
    """Say why an attempt did not pass: what its checks said, or what its run ended with."""
    if verdict.outcome == "not_done":
        asked = "It asks: " if result.status == "waiting" else ""
        return shown(f"{verdict.where}. {asked}{result.answer}")
    said = [f"{one.check}: {one.said}" for one in verdict.findings if one.outcome != "holds"]
    return shown("\n".join(said))


def shown(text: str) -> str:
    """Return a text of an agent or a check as it may be shown: not too long, without keys."""
    text = redact_secrets(text)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]} ..."


def differences(change: Change) -> Sequence[str]:
    """Show by how much cost, steps and time have grown."""
    cost, steps = change.difference("cost_usd"), change.difference("steps")
    time = change.difference("elapsed_s")
    return (
        signed(dollars(cost), cost),
        signed(number(steps), steps),
        signed(seconds(time), time),
    )


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 560, 150, 44, 16, 12


def bar(value: float | None, most: float, colour: str) -> str:
    """Draw a bar as long as a value's share of the greatest one."""
    share = (value or 0) / most if most else 0
    return f'<div class="bars">{_part(share, colour)}</div>'


def stacked_bar(parts: Sequence[tuple[str, str, int]]) -> str:
    """Draw a bar of parts, which has always the same length.

    Args:
        parts: Name, colour and count of each.
    """
    total = sum(count for _, _, count in parts)
    drawn = (
        _part(count / total, colour, f"{name}: {count} of {total}")
        for name, colour, count in parts
        if count
    )
    return f'<div class="bars">{"".join(drawn)}</div>'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """List names with their colours."""
    items = (
        f'<li><span style="background: var(--{colour})"></span>{escape(name)}</li>'
        for name, colour in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def lines(series: Sequence[tuple[str, Sequence[float | None]]], label: str) -> str:
    """Draw lines over 1, 2, 3 ... of shares between 0 and 1.

    Args:
        series: Colour and values of each; None has no point.
        label: Says what is drawn, for whoever cannot see it.
    """
    count = max(len(values) for _, values in series)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, count - 1)
    places = [_LEFT + step * at for at in range(count)]
    parts = [_grid(share) for share in (0.0, 0.5, 1.0)]
    parts += [
        f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{at}</text>'
        for at, x in enumerate(places, 1)
    ]
    for colour, values in series:
        pairs = zip(places, values, strict=True)
        points = [(x, _y(value)) for x, value in pairs if value is not None]
        parts.extend(_line(points, colour))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_TOP + _HEIGHT + 26}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _part(share: float, colour: str, title: str = "") -> str:
    tip = f' title="{escape(title)}"' if title else ""
    return f'<span style="width: {100 * share:.4g}%; background: var(--{colour})"{tip}></span>'


def _line(points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f"fill: none; stroke: var(--{colour}); stroke-width: 2"
    yield f'<polyline points="{path}" style="{style}"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill: var(--{colour})"/>'


def _grid(share: float) -> str:
    y = _y(share)
    label = f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    return f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>{label}'


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'">
<style>{style}</style></head><body>
<h1>{title}</h1>
<p class="about">{about}</p>
<dl class="figures">{figures}</dl>
{sections}
</body></html>
"""
_STYLE = """
:root { color-scheme: light dark; --ground: #fcfcfb; --ink: #1c1b19; --soft: #5f5d58;
  --line: #deddd8; --passed: #0f7b6c; --failed: #c4420f; --not_done: #a06c00; --error: #6f4bb8;
  --left: #b9b7b0; --bar: #3268b8; }
@media (prefers-color-scheme: dark) { :root { --ground: #191918; --ink: #f0efec; --soft: #a9a7a1;
  --line: #3a3936; --passed: #35b39f; --failed: #f0784a; --not_done: #dba437; --error: #a98cf0;
  --left: #6b6964; --bar: #6ea0ea; } }
body { font: 15px/1.5 system-ui, "Noto Sans CJK SC", "PingFang SC", sans-serif; color: var(--ink);
  background: var(--ground); max-width: 62rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
.about { color: var(--soft); margin: .2rem 0 1.2rem; overflow-wrap: anywhere; }
.figures { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: 0; }
.figures dt { color: var(--soft); font-size: .85rem; } .figures dd { margin: 0; font-size: 1.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: .85rem; }
td, th { border-bottom: 1px solid var(--line); padding: .35rem .8rem .35rem 0;
  vertical-align: top; }
td:first-child { overflow-wrap: anywhere; min-width: 6rem; }
.number { white-space: nowrap; }
.narrow { max-width: 36rem; } .bars { display: flex; gap: 2px; height: .45rem; margin-top: .2rem;
  min-width: 5rem; } .bars span { border-radius: 2px; }
svg { width: 100%; max-width: 36rem; display: block; } svg line { stroke: var(--line); }
svg text { fill: var(--soft); font-size: 12px; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: 0 0 .5rem; padding: 0;
  list-style: none; font-size: .85rem; color: var(--soft); }
.legend span { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px;
  margin-right: .4rem; }
.passed, .better { color: var(--passed); } .failed, .worse { color: var(--failed); }
.not_done { color: var(--not_done); } .error { color: var(--error); }
details { border-bottom: 1px solid var(--line); padding: .4rem 0; } summary { cursor: pointer; }
summary b { font-weight: 500; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0 .8rem; padding: .6rem .8rem;
  border-left: 3px solid var(--line); font-size: .85rem; }
"""


def report_page(now: Evaluation, changes: Sequence[Change] | None) -> str:
    """Make the page.

    Args:
        now: The evaluation.
        changes: Since an earlier one; None if there is none.
    """
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
    return _PAGE.format(
        title=_text(f"Evaluation of {about.suite}"),
        style=_STYLE,
        about=_text(", ".join(words)),
        figures="".join(figures),
        sections="\n".join(filter(None, sections)),
    )


def _text(text: str) -> str:
    """Return a text as it may stand in the page, whoever wrote it."""
    return escape(printable(shown(text)))


def _tasks(now: Evaluation) -> str:
    """Make the table of the tasks, with a bar for each figure."""
    kinds = [*((name, kind) for kind, name in OUTCOMES.items()), ("left", "left")]
    whole = now.outcomes() + Counter(left=now.left)
    used = [(name, kind) for name, kind in kinds if whole[kind]]
    columns = [
        ("cost", dollars, [task.cost_usd for task in now.tasks]),
        ("steps", number, [task.steps for task in now.tasks]),
        ("time", seconds, [task.elapsed_s for task in now.tasks]),
    ]
    rows: list[str] = []
    for place, task in enumerate(now.tasks):
        counts = task.outcomes + Counter(left=task.left)
        outcomes = stacked_bar([(name, kind, counts[kind]) for name, kind in kinds])
        cells = [f"{passed_of(task)}{outcomes}"]
        for _, show, values in columns:
            most = max(value or 0 for value in values)
            cells.append(f"{show(values[place])}{bar(values[place], most, 'bar')}")
        rows.append(_row((_text(task.id), *cells)))
    mean = " (means of the attempts)" if now.about.repeat > 1 else ""
    head = _row(("task", "passed", *(name for name, _, _ in columns)), cell="th")
    table = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
    return f"<h2>Tasks{mean}</h2>{legend(used)}{table}"


def _where(now: Evaluation) -> str:
    found = now.where.most_common()
    if not found:
        return ""
    most = found[0][1]
    rows = (_row((_text(name), f"{count}{bar(count, most, 'failed')}")) for name, count in found)
    return f'<h2>Where it failed</h2><table class="narrow">{"".join(rows)}</table>'


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
        f"<h2>More attempts</h2>{legend(names)}"
        f"{lines([('passed', one), ('bar', every)], 'pass@k and pass^k by k')}"
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
    names = ("task", "change", "passed", "cost", "steps", "time")
    head = _row(names, cell="th", words=2)
    table = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
    return f"<h2>What changed</h2>{table}"


def _attempts(now: Evaluation) -> str:
    parts: list[str] = []
    for task in now.tasks:
        for result, verdict in task.attempts:
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
    """Make a row of a table; all but its first cells are figures."""
    made = (
        f"<{cell}>{text}</{cell}>" if place < words else f'<{cell} class="number">{text}</{cell}>'
        for place, text in enumerate(cells)
    )
    return f"<tr>{''.join(made)}</tr>"
