"""A `.openmanus` that came with a folder: nothing in it is read before the person trusts it."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from openmanus_graph.config.homes import ID_FILE
from tests.support.cli import Cli
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

COMMANDS = (
    ["threads"],
    ["threads", "--json"],
    ["threads", "--delete", "t"],
    ["show", "t"],
    ["export", "t"],
    ["export", "t", "--bundle", "b.zip"],
    ["fork", "t"],
    ["diff", "t"],
    ["replay", "t"],
    ["replay", "t", "--to-test", "test_it.py"],
    ["resume", "t"],
    ["resume"],
    ["run", "--continue", "more"],
    ["run", "new", "--thread", "n"],
    ["plan", "new"],
    ["chat", "--thread", "t"],
    ["tell", "t", "hello"],
    ["memory", "list"],
    ["batch", "tasks.jsonl"],
    ["mcp-server"],
    ["a2a"],
    ["serve", "--port", "0"],
)


@pytest.fixture
def folder(cli: Cli, model: OpenAIServer) -> Cli:
    """A folder with a home of its own, in which a thread has run."""
    cli.env["OPENMANUS_HOME"] = ""
    model.add(Reply("Done."))
    assert cli.run("run", "go", "--thread", "t").code == 0
    return cli


def cloned(folder: Cli) -> Path:
    """Copy the folder, home and id included, as whoever knows all of it might offer it."""
    clone = folder.root / "clone"
    shutil.copytree(folder.cwd, clone, symlinks=True)
    (clone / "tasks.jsonl").write_text('{"task": "x"}\n')
    return clone


def contents(home: Path) -> Mapping[str, str]:
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in home.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_reads_a_home_that_came_with_a_folder(folder: Cli, command: list[str]) -> None:
    clone = cloned(folder)
    before = contents(clone / ".openmanus")
    done = folder.run(*command, cwd=clone)
    assert done.code == 2, (done.stdout, done.stderr)
    assert "openmanus trust" in done.stderr
    assert str(clone / ".openmanus") in done.stderr
    assert contents(clone / ".openmanus") == before


def test_a_home_is_used_again_where_it_was_made_and_after_trust(folder: Cli) -> None:
    assert [row["id"] for row in rows(folder, folder.cwd)] == ["t"]
    clone = cloned(folder)
    trusted = folder.run("trust", cwd=clone)
    assert (trusted.code, "checkpoints.db" in trusted.stderr) == (0, True)
    assert [row["id"] for row in rows(folder, clone)] == ["t"]
    assert rows(folder, folder.cwd), "the other one is still trusted"
    own = (folder.cwd / ".openmanus" / ID_FILE).read_text()
    assert (clone / ".openmanus" / ID_FILE).read_text() != own, "what others know is replaced"
    moved = folder.root / "moved"
    clone.rename(moved)
    assert "was moved" in folder.run("threads", cwd=moved).stderr
    assert folder.run("trust", cwd=moved).code == 0
    assert rows(folder, moved)


def rows(cli: Cli, at: Path) -> list[dict[str, str]]:
    done = cli.run("threads", "--json", cwd=at)
    assert done.code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def a_link_to_a_home_of_ones_own(own: Path, place: Path) -> None:
    place.symlink_to(own)


def a_link_to_an_empty_folder(own: Path, place: Path) -> None:
    (empty := place.parent / "empty").mkdir()
    place.symlink_to(empty)


def a_link_to_nothing(own: Path, place: Path) -> None:
    place.symlink_to(place.parent / "nothing")


def a_home_with_a_link_as_its_id(own: Path, place: Path) -> None:
    place.mkdir()
    (place / ID_FILE).symlink_to(own / ID_FILE)


def a_home_with_a_pipe_as_its_id(own: Path, place: Path) -> None:
    place.mkdir()
    os.mkfifo(place / ID_FILE)


def a_home_without_an_id(own: Path, place: Path) -> None:
    place.mkdir()
    shutil.copy(own / "openmanus.db", place)


def a_home_with_skills_only(own: Path, place: Path) -> None:
    (place / "skills" / "evil").mkdir(parents=True)
    (place / "skills" / "evil" / "SKILL.md").write_text(
        "---\nname: evil\ndescription: Does evil.\n---\n"
    )


def a_file(own: Path, place: Path) -> None:
    place.write_text("no folder")


@pytest.mark.parametrize(
    "brought",
    [
        a_link_to_a_home_of_ones_own,
        a_link_to_an_empty_folder,
        a_link_to_nothing,
        a_home_with_a_link_as_its_id,
        a_home_with_a_pipe_as_its_id,
        a_home_without_an_id,
        a_home_with_skills_only,
        a_file,
    ],
)
def test_what_a_folder_can_bring_instead_is_refused(
    folder: Cli, brought: Callable[[Path, Path], None]
) -> None:
    place = folder.root / "clone" / ".openmanus"
    place.parent.mkdir()
    brought(folder.cwd / ".openmanus", place)
    for command in (["threads"], ["run", "new"], ["skills", "list"], ["doctor"]):
        done = folder.run(*command, cwd=place.parent)
        said = done.stdout + done.stderr
        if command[0] in ("threads", "run"):
            assert done.code == 2, said
        assert "openmanus trust" in said, said
        assert "Does evil." not in said
    assert not (place.parent / "nothing").exists()


def test_a_registered_place_does_not_vouch_for_another_folder_in_it(folder: Cli) -> None:
    """The folder is deleted, and a repository that brings a home is cloned there."""
    clone = cloned(folder)
    (clone / ".openmanus" / ID_FILE).write_text("0" * 32)
    shutil.rmtree(folder.cwd)
    clone.rename(folder.cwd)
    assert folder.run("threads").code == 2


def test_a_run_works_where_the_home_cannot_be_registered(folder: Cli, model: OpenAIServer) -> None:
    own = folder.root / "elsewhere"
    own.mkdir()
    (folder.root / "no-folder").write_text("a file")
    env = {"XDG_CONFIG_HOME": str(folder.root / "no-folder")}
    model.add(Reply("It works."))
    done = folder.run("run", "go", cwd=own, env=env)
    assert (done.code, "It works." in done.stdout) == (0, True), done.stderr
    assert f"OPENMANUS_HOME={own / '.openmanus'}" in done.stderr
    assert folder.run("threads", cwd=own, env=env).code == 2
    named = {**env, "OPENMANUS_HOME": str(own / ".openmanus")}
    assert folder.run("threads", cwd=own, env=named).code == 0


def test_a_home_that_the_person_names_needs_no_trust(folder: Cli) -> None:
    clone = cloned(folder)
    env = {"OPENMANUS_HOME": str(clone / ".openmanus")}
    assert folder.run("show", "t", cwd=clone, env=env).code == 0
