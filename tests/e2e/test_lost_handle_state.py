"""kill -9 takes kernel and shell away; the next request says so, once."""

import signal

import pytest

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

TOLD = "The processes of the tools have ended"
SLOW = Call("bash", {"command": "touch begun; sleep 1000"})


def kill_in(cli: Cli, model: OpenAIServer, *before: Reply) -> None:
    """Run some steps, and kill the command while a further one is under way."""
    model.add(*before, Reply(calls=(SLOW,)))
    running = cli.start("run", "go", "--thread", "t", "--workspace", "files")
    running.wait_for(lambda event: event["type"] == "tool_start" and "begun" in str(event["args"]))
    running.signal(signal.SIGKILL)
    running.finish()


def reported(model: OpenAIServer) -> list[str]:
    """Return the end of each request if it tells of lost things."""
    ends = [str(request.messages[-1]["content"]) for request in model.requests]
    return [end if TOLD in end else "" for end in ends]


def test_what_a_crash_took_is_reported_once(cli: Cli, model: OpenAIServer) -> None:
    memory = (
        Call("python_execute", {"code": "import math\nrows = [1]\ntotal = 1"}),
        Call("bash", {"command": "mkdir d; cd d; RATE=3; sleep 1000 &"}),
    )
    kill_in(cli, model, Reply(calls=memory))
    look = Reply(calls=(Call("bash", {"command": "pwd"}),))
    model.add(look, Reply("Done."))
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Done.")
    *before, first, last = reported(model)
    assert (before, last) == (["", ""], "")
    assert "- Python: variables rows, total; imports math.\n" in first
    folder = cli.workspace / "d"
    held = f"its folder {folder}; variables RATE; running in the background: sleep 1000."
    assert f"- Shell: {held}\n" in first
    assert model.requests[-1].messages[-1]["content"].strip() == str(cli.workspace)
    model.add(Reply("Nothing new."))
    assert cli.run("run", "more", "--thread", "t").code == 0
    assert reported(model)[-1] == ""


def test_a_crash_that_took_nothing_is_not_reported(cli: Cli, model: OpenAIServer) -> None:
    kill_in(cli, model, Reply(calls=(Call("python_execute", {"code": "print(1)"}),)))
    model.add(Reply("Done."))
    assert cli.run("resume", "t").code == 0
    assert reported(model) == ["", "", ""]
