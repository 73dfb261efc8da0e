"""Our own files of a thread lie outside of the workspace, whatever runs in it."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.scratch import (
    PARENT_PACKAGES,
    base_python,
    make_python,
    site_packages,
)
from openmanus_graph.config.resolve import private_folder, private_folders, resolve_settings
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.runtime.artifacts import DRAFTS_FOLDER, changed_files, take_baseline
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, find, incoming_file, opened_file, put_file
from openmanus_graph.state.context import Context, SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute
from openmanus_graph.tools.files import read_file, str_replace_editor
from tests.support.sandboxes import MODES

pytestmark = pytest.mark.slow

LONG = "seq 1 20000"


@pytest.fixture(params=MODES)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    settings = SandboxSettings(mode=request.param)
    with contextlib.closing(tool_session(tmp_path / "w", sandbox=settings)) as opened:
        yield opened


async def run(tool: Any, session: Session, **arguments: Any) -> str:
    arguments["runtime"] = tool_runtime(session)
    call = {"type": "tool_call", "id": "call_1", "name": tool.name, "args": arguments}
    return str((await tool.ainvoke(call)).content)


async def used(session: Session) -> None:
    """Do what leaves files of our own."""
    await run(bash, session, command=f"git init -q . && {LONG} && (sleep 300; echo late) &")
    await run(python_execute, session, code="print('x\\n' * 20000)")
    await run(str_replace_editor, session, command="create", path="a.txt", file_text="error\n")
    take_baseline(session.workspace, "run", fresh=True)
    session.workspace.keep(b"picture", ".png")


async def test_git_find_and_grep_meet_none_of_our_files(session: Session) -> None:
    await used(session)
    assert await run(bash, session, command="git status --porcelain") == "?? a.txt"
    assert await run(bash, session, command="git add -A && git ls-files") == "a.txt"
    found = await run(bash, session, command="find . -not -path './.git*'")
    assert sorted(found.split()) == [".", "./a.txt"]
    assert await run(bash, session, command="grep -rn error . --exclude-dir=.git") == (
        "./a.txt:1:error"
    )
    assert sorted(path.name for path in session.workspace.root.iterdir()) == [".git", "a.txt"]


async def test_grep_does_not_read_what_it_writes(session: Session) -> None:
    (session.workspace.root / "app.log").write_text("one error in this line\n" * 6000)
    long = await run(bash, session, command="grep -rn error .")
    assert "of 6000 left out" in long
    for _ in range(2):
        assert await run(bash, session, command="grep -rc error .") == "./app.log:6000"


async def test_a_long_output_can_be_read_at_its_path_by_every_tool_and_changed_by_none(
    session: Session,
) -> None:
    long = await run(bash, session, command=LONG)
    path = long.partition('read_file(path="')[2].partition('"')[0]
    assert Path(path).parent == session.workspace.outputs
    assert (await run(read_file, session, path=path, lines="19999-")).endswith("\n19999\n20000")
    view = await run(str_replace_editor, session, command="view", path=path, view_range=[7, 7])
    assert view == "     7\t7"
    assert await run(bash, session, command=f"grep -c 7 {path}") == "6878"
    assert await run(python_execute, session, code=f"len(open({path!r}).read())") == "108894"
    with pytest.raises(ToolError, match="outside the workspace"):
        find(session.workspace, path)
    if session.settings.sandbox.mode != "none":
        for command in (f"rm {path}", f"echo >> {path}", f"touch {path}.more"):
            assert "[exit code 1]" in await run(bash, session, command=command)
    assert read(session.workspace, path).count(b"\n") == 20000


async def test_a_long_output_that_is_shown_again_makes_no_second_file(session: Session) -> None:
    long = await run(bash, session, command=LONG)
    [kept] = session.workspace.outputs.iterdir()
    assert await run(bash, session, command=f"cat {kept}") == long
    await run(read_file, session, path=str(kept))
    await run(str_replace_editor, session, command="view", path=str(kept))
    assert list(session.workspace.outputs.iterdir()) == [kept]


async def test_nothing_else_of_the_private_folder_can_be_read(session: Session) -> None:
    secret = session.workspace.private / "browser" / "cookies"
    put_file(session.workspace, secret, b"secret")
    up = f"{session.workspace.outputs}/../browser/cookies"
    for path in (str(secret), up):
        with pytest.raises(ToolError, match="outside the workspace"):
            read(session.workspace, path)
    if session.settings.sandbox.mode != "none":
        assert "[exit code 1]" in await run(bash, session, command=f"cat {secret}")


async def test_output_of_background_commands_is_named_by_a_path_that_bash_can_read(
    session: Session,
) -> None:
    started = await run(bash, session, command="(echo begun; sleep 300) &")
    path = started.partition("Further output goes to ")[2].partition(".]")[0]
    assert await run(bash, session, command=f"until grep begun {path}; do :; done") == "begun"


async def test_a_command_that_replaces_its_output_file_shows_no_file_of_the_host(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("secret")
    sandbox = sandbox_of(session)
    places = sandbox.backend.inside(sandbox.layout.run / "shell")
    trap = f"cd {places} && rm -f *.log && for n in $(seq 9); do ln -s {tmp_path}/key $n.log; done"
    assert "secret" not in await run(bash, session, command=f"{trap}; echo seen")


def workspace_of(tmp_path: Path, name: str) -> Workspace:
    found = Workspace(tmp_path / "w", tmp_path / "home" / "threads" / name)
    found.prepare()
    return found


def read(workspace: Workspace, path: str) -> bytes:
    with opened_file(workspace, path) as file:
        return file.read()


@pytest.mark.parametrize("mode", MODES)
async def test_a_forked_thread_reads_what_its_conversation_names(
    tmp_path: Path, mode: SandboxMode
) -> None:
    first = workspace_of(tmp_path, "first")
    kept = first.keep(b"long output", ".txt")
    second, third = workspace_of(tmp_path, "second"), workspace_of(tmp_path, "third")
    second.inherit_outputs(first)
    third.inherit_outputs(second)
    shutil.rmtree(first.private)
    assert read(third, str(kept)) == read(second, str(kept)) == b"long output"
    assert read(third, str(third.outputs / kept.name)) == b"long output"
    with contextlib.closing(tool_session(tmp_path / "w", sandbox=SandboxSettings(mode=mode))) as s:
        s.workspace = third
        if mode == "bwrap":  # the others show the paths of the machine
            assert await run(bash, s, command=f"cat {kept}") == "long output"


def test_what_is_protected_is_out_of_reach_wherever_it_is_moved(tmp_path: Path) -> None:
    home, key = tmp_path / "w" / "deep" / ".openmanus", tmp_path / "w" / "deep" / ".env"
    workspace = replace(workspace_of(tmp_path, "t"), protected=(home, key))
    put_file(workspace, home / "threads.db", b"secret")
    put_file(workspace, key, b"secret")
    (tmp_path / "w" / "link").symlink_to("deep/.openmanus")
    (tmp_path / "w" / "other-name").hardlink_to(key)
    inside = ("threads.db", "new.txt", "new/folder.txt")
    paths = ["deep/.env", "other-name", "deep/.openmanus", "link"]
    paths += [f"{top}/{name}" for top in ("deep/.openmanus", "link") for name in inside]
    for path in paths:
        _is_out_of_reach(workspace, path)
    (tmp_path / "w" / "deep").rename(tmp_path / "w" / "moved")
    home.mkdir(parents=True)  # in the place that it is looked for
    _is_out_of_reach(workspace, "moved/.openmanus")
    _is_out_of_reach(workspace, "moved/.openmanus/threads.db")
    _is_out_of_reach(workspace, "moved/.openmanus/new.txt")


def _is_out_of_reach(workspace: Workspace, path: str) -> None:
    incoming = incoming_file(workspace, path, replace=True)
    with pytest.raises(ToolError, match="out of reach"):
        read(workspace, path)
    with pytest.raises(ToolError, match="out of reach"), incoming:
        pass


def test_a_file_from_another_disk_is_put_in_place_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private folder may be on another disk than the workspace."""
    workspace = workspace_of(tmp_path, "t")
    incoming = workspace.incoming
    incoming.mkdir()
    rename, link = os.replace, os.link

    def on_another_disk(*args: Any, src_dir_fd: int, **kwargs: Any) -> None:
        if os.path.samestat(os.fstat(src_dir_fd), incoming.stat()):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        (link if "follow_symlinks" in kwargs else rename)(*args, src_dir_fd=src_dir_fd, **kwargs)

    monkeypatch.setattr(os, "replace", on_another_disk)
    monkeypatch.setattr(os, "link", on_another_disk)
    for content, replaces in ((b"one", False), (b"two", True)):
        with incoming_file(workspace, "a.txt", replace=replaces) as file:
            file.write(content)
        assert [(path.name, path.read_bytes()) for path in workspace.root.iterdir()] == [
            ("a.txt", content)
        ]
    assert list(incoming.iterdir()) == []


def test_drafts_and_what_a_killed_write_leaves_are_no_deliverables(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "t")
    take_baseline(workspace, "run", fresh=True)
    (workspace.root / ".0123456789abcdef.part").write_text("half")
    (workspace.root / "report.part").write_text("whole")
    workspace.keep(b"picture", ".png")
    drafts = workspace.root / DRAFTS_FOLDER / "size"
    drafts.mkdir(parents=True)
    (drafts / "charts.json").write_text("[]")
    assert [artifact["path"] for artifact in changed_files(workspace, "run")] == ["report.part"]


def test_the_private_folder_is_the_threads_own_and_outside_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home, root = tmp_path / "project" / "home", tmp_path / "project" / "w"
    assert private_folder(home, root, "t") == home / "threads" / "t"
    assert private_folder(home, root, "../t").parent == home / "threads"
    assert private_folder(home, root, "a") != private_folder(home, root, "b")
    inside = private_folder(home, tmp_path / "project", "t")
    assert inside.is_relative_to(tmp_path / "state")
    assert private_folders(home, "t") == [home / "threads" / "t", inside]
    # Runs without a thread: by their workspace, so that its conversations can be passed on.
    assert private_folder(home, root, None).parent == home / "runs"
    assert private_folder(home, root, None) != private_folder(home, tmp_path, None)


def test_a_private_folder_that_must_lie_in_the_workspace_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OPENMANUS_HOME", str(tmp_path / "home"))
    inside = resolve_settings(Context(workspace=str(tmp_path)), "t", without_model=True)
    assert inside.private == tmp_path / "home" / "threads" / "t"
    (warning,) = inside.warnings
    assert f"{inside.private} lies in the workspace {tmp_path}" in warning
    assert "OPENMANUS_HOME" in warning
    outside = resolve_settings(Context(workspace=str(tmp_path / "w")), "t", without_model=True)
    assert outside.warnings == ()


def test_git_overlooks_the_home(tmp_path: Path) -> None:
    prepare_home(tmp_path / "home")
    ignored = tmp_path / "home" / ".gitignore"
    assert ignored.read_text() == "*\n"
    ignored.write_text("own")
    prepare_home(tmp_path / "home")
    assert ignored.read_text() == "own"


def test_the_home_is_no_part_of_the_workspace_that_is_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("OPENMANUS_HOME")
    settings = resolve_settings(Context(workspace="."), "t", without_model=True)
    Workspace.of(settings).prepare()
    assert list(project.iterdir()) == []
    assert settings.private.is_dir()


@pytest.mark.parametrize(
    "trap", ["bin", "bin/pip", "bin/python", "lib", "lib/python", "pyvenv.cfg", "packages"]
)
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_trap_in_the_threads_python_changes_nothing_outside(
    tmp_path: Path, trap: str, kind: str
) -> None:
    folder, outside = tmp_path / "private" / "python", tmp_path / "outside"
    outside.mkdir()
    (outside / "pip").write_text("the host's")
    packages = site_packages(folder)
    names = {"packages": packages / PARENT_PACKAGES, "lib/python": packages.parent}
    place = names.get(trap, folder / trap)
    make_python(folder)
    (folder / "pyvenv.cfg").unlink()
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    match kind:
        case "link":
            place.symlink_to(outside if "." not in trap and trap != "bin/pip" else outside / "pip")
        case "dangling":
            place.symlink_to(outside / "new")
        case "pipe":
            os.mkfifo(place)
        case _:
            place.mkdir()
    python = make_python(folder)
    assert (outside / "pip").read_text() == "the host's"
    assert [one.name for one in outside.iterdir()] == ["pip"]
    assert (folder / "bin" / "pip").read_text().startswith("#!/bin/sh")
    assert os.access(folder / "bin" / "pip", os.X_OK)
    assert python.readlink() == base_python()
