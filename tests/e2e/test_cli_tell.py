"""`openmanus tell`: from another process, through crashes, and after the end."""

import signal

from tests.e2e.test_cli_resume import begin_slow_call, release
from tests.support.cli import Cli
from tests.support.graphs import own_words
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

SLOW = "touch begun; until [ -e go ]; do sleep 0.02; done; rm begun go"


def said(model: OpenAIServer) -> list[str]:
    """Return the user messages of the last request."""
    sent = model.requests[-1].messages
    return [own_words(m["content"]) for m in sent if m["role"] == "user"]


def test_a_running_agent_reads_it_at_its_next_step_also_after_kill_9(
    cli: Cli, model: OpenAIServer
) -> None:
    slow = Reply(calls=(Call("bash", {"command": SLOW}),))
    model.add(slow, slow, Reply("In euros then."))
    running = begin_slow_call(cli)
    reported = cli.run("tell", "t", "-", stdin="in euros")
    assert (reported.code, reported.stdout) == (0, "")
    assert "at its next step" in reported.stderr
    release(cli)
    running.wait_for(lambda event: event.get("text") == "Read your message: in euros")
    running.wait_for_kind("tool_start")
    running.signal(signal.SIGKILL)
    running.finish()
    release(cli)
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "In euros then.")
    assert said(model) == ["slow", "in euros"]
    roles = [message["role"] for message in model.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user", "assistant", "tool"]
    late = cli.run("tell", "t", "and cents")
    assert "openmanus resume t" in late.stderr
    model.add(Reply("And cents."))
    assert cli.run("resume", "t").stdout == "And cents.\n"
    assert said(model)[-1] == "and cents"
    assert cli.run("resume", "t").code == 2


def test_an_unknown_thread_is_named(cli: Cli) -> None:
    done = cli.run("tell", "nope", "hi")
    assert done.code == 2
    assert "no thread 'nope'" in done.stderr
