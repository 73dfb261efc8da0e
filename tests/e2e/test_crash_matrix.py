"""The crash matrix: a run that is killed at any moment ends as one that nobody disturbed.

Each case is a scripted run with parallel tools, a question, a compaction and an answer. Its
process gets SIGKILL, with or without what it has started; the thread is resumed, sometimes killed
again, until it ends.

The default run draws a sample by a seed, which stands in pytest's header and in each failure:
an event of each kind, and a few random moments. `OPENMANUS_CRASH_SEED=N` draws that sample again.
`pytest -m exhaustive` kills after every event, in each way.
"""

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.crash import Kill, Ordeal

SEED = os.environ["OPENMANUS_CRASH_SEED"]
FEW_MOMENTS, MANY_MOMENTS = 2, 40
AT_ONCE = 3

Plan = tuple[Kill | None, ...]
pytestmark = pytest.mark.timeout(3600)  # each test is many runs


def see_through_all(plans: Sequence[Plan], root: Path, undisturbed: Ordeal) -> None:
    """Run every case, several at a time, and fail with all that went wrong."""

    def one(number: int) -> str:
        sandbox = "none" if number % 8 else "auto"
        ordeal = Ordeal(root / str(number) / "cli", undisturbed.zygote, sandbox, number)
        try:
            ordeal.see_through(*plans[number])
            ordeal.check(undisturbed)
        except AssertionError as error:
            plan = ", ".join(map(str, plans[number]))
            return f"Case {number}, killed at {plan}: {error}\n{ordeal.story()}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(filter(None, pool.map(one, range(len(plans)))))
    if failures:
        pytest.fail("\n\n".join([f"OPENMANUS_CRASH_SEED={SEED}", *failures]), pytrace=False)


def second_kill(chance: random.Random) -> Kill:
    """Draw when the process that resumes is killed."""
    return Kill(chance.randint(1, 9), whole=chance.random() < 0.5)


def test_killed_after_an_event_of_each_kind(undisturbed: Ordeal, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} events")
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for life, lived in enumerate(undisturbed.lives):
        for number, event in enumerate(lived.events, 1):
            places[event["type"]].append((life, number))
    plans: list[Plan] = []
    for life, number in map(chance.choice, places.values()):
        again = second_kill(chance) if chance.random() < 0.3 else None
        plans.append((*[None] * life, Kill(number, whole=chance.random() < 0.5), again))
    see_through_all(plans, tmp_path, undisturbed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "alone"])
@pytest.mark.parametrize("life", [0, 1])
def test_killed_after_every_event(
    undisturbed: Ordeal, tmp_path: Path, life: int, whole: bool, again: bool
) -> None:
    chance = random.Random(f"{SEED} {life} {whole}")
    numbers = range(1, len(undisturbed.lives[life].events) + 1)
    kills = [
        (Kill(number, whole=whole), second_kill(chance) if again else None) for number in numbers
    ]
    see_through_all([(*[None] * life, *pair) for pair in kills], tmp_path, undisturbed)


@pytest.mark.parametrize(
    "moments", [FEW_MOMENTS, pytest.param(MANY_MOMENTS, marks=pytest.mark.exhaustive)]
)
def test_killed_at_random_moments(undisturbed: Ordeal, tmp_path: Path, moments: int) -> None:
    chance = random.Random(f"{SEED} moments")
    plans: list[Plan] = []
    for number in range(moments):
        pair = [
            Kill(chance.randint(0, 20), chance.uniform(0, 0.2), whole=chance.random() < 0.5)
            for _ in range(2)
        ]
        plans.append((*[None] * (number % 3 == 2), *pair))
    see_through_all(plans, tmp_path, undisturbed)
