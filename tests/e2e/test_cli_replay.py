"""`openmanus replay`: a run again from its record."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("plan", [(), pytest.param(("--plan",), marks=pytest.mark.exhaustive)])
def test_a_demo_is_the_same_on_another_path_and_another_machine(
    cli: Cli, tmp_path: Path, plan: tuple[str, ...]
) -> None:
    """With neither its home, its workspace nor its environment."""
    assert cli.run("demo", *plan).code == 0
    (thread,) = [
        json.loads(line)["id"] for line in cli.run("threads", "--json").stdout.splitlines()
    ]
    bundle = tmp_path / "run.zip"
    assert cli.run("export", thread, "--bundle", str(bundle)).code == 0
    shutil.rmtree(cli.cwd / "workspace")
    elsewhere = Cli(tmp_path / "elsewhere", zygote=cli.zygote)
    replayed = elsewhere.run("replay", str(bundle))
    assert replayed.stderr == f"All {12 if plan else 6} requests are as they were recorded.\n"
    assert replayed.code == 0
    assert list(elsewhere.cwd.iterdir()) == []
    assert not elsewhere.home.exists()


def test_a_run_becomes_a_test_that_passes_and_that_fails_after_a_change(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    key = "a-key-that-nobody-may-see"
    (cli.cwd / "openmanus.toml").write_text(f'[search]\ntavily_api_key = "{key}"\n')
    write = Reply(calls=(Call("bash", {"command": f"echo {key} >> log"}),))
    model.add(write, Reply(f"Done: {key}."))
    ran = cli.run("run", f"write 'it' {key}", "--thread", "t", "--max-steps", "7")
    assert (ran.code, ran.stdout) == (0, f"Done: {key}.\n")
    made = tmp_path / "test_log.py"
    written = cli.run("replay", "t", "--to-test", str(made))
    assert written.code == 0, written.stderr
    assert f"Run it: pytest {made}" in written.stderr
    text = made.read_text()
    assert """"bash {\\"command\\":\\"echo [secret removed] >> log\\"}",""" in text
    assert 'ANSWERS = [\n    "Done: [secret removed].",\n]' in text
    assert key not in text
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made)]
    env = {name: os.environ[name] for name in ("PATH", "HOME")}
    passed = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert passed.returncode == 0, passed.stdout
    made.write_text(text.replace("max_steps=7", "max_steps=8"))
    failed = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "7 steps" in failed.stdout


def test_no_test_is_written_of_a_run_that_differs(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    model.add(Reply("Done."))
    assert cli.run("run", "say it", "--thread", "t").code == 0
    (cli.cwd / "AGENTS.md").write_text("Be brief.\n")
    refused = cli.run("replay", "t", "--to-test", str(tmp_path / "test_it.py"))
    assert refused.code == 2
    assert "No test was written" in refused.stderr
    assert not (tmp_path / "test_it.py").exists()


def test_what_is_tried_on_a_run_stops_it_where_it_makes_a_difference(
    cli: Cli, model: OpenAIServer
) -> None:
    write = Reply(calls=(Call("bash", {"command": "echo one >> log"}),))
    model.add(write, Reply("Done."))
    assert cli.run("run", "write it", "--thread", "t").code == 0
    (cli.cwd / "next.txt").write_text("Be quick.")
    model.add(write, Reply("Quick."))
    prompt = cli.run("replay", "t", "--prompt", "next_step=next.txt")
    assert prompt.code == 1
    assert prompt.stdout.splitlines()[3:] == ["-Done.", "+Quick."]
    assert "It stopped after model call 2, of step 2." in prompt.stderr
    assert "Be quick." in str(model.requests[-1])
    model.add(write, Reply("Done."))
    same = cli.run("replay", "t", "--model", "openai:other-model")
    assert (same.code, same.stderr) == (0, "It makes no difference.\n")
    assert model.requests[-1].body["model"] == "other-model"
    asked = len(model.requests)
    (cli.cwd / "mine.py").write_text("def bash(command):\n    return 'not found'\n")
    tool = cli.run("replay", "t", "--tool", "bash=mine:bash")
    assert tool.code == 1
    assert "+not found" in tool.stdout
    policy = cli.run("replay", "t", "--policy", "auto")
    assert (policy.code, policy.stderr) == (0, "It makes no difference.\n")
    assert len(model.requests) == asked
    assert (cli.cwd / "workspace" / "t" / "log").read_text() == "one\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prompt", "other=next.txt"), "a name is system or next_step"),
        (("--prompt", "system=nowhere.txt"), "cannot be read"),
        (("--tool", "bash"), "give NAME=module:function"),
        (("--tool", "bash=no_such_module:run"), "cannot be loaded"),
        (("--policy", "auto", "--to-test", "test_it.py"), "Remove the changes"),
    ],
)
def test_wrong_options_are_refused(
    cli: Cli, model: OpenAIServer, options: tuple[str, ...], said: str
) -> None:
    model.add(Reply("Done."))
    assert cli.run("run", "say it", "--thread", "t").code == 0
    refused = cli.run("replay", "t", *options)
    assert refused.code == 2
    assert said in refused.stderr


def test_a_thread_that_does_not_exist_is_refused(cli: Cli) -> None:
    refused = cli.run("replay", "nobody")
    assert refused.code == 2
    assert "There is no thread" in refused.stderr
