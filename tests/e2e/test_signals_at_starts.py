"""Ctrl-C at the very moment in which a program starts: the call is waited for, and its end told.

In a terminal it goes to all processes of the group, and each program here sends it itself, before
it becomes what it is: nothing is left to a lucky moment.
"""

import re
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from playwright._impl._driver import compute_driver_executable

from openmanus_graph.backends.sandbox.choose import HOME
from tests.support.cli import Cli, Result
from tests.support.limits import BACKSTOP_S
from tests.support.mcp_servers import file_of, raw
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

EXITS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
FINISHING = r"Finishing the running step(, for at most 20 s)?; once more stops it at once\."
SIGNALLING = """#!/bin/sh
# Signals the group of a process at one of its starts, and becomes the program.
number=0
while [ -e {folder}/started-$number ]; do number=$((number + 1)); done
: >{folder}/started-$number
if [ $number = {at} ]; then
    read -r group <{folder}/group
    kill -s {signal} -- -$group
fi
exec {program} "$@"
"""
BASH = Call("bash", {"command": "echo ran in $HOME >> log"})
PYTHON = Call(
    "python_execute",
    {"code": "import os\nopen('log', 'a').write(f'ran in {os.environ[\"HOME\"]}\\n')"},
)
RAN = f"ran in {HOME}\n"
"""What a call writes in bubblewrap."""
PROMPT, TRIED, STARTED = range(3)
"""The starts of bubblewrap: tried for the prompt, tried in the call, and the sandbox itself."""


class Signalled:
    """A run whose programs can be made to signal its group as they start."""

    def __init__(self, cli: Cli, model: OpenAIServer) -> None:
        self.cli, self.model = cli, model
        cli.zygote = None  # a group of its own
        self.bin = cli.root / "signalling"
        self.bin.mkdir()
        self._asked, self._answer = threading.Event(), threading.Event()

    def program(self, name: str, real: str, number: signal.Signals, at: int = 0) -> Path:
        """Put a program into the PATH that signals at one of its starts."""
        path = self.bin / name
        name_of_signal = number.name.removeprefix("SIG")
        text = SIGNALLING.format(folder=self.bin, at=at, signal=name_of_signal, program=real)
        path.write_text(text)
        path.chmod(0o755)
        self.cli.env["PATH"] = f"{self.bin}:{self.cli.env['PATH']}"
        return path

    def run(self, *calls: Call, options: tuple[str, ...] = ()) -> Result:
        """Run these calls of one reply, and return how it ended."""
        self.model.add(self._reply(*calls), Reply("Finished."))
        arguments = ("go", "--thread", "t", "--workspace", "files", *options)
        running = self.cli.start("run", *arguments)
        (self.bin / "group").write_text(f"{running.process.pid}\n")
        self._answer.set()
        return running.finish()

    def _reply(self, *calls: Call) -> Callable[[dict[str, Any]], Reply]:
        def reply(body: dict[str, Any]) -> Reply:
            assert self._answer.wait(BACKSTOP_S)
            return Reply(calls=calls)

        return reply


@pytest.fixture
def signalled(cli: Cli, model: OpenAIServer) -> Signalled:
    return Signalled(cli, model)


def was_waited_for(done: Result, number: signal.Signals) -> None:
    """Check that the run was cancelled after its calls, and that they ended well."""
    assert (done.code, done.final["status"]) == (EXITS[number], "cancelled"), done.stderr
    [notice] = done.of("notice")
    assert re.fullmatch(FINISHING, notice["text"])
    ends = done.of("tool_end")
    assert ends
    assert all(event["ok"] for event in ends), ends


@pytest.mark.parametrize(
    ("number", "call", "at"),
    sampled([*product(EXITS, (BASH, PYTHON), (TRIED, STARTED))], 3, "sandboxes", rows=True),
)
def test_a_call_whose_sandbox_is_just_starting_is_waited_for(
    signalled: Signalled, number: signal.Signals, call: Call, at: int
) -> None:
    real = shutil.which("bwrap")
    assert real is not None
    signalled.program("bwrap", real, number, at)
    done = signalled.run(call)
    assert (signalled.cli.workspace / "log").read_text() == RAN
    was_waited_for(done, number)
    resumed = signalled.cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Finished.")


def test_both_calls_of_a_reply_are_waited_for(signalled: Signalled) -> None:
    real = shutil.which("bwrap")
    assert real is not None
    signalled.program("bwrap", real, signal.SIGINT, TRIED)
    done = signalled.run(BASH, PYTHON)
    assert (signalled.cli.workspace / "log").read_text() == RAN * 2
    was_waited_for(done, signal.SIGINT)


def test_before_a_call_nothing_is_begun(signalled: Signalled) -> None:
    real = shutil.which("bwrap")
    assert real is not None
    signalled.program("bwrap", real, signal.SIGINT, PROMPT)
    done = signalled.run(BASH)
    assert (done.code, done.final["status"], done.of("tool_start")) == (130, "cancelled", [])
    assert signalled.cli.run("resume", "t").code == 0
    assert (signalled.cli.workspace / "log").read_text() == RAN


@pytest.mark.parametrize("what", ["driver", "browser"])
def test_a_browser_that_is_just_starting_is_waited_for(signalled: Signalled, what: str) -> None:
    number = signal.SIGINT  # the one whose wait has no limit: a browser may take long to start
    if what == "driver":
        node, _ = compute_driver_executable()
        program = signalled.program("node", node, number)
        signalled.cli.env["PLAYWRIGHT_NODEJS_PATH"] = str(program)
    else:
        real = shutil.which("chromium")
        assert real is not None
        signalled.program("chromium", real, number)
    call = Call("browser_use", {"action": "refresh"})  # not one that a stop gives up
    was_waited_for(signalled.run(call, options=("--agent", "browser")), number)


@pytest.mark.parametrize("number", sampled([*EXITS], 1, "MCP servers"))
def test_an_mcp_server_that_is_just_starting_is_waited_for(
    signalled: Signalled, number: signal.Signals
) -> None:
    server = raw()
    program = signalled.program("server", str(server.command), number)
    signalled.cli.write("mcp.json", file_of(replace(server, command=str(program))))
    assert signalled.cli.run("trust").code == 0
    done = signalled.run(BASH)
    assert (done.code, done.final["status"]) == (EXITS[number], "cancelled"), done.stderr
    [notice] = done.of("notice")
    assert re.fullmatch(FINISHING, notice["text"])
    assert signalled.cli.run("resume", "t").code == 0
