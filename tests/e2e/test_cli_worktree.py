"""`openmanus run --worktree`: a branch in a git worktree; the user's own work is untouched."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import Terminal
from tests.support.cli import Cli, Result, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=U", "-c", "user.email=u@x")
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(cli: Cli) -> Path:
    """A repository with a commit, a staged change, an unstaged one and an untracked file."""
    folder = cli.cwd
    git(folder, "init", "-q", "-b", "main")
    cli.write("kept.txt", "one\n")
    cli.write("edited.txt", "first\n")
    cli.write("removed.txt", "bye\n")
    cli.write("sub/inner.txt", "inner\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "begin")
    cli.write("kept.txt", "two\n")
    git(folder, "add", "kept.txt")
    cli.write("kept.txt", "three\n")
    cli.write("untracked.txt", "mine\n")
    cli.write("../user.gitconfig", "[user]\nname = Ada\nemail = ada@example.org\n")
    cli.env["GIT_CONFIG_GLOBAL"] = str(cli.cwd.parent / "user.gitconfig")
    return folder


def state(repository: Path) -> tuple[str, ...]:
    """Everything of the user's that a run must leave as it is."""
    files = sorted(p for p in repository.rglob("*") if p.is_file() and ".git" not in p.parts)
    return (
        git(repository, "status", "--porcelain=v2", "--branch"),
        git(repository, "diff"),
        git(repository, "diff", "--cached"),
        git(repository, "stash", "list"),
        repr([(str(p), p.read_bytes()) for p in files]),
    )


def do(cli: Cli, model: OpenAIServer, command: str, *options: str) -> Result:
    """Run a task whose model calls bash once."""
    model.add(Reply(calls=(Call("bash", {"command": command}),)), Reply("Done."))
    return cli.run("run", "Fix the thing", *options)


def folder_of(done: Result) -> Path:
    line = next(line for line in done.stderr.splitlines() if line.startswith("Folder: "))
    return Path(line.removeprefix("Folder: "))


CHANGES = "echo second >> edited.txt; rm removed.txt; mkdir -p new; echo n > new/file.txt"


def test_a_run_changes_its_branch_alone_and_shows_the_diff(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    before = state(repository)
    done = do(cli, model, CHANGES, "--worktree")
    assert done.code == 0, done.stderr
    assert done.stdout == "Done.\n"
    assert state(repository) == before
    for shown in (
        "+second",
        "deleted file",
        "new/file.txt",
        "not committed",
        "git merge openmanus-",
    ):
        assert shown in done.stderr
    folder = folder_of(done)
    assert not folder.is_relative_to(repository)
    assert str(folder) in git(repository, "worktree", "list")
    assert (folder / "kept.txt").read_text() == "one\n"
    branch = git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    assert git(repository, "rev-parse", branch) == git(repository, "rev-parse", "main")
    assert "git worktree remove --force" in done.stderr
    git(repository, "worktree", "remove", "--force", str(folder))
    git(repository, "branch", "-D", branch)


def test_a_commit_is_made_if_asked_for(cli: Cli, model: OpenAIServer, repository: Path) -> None:
    before = state(repository)
    done = do(cli, model, CHANGES, "--branch", "fix", "--commit", "Fix the thing")
    assert done.code == 0, done.stderr
    assert state(repository) == before
    log = git(repository, "log", "--format=%an <%ae>|%cn|%s|%P", "-1", "fix")
    assert log == f"Ada <ada@example.org>|Ada|Fix the thing|{git(repository, 'rev-parse', 'main')}"
    assert git(repository, "diff", "--name-status", "main", "fix").split("\n") == [
        "M\tedited.txt",
        "A\tnew/file.txt",
        "D\tremoved.txt",
    ]
    assert git(folder_of(done), "status", "--porcelain") == ""
    git(repository, "worktree", "remove", str(folder_of(done)))


def test_a_sandbox_sees_no_configuration_and_cannot_change_the_link(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    git(repository, "config", "http.extraheader", "AUTHORIZATION: secret-of-the-user")
    inspect = (
        f"cat {repository}/.git/config; ls -A {repository}/.git; git config --list; cat .git; "
        "echo > .git; rm .git; git status"
    )
    done = do(cli, model, inspect, "--branch", "fix", "--json")
    output = done.of("tool_end")[0]["output"]
    assert "secret-of-the-user" not in output
    assert output.count("Device or resource busy") == 1
    assert {"objects", "worktrees"} <= set(output.split())
    assert "hooks" not in output
    assert "On branch fix" in output
    assert "nothing to commit" in done.stderr


def test_a_later_turn_of_the_thread_works_in_the_same_worktree(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    first = do(cli, model, "echo 1 > one", "--branch", "fix", "--commit", "Fix", "--thread", "t")
    model.begin_again()
    second = do(cli, model, "cat one; git log --format=%s; echo 2 > two", "--thread", "t", "--json")
    assert second.of("tool_end")[0]["output"].split("\n") == ["1", "Fix", "begin"]
    assert "+2" in second.stderr
    assert folder_of(first) == folder_of(second)
    assert git(repository, "log", "--format=%s", "fix").split("\n") == ["Fix", "Fix", "begin"]
    again = cli.run("run", "More", "--thread", "t", "--worktree")
    assert (again.code, "for a new thread" in again.stderr) == (2, True)
    model.begin_again()
    git(repository, "worktree", "remove", str(folder_of(first)))
    gone = cli.run("run", "More", "--thread", "t")
    assert (gone.code, "was removed" in gone.stderr) == (2, True)


def test_a_killed_run_is_resumed_and_meanwhile_listed(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    before = state(repository)
    slow = "echo begun > begun; until [ -e go ]; do sleep 0.02; done; echo ended > ended"
    model.add(Reply(calls=(Call("bash", {"command": slow}),)))
    running = cli.start("run", "Fix", "--commit", "Fix", "--thread", "t")
    folder = Path(running.wait_for_kind("run_start")["workspace"])
    until((folder / "begun").exists)
    running.signal(signal.SIGKILL)
    running.finish()
    model.begin_again()
    other = do(cli, model, "echo 1 > one", "--worktree")
    assert f"Earlier ones, which are removed in the same way: {folder}" in other.stderr
    model.begin_again()
    model.add(Reply("Done."))
    resumed = cli.run("resume", "t")
    assert resumed.code == 0, resumed.stderr
    assert "committed as" in resumed.stderr
    assert git(repository, "show", "openmanus-t:begun") == "begun"
    assert state(repository) == before


@pytest.mark.parametrize("commit", [(), ("--commit", "Fix")])
def test_a_run_that_stops_commits_nothing(
    cli: Cli, model: OpenAIServer, repository: Path, commit: tuple[str, ...]
) -> None:
    call = Call("bash", {"command": "echo 1 > one"})
    model.add(Reply(calls=(call,)), Reply("Not done."))
    stopped = cli.run("run", "Fix", "--branch", "fix", "--max-steps", "1", *commit)
    assert stopped.code == 3
    assert "fix: not committed" in stopped.stderr
    assert git(repository, "rev-parse", "fix") == git(repository, "rev-parse", "main")


def test_wrong_places_are_refused_before_the_model_is_asked(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    (outside := cli.root / "outside").mkdir()
    refused = cli.run("run", "Fix", "--worktree", cwd=outside)
    assert (refused.code, "not a git repository" in refused.stderr) == (2, True)
    git(repository, "branch", "taken")
    refused = cli.run("run", "Fix", "--branch", "taken")
    assert (refused.code, "already exists" in refused.stderr) == (2, True)
    assert not model.requests
    assert not list(cli.root.rglob("worktrees/*"))
    assert len(cli.run("threads").stdout.splitlines()) == 1, "only the heading"


def test_a_subfolder_has_the_repositorys_worktree_and_quiet_shows_only_the_answer(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "ls; echo 1 > one"}),)), Reply("Done."))
    options = ("--branch", "fix", "--commit", "My words", "--quiet")
    done = cli.run("run", "Fix", *options, cwd=repository / "sub")
    assert (done.code, done.stdout, done.stderr) == (0, "Done.\n", "")
    assert git(repository, "log", "-1", "--format=%s", "fix") == "My words"
    assert git(repository, "show", "fix:one") == "1"


def test_a_chat_works_in_one_worktree_and_shows_its_diff_at_the_end(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    for number in ("1", "2"):
        call = Call("bash", {"command": f"echo {number} >> lines"})
        model.add(Reply(calls=(call,)), Reply(f"Turn {number}."))
    done = cli.run("chat", "--commit", "First", "--branch", "fix", stdin="First\nSecond\n")
    assert done.code == 0, done.stderr
    assert git(repository, "show", "fix:lines") == "1\n2"
    assert git(repository, "log", "-1", "--format=%s", "fix") == "First"
    assert done.stderr.count("Branch fix: committed as") == 1


@pytest.mark.slow
def test_a_chat_at_a_terminal_works_in_the_worktree_alone(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    before = state(repository)
    git(repository, "branch", "fix")
    model.add(Reply(calls=(Call("bash", {"command": "cat kept.txt > seen"}),)), Reply("Done."))
    with Terminal(cli, "chat", "--commit", "Seen", "--branch", "fix") as terminal:
        terminal.see("/help lists the commands.")
        terminal.type("First\r")
        terminal.see("already exists")
        git(repository, "branch", "-D", "fix")
        terminal.type("Second\r")
        terminal.see("Done.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert git(repository, "show", "fix:seen") == "one"
    git(repository, "worktree", "prune")
    assert state(repository) == before


@pytest.mark.slow
def test_the_steps_of_a_plan_share_the_worktree(
    cli: Cli, model: OpenAIServer, repository: Path
) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if str(body["messages"][0]["content"]).startswith("You plan how"):
            steps = [{"id": name, "text": name} for name in "ab"]
            args = {"command": "create", "title": "Both", "steps": steps}
            return Reply(calls=(Call("planning", args),))
        if str(body["messages"][0]["content"]).startswith("You write the final"):
            return Reply("Done.")
        if body["messages"][-1]["role"] == "tool":
            return Reply("Step done.")
        name = "a" if "Your step (a)" in str(body["messages"]) else "b"
        draft = "mkdir -p .steps/x && touch .steps/x/draft && git add -A"
        command = f"git log --format=%s > {name}.txt && {draft}"
        return Reply(calls=(Call("bash", {"command": command}),))

    model.add(*[answer] * 20)
    done = cli.run("plan", "Both", "--branch", "fix", "--commit", "Both")
    assert done.code == 0, done.stderr
    assert git(repository, "show", "fix:a.txt") == git(repository, "show", "fix:b.txt") == "begin"
    changed = git(repository, "diff", "--name-only", "main", "fix").split()
    assert changed == ["a.txt", "b.txt", "plan.md"], "no drafts of steps"
