"""The crash matrix: a run that is killed at any moment ends as one that nobody disturbed.

Each case is a scripted run with several calls a reply, a question, a compaction and an answer. Its
process gets SIGKILL, with or without what it has started; the thread is resumed, sometimes killed
again, until it ends.

The default run draws a sample by a seed, which stands in pytest's header and in each failure:
events of half of the kinds, and a few random moments. `OPENMANUS_TEST_SEED=N` draws it again.
`pytest -m exhaustive` kills after every event, in each way, and at many moments: a test for each
point, in an order by the seed. `OPENMANUS_TEST_LIMIT_S=300` begins none after five minutes.
"""

import itertools
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.crash import Kill, Ordeal
from tests.support.postgres import Postgres
from tests.support.sampling import SEED_VARIABLE, chance

FEW_MOMENTS, MANY_MOMENTS = 2, 40
AT_ONCE = 3
EVENTS = (21, 27)
"""Of the two processes of the run that nobody disturbs."""

Plan = tuple[Kill | None, ...]
pytestmark = pytest.mark.timeout(3600)  # a sample is many runs


def see_through(
    number: int, plan: Plan, root: Path, undisturbed: Ordeal, server: Postgres | None = None
) -> str:
    """Run one case and return what went wrong."""
    sandbox = "none" if number % 8 else "auto"
    database = "" if server is None else server.database()
    folder = root / str(number) / "cli"
    ordeal = Ordeal(folder, undisturbed.zygote, sandbox, number, database=database)
    try:
        ordeal.see_through(*plan)
        ordeal.check(undisturbed)
    except AssertionError as error:
        killed = ", ".join(map(str, plan))
        return f"Case {number}, killed at {killed}: {error}\n{ordeal.story()}"
    return ""


def see_through_all(
    plans: Sequence[Plan], root: Path, undisturbed: Ordeal, server: Postgres | None = None
) -> None:
    """Run every case, several at a time, and fail with all that went wrong."""

    def one(number: int) -> str:
        return see_through(number, plans[number], root, undisturbed, server)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(filter(None, pool.map(one, range(len(plans)))))
    require_none(failures)


def require_none(failures: Sequence[str]) -> None:
    """Fail with what went wrong, and the seed."""
    if any(failures):
        pytest.fail(
            "\n\n".join([f"{SEED_VARIABLE}={os.environ[SEED_VARIABLE]}", *failures]), pytrace=False
        )


def second_kill(drawn: random.Random) -> Kill:
    """Draw when the process that resumes is killed."""
    return Kill(drawn.randint(1, 9), whole=drawn.random() < 0.5)


@pytest.mark.exhaustive
def test_killed_after_events_of_different_kinds(undisturbed: Ordeal, tmp_path: Path) -> None:
    drawn = chance("events")
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for life, lived in enumerate(undisturbed.lives):
        for number, event in enumerate(lived.events, 1):
            places[event["type"]].append((life, number))
    plans: list[Plan] = []
    for kind in drawn.sample(sorted(places), len(places) // 2):
        life, number = drawn.choice(places[kind])
        again = second_kill(drawn) if drawn.random() < 0.3 else None
        plans.append((*[None] * life, Kill(number, whole=drawn.random() < 0.5), again))
    see_through_all(plans, tmp_path, undisturbed)


def random_moments(count: int) -> list[Plan]:
    """Draw moments at which a process is killed, and then the one that resumes."""
    drawn = chance("moments")
    plans: list[Plan] = []
    for number in range(count):
        pair = [
            Kill(drawn.randint(0, 20), drawn.uniform(0, 0.2), whole=drawn.random() < 0.5)
            for _ in range(2)
        ]
        plans.append((*[None] * (number % 3 == 2), *pair))
    return plans


def every_event() -> list[Plan]:
    """Kill after every event, with and without what was started, once and twice."""
    drawn = chance("every event")
    places = [(life, number) for life, last in enumerate(EVENTS) for number in range(1, last + 1)]
    plans: list[Plan] = []
    for again, whole, (life, number) in itertools.product((False, True), (True, False), places):
        second = second_kill(drawn) if again else None
        plans.append((*[None] * life, Kill(number, whole=whole), second))
    return plans


def test_killed_at_random_moments(undisturbed: Ordeal, tmp_path: Path) -> None:
    see_through_all(random_moments(FEW_MOMENTS), tmp_path, undisturbed)


@pytest.mark.exhaustive
def test_killed_with_everything_in_postgresql(
    undisturbed: Ordeal, tmp_path: Path, postgres: Postgres
) -> None:
    drawn = chance("postgresql")
    plans: list[Plan] = [*drawn.sample(every_event(), 3), *random_moments(1)]
    see_through_all(plans, tmp_path, undisturbed, postgres)


def test_every_event_is_among_the_points(undisturbed: Ordeal) -> None:
    assert tuple(len(life.events) for life in undisturbed.lives) == EVENTS


POINTS = [*every_event(), *random_moments(MANY_MOMENTS)]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(len(POINTS)))
def test_killed_at_a_point(undisturbed: Ordeal, tmp_path: Path, number: int) -> None:
    require_none([see_through(number, POINTS[number], tmp_path, undisturbed)])
