"""`openmanus plan` as a process: side by side, killed in the middle, reviewed, stopped."""

import json
import re
import signal
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.support.cli import Cli, until
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Answer, Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

STEP = re.compile(r"Your step \((.+?)\):")
JOIN: tuple[dict[str, Any], ...] = (
    {"id": "a", "text": "left", "depends_on": []},
    {"id": "b", "text": "right", "depends_on": []},
    {"id": "c", "text": "join", "depends_on": ["a", "b"], "done_when": "file: c.txt"},
)


class Brain:
    """Answers by what a request shows, so that it goes on after any crash."""

    def __init__(self, *steps: Any, slow: str = "") -> None:
        self.steps, self.slow = steps, slow
        self.asked: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any]) -> Reply:
        messages: list[dict[str, Any]] = body["messages"]
        system = str(messages[0]["content"])
        if system.startswith("You plan how"):
            self.asked["plan"] += 1
            args = {"command": "create", "title": "Join", "steps": list(self.steps)}
            return Reply(calls=(Call("planning", args),))
        if system.startswith("You write the final"):
            self.asked["summary"] += 1
            return Reply("All of it is done.")
        found = STEP.search(str(messages[1]["content"]))
        step = found[1] if found else "z"  # a plan's only step, which is asked for as the task is
        self.asked[step] += 1
        if messages[-1]["role"] == "tool":
            if "It is the last one." in str(messages[1]["content"]):
                self.asked["summary"] += 1
                return Reply("All of it is done.")
            return Reply(f"{step}: {str(messages[-1]['content'])[:60]}")
        wait = f"touch begun-{step}; until [ -e go ]; do sleep 0.02; done; "
        command = f"echo {step} >> log; {wait if step in self.slow else ''}"
        return Reply(calls=(Call("bash", {"command": f"{command}echo ok > {step}.txt"}),))

    def answers(self, count: int = 60) -> list[Answer]:
        return [self] * count


def plan(cli: Cli, *args: str) -> tuple[str, ...]:
    return ("plan", "join them", "--thread", "t", "--workspace", "files", *args)


def log_of(cli: Cli) -> list[str]:
    return sorted((cli.workspace / "log").read_text().split())


def test_a_plan_is_carried_out_shown_and_exported(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    done = cli.run(*plan(cli))
    assert (done.code, done.stdout) == (0, "All of it is done.\n")
    assert "[ ] c join" in done.stderr
    assert re.search(r"\[✓\] c join \(manus, [\d.]+ s, \$[\d.]+\)", done.stderr)
    assert log_of(cli) == ["a", "b", "c"]
    assert "- [x] **c**: join" in (cli.workspace / "plan.md").read_text("utf-8")
    shown, exported, as_json, steps, listed, none = cli.run_all(
        ["show", "t"], ["export", "t"], ["show", "t", "--json"], ["show", "t", "--plan"],
        ["threads"], ["show", "u", "--plan"],
    )  # fmt: skip
    for text in (shown.stdout, exported.stdout):
        for part in ("## Plan: Join", "- [x] **c**: join", "## Step c: join", "echo c >> log",
                     "All of it is done.", "7 model calls"):  # fmt: skip
            assert part in text
        assert text.index("## Step b") < text.index("## Step c") < text.rindex("All of it is")
    assert "The task as a whole:" in exported.stdout
    assert "The task as a whole:" not in shown.stdout
    held = json.loads(as_json.stdout)
    kinds = [message["type"] for message in held["step_runs"]["a"][0]]
    assert kinds == ["human", "ai", "tool", "ai"]
    assert [step["id"] for step in json.loads(steps.stdout)["steps"]] == ["a", "b", "c"]
    assert re.search(r"^ t +finished +planning .* join them", listed.stdout, re.MULTILINE)
    assert none.code == 2


def test_a_run_may_turn_to_a_plan(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    done = cli.run("run", "join them", *plan(cli, "--plan", "auto")[2:])
    assert (done.code, done.stdout) == (0, "All of it is done.\n")
    assert log_of(cli) == ["a", "b", "c"]
    refused = cli.run("run", "join them", "--plan", "auto", "--agent", "browser")
    assert refused.code == 2
    assert "the plan names the agent of each step" in refused.stderr
    assert len(model.requests) == 7


def test_its_events_are_those_of_the_list_and_name_the_step(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    done = cli.run(*plan(cli, "--json"))
    assert done.code == 0
    assert done.of("run_start")[0]["agent"] == "planning"
    ended = [(event["id"], event["status"]) for event in done.of("step_end")]
    assert sorted(ended) == [("a", "completed"), ("b", "completed"), ("c", "completed")]
    assert ended[-1][0] == "c"
    assert done.of("plan")[0]["title"] == "Join"
    assert [step["status"] for step in done.of("plan")[-1]["steps"]] == ["completed"] * 3
    assert done.final["usage"]["model_calls"] == 7
    assert {file["path"] for file in done.final["artifacts"]} == {
        "a.txt", "b.txt", "c.txt", "log", "plan.md",
    }  # fmt: skip
    for event in done.of("tool_start"):
        assert f"echo {event['plan_step']} >>" in event["args"]["command"]
    assert {event["plan_step"] for event in done.of("tool_end")} == {"a", "b", "c"}
    thinking = [event.get("plan_step") for event in done.of("think_end")]
    assert (thinking[0], sorted(map(str, thinking[1:]))) == (None, ["a", "a", "b", "b", "c", "c"])
    assert {event["plan_step"] for event in done.of("token")[:2]} <= {"a", "b"}
    for event in done.of("step_end"):
        assert event["executor"] == "manus"
        assert event["seconds"] > 0
        assert event["cost_usd"] == 0
    assert not [
        e
        for e in (*done.of("step_start"), *done.of("plan"), *done.of("plan_change"))
        if "plan_step" in e
    ]


def test_a_kill_in_the_middle_of_two_steps_repeats_no_finished_call(
    cli: Cli, model: OpenAIServer
) -> None:
    brain = Brain(*JOIN, slow="b")
    model.add(*brain.answers())
    running = cli.start(*plan(cli))
    running.wait_for(lambda e: e["type"] == "tool_end" and "ok" in str(e))
    until((cli.workspace / "begun-b").exists)
    running.signal(signal.SIGKILL)
    running.process.wait()
    (cli.workspace / "go").touch()
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "All of it is done.")
    assert brain.asked["plan"] == 1
    assert Counter(log_of(cli))["a"] == 1
    reported = [m["content"] for r in model.requests for m in r.messages if m["role"] == "tool"]
    assert any("cut off" in text for text in reported), "b ran in part, and the model is told"


def test_a_limit_stops_the_plan_and_resume_raises_it(cli: Cli, model: OpenAIServer) -> None:
    brain = Brain("one", "two", "three")
    model.add(*brain.answers())
    stopped = cli.run(*plan(cli, "--max-tokens", "2600", "--json"))
    assert (stopped.code, stopped.final["stop_reason"]) == (3, "budget")
    done = cli.run("resume", "t", "--max-tokens", "100000", "--json")
    assert (done.code, done.final["status"]) == (0, "finished")
    assert brain.asked["plan"] == 1
    assert set(log_of(cli)) == {"0", "1", "2"}
    again = brain.asked.total() - brain.asked["plan"] - brain.asked["summary"]
    assert done.final["usage"]["model_calls"] == again + 1, "the bill goes on"


def test_a_budget_that_ends_in_the_middle_of_three_steps_and_the_printed_command(
    cli: Cli, model: OpenAIServer
) -> None:
    brain = Brain(*({"id": name, "text": name, "depends_on": []} for name in "abc"))
    used = {"prompt_tokens": 1950, "completion_tokens": 50, "total_tokens": 2000}

    def dear(body: dict[str, Any]) -> Reply:
        return replace(brain(body), usage=used)

    model.add(*[dear] * 10)
    stopped = cli.run(*plan(cli, "--max-tokens", "9000"))
    assert stopped.code == 3
    assert "steps   0 of 3 completed" in stopped.stderr
    command = re.findall("Continue with: openmanus (.+)", stopped.stderr)[-1].split()
    assert command[:3] == ["resume", "t", "--max-tokens"]
    done = cli.run(*command[:3], command[3] + "0")
    assert done.code == 0, done.stderr
    assert sorted(log_of(cli)) == ["a", "b", "c"]
    assert brain.asked["plan"] == 1


def test_an_empty_task_is_wrong_usage(cli: Cli) -> None:
    done = cli.run("plan", "  ")
    assert (done.code, done.stdout) == (2, "")
    assert "empty" in done.stderr


def test_two_open_questions_are_answered_by_their_ids(cli: Cli, model: OpenAIServer) -> None:
    def ask(body: dict[str, Any]) -> Reply:
        found = STEP.search(str(body["messages"][1]["content"]))
        last = body["messages"][-1]
        if found is None or last["role"] == "tool":
            return brain(body)
        return Reply(calls=(Call("ask_human", {"inquire": f"Which colour for {found[1]}?"}),))

    brain = Brain(*({"id": name, "text": name, "depends_on": []} for name in "ab"))
    model.add(*[ask] * 20)
    asked = cli.run(*plan(cli, "--json"))
    assert asked.code == 4
    ids = {event["question"][-2]: event["id"] for event in asked.of("interrupt")}
    for wrong in (("--answer", "red"), ("--answer", "red", "--id", "nonsense")):
        refused = cli.run("resume", "t", *wrong)
        assert refused.code == 2
        assert f"{ids['a']}  [a] Which colour for a?" in refused.stderr
        assert f"{ids['b']}  [b] Which colour for b?" in refused.stderr
    first = cli.run("resume", "t", "--answer", "red", "--id", ids["b"], "--json")
    assert (first.code, first.final["answer"]) == (4, "Which colour for a?")
    assert first.final["usage"]["model_calls"] == len(model.requests), "what has ended counts once"
    done = cli.run("resume", "t", "--answer", "blue")
    assert done.code == 0
    assert "a: blue" not in done.stderr, "the words of steps that run at once would mingle"
    summary = str(model.requests[-1].messages[-1])
    assert "a: blue" in summary
    assert "b: red" in summary


def test_ctrl_c_saves_reports_the_whole_cost_and_resume_goes_on(
    cli: Cli, model: OpenAIServer
) -> None:
    brain = Brain(*JOIN, slow="b")
    model.add(*brain.answers())
    running = cli.start(*plan(cli))
    until((cli.workspace / "begun-b").exists)
    running.signal(signal.SIGINT)
    running.wait_for(lambda e: e["type"] == "notice" and "Finishing" in e["text"])
    (cli.workspace / "go").touch()
    stopped = running.finish()
    assert (stopped.code, stopped.final["status"]) == (130, "cancelled")
    assert stopped.final["usage"]["model_calls"] == len(model.requests) > 1
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "All of it is done.")
    assert done.final["usage"]["model_calls"] == len(model.requests)
    assert log_of(cli) == ["a", "b", "c"]
    assert brain.asked["plan"] == 1
    assert not [m for r in model.requests for m in r.messages if "tried before" in str(m)]


def test_ctrl_c_while_four_steps_run_and_resume_does_none_of_them_twice(
    cli: Cli, model: OpenAIServer
) -> None:
    four: list[dict[str, Any]] = [{"id": name, "text": name, "depends_on": []} for name in "abcd"]
    brain = Brain(*four, {"id": "end", "text": "join", "depends_on": [*"abcd"]}, slow="abcd")
    model.add(*brain.answers())
    running = cli.start(*plan(cli))
    until(lambda: all((cli.workspace / f"begun-{name}").exists() for name in "abcd"))
    running.signal(signal.SIGINT)
    running.wait_for(lambda e: e["type"] == "notice" and "Finishing" in e["text"])
    (cli.workspace / "go").touch()
    stopped = running.finish()
    assert (stopped.code, stopped.final["status"]) == (130, "cancelled")
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "All of it is done.")
    assert log_of(cli) == ["a", "b", "c", "d", "end"]
    assert (brain.asked["plan"], brain.asked["summary"]) == (1, 1)
    assert [brain.asked[name] for name in (*"abcd", "end")] == [2] * 5
    assert done.final["usage"]["model_calls"] == len(model.requests)


@pytest.mark.parametrize("stage", ["plan", "a", "c", "summary"])
def test_the_first_ctrl_c_ends_any_model_request_at_once(
    cli: Cli, model: OpenAIServer, stage: str
) -> None:
    brain, asked, answer = Brain(*JOIN), threading.Event(), threading.Event()

    def hold(body: dict[str, Any]) -> Reply:
        before = brain.asked[stage]
        reply = brain(body)
        if brain.asked[stage] > before and not asked.is_set():
            asked.set()
            answer.wait(BACKSTOP_S)
        return reply

    model.add(*[hold] * 60)
    running = cli.start(*plan(cli))
    assert asked.wait(BACKSTOP_S)
    running.signal(signal.SIGINT)
    stopped = running.finish()  # the server never answers
    answer.set()
    assert (stopped.code, stopped.final["status"]) == (130, "cancelled")
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "All of it is done.")
    assert log_of(cli) == ["a", "b", "c"]


def test_a_plan_waits_for_an_answer_that_can_be_carried_out(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    asked = cli.run(*plan(cli, "--review-plan"))
    assert asked.code == 4
    for hint in ("resume t --approve", 'resume t --answer "', "show t --plan", "resume t --reject"):
        assert f"openmanus {hint}" in asked.stderr
    for command in (plan(cli), ("run", "else", "--thread", "t")):
        refused = cli.run(*command)
        assert (refused.code, refused.stdout) == (2, "")
        assert "openmanus resume t --approve" in refused.stderr
    given = cli.run("show", "t", "--plan").stdout
    circle: list[Any] = [{"id": "x", "text": "x", "depends_on": ["x"]}]
    edit = {"type": "edit", "args": {"args": {"steps": circle}}}
    for answer, problem in (
        (json.dumps(edit), "depends on itself"),
        ("[]", "no steps"),
        (given.replace("manus", "nobody"), "names executor 'nobody'"),
    ):
        asked = cli.run("resume", "t", "--answer", answer, "--json")
        assert (asked.code, asked.final["status"]) == (4, "waiting")
        assert problem in asked.final["answer"]
    assert not (cli.workspace / "log").exists()
    assert cli.run("resume", "t", "--approve").code == 0
    assert log_of(cli) == ["a", "b", "c"]


def test_an_edited_plan_is_carried_out_and_a_rejected_one_is_not(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(*Brain(*JOIN).answers())
    assert cli.run(*plan(cli, "--review-plan")).code == 4
    edited = {"type": "edit", "args": {"args": {"steps": [{"id": "z", "text": "only this"}]}}}
    assert cli.run("resume", "t", "--answer", json.dumps(edited)).code == 0
    other = ("plan", "join", "--thread", "u", "--review-plan", "--workspace", "files")
    assert cli.run(*other).code == 4
    rejected = cli.run("resume", "u", "--reject")
    assert rejected.code == 1
    assert "rejected" in rejected.stdout
    assert log_of(cli) == ["z"]
