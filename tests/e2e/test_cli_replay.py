"""`openmanus replay`: a run again from its record."""

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


def test_a_replay_reaches_no_model_and_shows_what_would_be_sent_otherwise(
    cli: Cli, model: OpenAIServer
) -> None:
    write = Reply(calls=(Call("bash", {"command": "echo one >> log"}),))
    model.add(write, Reply("Done."))
    assert cli.run("run", "write it", "--thread", "t").code == 0
    sent = len(model.requests)
    same = cli.run("replay", "t")
    assert (same.code, same.stdout) == (0, "")
    assert same.stderr == "All 2 requests are as they were recorded.\n"
    (cli.cwd / "AGENTS.md").write_text("Be brief.\n")
    other = cli.run("replay", "t")
    assert other.code == 1
    assert "\n+Be brief.\n" in other.stdout
    assert "2 of 2 requests differ. The first one is model call 1, of step 1." in other.stderr
    assert len(model.requests) == sent
    assert (cli.cwd / "workspace" / "t" / "log").read_text() == "one\n"


def test_a_thread_that_does_not_exist_is_refused(cli: Cli) -> None:
    refused = cli.run("replay", "nobody")
    assert refused.code == 2
    assert "There is no thread" in refused.stderr
