"""The crash matrix: a run that is killed at any moment ends as one that nobody disturbed.

Each case is a scripted run with parallel tools, a question, a compaction and an answer. Its
process gets SIGKILL, with or without what it has started; the thread is resumed, sometimes killed
again, until it ends. `OPENMANUS_CRASHES=N` kills at every event, not at the first and the last of
each kind, and at N random moments, others for each N; give pytest `--timeout 0` then.
"""

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cli import Event
from tests.support.crash import Kill, Ordeal

LONG = int(os.environ.get("OPENMANUS_CRASHES", "0"))
RANDOM_MOMENTS = LONG or 8
AT_ONCE = 3

Plan = tuple[Kill | None, ...]


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
        pytest.fail("\n\n".join(failures), pytrace=False)


def chosen(events: Sequence[Event]) -> list[int]:
    """Return which events to kill at: all, or the first and the last of each kind."""
    if LONG:
        return list(range(1, len(events) + 1))
    first = {event["type"]: number for number, event in reversed(list(enumerate(events, 1)))}
    last = {event["type"]: number for number, event in enumerate(events, 1)}
    return sorted({*first.values(), *last.values()})


def test_killed_after_an_event(undisturbed: Ordeal, tmp_path: Path) -> None:
    chance = random.Random(3)
    plans: list[Plan] = []
    for life, before in zip(undisturbed.lives, ((), (None,)), strict=True):
        for number in chosen(life.events):
            again = Kill(chance.randint(1, 9), whole=False) if len(plans) % 3 == 0 else None
            plans.append((*before, Kill(number, whole=len(plans) % 2 == 0), again))
    see_through_all(plans, tmp_path, undisturbed)


def test_killed_at_random_moments(undisturbed: Ordeal, tmp_path: Path) -> None:
    chance = random.Random(RANDOM_MOMENTS)
    plans: list[Plan] = []
    for number in range(RANDOM_MOMENTS):
        moments = [
            Kill(chance.randint(0, 20), chance.uniform(0, 0.2), whole=bool(number % 2))
            for _ in range(2)
        ]
        plans.append((*(None,) * (number % 3 == 2), *moments))
    see_through_all(plans, tmp_path, undisturbed)
