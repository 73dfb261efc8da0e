"""Code mode from the command line: a list of approvals, replays, and Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Cli, until
from tests.support.crash_script import bring_tool
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow
CODE = """
import asyncio
print(await tools.read_file(path="a.txt"))
await asyncio.gather(tools.ring(line="r1"), tools.ring(line="r2"))
"""


def python(code: str) -> Reply:
    return Reply(calls=(Call("python_execute", {"code": code}),))


@pytest.mark.parametrize("decision", ["--approve", "--reject"])
def test_calls_of_a_cell_are_approved_in_a_list_and_the_run_is_replayed(
    decision: str, cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    bring_tool(cli)
    cli.write("files/a.txt", "hello")
    model.add(python(CODE), Reply("Done."))
    first = cli.run("run", "go", "--thread", "t", "--workspace", "files", "--json")
    assert first.code == 4, first.stderr
    waiting = first.of("interrupt")
    assert len(waiting) == 2
    for number, one in enumerate(waiting):
        resumed = cli.run("resume", "t", "--id", str(one["id"]), decision, "--json")
        assert resumed.code == (4, 0)[number], resumed.stderr
    rung = Path(cli.cwd, "files", "ring.log")
    assert (rung.read_text().split() if rung.exists() else []) == (
        ["r1", "r2"] if decision == "--approve" else []
    )
    (result,) = [one for one in model.requests[-1].messages if one["role"] == "tool"]
    assert "hello" in result["content"]
    assert result["content"].count("rang r" if decision == "--approve" else "did not allow") == 2
    sent = len(model.requests)
    replayed = cli.run("replay", "t")
    assert (replayed.code, replayed.stderr) == (0, "All 2 requests are as they were recorded.\n")
    made = tmp_path / "test_cell.py"
    assert cli.run("replay", "t", "--to-test", str(made)).code == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made)]
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {
        "PYTHONPATH": cli.env["PYTHONPATH"]
    }
    passed = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert passed.returncode == 0, passed.stdout
    assert len(model.requests) == sent


def test_ctrl_c_ends_the_cell_at_its_next_call(cli: Cli, model: OpenAIServer) -> None:
    bring_tool(cli)
    cli.write("files/hold", "")
    model.add(python("for n in range(1, 9):\n    tools.ring(line=f'r{n}')"), Reply("Done."))
    options = ("--thread", "t", "--workspace", "files", "--policy", "auto")
    running = cli.start("run", "go", *options)
    rung = Path(cli.cwd, "files", "ring.log")
    until(rung.exists)
    running.signal(signal.SIGINT)
    Path(cli.cwd, "files", "hold").unlink()
    assert running.finish().code == 130
    assert cli.run("resume", "t").code == 0
    assert rung.read_text().split() == ["r1"]
    (result,) = [one for one in model.requests[-1].messages if one["role"] == "tool"]
    assert "the run was asked to stop" in result["content"]


def test_what_a_killed_cells_calls_had_left_in_a_shell_is_told_once_and_replayed(
    cli: Cli, model: OpenAIServer
) -> None:
    bring_tool(cli)
    cli.write("files/hold", "")
    code = "tools.bash(command='A=1')\ntools.ring(line='r1')"
    model.add(python(code), python(code), python("print(1)"), Reply("Done."))
    options = ("--thread", "t", "--workspace", "files", "--policy", "auto")
    running = cli.start("run", "go", *options)
    rung = Path(cli.cwd, "files", "ring.log")
    until(rung.exists)
    running.signal(signal.SIGKILL)
    running.finish()
    Path(cli.cwd, "files", "hold").unlink()
    waiting = cli.run("resume", "t", "--json")
    resumed = cli.run("resume", "t", "--answer", "= It rang r1.") if waiting.code == 4 else waiting
    assert resumed.code == 0, resumed.stderr
    told = ["variables A" in str(one.messages[-1]["content"]) for one in model.requests]
    assert told == [False, True, False, False]
    replayed = cli.run("replay", "t")
    assert (replayed.code, replayed.stderr) == (0, "All 4 requests are as they were recorded.\n")
