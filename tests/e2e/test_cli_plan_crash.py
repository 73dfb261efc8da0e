"""`openmanus plan` killed, cancelled and limited in the middle of its steps."""

import json
import random
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.support.cli import Cli, Event
from tests.support.crash import Kill, Ordeal, require_equal
from tests.support.crash_script import THREAD
from tests.support.openai_script import Answer, Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.planning import plans_shown
from tests.support.sampling import chance, sampled
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

STEP = re.compile(r"Your step \((.+?)\):")
WIDE: list[dict[str, Any]] = [{"id": f"w{n}", "text": "x", "depends_on": []} for n in range(3)]
DEEP: list[dict[str, Any]] = [
    {"id": f"d{n}", "text": "x", "depends_on": [f"w{n}"]} for n in range(2)
]
STEPS: list[dict[str, Any]] = [*WIDE, *DEEP, {"id": "end", "text": "x", "depends_on": ["d0", "d1"]}]
CHAINS: list[dict[str, Any]] = [
    {"id": f"c{chain}{n}", "text": "x", "depends_on": [f"c{chain}{n - 1}"] if n else []}
    for chain in range(4)
    for n in range(3)
]
"""Four chains, so that four steps run all the time."""
MOMENTS, LAST_EVENT = 30, 200
"""Of kills of the four chains, and one of the last of the run's events."""
LINES = 2
"""That each step writes, a call each."""


def step_in(body: dict[str, Any]) -> str | None:
    """Return the step that a request is about."""
    found = STEP.search(str(body["messages"][1]["content"]))
    return found[1] if found else None


def careful(body: dict[str, Any]) -> Reply:
    """Answer by what a request shows; what may have run in part is looked at first."""
    messages: list[dict[str, Any]] = body["messages"]
    step = step_in(body)
    if step is None:
        if str(messages[0]["content"]).startswith("You plan how"):
            chains = "four chains" in str(messages[-1]["content"])
            plan = {"command": "create", "title": "Lines", "steps": CHAINS if chains else STEPS}
            return Reply(calls=(Call("planning", plan),))
        return Reply("All of it is done.")
    reported = [str(message["content"]) for message in messages if message["role"] == "tool"]
    if reported and "cut off" in reported[-1]:
        return Reply(calls=(Call("bash", {"command": f"grep '^{step}[.]' log.txt; true"}),))
    seen = set(re.findall(rf"\b{step}\.\d", "\n".join(reported)))
    for number in range(LINES):
        if f"{step}.{number}" not in seen:
            write = f"echo {step}.{number} | tee -a log.txt; sleep 0.02"
            return Reply(calls=(Call("bash", {"command": write}),))
    return Reply(f"{step} is done")


class PlanOrdeal(Ordeal):
    """A plan that is killed and resumed until it ends."""

    task = "write"

    @override
    def run_argv(self) -> tuple[str, ...]:
        return ("plan", self.task, "--thread", THREAD, "--workspace", "files", "--sandbox", "none")

    @override
    def look_at_thread(self) -> bool:
        return bool(self.quietly("threads", "--json"))


def completed(events: list[Event]) -> set[str]:
    """Return the steps that the newest plan shows as completed."""
    plans = plans_shown(events)
    return {step["id"] for step in plans[-1] if step["status"] == "completed"} if plans else set()


class GroupsOrdeal(PlanOrdeal):
    """A plan of four chains."""

    task = "write four chains"


@pytest.mark.parametrize(
    ("made", "steps", "at_once", "kills"),
    sampled([(PlanOrdeal, STEPS, 3, 4), (GroupsOrdeal, CHAINS, 4, 5)], 1, "plans", rows=True),
)
def test_killed_at_any_event_no_finished_step_or_call_runs_again(
    tmp_path: Path,
    zygote: Zygote,
    made: type[PlanOrdeal],
    steps: list[dict[str, Any]],
    at_once: int,
    kills: int,
) -> None:
    drawn = random.Random(5)
    ordeal = made(tmp_path / "killed", zygote, model=careful)
    ordeal.see_through(*(Kill(drawn.randrange(9, 31), whole=bool(n % 2)) for n in range(kills)))
    assert sum(life.killed for life in ordeal.lives) == kills, ordeal.story()
    require_all_done_once(ordeal, steps, at_once)


def require_all_done_once(ordeal: PlanOrdeal, steps: list[dict[str, Any]], at_once: int) -> None:
    """Fail if a line is missing or there twice, or a finished step was asked again."""
    wanted = Counter(f"{step['id']}.{n}" for step in steps for n in range(LINES))
    require_equal("lines", Counter(ordeal.files()["log.txt"].split()), wanted)
    for number, life in enumerate(ordeal.lives[:-1]):
        sent = ordeal.requests_of(number + 1)
        asked = {step_in(ordeal.server.requests[n].body) for n in sent}
        require_equal("finished steps that ran again", asked & completed(life.events), set[str]())
    plans = [json.dumps(r.body) for r in ordeal.server.requests if step_in(r.body) is None]
    assert len(set(plans)) == 2, "the plan and the summary"
    assert len(plans) <= 2 + replies_cut_off(ordeal), "asked for again where a kill cut it off"
    counted = ordeal.lives[-1].final["usage"]["model_calls"]
    kills = sum(life.killed for life in ordeal.lives)
    lost = at_once * kills  # each kill may take along a reply of each step that runs
    assert len(ordeal.server.requests) - lost <= counted <= len(ordeal.server.requests)


def replies_cut_off(ordeal: PlanOrdeal) -> int:
    """Count the kills that may have taken along the reply with the plan, or the summary."""
    requests = ordeal.server.requests
    sent = [ordeal.requests_of(n) for n, life in enumerate(ordeal.lives) if life.killed]
    return sum(step_in(requests[max(one)].body) is None for one in map(list, sent) if one)


def summary_is_written(event: Event) -> bool:
    """Say whether a part of the summary has come."""
    return event["type"] == "token" and not event.get("plan_step")


def test_a_summary_that_a_kill_cut_off_is_asked_for_again_and_nothing_else(
    tmp_path: Path, zygote: Zygote
) -> None:
    ordeal = PlanOrdeal(tmp_path / "killed", zygote, model=careful)
    ordeal.see_through(Kill(summary_is_written))
    assert len(ordeal.requests_of(1)) == 1
    require_all_done_once(ordeal, STEPS, 3)
    assert len([r for r in ordeal.server.requests if step_in(r.body) is None]) == 3


WRONG, RIGHT = "command: test $(wc -l < a.csv) -eq 1", "command: test $(wc -l < a.csv) -eq 2"


def disputing(body: dict[str, Any]) -> Reply:
    """Answer in a plan of two steps; the check of the first counts the header of a table."""
    messages: list[dict[str, Any]] = body["messages"]
    system = str(messages[0]["content"])
    if system.startswith("You plan how"):
        step: dict[str, Any] = {"id": "s", "text": "x", "depends_on": [], "done_when": WRONG}
        after: dict[str, Any] = {"id": "t", "text": "y", "depends_on": ["s"]}
        plan: dict[str, Any] = {"command": "create", "title": "Table", "steps": [step, after]}
        return Reply(calls=(Call("planning", plan),))
    if system.startswith("A step of a plan was done"):
        ruling = {"check_is_wrong": True, "reason": "the header", "corrected_check": RIGHT}
        return Reply(calls=(Call("judgement", ruling),))
    if step_in(body) != "s" or messages[-1]["role"] == "tool":
        return Reply("a.csv is right.")
    write = "printf 'a\\n1\\n' > a.csv; echo s >> log.txt"
    return Reply(calls=(Call("bash", {"command": write}),))


class DisputeOrdeal(PlanOrdeal):
    """A plan with a check that is wrong."""


def corrected_check_begins(event: Event) -> bool:
    """Say whether the judge's correction is saved, and about to be run."""
    return event["type"] == "tool_start" and str(event["call_id"]).endswith("-corrected")


def correction_is_shown(event: Event) -> bool:
    """Say whether the judge has answered: what it said is being saved."""
    return event["type"] == "notice" and "was wrong and is now" in event["text"]


def check_fails_again(event: Event) -> bool:
    """Say whether the judge is about to be asked."""
    return event["type"] == "notice" and "failed again" in event["text"]


@pytest.mark.parametrize(
    ("moment", "asked"),
    [(check_fails_again, {1, 2}), (correction_is_shown, {1, 2}), (corrected_check_begins, {1})],
)
def test_killed_around_the_judging_of_a_check_no_saved_part_is_done_again(
    tmp_path: Path, zygote: Zygote, moment: Any, asked: set[int]
) -> None:
    ordeal = DisputeOrdeal(tmp_path / "killed", zygote, model=disputing)
    ordeal.see_through(Kill(moment))
    assert sum(life.killed for life in ordeal.lives) == 1, ordeal.story()
    assert ordeal.lives[-1].final["status"] == "finished"
    bodies = [request.body for request in ordeal.server.requests]
    judged = [b for b in bodies if "A step of a plan was done" in str(b["messages"][0]["content"])]
    assert len(judged) in asked, ordeal.story()
    require_equal("tries", ordeal.files()["log.txt"].split(), ["s", "s"])
    require_equal("calls of the executor", sum(step_in(body) == "s" for body in bodies), 4)
    shown = plans_shown(ordeal.lives[-1].events)[-1]
    assert [(step["done_when"], step["status"]) for step in shown] == [
        (RIGHT, "completed"), ("", "completed"),
    ]  # fmt: skip


def kills_of_groups() -> list[tuple[Kill, ...]]:
    """Draw moments from the beginning to the end of four chains; a third is killed again later."""
    drawn = chance("moments of a plan")
    kills: list[tuple[Kill, ...]] = []
    for number in range(MOMENTS):
        event = 1 + number * LAST_EVENT // MOMENTS
        delay_s = drawn.uniform(0, 0.1) if number % 2 else None
        first = Kill(event, delay_s, whole=drawn.random() < 0.5)
        again = Kill(drawn.randint(1, 30), whole=drawn.random() < 0.5)
        kills.append((first, again) if number % 3 == 0 else (first,))
    return kills


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", sampled(kills_of_groups(), 1, "chains"), ids=range(MOMENTS))
def test_four_running_steps_killed_at_a_moment_lose_and_repeat_nothing(
    tmp_path: Path, zygote: Zygote, kills: tuple[Kill, ...]
) -> None:
    ordeal = GroupsOrdeal(tmp_path / "killed", zygote, model=careful)
    ordeal.see_through(*kills)
    require_all_done_once(ordeal, CHAINS, 4)


def answers() -> list[Answer]:
    return [careful] * 200


def plan(*args: str) -> tuple[str, ...]:
    return ("plan", "write", "--thread", "t", "--workspace", "files", "--sandbox", "none", *args)


def log_of(cli: Cli) -> Counter[str]:
    return Counter((cli.workspace / "log.txt").read_text().split())


def test_limits_and_a_kill_in_turn_repeat_nothing(cli: Cli, model: OpenAIServer) -> None:
    model.add(*answers())
    stopped = cli.run(*plan("--max-steps", "6", "--json"))
    assert (stopped.code, stopped.final["stop_reason"]) == (3, "max_steps")
    assert "higher max_steps" in stopped.final["answer"]
    assert "6 model calls" in stopped.final["answer"]
    assert stopped.of("limit") == [{**stopped.of("limit")[0], "reason": "max_steps"}]
    assert len(model.requests) == 6
    running = cli.start("resume", "t", "--max-steps", "100")
    running.wait_for(lambda event: event["type"] == "tool_end")
    running.signal(signal.SIGKILL)
    running.process.wait()
    killed_at = len(model.requests)
    stopped = cli.run("resume", "t", "--json", "--max-steps", "14")
    assert (stopped.code, stopped.final["stop_reason"]) == (3, "max_steps")
    done = cli.run("resume", "t", "--json", "--max-steps", "100")
    assert (done.code, done.final["answer"]) == (0, "All of it is done.")
    assert log_of(cli) == Counter(f"{step['id']}.{n}" for step in STEPS for n in range(LINES))
    # A reply is saved before its step asks again: the kill takes along one of each step at most.
    lost = len(model.requests) - done.final["usage"]["model_calls"]
    asked = [(n, step_in(request.body)) for n, request in enumerate(model.requests)]
    assert 0 <= lost <= len(WIDE), (lost, killed_at, asked)


def test_the_time_of_the_whole_plan_is_a_limit(cli: Cli, model: OpenAIServer) -> None:
    def slow(body: dict[str, Any]) -> Reply:
        reply = careful(body)
        late = bool(reply.calls) and "d0.0" in json.dumps(reply.calls[0].args)
        wait = Call("bash", {"command": "until [ -e go ]; do sleep 0.02; done"})
        reported = [m for m in body["messages"] if m["role"] == "tool"]
        return Reply(calls=(wait,)) if late and not reported else reply

    model.add(*[slow] * 200)
    stopped = cli.run(*plan("--timeout", "4", "--json"))
    assert (stopped.code, stopped.final["status"]) == (3, "stopped")
    assert stopped.final["stop_reason"] == "timeout"
    assert "4 seconds" in stopped.final["answer"]
    assert "failed" not in stopped.final["answer"]
    (cli.workspace / "go").touch()
    done = cli.run("resume", "t", "--json", "--timeout", "600")
    assert (done.code, done.final["status"]) == (0, "finished")
    assert log_of(cli) == Counter(f"{step['id']}.{n}" for step in STEPS for n in range(LINES))
