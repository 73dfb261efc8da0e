"""`EffectLedger` in agents of LangChain's and deepagents', which are really killed."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.limits import BACKSTOP_S
from tests.support.postgres import Postgres
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

PAID = ["a", "b", "b", "c"]


@pytest.fixture(scope="module")
def agents() -> Iterator[Zygote]:
    """Forks the agents: most of what they do is to import."""
    with Zygote("tests.support.effect_app:run") as zygote:
        yield zygote


def run(agents: Zygote, folder: Path, *, killed: bool = False, **spec: Any) -> dict[str, Any]:
    """Run the agent of `tests.support.effect_app`, or go on with it; return what it prints."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        program = agents.start(
            [str(folder), json.dumps(spec)], cwd=Path.cwd(), env=os.environ,
            out=out.fileno(), err=err.fileno(),
        )  # fmt: skip
        code = program.wait(BACKSTOP_S)
        out.seek(0)
        err.seek(0)
        assert (code != 0) == killed, err.read().decode()
        return {} if killed else json.loads(out.read())


def go_on(agents: Zygote, folder: Path, **spec: Any) -> tuple[dict[str, Any], int]:
    """Go on to the end, letting run what the other side knows nothing of; count the questions."""
    done, asked = run(agents, folder, **spec), 0
    while done["asked"]:
        asked += len(done["asked"])
        done = run(agents, folder, **spec, answer={"type": "approve"})
    return done, asked


def payments(folder: Path) -> list[str]:
    return sorted(line.split()[0] for line in (folder / "payments").read_text().splitlines())


KINDS = ["agent", pytest.param("deep", marks=pytest.mark.exhaustive)]
MOMENTS = [
    "asked 0", "before a1", "after a1", "done 0-0", "done 0-1", "asked 1", "before b2", "after b2",
    "done 1-0", "asked 2", "after c1", "asked 3",
]  # fmt: skip


SAMPLE = ("after a1", "before b2", "done 1-0")


def check_killed(agents: Zygote, folder: Path, moment: str, **spec: Any) -> None:
    """Fail unless each payment is made once although the agent is killed at a moment."""
    run(agents, folder, **spec, kill=moment, reconcile=True, killed=True)
    done, asked = go_on(agents, folder, **spec, reconcile=True)
    assert done["answer"] == "All is paid."
    assert payments(folder) == PAID
    if "0-" in moment or "a1" in moment:
        assert asked <= 2, "the other call of the reply may have been under way"
    else:
        assert asked == moment.startswith("before")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_anywhere_each_payment_is_made_once(
    agents: Zygote, tmp_path: Path, kind: str, moment: str
) -> None:
    check_killed(agents, tmp_path, moment, kind=kind)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(moment, marks=() if moment in SAMPLE else pytest.mark.exhaustive)
        for moment in MOMENTS
    ],
)
def test_killed_anywhere_with_everything_in_postgresql(
    agents: Zygote, tmp_path: Path, postgres: Postgres, moment: str
) -> None:
    check_killed(agents, tmp_path, moment, kind="agent", database=postgres.database())


@pytest.mark.parametrize(
    ("answer", "result", "paid"),
    [
        ({"type": "respond", "message": "it was paid"}, "it was paid", PAID),
        ({"type": "approve"}, "paid b", [*PAID, "b"]),
        ({"type": "reject", "message": "no more"}, "no more", PAID),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_person_says_what_became_of_a_call_that_nobody_can_be_asked_about(
    agents: Zygote, tmp_path: Path, kind: str, answer: dict[str, Any], result: str, paid: list[str]
) -> None:
    run(agents, tmp_path, kind=kind, kill="after b2", killed=True)
    asked = run(agents, tmp_path, kind=kind)["asked"]
    assert [one["kind"] for one in asked] == ["unknown_outcome"]
    assert asked[0]["calls"][0]["args"] == {"order": "b"}
    assert run(agents, tmp_path, kind=kind)["asked"], "as long as nobody answers"
    done = run(agents, tmp_path, kind=kind, answer=answer)
    assert done["answer"] == "All is paid."
    assert kind == "deep" or result in done["results"][2]
    assert payments(tmp_path) == sorted(paid)


LOST = ["done 0-0", "done 0-1", "after a1", "done 1-0", "asked 2", "after c1", "asked 3"]
LOST_SAMPLE = ("done 0-1", "asked 2")


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(moment, marks=() if moment in LOST_SAMPLE else pytest.mark.exhaustive)
        for moment in LOST
    ],
)
def test_replies_whose_checkpoints_were_lost_are_known_again(
    agents: Zygote, tmp_path: Path, moment: str
) -> None:
    run(agents, tmp_path, kind="lost", kill=moment, reconcile=True, killed=True)
    done, _ = go_on(agents, tmp_path, kind="lost", reconcile=True)
    assert done["answer"] == "All is paid."
    assert payments(tmp_path) == PAID


@pytest.mark.parametrize("moment", ["", "asked 1", "done 0-0"])
def test_a_retry_of_the_hosts_pays_no_second_time_for_what_took_place(
    agents: Zygote, tmp_path: Path, moment: str
) -> None:
    if moment:
        run(agents, tmp_path, kind="retry", kill=moment, reconcile=True, killed=True)
    done, _ = go_on(agents, tmp_path, kind="retry", reconcile=True)
    assert done["answer"] == "All is paid."
    assert payments(tmp_path) == PAID
