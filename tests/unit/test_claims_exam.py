"""How many errors of answers are found, how many true figures are marked by mistake, and how fast.

An exam is a file of evidence, true answers, and answers with one planted error each by its kind.
"""

import random
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.conversation.passages import Passage
from openmanus_graph.conversation.sources import Evidence

EXAMS = sorted((Path(__file__).parents[1] / "support/claims").glob("*.toml"))
KINDS = ("digit", "unit", "quotation", "link", "row", "year", "unread")


def answers(written: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in written.strip().split("\n")]


def marked(evidence: Evidence, answers: Sequence[str]) -> list[str]:
    return [one for one in answers if any(f.kind == "not_found" for f in evidence.check(one))]


@pytest.mark.parametrize("path", EXAMS, ids=lambda path: path.stem)
def test_planted_errors_are_found_and_true_answers_are_not_marked(path: Path) -> None:
    exam: Any = tomllib.loads(path.read_text("utf-8"))
    passages = [Passage(**one) for one in exam["passages"]]
    passages.append(Passage(exam["task"], tool="user"))
    evidence = Evidence(passages, exam["task"], frozenset(exam["files"]), exam["opened"])
    true = answers(exam["true"])
    wrong = {kind: answers(exam["wrong"][kind]) for kind in KINDS}
    assert len(marks := marked(evidence, true)) <= 0.03 * len(true), marks
    passed = {kind: [*set(wrong[kind]) - {*marked(evidence, wrong[kind])}] for kind in KINDS}
    found = {kind: 1 - len(passed[kind]) / len(wrong[kind]) for kind in KINDS}
    assert min(found.values()) >= 0.8, passed
    assert sum(map(len, passed.values())) <= 0.05 * sum(map(len, wrong.values())), passed


def lines(draw: random.Random, chars: int) -> str:
    made, size = list[str](), 0
    while size < chars:
        place = draw.choice(("north", "south", "east", "west"))
        day = f"2024-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"
        made.append(
            f"{place} {draw.randint(1, 99_999)} units at {draw.random() * 100:.2f} on {day}"
        )
        size += len(made[-1]) + 1
    return "\n".join(made)


def calls_of(texts: int, figures: int, *, known: bool) -> int:
    """Return how many functions a check calls, those in C too."""
    draw, count = random.Random(1), 0
    passages = [Passage(lines(draw, 5_000), f"c{n}", "bash") for n in range(texts)]
    numbers = [word for one in passages for word in one.text.split()[1::7]]
    missing = [f"{draw.randint(1, 98)}.{draw.randint(0, 999):03d}7" for _ in range(figures)]
    chosen = draw.sample(numbers, figures) if known else missing
    answer = "\n".join(f"- It sold {one} units" for one in chosen)

    def counts(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(counts)
    try:
        Evidence(passages).check(answer)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("known", [True, False])
def test_twice_the_evidence_and_figures_are_at_most_some_more_than_twice_the_work(
    known: bool,
) -> None:
    some, twice = calls_of(10, 200, known=known), calls_of(20, 400, known=known)
    assert twice < 2.6 * some, (some, twice)
