"""`openmanus mcp add` and `remove`: what is run is shown, asked about, tried and stored."""

import json
import shlex
import sys

import pytest

from tests.e2e.terminal import Terminal
from tests.support.cli import Cli
from tests.support.mcp_servers import RAW

pytestmark = pytest.mark.slow

COMMAND = shlex.join([sys.executable, "-S", "-E", RAW])


def stored(cli: Cli) -> dict[str, object]:
    path = cli.root / "config" / "openmanus" / "mcp.json"
    found: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    return found


def test_a_server_is_added_and_removed(bare_cli: Cli) -> None:
    refused = bare_cli.run("mcp", "add", "raw", "--command", COMMAND)
    assert (refused.code, stored(bare_cli)) == (1, {}), "nobody agreed"
    assert "outside of the sandbox" in refused.stderr
    assert RAW in refused.stderr
    commands = (
        ("mcp", "add", "raw", "--yes", "--command", COMMAND, "--env", "MODE=fast"),
        ("mcp", "list", "--json"),
        ("mcp", "add", "raw", "--yes", "--command", COMMAND),
        ("mcp", "remove", "raw"),
        ("mcp", "remove", "raw"),
    )
    added, listed, twice, removed, gone = [bare_cli.run(*words) for words in commands]
    assert (added.code, added.stdout.startswith("✓ raw (stdio")) == (0, True)
    assert json.loads(listed.stdout)["server"] == "raw"
    assert (twice.code, "already" in twice.stderr) == (2, True)
    assert (removed.code, gone.code) == (0, 2)
    assert stored(bare_cli) == {"mcpServers": {}, "inputs": []}


def test_a_server_that_does_not_work_is_not_stored(bare_cli: Cli) -> None:
    done = bare_cli.run("mcp", "add", "raw", "--yes", "--command", f"{COMMAND} exit")
    assert (done.code, done.stdout[0], stored(bare_cli)) == (1, "✗", {})
    assert bare_cli.run("mcp", "add", "raw", "--yes").code == 2


def test_a_server_json_is_shown_with_what_it_wants(bare_cli: Cli) -> None:
    described = {
        "name": "io.example/time",
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "mcp-server-time",
                "version": "2026.10.1",
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": "KEY", "description": "Your key", "isRequired": True, "isSecret": True}
                ],
            }
        ],
    }
    bare_cli.write("server.json", json.dumps(described))
    with Terminal(bare_cli, "mcp", "add", "time", "--from", "server.json") as terminal:
        terminal.see("uvx mcp-server-time==2026.10.1")
        terminal.see("It gets the variables KEY=${input:time-KEY}")
        terminal.type("n\r")
        assert terminal.finish() == 1
    assert stored(bare_cli) == {}
    done = bare_cli.run("mcp", "add", "time", "--yes", "--from", "server.json")
    assert (done.code, "nobody gave the value 'time-KEY'" in done.stderr) == (2, True)
