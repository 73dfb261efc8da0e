"""What a cloned folder brings is read only if it is a file of it: no link out, pipe or device."""

import os
import re
import socket
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from openmanus_graph import ConfigError
from openmanus_graph.config.files import MAX_BYTES, read_layer
from openmanus_graph.config.homes import old_files
from openmanus_graph.config.instructions import find_skills, read_instructions
from openmanus_graph.config.resolve import read_layers
from openmanus_graph.config.secret_values import known_secrets
from openmanus_graph.interfaces.cli.skills import show_skill, untrusted_layers

SECRET = "PRIVATE-KEY-OF-THE-HOST = 1"
TOO_LARGE = 5 << 30


def fifo(path: Path, host: Path) -> None:
    os.mkfifo(path)


def device(path: Path, host: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path, host: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TOO_LARGE)


def link_out(path: Path, host: Path) -> None:
    path.symlink_to(host / "secret")


def linked_folder(path: Path, host: Path) -> None:
    (host / path.name).write_text(SECRET)
    path.parent.rmdir()
    path.parent.symlink_to(host)


def climbing(path: Path, host: Path) -> None:
    path.symlink_to(os.path.relpath(host / "secret", path.parent))


def unix_socket(path: Path, host: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


def a_folder(path: Path, host: Path) -> None:
    path.mkdir()


Trap = Callable[[Path, Path], None]
TRAPS = [fifo, device, large, link_out, climbing, unix_socket, a_folder]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a secret; the working folder is another one."""
    host, clone = tmp_path / "host", tmp_path / "clone"
    host.mkdir()
    clone.mkdir()
    (host / "secret").write_text(SECRET)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.chdir(clone)
    return host


def trapped(host: Path, name: str, trap: Trap) -> Path:
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    trap(path, host)
    return path


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", ["openmanus.toml", "mcp.json", "config/config.toml",
                                  "config/mcp.json"])  # fmt: skip
def test_configuration_of_a_cloned_folder_is_a_file_of_it(
    host: Path, name: str, trap: Trap
) -> None:
    path = trapped(host, name, trap)
    for read in (lambda: read_layers(None), untrusted_layers):
        with pytest.raises(ConfigError) as refused:
            read()
        assert str(path) in str(refused.value)
        assert "PRIVATE" not in str(refused.value)
    known_secrets()


@pytest.mark.parametrize("name", ["config/config.toml", "config/mcp.json"])
def test_a_linked_folder_of_configuration_is_refused(host: Path, name: str) -> None:
    trapped(host, name, linked_folder)
    with pytest.raises(ConfigError, match=r"is outside of .* Replace the link by the file"):
        read_layers(None)


def test_links_within_the_folder_work(host: Path) -> None:
    Path("shared").mkdir()
    Path("shared/o.toml").write_text("max_steps = 7\n")
    Path("openmanus.toml").symlink_to("shared/o.toml")
    Path("AGENTS.md").symlink_to(Path.cwd() / "shared" / "a.md")
    Path("shared/a.md").write_text("Be kind.")
    assert read_layers(None)[0][0].values == {"max_steps": 7}
    assert "Be kind." in read_instructions(Path.cwd())[0]


def test_a_file_that_the_user_names_may_be_a_link_and_must_be_a_file(host: Path) -> None:
    (host / "own.toml").write_text("max_steps = 9\n")
    Path("link.toml").symlink_to(host / "own.toml")
    assert read_layers("link.toml")[0][0].values == {"max_steps": 9}
    for trap in (fifo, device, large, unix_socket, a_folder):
        path = trapped(host, f"{trap.__name__}.toml", trap)
        with pytest.raises(ConfigError, match=r"not a file|can be read here"):
            read_layers(str(path))
    with pytest.raises(ConfigError, match="There is no configuration file"):
        read_layers("none.toml")
    Path("just.toml").write_text("#" * MAX_BYTES)
    read_layers("just.toml")


@pytest.mark.parametrize("trap", [fifo, device, link_out, climbing, unix_socket, a_folder])
@pytest.mark.parametrize("name", ["AGENTS.md", "sub/AGENTS.md"])
def test_instructions_of_a_cloned_folder_are_files_of_it(host: Path, name: str, trap: Trap) -> None:
    path = trapped(host, name, trap)
    text, warnings = read_instructions(Path.cwd() / "sub")
    assert (text, len(warnings)) == ("", 1)
    assert f"{path} is not read: " in warnings[0]
    assert "PRIVATE" not in warnings[0]


def test_of_large_instructions_the_beginning_is_read(host: Path) -> None:
    with Path("AGENTS.md").open("wb") as file:
        file.write("é".encode() * 30_000)
        file.truncate(TOO_LARGE)
    text, warnings = read_instructions(Path.cwd())
    assert text.endswith("é" * 20_000)
    assert len(warnings) == 1


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", ["SKILL.md", "more/notes.md"])
def test_skills_of_a_cloned_folder_are_files_of_it(
    host: Path, name: str, trap: Trap, capsys: pytest.CaptureFixture[str]
) -> None:
    if trap is a_folder and name != "SKILL.md":
        return
    Path("skills/helpful").mkdir(parents=True)
    Path("skills/helpful/SKILL.md").write_text("---\nname: helpful\ndescription: d\n---\n")
    if name == "SKILL.md":
        Path("skills/helpful/SKILL.md").unlink()
    trapped(host, f"skills/helpful/{name}", trap)
    (found,) = find_skills()
    assert found.skill is None
    assert found.problems
    if name == "SKILL.md":
        with pytest.raises(ConfigError, match="cannot be read"):
            show_skill("helpful")
    assert "PRIVATE" not in str(found.problems) + capsys.readouterr().out


@pytest.mark.parametrize("linked", ["skills", "skills/helpful"])
def test_a_linked_folder_of_skills_is_refused(host: Path, linked: str) -> None:
    skill = host / Path("skills/helpful").relative_to(linked)
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text("---\nname: helpful\ndescription: d\n---\nPRIVATE")
    Path(linked).parent.mkdir(exist_ok=True)
    Path(linked).symlink_to(host)
    found = {one.folder.name: one for one in find_skills()}
    assert found["helpful"].skill is None
    with pytest.raises(ConfigError, match="cannot be read"):
        show_skill("helpful")


DEEP = 3000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *product(["openmanus.toml", "config/config.toml"], ["lists", "tables", "names", "digits"]),
        *product(["mcp.json"], ["lists", "tables", "digits"]),
    ],
)
def test_a_file_nested_too_deeply_is_refused_in_a_sentence(
    name: str, kind: str, tmp_path: Path
) -> None:
    is_json = name.endswith("json")
    pair = '{"a":' if is_json else "{a="
    value = {
        "lists": "[" * DEEP + "]" * DEEP,
        "tables": pair * DEEP + "1" + "}" * DEEP,
        "names": "",
        "digits": "9" * 5000,
    }[kind]
    text = f'{{"mcpServers": {{"a": {value}}}}}' if is_json else f"[llm]\nmodel = {value}\n"
    if kind == "names":
        text = "[llm]\n" + "a." * DEEP + "b = 1\n"
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    known_secrets()
    if kind == "names":
        assert read_layer(path, tmp_path) is not None
        assert list(old_files(tmp_path)) or name == "openmanus.toml"
        return
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        read_layer(path, tmp_path)
