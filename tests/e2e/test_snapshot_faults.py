"""What snapshots cannot hold in full: the run goes on, and going back says what is missing."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli, Result
from tests.support.disk import small_disk
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
SOMEBODY = 54321


def bash(command: str) -> Reply:
    return Reply(calls=(Call("bash", {"command": command}),))


def run(cli: Cli, *more: str, wrapper: tuple[str, ...] = ()) -> Result:
    command = ("run", "work", "--thread", "t", "--workspace", "files", "--json", *more)
    done = cli.run(*command, wrapper=wrapper)
    assert (done.code, done.final["status"]) == (0, "finished"), done.stderr
    return done


def notices(done: Result) -> list[str]:
    texts = [one["text"] for one in done.of("notice")]
    return [text for text in texts if "napshot" in text]


def go_back(cli: Cli, after: str, *more: str, wrapper: tuple[str, ...] = ()) -> Result:
    """Fork thread `t` after the first point of that beginning."""
    points = [json.loads(row) for row in cli.run("fork", "t", "--json").stdout.splitlines()]
    at = next(one["checkpoint"] for one in points if one["what"].startswith(after))
    done = cli.run("fork", "t", "--at", at, "--thread", "new", *more, wrapper=wrapper)
    assert done.code == 0, done.stderr
    return done


def test_a_disk_full_of_snapshots_fails_no_run_and_is_named_when_going_back(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    cli.home.mkdir(exist_ok=True)
    with small_disk(tmp_path / "small") as disk:
        store = cli.home / "snapshots.db"
        store.symlink_to(disk.folder / store.name)

        def fill(body: dict[str, Any]) -> Reply:
            if disk.mounted:
                disk.fill()
            else:  # what is full for one file is full for the process: so only this one is gone
                store.unlink()
                store.mkdir()
            return bash("head -c 300000 /dev/urandom > b; rm a")

        model.add(bash("echo one > a"), fill, bash("echo two > a"), Reply("Done."))
        (notice,) = notices(run(cli))
        assert notice.startswith("No snapshot holds what changed now.")
        if not disk.mounted:
            return
        disk.free()
        for point, reported in (("bash ", False), ("agent: Done.", True)):
            made = go_back(cli, point)
            newest = "The newest changes before that point are in no snapshot"
            assert (newest in made.stderr) == reported
            assert (cli.cwd / "files-new" / "a").read_text() == "one\n"
            shutil.rmtree(cli.cwd / "files-new")
            assert cli.run("threads", "--delete", "new").code == 0
        assert (cli.workspace / "a").read_text() == "two\n"


@pytest.mark.exhaustive
def test_a_workspace_of_another_user_is_turned_back_as_far_as_its_rights_go(
    cli: Cli, model: OpenAIServer
) -> None:
    theirs = cli.workspace
    (theirs / "sub").mkdir(parents=True)
    (theirs / "locked").mkdir()
    for name in ("open", "secret", "sub/f", "locked/f"):
        (theirs / name).write_text("theirs\n")
    root = os.geteuid() == 0
    wrapper = WITHOUT_RIGHTS if root else ()
    for path in (theirs, *theirs.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    (theirs / "locked").chmod(0o755 if root else 0o555)
    (theirs / "secret").chmod(0o600 if root else 0)
    if root:
        for path in (theirs, *theirs.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY)
    model.add(
        bash("rm open sub/f; echo ours > open; echo new > sub/new; echo no > locked/new; true"),
        Reply("Done."),
    )
    (notice,) = notices(run(cli, wrapper=wrapper))
    assert notice.startswith("Snapshots leave out secret, which cannot be read.")
    assert not (theirs / "locked/new").exists()
    made = go_back(cli, "you: work", "--in-place", wrapper=wrapper)
    assert [(theirs / name).read_text() for name in ("open", "sub/f")] == ["theirs\n"] * 2
    assert not (theirs / "sub/new").exists()
    assert "Left as they are, since snapshots do not hold them: secret." in made.stderr
    assert "Not restored" not in made.stderr


def git(folder: Path, *command: str) -> str:
    given = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com", *command)
    done = subprocess.run(given, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_repository_keeps_its_commits_and_its_files_are_turned_back(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.workspace.mkdir()
    (cli.workspace / "code").write_text("one\n")
    git(cli.workspace, "init", "--quiet")
    git(cli.workspace, "add", "code")
    git(cli.workspace, "commit", "--quiet", "--message", "first")
    commit = "git -c user.name=A -c user.email=a@example.com commit --quiet --all -m second"
    model.add(bash(f"echo two > code && {commit} && git log --oneline"), Reply("Done."))
    assert notices(run(cli)) == []
    before = git(cli.workspace, "log", "--format=%H %s")
    assert before.count("\n") == 2
    made = go_back(cli, "you: work", "--in-place")
    assert "Left as they are, since snapshots do not hold them: .git." in made.stderr
    assert (cli.workspace / "code").read_text() == "one\n"
    assert git(cli.workspace, "log", "--format=%H %s") == before
    assert git(cli.workspace, "status", "--porcelain") == " M code\n"
    git(cli.workspace, "fsck", "--strict")


def test_a_file_over_the_limit_is_left_out_and_named(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", "[storage]\nsnapshot_max_mb = 1\n")
    model.add(
        bash("echo one > a; head -c 2000000 /dev/zero > large"),
        bash("echo two > a; head -c 1500000 /dev/zero > large"),
        bash("rm large"),
        Reply("Done."),
    )
    (notice,) = notices(run(cli))
    assert notice.startswith("Snapshots leave out large: more than [storage] snapshot_max_mb.")
    made = go_back(cli, "bash ")
    assert (cli.cwd / "files-new" / "a").read_text() == "one\n"
    assert "Not restored: large (no snapshot holds it (too large))." in made.stderr
