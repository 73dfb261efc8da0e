"""`openmanus eval`: suites with checks, going on after a kill, and what changed since a run."""

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.test_cli_batch import PRICES, Gate, kill, logs, play, task_of, works
from tests.support.cli import Cli, Process, Result, no_input, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

COMMAND = ("eval", "suite.jsonl", "--jobs", "2")
DONE = ("file: log", "answer: ^Done")


def write_suite(cli: Cli, *tasks: tuple[str, Sequence[str]], **more: Any) -> None:
    lines = [{"id": name, "task": f"<{name}>", "checks": [*checks], **more}
             for name, checks in tasks]  # fmt: skip
    cli.write("suite.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def verdicts(cli: Cli, folder: str = "suite.eval") -> dict[str, dict[str, Any]]:
    """Return the verdicts by their attempts, of which none is there twice."""
    text = (cli.cwd / folder / "verdicts.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    found = {line["attempt"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def outcomes(cli: Cli, folder: str = "suite.eval") -> dict[str, str]:
    return {name: one["outcome"] for name, one in verdicts(cli, folder).items()}


def start(cli: Cli, *args: str) -> Process:
    out = (cli.root / "stdout").open("ab")
    with no_input() as nothing, out:
        return cli.launch([*COMMAND, *args], nothing, out, out)


def row(done: Result, task: str) -> list[str]:
    """Return the words of a task's row, in the last table that has one."""
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{task} ")]
    return rows[-1]


def test_the_shipped_tasks_pass_without_a_key(bare_cli: Cli) -> None:
    done = bare_cli.run("eval", "--shipped")
    assert done.code == 0, done.stdout
    assert "passed 100 %" in done.stdout
    assert "recording" in done.stderr
    found = verdicts(bare_cli, "shipped.eval")
    assert len(found) == 10
    assert {one["outcome"] for one in found.values()} == {"passed"}
    assert all(one["steps"] and one["elapsed_s"] for one in found.values())
    page = (bare_cli.cwd / "shipped.eval" / "report.html").read_text()
    assert "Evaluation of shipped" in page
    again = bare_cli.run("eval", "--shipped", "--quiet")
    assert (again.code, again.stderr) == (0, "")
    assert again.stdout == "passed 100 % (10 of 10), cost $0\n"


def test_each_attempt_is_judged(cli: Cli, model: OpenAIServer) -> None:
    write_suite(cli, ("a", DONE), ("b", ("answer: ^Nothing",)), ("c", ("python: judges:bad",)))
    cli.write("judges.py", "def bad(answer, workspace):\n    raise ValueError('ups')\n")
    play(model, works)
    done = cli.run(*COMMAND, "--repeat", "2")
    assert done.code == 1, done.stderr
    assert outcomes(cli) == {
        **{"a#1": "passed", "a#2": "passed", "b#1": "failed", "b#2": "failed"},
        **{"c#1": "error", "c#2": "error"},
    }
    assert row(done, "a")[1:4] == ["2/2", "$0", "2"]
    assert row(done, "b")[1] == "0/2"
    assert "broken check: python: judges:bad: ValueError: ups" in done.stdout
    assert (
        "pass@1 50 %, pass@2 50 %, pass^2 50 %, passed 2, failed 2, broken check 2" in done.stdout
    )
    assert "6/6" in done.stderr
    assert "report.html" in done.stderr


def test_a_killed_evaluation_goes_on_and_does_nothing_twice(cli: Cli, model: OpenAIServer) -> None:
    write_suite(cli, *((f"t{number}", DONE) for number in range(5)))
    gate = Gate({"t2", "t3"})
    play(model, gate)
    process = start(cli)
    until(lambda: gate.waiting == {"t2", "t3"})
    kill(process)
    before = verdicts(cli)
    assert set(before) <= {"t0#1", "t1#1"}
    gate.open.set()
    asked = len(model.requests)
    done = cli.run(*COMMAND)
    assert done.code == 0, done.stderr
    found = verdicts(cli)
    assert {name: found[name] for name in before} == before
    assert len(found) == 5
    assert len(logs(cli)) == 5
    assert {*logs(cli).values()} == {1}
    assert {task_of(one.body) for one in model.requests[asked:]} <= {"t2", "t3", "t4"}


def test_a_kill_while_a_check_runs_repeats_only_the_check(cli: Cli, model: OpenAIServer) -> None:
    write_suite(cli, ("a", ("command: until test -e go; do sleep 0.1; done",)))
    play(model, works)
    process = start(cli)
    results = cli.cwd / "suite.eval" / "results.jsonl"
    until(lambda: results.exists() and results.read_text().endswith("\n"))
    kill(process)
    assert verdicts(cli) == {}
    (folder,) = (cli.cwd / "workspace").iterdir()
    (folder / "go").touch()
    asked = len(model.requests)
    assert cli.run(*COMMAND).code == 0
    assert outcomes(cli) == {"a#1": "passed"}
    assert len(model.requests) == asked


def test_ctrl_c_lets_steps_finish_and_the_evaluation_goes_on(cli: Cli, model: OpenAIServer) -> None:
    write_suite(cli, *((f"t{number}", DONE) for number in range(4)))
    gate = Gate({"t1"})
    play(model, gate)
    process = start(cli, "--jobs", "1")
    until(lambda: gate.waiting == {"t1"})
    process.send_signal(signal.SIGINT)
    until(lambda: b"once more" in (cli.root / "stdout").read_bytes())
    gate.open.set()
    assert process.wait() == 130
    assert b"The same command continues." in (cli.root / "stdout").read_bytes()
    assert cli.run(*COMMAND).code == 0
    assert {*logs(cli).values()} == {1}


def test_other_checks_are_judged_without_doing_the_task_again(
    cli: Cli, model: OpenAIServer
) -> None:
    write_suite(cli, ("a", ("answer: ^Nothing",)), ("b", DONE))
    play(model, works)
    assert cli.run(*COMMAND).code == 1
    asked, kept = len(model.requests), verdicts(cli)["b#1"]
    write_suite(cli, ("a", DONE), ("b", DONE))
    assert cli.run(*COMMAND).code == 0
    assert len(model.requests) == asked
    assert verdicts(cli)["b#1"] == kept
    more = cli.run(*COMMAND, "--repeat", "2")
    assert (more.code, row(more, "a")[1]) == (0, "2/2")
    assert set(verdicts(cli)) == {"a#1", "a#2", "b#1", "b#2"}


def test_a_task_that_asks_or_meets_a_limit_is_not_done(cli: Cli, model: OpenAIServer) -> None:
    lines = [
        {"id": "ask", "task": "<ask>", "checks": ["file: log"]},
        {"id": "long", "task": "<long>", "checks": ["file: log"], "max_steps": 1},
        {"id": "no", "task": "<no>", "checks": ["file: log"]},
    ]
    cli.write("suite.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def answer(body: dict[str, Any]) -> Reply:
        if task_of(body) == "no":
            return Reply(status=400, error={"message": "no such thing"})
        if task_of(body) == "ask":
            return Reply(calls=(Call("ask_human", {"inquire": "Which one?"}),))
        return works(body)

    play(model, answer)
    done = cli.run(*COMMAND)
    assert done.code == 1, done.stderr
    assert {*outcomes(cli).values()} == {"not_done"}
    where = {name: one["where"] for name, one in verdicts(cli).items()}
    assert where == {
        "ask#1": "waiting: question",
        "long#1": "stopped: max_steps",
        "no#1": "failed: error",
    }
    assert "It asks: Which one?" in done.stdout
    assert "not done 3" in done.stdout
    asked = len(model.requests)
    assert cli.run(*COMMAND).code == 1
    assert len(model.requests) == asked


def test_one_budget_holds_for_all_attempts(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", PRICES)
    write_suite(cli, ("a", DONE), ("b", DONE))
    usage = {"prompt_tokens": 9_900, "completion_tokens": 100, "total_tokens": 10_000}
    play(model, lambda body: replace(works(body), usage=usage))
    command = (*COMMAND[:2], "--jobs", "1", "--repeat", "2", "--config", "openmanus.toml")
    done = cli.run(*command, "--max-cost-usd", "0.5")
    assert done.code == 3, done.stderr
    found = outcomes(cli)
    assert 0 < len(found) < 4
    assert {*found.values()} == {"passed"}
    assert f"left {4 - len(found)}" in done.stdout
    assert "a higher --max-cost-usd" in done.stderr
    assert cli.run(*command, "--max-cost-usd", "5").code == 0
    assert {*logs(cli).values()} == {1}


def test_what_changed_since_an_earlier_evaluation(cli: Cli, model: OpenAIServer) -> None:
    write_suite(cli, ("a", DONE), ("b", ("file: none",)), ("c", DONE))
    play(model, works)
    assert cli.run(*COMMAND, "--out", "one").code == 1
    same = cli.run(*COMMAND, "--out", "two", "--against", "one")
    assert same.code == 0, "what failed before and fails now is not a regression"
    assert row(same, "b")[1:] == ["same", "0/1", "→", "0/1", "=", "=", *row(same, "b")[-2:]]
    write_suite(cli, ("a", ("file: none",)), ("b", DONE), ("c", DONE))
    done = cli.run(*COMMAND, "--out", "three", "--against", "one")
    assert done.code == 1
    assert row(done, "a")[1:6] == ["now", "fails", "(other", "checks)", "1/1"]
    assert row(done, "b")[1:3] == ["now", "passes"]
    page = (cli.cwd / "three" / "report.html").read_text()
    assert "What changed" in page
    assert "now fails (other checks)" in page
    back = cli.run(*COMMAND, "--out", "three", "--against", "three")
    assert (back.code, "folder of this evaluation" in back.stderr) == (2, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "Name a suite, or give --shipped"),
        (("suite.jsonl", "--shipped"), "Name a suite, or give --shipped"),
        (("none.jsonl",), "There is no file none.jsonl."),
        (("broken.jsonl",), "Line 2 of broken.jsonl is not a task"),
        (("twice.jsonl",), "Lines 1 and 2 of twice.jsonl have the same id 'a'"),
        (("empty.jsonl",), "There is no task in empty.jsonl"),
        (("suite.jsonl", "--out", "mine"), "mine already contains something else"),
        (("suite.jsonl", "--against", "mine"), "There is no evaluation in mine"),
        (("suite.jsonl", "--against", "nowhere"), "There is no evaluation in nowhere"),
        (("suite.jsonl", "--agent", "nobody"), "no agent 'nobody'"),
        (("suite.jsonl", "--repeat", "0"), "--repeat"),
    ],
)
def test_wrong_usage_begins_nothing(cli: Cli, args: tuple[str, ...], words: str) -> None:
    line = json.dumps({"id": "a", "task": "<a>", "checks": ["file: x"]})
    cli.write("suite.jsonl", f"{line}\n")
    cli.write("broken.jsonl", f'{line}\n{{"task": "b"\n')
    cli.write("twice.jsonl", f"{line}\n{line}\n")
    cli.write("empty.jsonl", "\n")
    cli.write("mine/thesis.md", "mine")
    done = cli.run("eval", *args)
    assert done.code == 2, done.stderr
    assert words in done.stderr
    assert not (cli.cwd / "suite.eval").exists()
    assert [path.name for path in (cli.cwd / "mine").iterdir()] == ["thesis.md"]


def test_a_folder_of_another_suite_or_model_is_left_alone(cli: Cli, model: OpenAIServer) -> None:
    write_suite(cli, ("a", DONE))
    play(model, works)
    assert cli.run(*COMMAND).code == 0
    cli.write("other.jsonl", (cli.cwd / "suite.jsonl").read_bytes())
    for args, words in (
        (("eval", "other.jsonl", "--out", "suite.eval"), "suite 'suite.jsonl', not 'other.jsonl'"),
        ((*COMMAND, "--model", "openai:other"), "not 'openai:other'"),
        ((*COMMAND, "--max-steps", "7"), "max_steps None, not 7"),
    ):
        refused = cli.run(*args)
        assert (refused.code, words in refused.stderr) == (2, True), refused.stderr
    write_suite(cli, ("b", DONE))
    other = cli.run(*COMMAND)
    assert (other.code, "Line 1 of" in other.stderr) == (2, True), other.stderr
    assert outcomes(cli) == {"a#1": "passed"}
    assert json.loads((cli.cwd / "suite.eval" / "eval.json").read_text())["tasks"] == ["a"]
