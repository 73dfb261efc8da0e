"""The figures, the comparison and the page of an evaluation."""

import itertools
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from playwright.async_api import Page

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.batch import BatchResult
from openmanus_graph.interfaces.service.eval_report import (
    OUTCOMES,
    Change,
    Evaluation,
    TaskFigures,
    compare,
    headline,
    load_evaluation,
    pass_at_k,
    pass_hat_k,
    report_page,
)
from openmanus_graph.interfaces.service.eval_suite import (
    ABOUT,
    About,
    CheckFinding,
    Outcome,
    Verdict,
    load_about,
    prepare_folder,
    store_about,
)
from tests.support.tabs import Tab

EVIL = "</pre><script>document.title='hit'</script><img src=http://x/y>&\x1b[31m\u202e"
SECRET = "sk-" + "a1B2" * 10


def about(tasks: Sequence[str] = ("a",), repeat: int = 1, **more: object) -> About:
    given = {"suite": "s.jsonl", "model": "demo:evals", "agent": "manus"}
    known = {**given, "options": dict[str, str](), "tasks": [*tasks], "repeat": repeat}
    return About.model_validate({**known, **more})


def attempt(
    outcome: Outcome,
    number: int = 1,
    *,
    cost: float = 0,
    steps: int = 1,
    answer: str = "fine",
    said: str = "",
    digest: str = "d",
) -> tuple[BatchResult, Verdict]:
    status = "waiting" if outcome == "not_done" else "finished"
    result = BatchResult(
        id=f"a#{number}",
        status=status,
        answer=answer,
        usage={"cost_usd": cost},
        artifacts=[],
        thread="t",
    )
    finding = CheckFinding(check="file: x", outcome="fails", said=said)
    verdict = Verdict(
        attempt=result.id,
        digest=digest,
        outcome=outcome,
        where="" if outcome == "passed" else outcome,
        steps=steps,
        elapsed_s=2.0,
        findings=(finding,) if outcome == "failed" else (),
    )
    return result, verdict


def evaluation(*tasks: TaskFigures, repeat: int = 1) -> Evaluation:
    return Evaluation(about([task.id for task in tasks], repeat), tasks)


def figures(name: str, *outcomes: Outcome, **more: float) -> TaskFigures:
    cost = more.get("cost", 0)
    pairs = [attempt(one, n, cost=cost) for n, one in enumerate(outcomes, 1)]
    return TaskFigures(name, pairs, 0)


@pytest.mark.parametrize(("n", "c"), [(n, c) for n in range(1, 7) for c in range(n + 1)])
def test_the_estimators_are_what_all_choices_of_k_attempts_give(n: int, c: int) -> None:
    attempts = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        chosen = list(itertools.combinations(attempts, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))
        assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, chosen)) / len(chosen))


def test_a_broken_check_counts_neither_way() -> None:
    task = figures("a", "passed", "error", "failed", "not_done")
    assert (task.passed, task.counted) == (1, 3)
    whole = evaluation(task, figures("b", "error", "error", "error", "error"), repeat=4)
    assert whole.pass_at(1) == pytest.approx(1 / 3)
    assert whole.pass_at(4) is None
    assert ("broken check", "5") in headline(whole)
    assert not whole.has_passed


def kinds(before: Evaluation, after: Evaluation) -> dict[str, str]:
    return {change.id: change.kind for change in compare(before, after)}


def test_what_changed_is_named_task_by_task_regressions_first() -> None:
    before = evaluation(
        figures("same", "passed"),
        figures("fails", "passed"),
        figures("passes", "failed"),
        figures("gone", "failed"),
        figures("broke", "passed"),
        figures("worse", "passed", "passed"),
        figures("better", "passed", "failed"),
    )
    after = evaluation(
        figures("same", "passed"),
        figures("fails", "not_done"),
        figures("passes", "passed"),
        figures("new", "failed"),
        figures("broke", "error"),
        figures("worse", "passed", "failed"),
        figures("better", "passed", "passed"),
    )
    changes = compare(before, after)
    assert [change.id for change in changes][:3] == ["fails", "broke", "worse"]
    assert kinds(before, after) == {
        "same": "same",
        "fails": "now fails",
        "passes": "now passes",
        "gone": "gone",
        "new": "new",
        "broke": "unknown",
        "worse": "worse",
        "better": "better",
    }


def test_a_comparison_shows_what_it_costs_more() -> None:
    before, after = figures("a", "passed", cost=0.5), figures("a", "passed", cost=0.75)
    (change,) = compare(evaluation(before), evaluation(after))
    assert change.difference("cost_usd") == 0.25
    page = report_page(evaluation(after), [change])
    assert "+$0.250" in page
    (back,) = compare(evaluation(after), evaluation(before))
    assert "-$0.250" in report_page(evaluation(before), [back])
    other = TaskFigures("a", [attempt("passed", digest="other")], 0)
    assert [one.other_checks for one in compare(evaluation(before), evaluation(other))] == [True]


class Links(HTMLParser):
    """Collects what a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag] if tag in ("script", "link", "img", "iframe", "a") else []
        self.found += [
            name for name, _ in attrs if name.startswith("on") or name in ("src", "href")
        ]


def evil_page() -> str:
    tasks = [TaskFigures(EVIL, [attempt("failed", answer=EVIL + SECRET, said=EVIL + SECRET)], 0)]
    tasks.append(TaskFigures("b", [attempt("not_done", answer="Which one?")], 2))
    changes: list[Change] = [Change(EVIL, "gone", tasks[0], None, False)]
    known = about([EVIL], repeat=3, suite=EVIL, model=EVIL, agent=EVIL, options={EVIL: EVIL})
    return report_page(Evaluation(known, tasks), changes)


def test_the_page_runs_and_loads_nothing_whatever_a_task_says() -> None:
    page = evil_page()
    links = Links()
    links.feed(page)
    assert links.found == []
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert SECRET not in page
    assert not {"\x1b", "\u202e"} & {*page}
    assert "It asks: Which one?" in page


@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_shows_itself_in_a_browser(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(evil_page(), encoding="utf-8")
    page: Page = tab.page
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    grounds: list[str] = []
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        await page.goto(file.as_uri())
        grounds.append(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert said == []
    assert len({*grounds}) == 2
    assert (await page.title()).startswith("Evaluation of </pre>")
    widths = await page.eval_on_selector_all(
        ".bars span", "all => all.map(one => one.getBoundingClientRect().width)"
    )
    assert max(widths) > 40
    await page.emulate_media(color_scheme=None)


def test_an_evaluation_is_read_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    prepare_folder(folder, about(["a", "b"], repeat=2))
    result, verdict = attempt("passed")
    (folder / "results.jsonl").write_text(f"{result.model_dump_json()}\n" + '{"id": "cut')
    (folder / "verdicts.jsonl").write_text(f"{verdict.model_dump_json()}\n" + '{"att')
    found = load_evaluation(folder)
    assert [(task.id, task.passed, task.left) for task in found.tasks] == [("a", 1, 1), ("b", 0, 2)]
    assert found.left == 3


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"suite": "other.jsonl"}, "suite 's.jsonl', not 'other.jsonl'"),
        ({"model": "openai:x"}, "model 'demo:evals', not 'openai:x'"),
        ({"agent": "swe"}, "agent 'manus', not 'swe'"),
        ({"options": {"max_steps": 3}}, "max_steps None, not 3"),
        ({"repeat": 1}, "--repeat 2"),
    ],
)
def test_a_folder_holds_one_evaluation(tmp_path: Path, now: dict[str, object], words: str) -> None:
    prepare_folder(tmp_path, about(repeat=2))
    prepare_folder(tmp_path, about(repeat=2))
    with pytest.raises(ConfigError) as refused:
        prepare_folder(tmp_path, about(**{"repeat": 2, **now}))  # type: ignore[arg-type]  # as named
    assert words in str(refused.value)
    assert "another --out" in str(refused.value)
    more = about(["a", "b"], repeat=3)
    prepare_folder(tmp_path, more)
    assert load_about(tmp_path) == about(repeat=2), "nobody holds the folder yet"
    store_about(tmp_path, more)
    assert load_about(tmp_path) == more


def test_folders_that_hold_no_evaluation_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.md").write_text("mine")
    with pytest.raises(ConfigError, match="something else"):
        prepare_folder(tmp_path, about())
    with pytest.raises(ConfigError, match="no evaluation"):
        load_evaluation(tmp_path)
    (tmp_path / ABOUT).write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_evaluation(tmp_path)
    assert (tmp_path / "thesis.md").read_text() == "mine"


def test_every_outcome_has_a_name() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
