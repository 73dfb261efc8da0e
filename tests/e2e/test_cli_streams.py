"""Standard streams that are closed, full or without a reader, and a working folder that is gone."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import OPENMANUS, Cli
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

ANSWER = "It is done."
FULL = "No space left on device"
RUN = "run go --thread t --workspace files"


@dataclass(frozen=True)
class Written:
    """What a command left that was started by a shell."""

    code: int
    stdout: str
    stderr: str


def in_shell(cli: Cli, line: str) -> Written:
    """Run a line of shell in which `openmanus` is the command; a traceback fails."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line.replace('openmanus', OPENMANUS)}"],
        cwd=cli.cwd, env=cli.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=BACKSTOP_S, check=False,
    )  # fmt: skip
    cli.note(done.stdout, done.stderr)
    assert "Exception ignored" not in done.stderr
    return Written(done.returncode, done.stdout, done.stderr)


def with_streams(zygote: Zygote, cli: Cli, line: str, out: int, err: int) -> int:
    return zygote.start(line.split(), cwd=cli.cwd, env=cli.env, out=out, err=err).wait(BACKSTOP_S)


@pytest.mark.parametrize("redirect", sampled(["2>&-", "<&-", "2>&- <&-"], 1, "closed"))
def test_a_closed_stream_that_is_not_needed_changes_nothing(
    cli: Cli, model: OpenAIServer, redirect: str
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "echo x; echo y >&2"}),)), Reply(ANSWER))
    done = in_shell(cli, f"openmanus {RUN} {redirect}")
    assert (done.code, done.stdout) == (0, f"{ANSWER}\n")
    assert [m["content"] for m in model.requests[1].messages if m["role"] == "tool"] == ["x\ny"]


@pytest.mark.parametrize("form", sampled(["run go", "run go --json", "chat"], 1, "no stdout"))
def test_a_closed_stdout_is_refused_before_anything_is_paid(
    cli: Cli, model: OpenAIServer, form: str
) -> None:
    done = in_shell(cli, f"openmanus {form} >&-")
    assert done.code == 2
    assert done.stderr.startswith("openmanus: stdout is closed")
    assert len(done.stderr.splitlines()) == 1
    assert model.requests == []
    assert not cli.home.exists()


def test_a_task_from_a_closed_stdin_is_empty(cli: Cli) -> None:
    done = in_shell(cli, "openmanus run - <&-")
    assert (done.code, len(done.stderr.splitlines())) == (2, 1)
    assert "The task is empty" in done.stderr


@pytest.mark.parametrize("form", sampled(["", "--json", "--quiet"], 1, "answer"))
def test_an_answer_that_cannot_be_written_is_said_and_kept(
    cli: Cli, model: OpenAIServer, zygote: Zygote, form: str
) -> None:
    model.add(Reply(ANSWER))
    with Path("/dev/full").open("w") as full, (cli.root / "err").open("w+") as err:
        code = with_streams(zygote, cli, f"{RUN} {form}", full.fileno(), err.fileno())
        err.seek(0)
        said = err.read()
    cli.note("", said)
    assert code == 1
    last = said.splitlines()[-1]
    assert last.startswith(f"openmanus: stdout cannot be written: {FULL}.")
    assert "openmanus show t" in last
    assert str(cli.home) not in said
    kept = cli.run("show", "t")
    assert (kept.code, ANSWER in kept.stdout) == (0, True)
    rows = [json.loads(line) for line in cli.run("threads", "--json").stdout.splitlines()]
    assert [(row["id"], row["status"]) for row in rows] == [("t", "finished")]


@pytest.mark.parametrize("form", sampled(["", "--json", "--quiet"], 1, "progress"))
def test_progress_that_cannot_be_written_does_not_cost_the_answer(
    cli: Cli, model: OpenAIServer, zygote: Zygote, form: str
) -> None:
    model.add(
        Reply("x" * 20_000, piece_size=1000, calls=(Call("bash", {"command": "true"}),)),
        Reply(ANSWER),
    )
    with Path("/dev/full").open("w") as full, (cli.root / "out").open("w+") as out:
        code = with_streams(zygote, cli, f"{RUN} {form}", out.fileno(), full.fileno())
        out.seek(0)
        written = out.read()
    assert code == 0
    if form == "--json":
        assert json.loads(written.splitlines()[-1])["answer"] == ANSWER
    else:
        assert written == f"{ANSWER}\n"


@pytest.mark.parametrize(
    "command", sampled(["--help", "threads", "show t", "export t", "fork t"], 2, "full")
)
def test_output_of_any_command_that_cannot_be_written_is_exit_1(
    cli: Cli, model: OpenAIServer, zygote: Zygote, command: str
) -> None:
    model.add(Reply(ANSWER))
    cli.zygote = zygote
    assert cli.run(*RUN.split()).code == 0
    with Path("/dev/full").open("w") as full, (cli.root / "err").open("w+") as err:
        code = with_streams(zygote, cli, command, full.fileno(), err.fileno())
        err.seek(0)
        said = err.read()
    cli.note("", said)
    assert code == 1
    assert said.splitlines()[-1].startswith(f"openmanus: stdout cannot be written: {FULL}.")
    assert "Exception ignored" not in said


@pytest.mark.parametrize(
    "command", sampled([RUN, f"{RUN} --json", f"{RUN} --quiet", "show t", "threads"], 2, "readers")
)
def test_readers_that_went_away_are_no_fault(
    cli: Cli, model: OpenAIServer, zygote: Zygote, command: str
) -> None:
    model.add(Reply("x" * 100_000, piece_size=10_000), Reply("y" * 100_000, piece_size=10_000))
    cli.zygote = zygote
    assert cli.run(*RUN.split()).code == 0
    reading, writing = os.pipe()
    os.close(reading)
    with (cli.root / "err").open("w+") as err:
        assert with_streams(zygote, cli, command, writing, err.fileno()) == 0
        err.seek(0)
        said = err.read()
    cli.note("", said)
    assert "Exception ignored" not in said
    assert with_streams(zygote, cli, "threads", writing, writing) == 0
    os.close(writing)


@pytest.mark.parametrize("form", sampled(["", "--json"], 1, "head"))
def test_head_takes_the_first_line_and_the_run_ends_well(
    cli: Cli, model: OpenAIServer, form: str
) -> None:
    text = "\n".join(["first", *["more"] * 50_000])
    model.add(Reply(text, piece_size=10_000))
    done = in_shell(cli, f"openmanus {RUN} {form} | head -1")
    first = json.loads(done.stdout)["type"] if form else done.stdout
    assert (done.code, first) == (0, "run_start" if form else "first\n")


@pytest.mark.parametrize(
    "command", sampled(["run go", "plan go --json", "trust"], 1, "folder gone")
)
def test_a_working_folder_that_is_gone_is_said_in_one_sentence(
    cli: Cli, model: OpenAIServer, command: str
) -> None:
    done = in_shell(cli, f"mkdir gone; cd gone; rmdir ../gone; openmanus {command}")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("openmanus: The working folder no longer exists.")
    assert len(done.stderr.splitlines()) == 1
    assert model.requests == []


def test_what_needs_no_working_folder_works_without_one(cli: Cli) -> None:
    done = in_shell(cli, "mkdir gone; cd gone; rmdir ../gone; openmanus threads --json")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
