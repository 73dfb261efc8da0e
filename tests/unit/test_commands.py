"""The table of the commands: its help is that of the commands, and only the used one is loaded."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from openmanus_graph.interfaces.cli.main import COMMANDS, app, load, with_network


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_begins_its_help(name: str) -> None:
    line = load(name).help.partition("\n")[0]
    assert line.startswith(COMMANDS[name][1])


def test_the_help_lists_and_completes_commands_in_the_order_of_the_table() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["--help"]).stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == list(COMMANDS)
    asked = {"_OPENMANUS_COMPLETE": "complete_bash", "COMP_WORDS": "openmanus m", "COMP_CWORD": "1"}
    completed = runner.invoke(app, prog_name="openmanus", env=asked).stdout
    assert completed.split() == ["models", "mcp-server", "mcp", "memory"]


@pytest.mark.parametrize("args", [["--help"], ["trust", "--help"]])
def test_only_the_module_of_the_command_is_loaded(args: list[str]) -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\n"
        "from openmanus_graph.interfaces.cli.main import app\n"
        f"assert CliRunner().invoke(app, {args}).exit_code == 0\n"
        "print(sorted(name.rpartition('.')[2] for name in sys.modules\n"
        "    if name.startswith('openmanus_graph.interfaces.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    used = ["main", "process"] + ([] if args == ["--help"] else ["skills", "threads"])
    assert (done.returncode, done.stdout) == (0, f"{used}\n"), done.stderr


def test_the_help_of_each_command_needs_no_extra() -> None:
    program = (
        "import sys\nfrom tests.support.core_only import ExtrasMissing\n"
        "sys.meta_path.insert(0, ExtrasMissing())\n"
        "from typer.testing import CliRunner\n"
        "from openmanus_graph.interfaces.cli.main import COMMANDS, app, load\n"
        "for name in COMMANDS:\n"
        "    for more in ([], *([one] for one in getattr(load(name), 'commands', []))):\n"
        "        CliRunner().invoke(app, [name, *more, '--help'], catch_exceptions=False)\n"
        "        print(name, *more)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == set(COMMANDS)
    assert "triggers run" in done.stdout


def test_a_commands_result_is_the_exit_code() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).exit_code == 0
    assert runner.invoke(app, []).exit_code == 2
    assert runner.invoke(app, ["models", "--forget", "never.test"]).exit_code == 1
    assert runner.invoke(app, ["mcp"]).exit_code == 2


@pytest.mark.parametrize(
    ("given", "meant"),
    [("--network", "--network=ask"), ("--no-network", "--network=off"),
     ("--network=any", "--network=any")],
)  # fmt: skip
def test_network_may_be_given_without_a_value(given: str, meant: str) -> None:
    assert list(with_network(["run", given, "--", given])) == ["run", meant, "--", given]
