"""How many errors of answers are found, and how many true figures are marked by mistake."""

from collections.abc import Sequence

import pytest

from openmanus_graph.conversation.sources import Evidence
from tests.support.claims_exam import ANSWERS, KINDS, World, true_answers, wrong_answers
from tests.support.claims_fourth import FOURTH
from tests.support.claims_third import THIRD
from tests.support.claims_worlds import SECOND, WORLD


def marked(evidence: Evidence, answers: Sequence[str]) -> list[str]:
    return [one for one in answers if any(f.kind == "not_found" for f in evidence.check(one))]


@pytest.mark.parametrize(
    "world", [WORLD, SECOND, THIRD, FOURTH], ids=["stations", "parks", "wards", "ships"]
)
def test_planted_errors_are_found_and_true_answers_are_not_marked(world: World) -> None:
    evidence, wrong, true = world.evidence(), wrong_answers(world), true_answers(world)
    assert len(true) == ANSWERS
    assert sum(map(len, wrong.values())) >= 0.95 * ANSWERS
    marks = marked(evidence, true)
    assert len(marks) <= 0.03 * len(true), marks
    passed = {kind: [*set(wrong[kind]) - {*marked(evidence, wrong[kind])}] for kind in KINDS}
    found = {kind: 1 - len(passed[kind]) / len(wrong[kind]) for kind in KINDS}
    assert min(found.values()) >= 0.8, passed
    assert sum(map(len, passed.values())) <= 0.05 * sum(map(len, wrong.values())), passed
