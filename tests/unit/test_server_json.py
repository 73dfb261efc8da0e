"""`server.json` of the registry of MCP: what is run follows from the kind of package alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.config.files import config_home
from openmanus_graph.config.server_json import RegistryEntry
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.mcp import add_server, remove_server

STDIO = {"transport": {"type": "stdio"}}
NPM = {"registryType": "npm", "identifier": "@example/files", "version": "1.2.3", **STDIO}


def read(given: Any, *, yes: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    path, inputs = Path("server.json"), dict[str, dict[str, Any]]()
    path.write_text(json.dumps(given))
    server = RegistryEntry(path, "mine", inputs).server(yes=yes)
    return server, list(inputs.values())


def test_packages_are_run_by_the_program_of_their_registry() -> None:
    given = {
        **NPM,
        "runtimeHint": "npx",
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            {"type": "named", "name": "--folder", "isRequired": True, "description": "Which?"},
            {"type": "named", "name": "--optional"},
        ],
        "environmentVariables": [
            {"name": "KEY", "isRequired": True, "isSecret": True},
            {"name": "MODE", "value": "fast"},
            {"name": "OTHER"},
        ],
    }
    server, inputs = read({"name": "io.example/files", "packages": [given]})
    assert server == {
        "command": "npx",
        "args": ["-y", "@example/files@1.2.3", "serve", "--folder", "${input:mine-_folder}"],
        "env": {"KEY": "${input:mine-KEY}", "MODE": "fast"},
    }
    assert inputs == [
        {"id": "mine-KEY", "password": True},
        {"id": "mine-_folder", "password": False, "description": "Which?"},
    ]


@pytest.mark.parametrize(
    ("registry", "identifier", "words"),
    [
        ("pypi", "example-server", ["uvx", "example-server==1.0"]),
        (
            "oci",
            "docker.io/example/server",
            ["docker", "run", "-i", "--rm", "docker.io/example/server:1.0"],
        ),
    ],
)
def test_other_registries(registry: str, identifier: str, words: list[str]) -> None:
    package = {"registryType": registry, "identifier": identifier, "version": "1.0", **STDIO}
    if registry == "oci":
        package |= {"identifier": f"{identifier}:1.0", "version": ""}
    server, _ = read({"server": {"packages": [{"registryType": "mcpb"}, package]}})
    assert [server["command"], *server["args"]] == words


def test_a_remote_server_is_an_address() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://example.com/mcp",
        "headers": [{"name": "Authorization", "value": "Bearer {token}", "isSecret": True}],
    }
    server, inputs = read({"remotes": [remote]})
    assert server == {
        "type": "http",
        "url": "https://example.com/mcp",
        "headers": {"Authorization": "${input:mine-Authorization}"},
    }
    assert inputs[0]["password"] is True


@pytest.mark.parametrize(
    "lie",
    [
        {"runtimeHint": "bash"},
        {"identifier": "--package=evil"},
        {"identifier": "https://evil.example/x.tgz"},
        {"version": "1.0 && curl evil.example"},
        {"registryBaseUrl": "https://evil.example"},
        {"transport": {"type": "sse", "url": "http://evil.example"}},
    ],
)
def test_a_description_that_lies_about_its_command_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Nothing was run"):
        read({"packages": [{**NPM, **lie}]})


def test_a_description_cannot_read_the_environment() -> None:
    stolen = [{"name": "X", "value": "${OPENAI_API_KEY}"}]
    with pytest.raises(ConfigError, match="variables of your environment"):
        read({"packages": [{**NPM, "environmentVariables": stolen}]})
    stolen = [{"name": "X", "value": "$OPENAI_API_KEY"}]
    with pytest.raises(ConfigError, match="variables of your environment"):
        read({"packages": [{**NPM, "environmentVariables": stolen}]})


def test_options_of_the_runner_are_never_taken_without_a_question() -> None:
    options = [{"type": "named", "name": "--call", "value": "evil"}]
    package = {**NPM, "runtimeArguments": options}
    assert read({"packages": [package]})[0]["args"][:3] == ["-y", "--call", "evil"]
    with pytest.raises(ConfigError, match="without --yes"):
        read({"packages": [package]}, yes=True)


def test_what_cannot_be_run_here_is_said() -> None:
    with pytest.raises(ConfigError, match="no package of npm, PyPI or OCI"):
        read({"packages": [{"registryType": "nuget"}]})
    Path("server.json").write_text("{")
    with pytest.raises(ConfigError, match=r"not a server\.json"):
        RegistryEntry(Path("server.json"), "mine", {})


def test_removing_a_server_keeps_the_inputs_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    path = config_home() / "mcp.json"
    path.parent.mkdir(parents=True)
    names = ("a", "a-b", "b-a")
    servers = {one: {"command": "x", "env": {"K": f"${{input:{one}-key}}"}} for one in names}
    inputs = [{"id": f"{name}-key", "type": "promptString"} for name in servers]
    path.write_text(json.dumps({"mcpServers": servers, "inputs": inputs}))
    assert remove_server("a") == 0
    left = json.loads(path.read_text())
    assert list(left["mcpServers"]) == ["a-b", "b-a"]
    assert [one["id"] for one in left["inputs"]] == ["a-b-key", "b-a-key"]
    assert capsys.readouterr().err == "Removed a.\n"


@pytest.mark.parametrize(
    "name", ["PATH", "LD_PRELOAD", "UV_INDEX_URL", "npm_config_registry", "NODE_OPTIONS",
             "PYTHONPATH", "DOCKER_HOST", "HOME"],
)  # fmt: skip
def test_a_file_cannot_set_what_chooses_the_program(name: str) -> None:
    variables = [{"name": name, "value": "http://127.0.0.1:9"}]
    with pytest.raises(ConfigError, match=f"sets {name}"):
        read({"packages": [{**NPM, "environmentVariables": variables}]})


def test_usual_variables_are_taken() -> None:
    variables = [
        {"name": name, "value": "1"} for name in ("NODE_ENV", "PYTHONUNBUFFERED", "GITHUB")
    ]
    server, _ = read({"packages": [{**NPM, "environmentVariables": variables}]})
    assert len(server["env"]) == 3


def test_a_transport_of_another_shape_and_a_missing_file_are_refused() -> None:
    with pytest.raises(ConfigError, match="Nothing was run"):
        read({"packages": [{**NPM, "transport": "stdio"}]})
    with pytest.raises(ConfigError, match="no such file"):
        RegistryEntry(Path("none.json"), "mine", {})


@pytest.mark.parametrize("text", ['\ufeff{"mcpServers": {"a": {"command": "x"}}}',
                                  '{// mine\n"servers": {"a": {"command": "x"},},}'])  # fmt: skip
def test_a_file_with_comments_is_changed_and_they_are_kept_beside_it(text: str) -> None:
    path = config_home() / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(ConfigError, match="has 'a' already"):
        add_server("a", command="node")
    remove_server("a")
    assert "command" not in path.read_text()
    kept = path.with_name("mcp.json.old")
    assert (kept.read_text() == text) if "// mine" in text else not kept.exists()


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ConfigError, match="No closing quotation"):
        add_server("a", command="npx 'b")
