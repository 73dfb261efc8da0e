"""Claims and evidence of unusual form."""

import pytest

from openmanus_graph.conversation.claims import claims_in
from openmanus_graph.conversation.passages import Passage
from openmanus_graph.conversation.sources import Evidence

TRIP = "The tour of 2021 took 14 days, 1,250 km and 3.4 million steps; 12 to 18 people came along."


def kinds(answer: str, *texts: str) -> list[tuple[str, str]]:
    evidence = Evidence([Passage(one, f"c{n}") for n, one in enumerate(texts)])
    return [(one.claim.text, one.kind) for one in evidence.check(answer)]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("It took fourteen days.", "same_value"),
        ("Es dauerte vierzehn Tage.", "same_value"),
        ("行程一千二百五十公里。", "same_value"),
        ("行程十四天。", "same_value"),
        ("行程十五天。", "not_found"),
        ("It took `14` days and `1,250 km`.", "quoted"),
        ("It was `1,350 km` long.", "not_found"),
        ("There were between 12 and 18 people.", "quoted"),
        ("There were between 13 and 19 people.", "not_found"),
        ("It took fifteen days.", "not_found"),
        ("Between 12 and 18 people came.", "quoted"),
        ("Between 23 and 29 people came.", "not_found"),
        ("12–18 people came.", "quoted"),
        ("It was 1250 km long.", "same_value"),
        ("It was 1.25 thousand km long.", "same_value"),
        ("Es waren 3,4 Mio. Schritte.", "same_value"),
        ("It was 1,250 miles long.", "not_found"),
    ],
)
def test_figures_in_words_ranges_and_other_notations(answer: str, kind: str) -> None:
    found = [one for _, one in kinds(answer, TRIP)]
    assert found, answer
    assert set(found) == {kind}, answer


@pytest.mark.parametrize(
    "answer",
    [
        "The 3rd of 12th place, in chapter 17.",
        "Version 2.14.3 and Python 3.12 are used.",
        "Run this:\n```\nx = 4711\n```",
        "The ids are AB-2047 and user_4711.",
        "Set `port=8080` and call `range(10, 20)`.",
        "Step 21 is at 14:35.",
        "第17章。",
    ],
)
def test_ordinals_versions_identifiers_and_code_are_no_claims(answer: str) -> None:
    assert [one for one in claims_in(answer) if one.kind != "file"] == []


def test_of_many_places_the_one_that_speaks_of_the_same_is_the_source() -> None:
    texts = ["port 4711", "The bridge weighs 4711 t.", "4711 is a number."]
    found = Evidence([Passage(one, f"c{n}") for n, one in enumerate(texts)]).check(
        "The bridge has a weight of 4711 t."
    )
    assert [one.passage and one.passage.call_id for one in found] == ["c1"]


def test_a_page_that_has_changed_counts_as_it_was_seen_each_time() -> None:
    before, after = "Its price is 310 EUR.", "Its price is 355 EUR."
    assert kinds("It rose from 310 to 355 EUR.", before, after) == [
        ("310", "quoted"),
        ("355", "quoted"),
    ]


@pytest.mark.parametrize(
    "sign", ["{", "<tr><td>4", "[", "|", "1,", '"', "a: 1\n", "（", "e9", "1.2.3.", "\n\n- "]
)
def test_evidence_of_one_sign_over_and_over_ends(sign: str) -> None:
    evidence = Evidence([Passage(sign * (60_000 // len(sign)))])
    assert [one.kind for one in evidence.check("It sold 4711 units.")] == ["not_found"]
