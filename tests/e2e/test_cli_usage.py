"""Wrong usage: exit code 2, one clear sentence, nothing on stdout, and no request to a model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openmanus_graph.config.model import LOCAL_PORTS_VARIABLE
from tests.support.cli import OPENMANUS, Cli, Result
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

WRONG: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "empty task": (("run", ""), ["empty"]),
    "blank task": (("run", " \n\t "), ["empty"]),
    "empty stdin": (("run", "-"), ["empty"]),
    "no task": (("run",), ["TASK"]),
    "no command": (("fly",), ["fly"]),
    "unknown option": (("run", "x", "--modle", "y"), ["--modle"]),
    "unknown agent": (("run", "x", "--agent", "nobody"), ["nobody", "manus"]),
    "bad spec": (("run", "x", "--model", "gpt-5"), ["PROVIDER:NAME"]),
    "unknown provider": (("run", "x", "--model", "acme:gpt"), ["acme", "openai"]),
    "no name": (("run", "x", "--model", "openai:"), ["openai:NAME"]),
    "steps no number": (("run", "x", "--max-steps", "many"), ["--max-steps"]),
    "no steps": (("run", "x", "--max-steps", "0"), ["max_steps", "0"]),
    "no dollars": (("run", "x", "--max-cost-usd", "-1"), ["max_cost_usd"]),
    "unknown sandbox": (("run", "x", "--sandbox", "jail"), ["jail", "bwrap"]),
    "unknown policy": (("run", "x", "--policy", "yolo"), ["yolo", "never"]),
    "missing file": (("run", "x", "--file", "no.csv"), ["no.csv"]),
    "missing picture": (("run", "x", "--image", "no.png"), ["no.png"]),
    "no picture": (("run", "x", "--image", "plain.png"), ["plain.png", "picture"]),
    "missing config": (("run", "x", "--config", "no.toml"), ["no.toml"]),
    "log nowhere": (("run", "x", "--log", "no/where.log"), ["no/where.log"]),
    "workspace below a file": (("run", "x", "--workspace", "plain/ws"), ["plain/ws"]),
    "workspace in proc": (("run", "x", "--workspace", "/proc/ws"), ["/proc/ws"]),
    "workspace is the root": (("run", "x", "--workspace", "/"), ["/:", "whole machine"]),
    "workspace by a link": (("run", "x", "--workspace", "root"), ["/:", "whole machine"]),
    "workspace of all": (("run", "x", "--workspace", "/home"), ["/home:", "whole machine"]),
    "workspace of programs": (("plan", "x", "--workspace", "/usr/bin/ws"), ["/usr/bin/ws:"]),
    "empty thread": (("run", "x", "--thread", ""), ["thread"]),
    "unknown thread resumed": (("resume", "nope"), ["nope", "known"]),
    "unknown thread shown": (("show", "nope"), ["nope", "known"]),
    "unknown thread exported": (("export", "nope"), ["nope", "known"]),
    "unknown thread deleted": (("threads", "--delete", "nope"), ["nope", "known"]),
    "two replies": (("resume", "known", "--approve", "--reject"), ["--approve"]),
    "answer to nothing": (("resume", "known", "--answer", "x"), ["no open question"]),
    "nothing to resume": (("resume", "known"), ["finished"]),
    "policy on resume": (("resume", "known", "--policy", "auto"), ["--policy"]),
    "export nowhere": (("export", "known", "--output", "no/where.md"), ["no/where.md"]),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> dict[str, Result]:
    """Run all of it beside one finished thread, `known`."""
    cli = Cli(tmp_path_factory.mktemp("usage") / "cli", zygote=zygote)
    cli.write("plain", "a file, no folder")
    cli.write("plain.png", "no picture")
    (cli.cwd / "root").symlink_to("/")
    with OpenAIServer([Reply("done")]) as server:
        cli.use(server.base_url)
        assert cli.run("run", "x", "--thread", "known").code == 0
        done = _each(cli, {case: args for case, (args, _) in WRONG.items()})
        assert len(server.requests) == 1, "a wrong command asked the model"
    done["threads afterwards"] = cli.run("threads", "--json")
    cli.assert_no_key()
    return done


def _each(cli: Cli, commands: dict[str, tuple[str, ...]]) -> dict[str, Result]:
    """Run all: those on the thread `known` one by one, since a thread has one user at a time."""
    alone = {case: args for case, args in commands.items() if "known" in args}
    others = {case: args for case, args in commands.items() if case not in alone}
    done = dict(zip(others, cli.run_all(*others.values()), strict=True))
    return done | {case: cli.run(*args) for case, args in alone.items()}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_exit_2_and_says_what_is_wrong(
    outcomes: dict[str, Result], case: str
) -> None:
    done = outcomes[case]
    assert (done.code, done.stdout) == (2, "")
    for word in WRONG[case][1]:
        assert word in done.stderr
    assert len(done.stderr.splitlines()) <= 4


def test_a_run_that_never_began_is_no_thread(outcomes: dict[str, Result]) -> None:
    rows = [json.loads(line) for line in outcomes["threads afterwards"].stdout.splitlines()]
    assert [(row["id"], row["status"]) for row in rows] == [("known", "finished")]


def test_no_key_of_a_provider_is_exit_2(bare_cli: Cli) -> None:
    done = bare_cli.run("run", "x", "--model", "deepseek:deepseek-chat")
    assert done.code == 2
    assert "DEEPSEEK_API_KEY" in done.stderr


ROOT = str(Path(__file__).parents[2])
NO_NETWORK = ("bwrap", "--unshare-net", "--dev-bind", "/", "/", "--die-with-parent")


def test_nothing_configured_says_what_to_set(bare_cli: Cli) -> None:
    done = bare_cli.run("run", "x", wrapper=NO_NETWORK)
    assert (done.code, done.stdout) == (2, "")
    for word in ("OPENAI_API_KEY", "--model", "local server", "openmanus demo"):
        assert word in done.stderr
    assert not bare_cli.home.exists(), "nothing is left behind"


@pytest.mark.parametrize("port", [11434, 9931])
def test_a_local_server_is_found_without_any_configuration(bare_cli: Cli, port: int) -> None:
    program = (
        "import subprocess, sys\n"
        "from tests.support.openai_server import OpenAIServer\n"
        "from tests.support.openai_script import Reply\n"
        "models = ['nomic-embed-text', 'llama3.2:3b']\n"
        f"with OpenAIServer([Reply('found you')], models=models, port={port}) as server:\n"
        "    code = subprocess.call(sys.argv[1:])\n"
        "    sys.stderr.write(str([r.body['model'] for r in server.requests]))\n"
        "sys.exit(code)\n"
    )
    python = (sys.executable, "-c", program)
    del bare_cli.env[LOCAL_PORTS_VARIABLE]  # in a network of its own it may look
    done = bare_cli.run("run", "x", wrapper=(*NO_NETWORK, *python), env={"PYTHONPATH": ROOT})
    assert (done.code, done.stdout) == (0, "found you\n")
    assert "['llama3.2:3b']" in done.stderr


COMMANDS = (
    "run",
    "batch",
    "eval",
    "chat",
    "resume",
    "threads",
    "skills",
    "show",
    "export",
    "demo",
    "doctor",
    "trust",
    "tell",
    "fork",
)


def test_help_imports_no_langgraph(bare_cli: Cli) -> None:
    commands = [["--help"], *([name, "--help"] for name in COMMANDS)]
    for done in bare_cli.run_all(*commands):
        assert (done.code, done.stderr) == (0, "")
        assert "Usage: openmanus" in done.stdout
    started = subprocess.run(
        [sys.executable, "-X", "importtime", OPENMANUS, "run", "--help"],
        env=bare_cli.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in started.stderr.splitlines()}
    assert "openmanus_graph.interfaces.cli.main" in imported
    assert not {name.partition(".")[0] for name in imported} & {
        "langgraph", "langchain_core", "langchain_openai", "openai", "pandas", "numpy", "httpx"
    }  # fmt: skip
    assert not bare_cli.home.exists()


def test_help_of_the_whole_names_every_command(bare_cli: Cli) -> None:
    text = bare_cli.run("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in text
