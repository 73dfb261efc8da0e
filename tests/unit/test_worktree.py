"""The worktree of a run, in repositories of all kinds, and with what programs leave there."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.sandbox import worktree
from openmanus_graph.backends.sandbox.backend import Layout
from openmanus_graph.backends.sandbox.choose import container_options
from openmanus_graph.backends.sandbox.confinement import run_read_only
from openmanus_graph.backends.sandbox.worktree import Worktree, create, finish
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash
from tests.support.sandboxes import MODES


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home := tmp_path / "user").mkdir()
    (home / ".gitconfig").write_text(
        '[user]\nname = Ada\nemail = ada@x\n[protocol "file"]\nallow = always\n'
    )
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return os.fsdecode(done.stdout).rstrip("\n")


def repository(folder: Path, *options: str) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", *options)
    (folder / "a").write_text("1\n")
    (folder / "d").mkdir()
    (folder / "d" / "b").write_text("2\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def begin(place: Path, branch: str = "run", message: str | None = "done") -> Worktree:
    return create(place, branch, worktree.new_folder(branch), message)


def submodule(root: Path) -> Path:
    other, whole = repository(root / "other"), repository(root / "whole")
    git(whole, "submodule", "--quiet", "add", str(other), "sub")
    git(whole, "commit", "-qm", "with a submodule")
    return whole


def rebasing(root: Path) -> Path:
    whole = repository(root / "r")
    git(whole, "checkout", "-qb", "other")
    (whole / "a").write_text("other\n")
    git(whole, "commit", "-qam", "other")
    git(whole, "checkout", "-q", "main")
    (whole / "a").write_text("main\n")
    git(whole, "commit", "-qam", "main")
    subprocess.run(["git", "-C", whole, "rebase", "other"], capture_output=True, check=False)
    assert (whole / ".git" / "rebase-merge").exists()
    return whole


def merging(root: Path) -> Path:
    whole = rebasing(root)
    git(whole, "rebase", "--abort")
    subprocess.run(["git", "-C", whole, "merge", "other"], capture_output=True, check=False)
    assert (whole / ".git" / "MERGE_HEAD").exists()
    return whole


def detached(root: Path) -> Path:
    whole = repository(root / "r")
    git(whole, "checkout", "-q", "--detach")
    return whole


def inside_a_worktree(root: Path) -> Path:
    git(repository(root / "r"), "worktree", "add", "-q", str(root / "w"))
    return root / "w"


def symlinked(root: Path) -> Path:
    whole = repository(root / "r")
    (whole / ".git").rename(root / "elsewhere")
    (whole / ".git").symlink_to(root / "elsewhere")
    return whole


def shallow(root: Path) -> Path:
    whole = repository(root / "r")
    git(whole, "commit", "-q", "--allow-empty", "-m", "two")
    git(root, "clone", "-q", "--depth", "1", f"file://{whole}", "s")
    return root / "s"


def packed(root: Path) -> Path:
    whole = repository(root / "r")
    git(whole, "gc", "-q")
    return whole


def odd_name(root: Path) -> Path:
    return repository(root / "a b\"'ü")


KINDS: list[Callable[[Path], Path]] = [
    submodule, rebasing, merging, detached, inside_a_worktree, symlinked, shallow, packed, odd_name,
    lambda root: repository(root / "r") / "d",
]  # fmt: skip


def observed(place: Path) -> list[str]:
    commands = (
        ("status", "--porcelain=v2", "--branch"),
        ("diff",),
        ("diff", "--cached"),
        ("stash", "list"),
    )
    return [git(place, *command) for command in commands]


@pytest.mark.parametrize("make", KINDS)
def test_every_repository_gets_a_branch_and_keeps_its_own(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    place = make(tmp_path / "made")
    top = Path(git(place, "rev-parse", "--show-toplevel"))
    (top / "untracked").write_text("mine")
    before, head = observed(place), git(place, "rev-parse", "HEAD")
    tree = begin(place)
    folder = Path(tree.folder)
    assert (git(folder, "rev-parse", "HEAD"), git(folder, "status", "--porcelain")) == (head, "")
    assert not (folder / "untracked").exists()
    (folder / "d" / "b").write_text("changed\n")
    seen = run_read_only(
        "git log --format=%s -1 && git diff --name-only && git commit -qam x && git status -s",
        Workspace(folder, tmp_path / "home" / "threads" / "t"),
        SandboxSettings(mode="bwrap"),
        limit_s=60,
        stop=Event(),
        max_chars=1000,
    )
    subject = git(place, "log", "--format=%s", "-1")
    assert (seen.text.split("\n")[:2], seen.code) == ([subject, "d/b"], 0)
    shown = finish(tree, finished=True)
    assert "committed as" in shown
    assert "+changed" in shown
    assert observed(place) == before
    assert git(place, "rev-parse", "run^") == head
    assert git(place, "diff", "--name-only", head, "run") == "d/b"
    assert git(folder, "status", "--porcelain") == ""
    git(place, "fsck", "--strict")
    git(place, "worktree", "remove", *(["--force"] if make is submodule else []), str(folder))


GIT_INSIDE = (
    "echo x >> a; git status --short; git log --format=%s; git diff --stat; "
    "git branch --show-current; git add -A && git commit -qm inside && git log --format=%s -1; "
    "echo y >> a; git stash -q; git stash list | wc -l; git restore -s HEAD~ a && git status -s"
)


async def output_of(session: Session, command: str) -> str:
    assert isinstance(bash, StructuredTool)
    assert bash.coroutine is not None
    _, seen = await bash.coroutine(command=command, runtime=tool_runtime(session), timeout_s=60)
    return str(seen.text)


@pytest.mark.parametrize("mode", MODES)
def test_git_works_in_the_sandbox_and_changes_nothing_of_the_repository(
    tmp_path: Path, mode: SandboxMode
) -> None:
    place = repository(tmp_path / "r")
    (hook := place / ".git" / "hooks" / "pre-commit").parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    tree = begin(place)
    before = {p: p.read_bytes() for p in (place / ".git").rglob("*") if p.is_file()}
    session = tool_session(Path(tree.folder), sandbox=SandboxSettings(mode=mode))
    shown = asyncio.run(output_of(session, GIT_INSIDE))
    session.close()
    assert [line.strip() for line in shown.splitlines()] == [
        "M a", "one", "a | 1 +", "1 file changed, 1 insertion(+)", "run", "inside", "1", "M a",
    ]  # fmt: skip
    assert {p: p.read_bytes() for p in (place / ".git").rglob("*") if p.is_file()} == before
    assert not (tmp_path / "ran").exists()
    Path(tree.folder, "a").write_text("changed\n")
    assert "committed as" in finish(tree, finished=True)
    assert git(Path(tree.folder), "status", "--porcelain") == ""


@pytest.mark.parametrize("other", ["link", "ssh"])
def test_a_sandbox_starts_with_a_missing_link_and_on_another_machine(
    tmp_path: Path, request: pytest.FixtureRequest, other: str
) -> None:
    settings = SandboxSettings(mode="bwrap")
    tree = begin(repository(tmp_path / "r"))
    if other == "link":
        Path(tree.folder, ".git").unlink()
    else:
        settings = request.getfixturevalue("ssh_server").settings
    session = tool_session(Path(tree.folder), sandbox=settings)
    shown = asyncio.run(output_of(session, "echo changed > a; rm -f .git; git status"))
    session.close()
    assert ("On branch run" in shown) == (other == "link")
    assert "committed as" in finish(tree, finished=True)
    assert git(Path(tree.folder), "status", "--porcelain") == ""


def test_docker_mounts_what_git_needs(tmp_path: Path) -> None:
    tree = begin(repository(tmp_path / "r"))
    workspace = Workspace(Path(tree.folder), tmp_path / "private")
    scratch = tmp_path / "scratch"
    layout = Layout(workspace, scratch, Path("/usr/bin/python3"), worktree=tree)
    line = " ".join(container_options(layout, SandboxSettings(mode="docker"), {}))
    for mount in (
        f"{tree.objects}:{tree.objects}:ro",
        f"{scratch}/git:{tree.admin}",
        f"{tree.folder}/.git:{tree.folder}/.git:ro",
    ):
        assert f"--volume {mount} " in f"{line} "


def bare(root: Path) -> Path:
    git(root, "clone", "-q", "--bare", str(repository(root / "r")), "b.git")
    return root / "b.git"


def empty(root: Path) -> Path:
    git(root, "init", "-q", "e")
    return root / "e"


def branch_taken(root: Path) -> Path:
    whole = repository(root / "r")
    git(whole, "branch", "run")
    return whole


def no_repository(root: Path) -> Path:
    return root


def no_folder(root: Path) -> Path:
    return root / "missing"


def of_another_owner(root: Path) -> Path:
    whole = repository(root / "r")
    for path in (whole, whole / ".git"):
        os.chown(path, 12345, 12345)
    return whole


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (bare, "bare repository"),
        (empty, "no commit"),
        (no_repository, "not a git repository"),
        (no_folder, "No such file"),
        (branch_taken, "already exists"),
        (of_another_owner, "dubious ownership"),
    ],
)
def test_what_gives_no_worktree_is_said_and_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    (root := tmp_path / "made").mkdir()
    place = make(root)
    with pytest.raises(ConfigError, match=words):
        begin(place)
    assert not list((tmp_path / "state").rglob("run-*"))


@pytest.mark.parametrize("branch", ["", "-x", "a b", "a..b", "x.lock", "--orphan", "refs/../x"])
def test_a_branch_that_cannot_be_named_so_is_refused(tmp_path: Path, branch: str) -> None:
    place = repository(tmp_path / "r")
    with pytest.raises(ConfigError):
        begin(place, branch)
    assert git(place, "branch", "--format=%(refname:short)") == "main"
    assert len(git(place, "worktree", "list").splitlines()) == 1


def test_an_owner_that_the_user_trusts_is_allowed(tmp_path: Path) -> None:
    (root := tmp_path / "made").mkdir()
    place = of_another_owner(root)
    git(tmp_path, "config", "--global", "safe.directory", str(place))
    assert begin(place).folder


def test_without_git_the_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="takes git"):
        begin(tmp_path)


HOOKS = (
    "post-checkout", "pre-commit", "commit-msg", "post-commit", "reference-transaction",
    "post-index-change", "prepare-commit-msg", "update", "post-merge", "pre-auto-gc",
)  # fmt: skip
PROGRAMS = (
    "core.fsmonitor", "diff.external", "core.pager", "core.editor", "core.sshCommand",
    "gpg.program", "filter.f.clean", "filter.f.smudge", "filter.f.process", "diff.d.textconv",
    "diff.d.command", "credential.helper", "core.alternateRefsCommand", "merge.m.driver",
    "pager.diff", "alias.add", "core.askPass", "gc.recentObjectsHook", "init.templateDir",
    "uploadpack.packObjectsHook", "interactive.diffFilter", "trailer.t.command",
)  # fmt: skip


def test_no_hook_and_no_configured_program_of_the_repository_runs(tmp_path: Path) -> None:
    place, ran = repository(tmp_path / "r"), tmp_path / "ran"
    (place / ".gitattributes").write_text("* filter=f diff=d merge=m\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "attributes")
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\ncat\n')
    program.chmod(0o755)
    (hooks := place / ".git" / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        (hooks / name).symlink_to(program)
    for key in PROGRAMS:
        git(place, "config", key, str(program))
        git(place, "config", "--global", key, str(program))
    for key in ("commit.gpgSign", "filter.f.required", "core.untrackedCache"):
        git(place, "config", key, "true")
    ran.unlink(missing_ok=True)
    tree = begin(place)
    Path(tree.folder, "a").write_text("changed\n")
    Path(tree.folder, "new").write_text("changed\n")
    assert "committed as" in finish(tree, finished=True)
    assert not ran.exists(), ran.read_text()


@pytest.mark.parametrize("name", ["sub", "planted", "d"])
def test_no_program_of_a_nested_repository_runs(tmp_path: Path, name: str) -> None:
    """Programs of the sandbox can put a repository with a configuration into the worktree.

    The submodule is known, `d` has files of the worktree.
    """
    place, ran = submodule(tmp_path / "made"), tmp_path / "ran"
    tree = begin(place)
    nested = Path(tree.folder, name)
    nested.mkdir(exist_ok=True)
    git(nested, "init", "-q")
    (nested / ".gitattributes").write_text("* filter=f\n")
    (nested / "x").write_text("1")
    git(nested, "add", "-A")
    git(nested, "commit", "-qm", "planted")
    for key in ("core.fsmonitor", "filter.f.clean", "filter.f.process", "diff.external"):
        git(nested, "config", key, f"touch {ran}; cat")
    (nested / "x").write_text("2")
    Path(tree.folder, "a").write_text("changed\n")
    shown = finish(tree, finished=True)
    assert not ran.exists()
    changed = git(place, "diff", "--name-only", "main", "run").split("\n")
    if name == "d":
        assert changed == ["a", "d/.gitattributes", "d/x"]
    else:
        assert f"repositories: {name}" in shown
        assert changed == ["a"]


def link_of_a_program(folder: Path) -> None:
    (folder / ".git").unlink()
    git(folder, "init", "-q")
    git(folder, "config", "core.fsmonitor", f"touch {folder}/../ran; true")


def other_link(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: /nowhere\n")


def symbolic_link(folder: Path) -> None:
    (folder / ".git").unlink()
    (folder / ".git").symlink_to("/etc")


def no_link(folder: Path) -> None:
    (folder / ".git").unlink()


@pytest.mark.parametrize("spoil", [link_of_a_program, other_link, symbolic_link, no_link])
def test_a_changed_link_to_the_repository_is_written_again(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    place = repository(tmp_path / "r")
    tree = begin(place)
    folder = Path(tree.folder)
    spoil(folder)
    finish(tree, finished=False)
    assert (folder / ".git").read_text() == f"gitdir: {tree.admin}\n"
    assert git(folder, "status", "--porcelain") == ""
    assert not (folder.parent / "ran").exists()


def file_for_folder(folder: Path) -> None:
    (folder / "d" / "b").unlink()
    (folder / "d").rmdir()
    (folder / "d").write_text("now a file")


def folder_for_file(folder: Path) -> None:
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (folder / "a" / "x").write_text("x")


def link_for_folder(folder: Path) -> None:
    file_for_folder(folder)
    (folder / "d").unlink()
    (folder / "d").symlink_to("/etc")


def odd_names(folder: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", b":(top)x", b"-x", b"\xc3\xa9", b"*", b"tab\t"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")


def fifo_and_link(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "dangling").symlink_to("nowhere")


def many_files(folder: Path) -> None:
    for number in range(20):
        (folder / "node_modules" / str(number)).mkdir(parents=True)
        for name in range(100):
            (folder / "node_modules" / str(number) / str(name)).write_text(f"{number} {name}")


def large_file(folder: Path) -> None:
    (folder / "large").write_text("line\n" * 2_000_000)


def removed_all(folder: Path) -> None:
    for path in (folder / "d" / "b", folder / "a"):
        path.unlink()


CHANGES = (
    file_for_folder, folder_for_file, link_for_folder, odd_names, fifo_and_link, many_files,
    large_file, removed_all,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_all_that_programs_leave_is_committed(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    place = repository(tmp_path / "r")
    tree = begin(place)
    change(Path(tree.folder))
    shown = finish(tree, finished=True)
    assert "committed as" in shown
    assert len(shown) < 22_000
    assert git(Path(tree.folder), "status", "--porcelain") == ""
    git(place, "fsck", "--strict")
    tracked = set(git(place, "ls-tree", "-r", "-z", "--name-only", "run").split("\0")) - {""}
    there = {
        str(path.relative_to(tree.folder))
        for path in Path(tree.folder).rglob("*")
        if path.is_symlink() or (path.is_file() and path.name != ".git")
    }
    assert {os.fsencode(name) for name in there} == {os.fsencode(name) for name in tracked}


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
def test_git_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tree = begin(repository(tmp_path / "r"))
    os.mkfifo(Path(tree.folder, name))
    Path(tree.folder, "new").write_text("x")
    monkeypatch.setattr(worktree, "_LIMIT_S", 2.0)
    with pytest.raises(ConfigError, match="timed out after 2.0 seconds"):
        finish(tree, finished=True)


def test_ignored_files_are_not_committed(tmp_path: Path) -> None:
    place = repository(tmp_path / "r")
    (place / ".gitignore").write_text("ignored\n")
    (place / ".git" / "info").mkdir(exist_ok=True)
    (place / ".git" / "info" / "exclude").write_text("excluded\n")
    git(place, "add", ".gitignore")
    git(place, "commit", "-qm", "ignore")
    tree = begin(place)
    for name in ("ignored", "excluded", "new"):
        Path(tree.folder, name).write_text("x")
    finish(tree, finished=True)
    assert git(place, "diff", "--name-only", "main", "run") == "new"


def test_a_run_that_has_not_finished_or_changed_nothing_commits_nothing(tmp_path: Path) -> None:
    place = repository(tmp_path / "r")
    tree = begin(place)
    nothing = finish(tree, finished=True)
    assert "nothing to commit" in nothing
    assert "Merge:" not in nothing
    Path(tree.folder, "a").write_text("changed\n")
    Path(tree.folder, "größe").write_text("changed\n")
    shown = finish(tree, finished=False)
    assert "not committed" in shown
    assert f"Merge: git -C {tree.folder} commit && git merge run\n" in shown
    assert "+++ b/größe" in shown
    assert git(place, "rev-parse", "run") == git(place, "rev-parse", "main")
    assert "committed as" in finish(tree, finished=True)
    assert "nothing to commit" in finish(tree, finished=True)  # its diff is still shown
    assert "+changed" in finish(tree, finished=True)


def test_the_users_own_commits_on_the_branch_are_kept(tmp_path: Path) -> None:
    place = repository(tmp_path / "r")
    tree = begin(place)
    Path(tree.folder, "mine").write_text("x")
    git(Path(tree.folder), "add", "-A")
    git(Path(tree.folder), "commit", "-qm", "mine")
    Path(tree.folder, "a").write_text("changed\n")
    finish(tree, finished=True)
    assert git(place, "log", "--format=%s", "run").splitlines() == ["done", "mine", "one"]


def test_without_a_name_nothing_is_committed_and_the_user_is_told(tmp_path: Path) -> None:
    place = repository(tmp_path / "r")
    tree = begin(place)
    Path(tree.folder, "a").write_text("changed\n")
    (tmp_path / "user" / ".gitconfig").unlink()
    assert "git does not know your name and e-mail" in finish(tree, finished=True)
    git(place, "config", "user.name", "Local")
    git(place, "config", "user.email", "local@x")
    assert "committed as" in finish(tree, finished=True)
    assert git(place, "log", "-1", "--format=%an <%ae>", "run") == "Local <local@x>"


def test_earlier_worktrees_are_listed(tmp_path: Path) -> None:
    place = repository(tmp_path / "r")
    first, second = begin(place, "first"), begin(place, "second")
    begin(repository(tmp_path / "other"), "third")
    git(place, "worktree", "add", "-q", str(tmp_path / "users-own"))
    line = finish(second, finished=False).splitlines()[-1]
    assert line == f"Earlier ones, which are removed in the same way: {first.folder}"


@pytest.mark.parametrize("by_git", [True, False])
def test_a_removed_worktree_is_an_error_that_says_so(tmp_path: Path, by_git: bool) -> None:
    place = repository(tmp_path / "r")
    tree = begin(place)
    if by_git:
        git(place, "worktree", "remove", tree.folder)
    else:
        shutil.rmtree(tree.folder)
    with pytest.raises(ConfigError, match="was removed"):
        worktree.worktree_at(Path(tree.folder))


def test_only_folders_of_ours_are_worktrees(tmp_path: Path) -> None:
    tree = begin(repository(tmp_path / "r"))
    folder = Path(tree.folder)
    assert worktree.worktree_at(folder) == tree
    (copied := tmp_path / "copied").mkdir()
    record = folder.with_name(f"{folder.name}.json").read_bytes()
    (tmp_path / "copied.json").write_bytes(record)
    assert worktree.worktree_at(copied) is None
    assert worktree.worktree_at(folder / "d") is None
