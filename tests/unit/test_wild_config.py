"""Configuration files as other programs write them are read."""

import json
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.config.files import Layer, read_layer
from openmanus_graph.config.mcp import INPUT, configured_servers, mcp_servers, missing_inputs
from openmanus_graph.config.model import store_key
from openmanus_graph.config.secret_values import known_secrets
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Context, MCPServer

WILD = Path(__file__).parent.parent / "wild"
REMOTE = MCPServer("remote", url="https://remote.example.com/mcp", headers={"X-Key": "t0ken"})
EXPECTED: dict[str, list[MCPServer]] = {
    "claude-desktop": [
        MCPServer("files", command="npx", args=("-y", "@example/files", "/home/ada/Documents")),
    ],
    "claude-code": [
        MCPServer(
            "tracker", url="https://tracker.example.com/mcp", transport="http",
            headers={"Authorization": "Bearer t0ken"},
        ),
        MCPServer("events", url="https://events.example.com/sse", transport="sse"),
        MCPServer("local", command="uvx", args=("local-server",), transport="stdio"),
    ],
    "vscode": [
        MCPServer(
            "tracker", command="npx", args=("-y", "@example/tracker"), transport="stdio",
            env={"TOKEN": "given-value", "HOME_FOLDER": "/home/ada"},
        ),
        MCPServer("docs", url="https://docs.example.com/mcp", transport="http"),
        MCPServer("here", command="node", args=("FOLDER/server.js",)),
    ],
    "cursor": [
        MCPServer(
            "search", command="npx", args=("-y", "@example/search", "--fast"), env={"KEY": "t0ken"}
        ),
        REMOTE,
    ],
    "windsurf": [
        MCPServer("remote", url=REMOTE.url, headers=REMOTE.headers, deny=("delete_all",)),
        MCPServer("off", command="node", args=("server.js",), enabled=False),
    ],
    "gemini": [
        MCPServer(
            "remote", url=REMOTE.url, headers=REMOTE.headers, timeout_s=90, allow=("find",),
            deny=("delete_all",),
        ),
        MCPServer("stream", url="https://stream.example.com/sse"),
    ],
    "cline": [MCPServer("remote", url=REMOTE.url, transport="http", timeout_s=60)],
    "copilot": [
        MCPServer(
            "local", command="node", args=("server.js",), transport="stdio", allow=("*",)
        ),
    ],
}  # fmt: skip
"""By the program that writes such a file."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TRACKER_TOKEN", "t0ken")
    monkeypatch.chdir(tmp_path)


def servers_of(path: Path) -> tuple[dict[str, MCPServer], dict[str, str]]:
    layer = read_layer(path, None)
    assert layer is not None
    return configured_servers([layer])


@pytest.mark.parametrize("program", EXPECTED)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_of_another_program_is_read(program: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / f"{program}.json"
    path.write_text(mark + (WILD / f"{program}.json").read_text())
    layer = read_layer(path, None)
    assert layer is not None
    for place, _ in missing_inputs([layer]):
        store_key(INPUT, place, "given-value")
    found, problems = configured_servers([layer])
    expected = {
        server.name: server
        if program != "vscode" or server.name != "here"
        else MCPServer("here", command="node", args=(f"{tmp_path}/server.js",))
        for server in EXPECTED[program]
    }
    assert (found, problems, layer.unknown) == (expected, {}, [])


def test_every_file_is_expected() -> None:
    assert {path.stem for path in WILD.glob("*.json")} == EXPECTED.keys()


BAD: dict[str, tuple[Any, str]] = {
    "number": ({"command": 3}, "command: Input should be a valid string"),
    "both": ({"command": "a", "url": "http://a.example"}, "not both"),
    "neither": ({}, "needs either a command or a url"),
    "unset": ({"command": "a", "args": ["${NOT_SET}"]}, "variable NOT_SET is not set"),
    "not asked": ({"command": "a", "env": {"K": "${input:k}"}}, "nobody gave the value 'k'"),
    "text": ("npx server", "Input should be"),
    "transport": ({"type": "websocket", "url": "http://a.example"}, "transport: Input should be"),
    "switch": ({"command": "a", "disabled": "yes"}, "disabled should be true or false"),
    "quote": ({"command": "npx 'a"}, "No closing quotation"),
    "address": ({"url": "ftp://a.example"}, "not an http or https address"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_entry_leaves_out_that_server_only(name: str, tmp_path: Path) -> None:
    described, reason = BAD[name]
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"bad": described, "good": {"command": "node"}}}))
    found, problems = servers_of(path)
    assert list(found) == ["good"]
    assert list(problems) == ["bad"]
    assert reason in problems["bad"]
    assert str(path) in problems["bad"]


def test_a_wrong_table_of_toml_leaves_out_that_server_only(tmp_path: Path) -> None:
    path = tmp_path / "openmanus.toml"
    path.write_text(
        '\ufeffmax_steps = 5\n[mcp.servers.bad]\ncommand = 3\n[mcp.servers.good]\ncommand = "a"\n'
    )
    found, problems = servers_of(path)
    assert list(found) == ["good"]
    assert "command: Input should be a valid string" in problems["bad"]


@pytest.mark.parametrize("text", ["{", '{"mcpServers": {"a" "b"}}', "// nothing", "[1,"])
def test_a_file_that_is_not_even_json_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mcp\.json is not valid JSON"):
        read_layer(path, None)


def test_a_value_that_was_given_belongs_to_one_file(tmp_path: Path) -> None:
    for folder in ("mine", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mcp.json").write_text((WILD / "vscode.json").read_text())
    mine, other = (tmp_path / folder / "mcp.json" for folder in ("mine", "other"))
    layer = read_layer(mine, None)
    assert layer is not None
    [(place, wanted)] = missing_inputs([layer])
    assert wanted == {
        "type": "promptString", "id": "tracker-token", "description": "Tracker token",
        "password": True,
    }  # fmt: skip
    store_key(INPUT, place, "given-value")
    assert servers_of(mine)[0]["tracker"].env["TOKEN"] == "given-value"
    assert "tracker" in servers_of(other)[1]
    assert known_secrets().remove_from("it is given-value") == "it is [secret removed]"


def test_of_two_files_that_describe_a_server_differently_the_first_counts_with_a_notice(
    tmp_path: Path,
) -> None:
    layers: list[Layer] = []
    for name, command in (("mine", "node"), ("theirs", "bash"), ("same", "node")):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"mcpServers": {"shop": {"command": command}}}))
        layer = read_layer(path, None)
        assert layer is not None
        layers.append(layer)
    servers, warnings = mcp_servers(Context(), layers)
    assert [server.command for server in servers] == ["node"]
    (notice,) = warnings
    assert notice.startswith(f"{tmp_path / 'theirs.json'}: the MCP server 'shop' is left out")
    assert str(tmp_path / "mine.json") in notice
