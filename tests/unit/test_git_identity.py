"""Commits in the sandbox: the user's name and e-mail, and nothing else of git's configuration."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.sandbox.git import identity, identity_file
from openmanus_graph.runtime.session import Session
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute
from tests.support.sandboxes import sandbox_settings

NAMES = ("Ada Lovelace", 'O"Brien \\ #1; x', "李雷", "A\tB", " spaced ")
COMMIT = "git init -q . && echo a > a && git add a && git commit -qm one"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder whose git configuration has more than a name."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    return folder


@pytest.fixture(params=["bwrap", "none", "ssh"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Session]]:
    sessions: list[Session] = []

    def make() -> Session:
        root = tmp_path / "here"
        root.mkdir(exist_ok=True)
        sessions.append(tool_session(root, sandbox=sandbox_settings(request)))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


async def run(session: Session, command: str) -> str:
    assert isinstance(bash, StructuredTool)
    assert bash.coroutine is not None
    _, seen = await bash.coroutine(command=command, runtime=tool_runtime(session), timeout_s=60)
    return str(seen.text)


def configure(home: Path, **values: str) -> None:
    for key, value in values.items():
        command = ["git", "config", "--file", f"{home}/.gitconfig", key.replace("_", "."), value]
        subprocess.run(command, check=True)


async def test_a_commit_has_the_users_name_and_nothing_else_is_known(
    home: Path, opened: Callable[[], Session]
) -> None:
    configure(home, user_name=NAMES[1], user_email="ada@example.org", user_signingkey="KEY1")
    configure(home, alias_st="status", core_hooksPath="/hooks", credential_helper="store")
    configure(home, commit_gpgsign="true", core_pager="less")
    session = opened()
    command = f"{COMMIT} && git log --format='%an <%ae> %cn <%ce>' && git config user.name"
    lines = (await run(session, command)).splitlines()
    assert lines == [f"{NAMES[1]} <ada@example.org> {NAMES[1]} <ada@example.org>", NAMES[1]]
    keys = await run(session, "cd / && git config --list --name-only")
    assert set(keys.split()) == {"user.name", "user.email", "user.useconfigonly"}


async def test_without_a_name_none_is_invented_and_the_model_is_told(
    home: Path, opened: Callable[[], Session]
) -> None:
    configure(home, user_name="Ada")  # no e-mail
    session = opened()
    said = await run(session, COMMIT)
    assert "Do not invent them. Ask the user" in said
    assert "fatal" in await run(session, "git log")
    named = "git -c user.email=a@b.org commit -qm one && git log --format='%an <%ae>'"
    assert await run(session, named) == "Ada <a@b.org>"


@pytest.mark.parametrize("name", NAMES)
def test_git_reads_the_written_file_as_it_was_meant(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config"
    file.write_text(identity_file({"user.name": name, "user.email": "a@b"}), "utf-8")
    read = ["git", "config", "--file", str(file), "-z", "user.name"]
    assert subprocess.check_output(read).decode() == f"{name}\0"


@pytest.mark.parametrize(
    ("own", "local", "environment", "found"),
    [
        ("", "", {}, {}),
        ("[user]\nname = A\nemail = a@x", "", {}, {"user.name": "A", "user.email": "a@x"}),
        # The folder's repository is no source: programs of the sandbox may have written it.
        ("[user]\nname = A", "[user]\nname = L\nemail = l@x", {}, {"user.name": "A"}),
        ("[user]\nname = A", "[include]\npath = {home}/other", {}, {"user.name": "A"}),
        ('[includeIf "gitdir:**"]\npath = other', "", {}, {"user.name": "Other"}),
        ("[user]\nname = A", "", {"GIT_AUTHOR_NAME": "E"}, {"user.name": "E"}),
        ("[user]\nname =", "", {}, {}),
        ("[user\nname = broken", "", {}, {}),
        ("[user]\nname = A", "[user\nbroken", {}, {}),
    ],
)
def test_whose_name_counts(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    local: str,
    environment: dict[str, str],
    found: dict[str, str],
) -> None:
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (home / ".gitconfig").write_text(own)
    (home / "other").write_text("[user]\nname = Other")
    with (folder / ".git" / "config").open("a") as file:
        file.write(local.format(home=home))
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert identity(folder) == found


def test_reading_the_name_runs_no_program_of_a_repository(home: Path, tmp_path: Path) -> None:
    configure(home, user_name="Ada")
    folder, ran = tmp_path / "repository", tmp_path / "ran"
    subprocess.run(["git", "init", "-q", folder], check=True)
    for key in ("core.fsmonitor", "core.pager", "pager.config", "alias.config", "core.editor"):
        subprocess.run(["git", "-C", folder, "config", key, f"touch {ran}"], check=True)
    assert identity(folder) == {"user.name": "Ada"}
    assert not ran.exists()


def test_without_git_there_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert identity(tmp_path) == {}


async def test_python_gets_the_advice_too(home: Path, tmp_path: Path) -> None:
    (root := tmp_path / "here").mkdir()
    session = tool_session(root)
    assert isinstance(python_execute, StructuredTool)
    assert python_execute.coroutine is not None
    code = f"import subprocess\nprint(subprocess.getoutput('{COMMIT}'))"
    _, seen = await python_execute.coroutine(code=code, runtime=tool_runtime(session), timeout_s=60)
    session.close()
    assert "Do not invent them" in seen.text
