"""`openmanus replay --continue`: a run that continues for real from the first difference."""

import json
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli, Result
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow


def bash(*commands: str) -> Reply:
    return Reply(calls=tuple(Call("bash", {"command": one}) for one in commands))


def record(cli: Cli, model: OpenAIServer) -> None:
    """A thread `t` that wrote one and two, and said so."""
    model.add(bash("echo one >> log"), bash("echo two >> log"), Reply("Two lines."))
    assert cli.run("run", "write it", "--thread", "t").code == 0


def fork_of(result: Result) -> str:
    (new,) = re.findall(r"continues from there as thread (\S+)\. ", result.stderr)
    assert f"openmanus resume {new}\n" in result.stderr
    return str(new)


def log_of(cli: Cli, thread: str) -> str:
    return (cli.cwd / "workspace" / thread / "log").read_text()


def test_another_models_call_is_the_first_that_is_really_made(
    cli: Cli, model: OpenAIServer
) -> None:
    record(cli, model)
    model.requests.clear()
    model.add(bash("echo one >> log"), bash("echo three >> log"), Reply("Other lines."))
    went = cli.run("replay", "t", "--model", "openai:other", "--continue")
    assert (went.code, went.stdout) == (0, "Other lines.\n"), went.stderr
    assert '+ "command": "echo three >> log"' in went.stderr
    assert "It stopped after model call 2, of step 2." in went.stderr
    new = fork_of(went)
    assert (log_of(cli, new), log_of(cli, "t")) == ("one\nthree\n", "one\ntwo\n")
    assert [one.body["model"] for one in model.requests] == ["other"] * 3, "none is asked twice"
    assert "Two lines." in cli.run("show", "t").stdout
    model.add(Reply("Still other."))
    assert cli.run("run", "and now", "--thread", new).stdout == "Still other.\n"
    assert model.requests[-1].body["model"] == "other"


def test_what_goes_on_is_killed_and_resumes_with_what_was_tried(
    cli: Cli, model: OpenAIServer
) -> None:
    record(cli, model)
    (cli.cwd / "system.txt").write_text("Write three.")
    asked = threading.Event()

    def hang(body: dict[str, Any]) -> Reply:
        del body
        asked.set()
        return Reply("never read", delay_s=BACKSTOP_S)

    model.add(bash("echo one >> log"), bash("echo three >> log"), hang)
    temporary = tempfile.TemporaryFile
    with temporary() as out, temporary() as err, temporary() as nothing:
        args = ["replay", "t", "--prompt", "system=system.txt", "--continue"]
        process = cli.launch(args, nothing, out, err)
        assert asked.wait(BACKSTOP_S)
        process.kill()
        process.wait(BACKSTOP_S)
        err.seek(0)
        new = fork_of(Result(1, "", err.read().decode()))
    (cli.cwd / "system.txt").unlink()
    model.add(Reply("Other lines."))
    resumed = cli.run("resume", new)
    assert (resumed.code, resumed.stdout) == (0, "Other lines.\n"), resumed.stderr
    assert log_of(cli, new) == "one\nthree\n", "no call was made twice"
    assert model.requests[-1].messages[0]["content"].startswith("Write three.")


def test_a_policy_that_refuses_goes_on_with_the_refusal(cli: Cli, model: OpenAIServer) -> None:
    """The call before it in the same reply is answered by the record, where it went outside."""
    cli.write("openmanus.toml", '[[policy.rules]]\ntool = "bash"\ndecision = "ask"\n')
    model.add(bash("echo one >> log"), Reply("One line."))
    assert cli.run("run", "write it", "--thread", "t", "--policy", "auto").code == 0
    model.add(Reply("It was refused."))
    went = cli.run("replay", "t", "--policy", "never", "--continue")
    assert (went.code, went.stdout) == (0, "It was refused.\n"), went.stderr
    assert "The policy decides differently on bash" in went.stderr
    assert not (cli.cwd / "workspace" / fork_of(went) / "log").exists()
    assert "not run" in model.requests[-1].messages[-1]["content"]


def test_a_function_goes_on_in_place_of_the_tool_and_what_it_needs_must_be_there(
    cli: Cli, model: OpenAIServer
) -> None:
    record(cli, model)
    mine = cli.write("mine.py", "def bash(command):\n    return f'[{command}]'\n")
    model.add(Reply("Nothing was written."))
    went = cli.run("replay", "t", "--tool", "bash=mine:bash", "--continue")
    assert (went.code, went.stdout) == (0, "Nothing was written.\n"), went.stderr
    new = fork_of(went)
    assert "[echo one >> log]" in model.requests[-1].messages[-1]["content"]
    model.add(bash("ls"), Reply("Listed."))
    assert cli.run("run", "list", "--thread", new).stdout == "Listed.\n"
    assert "[ls]" in model.requests[-1].messages[-1]["content"]
    mine.unlink()
    shutil.rmtree(cli.cwd / "__pycache__", ignore_errors=True)
    gone = cli.run("run", "list", "--thread", new)
    assert gone.code == 2
    assert "mine:bash cannot be loaded" in gone.stderr
    unknown = cli.run("replay", "t", "--tool", "python=json:dumps", "--continue")
    assert (unknown.code, unknown.stderr) == (0, "It makes no difference.\n")


def test_a_bundle_goes_on_in_a_thread_of_its_own_unless_files_are_missing(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    record(cli, model)
    bundle = str(tmp_path / "run.zip")
    assert cli.run("export", "t", "--bundle", bundle).code == 0
    elsewhere = Cli(tmp_path / "elsewhere", dict(cli.env), zygote=cli.zygote)
    elsewhere.use(model.base_url, "openai:here")
    model.add(bash("echo three >> log"), Reply("Other lines."))
    went = elsewhere.run("replay", bundle, "--model", "openai:other", "--continue")
    assert (went.code, went.stdout) == (0, "Other lines.\n"), went.stderr
    new = fork_of(went)
    assert log_of(elsewhere, new) == "three\n"
    assert json.loads(elsewhere.run("threads", "--json").stdout)["status"] == "finished"
    model.add(bash("echo one >> log"), bash("echo three >> log"))
    refused = elsewhere.run("replay", bundle, "--model", "openai:other", "--continue")
    assert refused.code == 2
    assert "had changed files by then (by bash), and a bundle holds no files" in refused.stderr
    assert len(elsewhere.run("threads", "--json").stdout.splitlines()) == 1


@pytest.mark.parametrize("given", [(), ("--to-test", "test_it.py")])
def test_nothing_goes_on_without_a_change(cli: Cli, given: tuple[str, ...]) -> None:
    refused = cli.run("replay", "t", "--continue", *given)
    assert refused.code == 2
    assert "--continue starts from the first difference that a change makes" in refused.stderr


def test_a_fork_plays_with_what_came_before_and_its_bundle_does_not_go_on(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    record(cli, model)
    at = next(json.loads(line) for line in cli.run("fork", "t", "--json").stdout.splitlines()[2:])
    assert cli.run("fork", "t", "--at", at["checkpoint"], "--thread", "f").code == 0
    model.add(bash("echo four >> log"), Reply("Four lines."))
    assert cli.run("resume", "f").stdout == "Four lines.\n"
    same = cli.run("replay", "f")
    assert (same.code, same.stderr) == (0, "All 2 requests are as they were recorded.\n")
    bundle, page = str(tmp_path / "run.zip"), tmp_path / "run.html"
    assert cli.run("export", "f", "--bundle", bundle).code == 0
    elsewhere = Cli(tmp_path / "elsewhere", dict(cli.env), zygote=cli.zygote)
    elsewhere.use(model.base_url, "openai:here")
    assert elsewhere.run("replay", bundle).code == 0
    assert elsewhere.run("export", bundle, "--html", str(page)).code == 0
    text = page.read_text()
    assert text.index("echo one") < text.index("echo four") < text.rindex("Four lines.")
    model.add(Reply("Other lines."))
    refused = elsewhere.run("replay", bundle, "--model", "openai:other", "--continue")
    assert refused.code == 2
    assert "the run continued from an earlier point" in refused.stderr
    model.add(Reply("Other lines."))
    went = cli.run("replay", "f", "--model", "openai:other", "--continue")
    assert (went.code, went.stdout) == (0, "Other lines.\n"), went.stderr
