"""The report of an evaluation as one HTML page: no script, nothing loaded, all texts escaped."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from openmanus_graph.interfaces.service.evals.comparison import REGRESSIONS, Change
from openmanus_graph.interfaces.service.evals.evaluation import Evaluation
from openmanus_graph.interfaces.service.evals.plots import bar, legend, lines, stacked_bar
from openmanus_graph.interfaces.service.evals.wording import (
    OUTCOMES,
    differences,
    dollars,
    headline,
    number,
    passed_of,
    percent,
    reason,
    seconds,
    shown,
)
from openmanus_graph.runtime.output import printable

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
