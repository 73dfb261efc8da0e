"""Questions, signals, crashes: a run that was cut off goes on, and repeats nothing."""

import shlex
import signal
import threading
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from tests.support.cli import Cli, Running, until
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

SLOW = "echo begun >> log; touch begun; until [ -e go ]; do sleep 0.02; done; echo over >> log"


SLOW_RUN = ("run", "slow", "--thread", "t", "--workspace", "files")


def begin_slow_call(cli: Cli, command: Sequence[str] = SLOW_RUN) -> Running:
    """Start a run whose bash call waits for a file `go`."""
    running = cli.start(*command)
    running.wait_for_kind("tool_start")
    until((cli.workspace / "begun").exists)
    return running


def release(cli: Cli) -> None:
    (cli.workspace / "go").touch()


def log_of(cli: Cli) -> str:
    return (cli.workspace / "log").read_text()


def results(model: OpenAIServer) -> list[str]:
    """Return the tool results of the last request."""
    return [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"]


@pytest.mark.parametrize(
    ("call", "options", "reply"),
    [
        (Call("ask_human", {"inquire": "Which?"}), (), " --answer TEXT"),
        (Call("bash", {"command": "true"}), (), " --approve"),
        (Call("bash", {"command": "true"}), ("--max-steps", "1"), " --max-steps 3"),
    ],
)
def test_the_final_event_has_the_command_that_goes_on(
    cli: Cli, model: OpenAIServer, call: Call, options: tuple[str, ...], reply: str
) -> None:
    if "approve" in reply:
        cli.write("openmanus.toml", '[[policy.rules]]\ntool = "bash"\ndecision = "ask"\n')
    model.add(Reply(calls=(call,)), Reply("Done."), Reply("Done."))
    stopped = cli.run("run", "go", "--thread", "a b", "--json", *options)
    command = stopped.final["resume"]
    assert command == f"openmanus resume 'a b'{reply}"
    done = cli.run(*shlex.split(command)[1:], "--json")
    assert (done.final["status"], done.final["resume"]) == ("finished", None), done


def test_a_question_without_a_terminal_waits_for_resume(cli: Cli, model: OpenAIServer) -> None:
    ask = Call("ask_human", {"inquire": "Which colour?"})
    model.add(Reply(calls=(ask,)), Reply("Blue then."))
    done = cli.run("run", "paint", "--thread", "t", "--json", stdin="green\n")
    assert done.code == 4
    assert done.kinds[-2:] == ["interrupt", "final"]
    question = done.of("interrupt")[0]
    assert (question["kind"], question["question"]) == ("question", "Which colour?")
    assert (done.final["status"], done.final["stop_reason"]) == ("waiting", "question")
    assert [event["status"] for event in done.of("final")] == ["waiting"]
    again = cli.run("resume", "t")
    assert (again.code, again.stdout) == (4, "")
    assert "Which colour?" in again.stderr
    assert "openmanus resume t --answer TEXT" in again.stderr
    wrong = cli.run("resume", "t", "--answer", "blue", "--id", "nope")
    assert wrong.code == 2
    assert question["id"] in wrong.stderr
    assert len(model.requests) == 1
    resumed = cli.run("resume", "t", "--answer", "blue", "--id", question["id"], "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Blue then.")
    assert results(model) == ["blue"]


def test_a_new_message_may_pass_over_an_open_question(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)), Reply("Never mind."))
    assert cli.run("run", "paint", "--thread", "t").code == 4
    done = cli.run("run", "forget it", "--thread", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "Never mind.")
    assert model.requests[-1].messages[-1]["content"] == "forget it"


def test_ctrl_c_finishes_the_call_and_resume_does_not_repeat_it(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    running = begin_slow_call(cli)
    running.signal(signal.SIGINT)
    running.wait_for_kind("notice")
    release(cli)
    done = running.finish()
    assert done.code == 130
    assert (done.final["status"], done.final["stop_reason"]) == ("cancelled", "cancelled")
    assert done.final["resume"] == "openmanus resume t"
    assert [event["ok"] for event in done.of("tool_end")] == [True]
    assert len(model.requests) == 1
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Finished.")
    assert resumed.of("tool_start") == []
    assert log_of(cli) == "begun\nover\n"
    assert len(model.requests) == 2


@pytest.mark.usefixtures("real_start")
@pytest.mark.slow
def test_sigterm_is_exit_143_also_when_it_comes_late_again(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    running = begin_slow_call(cli)
    running.signal(signal.SIGTERM)
    running.wait_for_kind("notice")
    release(cli)
    running.wait_for_kind("final")
    running.signal(signal.SIGTERM)
    done = running.finish()
    assert (done.code, done.final["status"]) == (143, "cancelled")
    assert cli.run("resume", "t").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_other_signals_let_a_slow_model_finish(
    cli: Cli, model: OpenAIServer, number: signal.Signals
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def slowly(body: dict[str, Any]) -> Reply:
        asked.set()
        answer.wait(BACKSTOP_S)
        return Reply(calls=(Call("bash", {"command": "echo once >> log"}),))

    model.add(slowly, Reply("Finished."))
    running = cli.start("run", "slow", "--thread", "t", "--workspace", "files")
    assert asked.wait(BACKSTOP_S)
    running.signal(number)
    running.wait_for_kind("notice")
    answer.set()
    done = running.finish()
    assert (done.code, done.final["status"]) == (128 + number, "cancelled")
    assert len(done.of("think_end")) == 1
    assert done.of("tool_start") == []
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Finished.")
    assert resumed.kinds[:3] == ["run_start", "tool_start", "tool_end"]
    assert log_of(cli) == "once\n"
    assert resumed.final["usage"]["model_calls"] == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_second_signal_cuts_the_call_off(
    cli: Cli, model: OpenAIServer, number: signal.Signals
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    running = begin_slow_call(cli)
    family = running.family()
    running.signal(number)
    running.wait_for_kind("notice")
    running.signal(number)
    done = running.finish()
    assert done.code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert (done.final["status"], done.final["stop_reason"]) == ("cancelled", "cancelled")
    assert_gone(family)
    release(cli)
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Finished.")
    assert "in part" in results(model)[0]
    assert log_of(cli) == "begun\n"


def assert_gone(family: list[psutil.Process]) -> None:
    """Fail if a process outlives the command."""
    assert len(family) > 1, "the call had no process of its own"
    _, alive = psutil.wait_procs(family, timeout=BACKSTOP_S)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
def test_kill_9_in_a_call_then_resume_informs_the_model(cli: Cli, model: OpenAIServer) -> None:
    bash, note = Call("bash", {"command": SLOW}), Call("ask_human", {"inquire": "?"})
    editor = Call("str_replace_editor", {"command": "create", "path": "a.txt", "file_text": "A"})
    model.add(Reply("I begin.", calls=(editor, bash)), Reply(calls=(note,)), Reply("Finished."))
    running = begin_slow_call(cli)
    running.wait_for(lambda event: event["type"] == "tool_end")
    family = running.family()
    running.signal(signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    assert_gone(family)
    (cli.workspace / "a.txt").unlink()
    listed = cli.run("threads")
    assert "t" in listed.stdout
    assert "interrupted" in listed.stdout
    resumed = cli.run("resume", "t", "--json")
    assert resumed.code == 4
    created, cut_off = results(model)
    assert "a.txt" in created
    assert "in part" in cut_off
    assert not (cli.workspace / "a.txt").exists(), "a call with an outcome is not run again"
    assert log_of(cli) == "begun\n"
    assert [m["role"] for m in model.requests[-1].messages].count("assistant") == 1


def test_kill_9_in_a_model_call_then_resume_asks_again(cli: Cli, model: OpenAIServer) -> None:
    asked, answer = threading.Event(), threading.Event()

    def never(body: dict[str, Any]) -> Reply:
        asked.set()
        answer.wait(BACKSTOP_S)
        return Reply("too late")

    model.add(never, Reply("Here I am."))
    running = cli.start("run", "the lost task", "--thread", "t")
    assert asked.wait(BACKSTOP_S)
    running.signal(signal.SIGKILL)
    running.finish()
    answer.set()
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Here I am.")
    assert model.requests[0].messages == model.requests[1].messages


@pytest.mark.slow
def test_two_processes_cannot_share_a_thread(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    cli.write("late.txt", "late")
    running = begin_slow_call(cli)
    for command in (("run", "me too", "--thread", "t", "--file", "late.txt"), ("resume", "t")):
        refused = cli.run(*command)
        assert (refused.code, refused.stdout) == (1, "")
        assert "t is in use by another process" in refused.stderr
    deleted = cli.run("threads", "--delete", "t")
    assert deleted.code == 1
    assert "in use" in deleted.stderr
    release(cli)
    assert running.finish().code == 0
    assert not (cli.workspace / "late.txt").exists()
    row = cli.run("threads", "--json").stdout
    assert '"task": "slow"' in row


@pytest.mark.slow
def test_resume_works_from_another_folder(cli: Cli, model: OpenAIServer) -> None:
    steps = [Reply(calls=(Call("bash", {"command": f"echo {n} >> log"}),)) for n in "12"]
    model.add(steps[0], Reply("One."), steps[1], Reply("Both."))
    assert cli.run("run", "two", "--thread", "t", "--max-steps", "1").code == 3
    elsewhere = cli.root / "elsewhere"
    elsewhere.mkdir()
    assert cli.run("resume", "t", "--max-steps", "5", cwd=elsewhere).code == 0
    assert (cli.cwd / "workspace" / "t" / "log").read_text() == "1\n2\n"
