"""`openmanus batch`: many tasks, their results as they come, and going on after a kill."""

import json
import os
import re
import signal
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.terminal import Terminal
from tests.support.cli import Cli, Process, no_input, until
from tests.support.graphs import own_words
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Answer, Call, Reply
from tests.support.openai_server import OpenAIServer

OUT = "out.jsonl"
COMMAND = ("batch", "tasks.jsonl", "--out", OUT)


def write_tasks(cli: Cli, *tasks: dict[str, Any]) -> None:
    cli.write("tasks.jsonl", "".join(json.dumps(task) + "\n" for task in tasks))


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"id": f"t{number}", "task": f"Task <{number}>"} for number in range(count)]


def results(cli: Cli, name: str = OUT) -> dict[str, dict[str, Any]]:
    """Return the results by their ids, of which none is there twice."""
    lines = [json.loads(line) for line in (cli.cwd / name).read_text().splitlines()]
    found = {line["id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def task_of(body: dict[str, Any]) -> str:
    """Return the words between < and > in the first user message."""
    text = next(str(one["content"]) for one in body["messages"] if one["role"] == "user")
    return own_words(text).partition("<")[2].partition(">")[0]


def works(body: dict[str, Any]) -> Reply:
    """Write a line with an effect, then answer."""
    number = task_of(body)
    if any(message["role"] == "tool" for message in body["messages"]):
        return Reply(f"Done {number}.")
    return Reply(calls=(Call("bash", {"command": "echo once >> log"}, id=f"c{number}"),))


def play(model: OpenAIServer, answer: Answer) -> None:
    """Give every request this answer."""
    model.add(answer)
    model.loop = True


def start(cli: Cli, *args: str) -> Process:
    out = (cli.root / "stdout").open("ab")
    with no_input() as nothing, out:
        return cli.launch([*COMMAND, *args], nothing, out, out)


def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(BACKSTOP_S)


class Gate:
    """The model of tasks that stop at their answer until the gate opens."""

    def __init__(self, held: set[str]) -> None:
        self.held, self.waiting, self.open = held, set[str](), threading.Event()

    def __call__(self, body: dict[str, Any]) -> Reply:
        reply, number = works(body), task_of(body)
        if not reply.calls and number in self.held and not self.open.is_set():
            self.waiting.add(number)
            self.open.wait(BACKSTOP_S)
        return reply


def logs(cli: Cli) -> Counter[str]:
    """Return how often each thread's task has had its effect."""
    return Counter(
        {path.parent.name: len(path.read_text().splitlines())
         for path in (cli.cwd / "workspace").glob("*/log")}
    )  # fmt: skip


@pytest.mark.slow
def test_each_task_has_a_result(cli: Cli, model: OpenAIServer) -> None:
    cli.write("given/notes.txt", "read me")
    write_tasks(
        cli,
        {"id": "a", "task": "<a> files", "files": ["given/notes.txt"]},
        {"task": "<b> steps", "max_steps": 1},
        {"id": "c", "task": "<c>", "agent": "swe"},
    )
    play(model, works)
    done = cli.run(*COMMAND)
    found = results(cli)
    assert (done.code, done.stdout) == (3, ""), done.stderr
    assert {name: one["status"] for name, one in found.items()} == {
        "a": "finished",
        "2": "stopped",
        "c": "finished",
    }
    first = found["a"]
    assert set(first) == {"id", "status", "answer", "usage", "artifacts", "thread"}
    assert first["answer"] == "Done a."
    assert first["usage"]["model_calls"] == 2
    assert "log" in [one["path"] for one in first["artifacts"]]
    assert (cli.cwd / "workspace" / first["thread"] / "notes.txt").read_text() == "read me"
    assert "1 stopped" in done.stderr
    assert OUT in done.stderr
    assert cli.run("show", first["thread"]).code == 0


@pytest.mark.slow
def test_a_batch_that_is_done_does_nothing_more(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, *numbered(2))
    play(model, works)
    assert cli.run(*COMMAND).code == 0
    before, asked = (cli.cwd / OUT).read_bytes(), len(model.requests)
    assert cli.run(*COMMAND).code == 0
    assert ((cli.cwd / OUT).read_bytes(), len(model.requests)) == (before, asked)


def test_a_terminal_shows_one_bar_with_rate_cost_and_time_also_after_ctrl_c(
    cli: Cli, model: OpenAIServer
) -> None:
    write_tasks(cli, *numbered(3))
    gate = Gate({"1"})
    play(model, gate)
    with Terminal(cli, *COMMAND, "--jobs", "1", columns=80) as terminal:
        until(lambda: gate.waiting == {"1"})
        terminal.see(" left")
        bars = [line for line in terminal.screen.splitlines() if "━" in line]
        assert len(bars) == 1
        assert re.search(r"━ +1/3 [\d.]+ a minute, \$0, \d+:\d\d:\d\d left$", bars[0].rstrip())
        terminal.type("\x03")
        terminal.see("once more stops them at once.")
        gate.open.set()
        assert terminal.finish() == 130
        shown = terminal.screen
    assert shown.count("━ ") == 1
    assert "^C" not in shown
    assert " ".join(shown.split()).endswith("The same command continues.")


@pytest.mark.slow
def test_a_killed_batch_goes_on_and_does_nothing_twice(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, *numbered(8))
    gate = Gate({"3", "4"})
    play(model, gate)
    process = start(cli, "--jobs", "2")
    until(lambda: gate.waiting == {"3", "4"})
    kill(process)
    before = results(cli)
    assert set(before) == {"t0", "t1", "t2"}
    with (cli.cwd / OUT).open("ab") as out:
        out.write(b'{"id": "t3", "sta')  # a line that the kill cut off
    gate.open.set()
    asked = len(model.requests)
    done = cli.run(*COMMAND, "--jobs", "2")
    assert done.code == 0, done.stderr
    found = results(cli)
    assert {one["answer"] for one in found.values()} == {f"Done {n}." for n in range(8)}
    assert {name: found[name] for name in before} == before
    assert logs(cli) == {one["thread"]: 1 for one in found.values()}
    again = [task_of(request.body) for request in model.requests[asked:]]
    assert Counter(again) == {"3": 1, "4": 1, "5": 2, "6": 2, "7": 2}


def test_ctrl_c_lets_steps_finish_and_the_batch_goes_on(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, *numbered(4))
    gate = Gate({"1"})
    play(model, gate)
    process = start(cli, "--jobs", "1")
    until(lambda: gate.waiting == {"1"})
    process.send_signal(signal.SIGINT)
    until(lambda: b"once more" in (cli.root / "stdout").read_bytes())
    gate.open.set()
    assert process.wait(BACKSTOP_S) == 130
    assert set(results(cli)) <= {"t0", "t1"}
    assert b"The same command continues." in (cli.root / "stdout").read_bytes()
    assert cli.run(*COMMAND).code == 0
    assert logs(cli) == {one["thread"]: 1 for one in results(cli).values()}
    assert len(results(cli)) == 4


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, *numbered(3))
    gate = Gate({"0", "1"})
    play(model, gate)
    process = start(cli, "--jobs", "2")
    until(lambda: gate.waiting == {"0", "1"})
    process.send_signal(signal.SIGINT)
    until(lambda: b"once more" in (cli.root / "stdout").read_bytes())
    process.send_signal(signal.SIGINT)
    assert process.wait(BACKSTOP_S) == 130
    assert results(cli) == {}
    gate.open.set()
    assert cli.run(*COMMAND).code == 0
    assert logs(cli) == {one["thread"]: 1 for one in results(cli).values()}
    assert len(results(cli)) == 3


PRICES = """\
[prices."test-model"]
input = 10.0
cached = 10.0
output = 10.0
"""


@pytest.mark.slow
def test_one_budget_holds_for_all_tasks_and_all_processes(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", PRICES)
    write_tasks(cli, *numbered(4))
    # A call costs $0.1, a task $0.2; before its first one about $0.02 are expected.
    usage = {"prompt_tokens": 9_900, "completion_tokens": 100, "total_tokens": 10_000}
    play(model, lambda body: replace(works(body), usage=usage))
    budget = ("--config", "openmanus.toml", "--jobs", "1", "--max-cost-usd")
    done = cli.run(*COMMAND, *budget, "0.5")
    assert done.code == 3, done.stderr
    first = results(cli)
    assert 0 < len(first) < 4
    assert {one["status"] for one in first.values()} == {"finished"}
    assert "higher --max-cost-usd" in done.stderr
    asked = len(model.requests)
    assert cli.run(*COMMAND, *budget, "0.5").code == 3
    assert len(model.requests) - asked <= 1
    assert cli.run(*COMMAND, *budget, "5").code == 0
    assert logs(cli) == {one["thread"]: 1 for one in results(cli).values()}
    assert len(results(cli)) == 4


@pytest.mark.slow
def test_a_task_that_waits_or_fails_does_not_hold_up_others(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, {"id": "ask", "task": "<ask>"}, {"id": "no", "task": "<no>"}, *numbered(1))

    def answer(body: dict[str, Any]) -> Reply:
        if task_of(body) == "no":
            return Reply(status=400, error={"message": "no such thing"})
        if task_of(body) == "ask" and body["messages"][-1]["role"] != "tool":
            return Reply(calls=(Call("ask_human", {"inquire": "Which one?"}),))
        return works(body)

    play(model, answer)
    done = cli.run(*COMMAND)
    assert done.code == 1, done.stderr
    found = results(cli)
    assert {name: one["status"] for name, one in found.items()} == {
        "ask": "waiting",
        "no": "failed",
        "t0": "finished",
    }
    assert found["ask"]["answer"] == "Which one?"
    assert f"ask waits for you: openmanus resume {found['ask']['thread']}\n" in done.stderr
    assert cli.run("inbox").stderr == "Nothing waits for you.\n"  # as in the list of threads
    answered = cli.run("resume", found["ask"]["thread"], "--answer", "The red one.")
    assert answered.code == 0
    asked = len(model.requests)
    again = cli.run(*COMMAND)
    assert (again.code, "waits for you" in again.stderr) == (1, False)
    assert results(cli) == {**found, "ask": results(cli)["ask"]}
    assert results(cli)["ask"]["status"] == "finished"
    assert len(model.requests) == asked, "the answer that the thread has is the result"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"task": "one"}\n\n{"task": \n', ("Line 3", "is not a task")),
        ('{"task": "one"}\n{"tusk": "two"}\n', ("Line 2", "task")),
        ('{"task": " "}\n', ("Line 1", "task")),
        ('{"task": "one", "max_steps": 0}\n', ("Line 1", "max_steps")),
        ('{"task": "one", "agent": "nobody"}\n', ("Line 1", "nobody", "manus")),
        ('{"task": "one", "files": ["gone.txt"]}\n', ("Line 1", "gone.txt")),
        ('{"id": "2", "task": "one"}\n{"task": "two"}\n', ("Lines 1 and 2", "'2'")),
        ("\n", ("There is no task in",)),
        ("[1]\n", ("Line 1",)),
        (b'{"task": "\xff"}\n', ("Line 1",)),
    ],
)
def test_a_wrong_line_is_named_and_nothing_begins(
    cli: Cli, lines: str | bytes, words: tuple[str, ...]
) -> None:
    cli.write("tasks.jsonl", lines)
    done = cli.run(*COMMAND)
    assert done.code == 2
    for word in words:
        assert word in done.stderr
    assert not (cli.cwd / OUT).exists()


def test_without_a_model_nothing_begins(bare_cli: Cli) -> None:
    write_tasks(bare_cli, *numbered(1))
    done = bare_cli.run(*COMMAND)
    assert done.code == bare_cli.run("run", "Task").code == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert results(bare_cli) == {}


@pytest.mark.slow
def test_an_out_file_of_another_batch_is_left_alone(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, *numbered(1))
    play(model, works)
    kept = cli.write("other.jsonl", '{"mine": 1}\n')
    refused = cli.run("batch", "tasks.jsonl", "--out", "other.jsonl")
    assert (refused.code, kept.read_text()) == (2, '{"mine": 1}\n')
    assert "Give another --out" in refused.stderr
    assert cli.run("batch", "tasks.jsonl", "--out", "tasks.jsonl").code == 2
    assert cli.run("batch", "tasks.jsonl", "--out", "no/where.jsonl").code == 2
    assert cli.run("batch", "gone.jsonl").code == 2
    assert cli.run(*COMMAND).code == 0
    elsewhere = cli.run(*COMMAND, env={"OPENMANUS_HOME": str(cli.root / "elsewhere")})
    assert elsewhere.code == 2
    assert "whose threads are in" in elsewhere.stderr
    write_tasks(cli, {"id": "t0", "task": "Another <0>"})
    changed = cli.run(*COMMAND)
    assert changed.code == 2
    assert "Line 1 of out.jsonl" in changed.stderr
    (cli.cwd / OUT).unlink()
    asked = len(model.requests)
    assert cli.run(*COMMAND).code == 0, "deleted, to begin anew"
    assert len(model.requests) == asked + 2


def test_two_processes_do_not_do_one_batch(cli: Cli, model: OpenAIServer) -> None:
    write_tasks(cli, *numbered(1))
    gate = Gate({"0"})
    play(model, gate)
    process = start(cli)
    until(lambda: gate.waiting == {"0"})
    second = cli.run(*COMMAND)
    assert (second.code, "in use" in second.stderr) == (1, True)
    gate.open.set()
    assert process.wait(BACKSTOP_S) == 0
