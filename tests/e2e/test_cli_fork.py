"""`openmanus fork`: going back in a thread, as a new one."""

import itertools
import json
import re
import signal
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow


def bash(command: str) -> Reply:
    return Reply(calls=(Call("bash", {"command": command}),))


def test_a_fork_goes_on_from_its_point_and_leaves_the_old_thread_alone(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(bash("echo one >> log"), bash("echo two >> log"), Reply("Both are done."))
    assert cli.run("run", "count", "--thread", "t").code == 0
    listed = cli.run("fork", "t")
    assert listed.code == 0
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    assert [what for _, _, what in lines] == [
        "you: count",
        'bash({"command": "echo one >> log"})',
        "bash gave: (no output)",
        'bash({"command": "echo two >> log"})',
        "bash gave: (no output)",
        "agent: Both are done.",
    ]
    points = [json.loads(line) for line in cli.run("fork", "t", "--json").stdout.splitlines()]
    chosen = next(point for point in points if "echo two" in point["what"])
    assert str(chosen["number"]) == lines[3][0]
    refused = cli.run("fork", "t", "--at", "99")
    assert refused.code == 2
    assert "lists them" in refused.stderr
    assert cli.run("fork", "t", "--at", str(chosen["number"]), "--thread", "").code == 2
    made = cli.run("fork", "t", "--at", str(chosen["number"]), "--thread", "new")
    assert (made.code, made.stdout) == (0, "new\n")
    assert "as they were then" in made.stderr
    assert cli.run("tell", "new", "and a third").code == 0
    model.add(bash("echo three >> log"), Reply("Three."))
    resumed = cli.run("resume", "new", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Three.")
    # The second call ran again, on the files of before it: it had never been made there.
    logs = [(cli.cwd / "workspace" / name / "log").read_text() for name in ("t", "new")]
    assert logs == ["one\ntwo\n", "one\ntwo\nthree\n"]
    assert "Both are done." in cli.run("show", "t").stdout


def test_a_fork_reads_the_long_output_that_its_conversation_names(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(bash("seq 20000"), Reply("Counted."))
    assert cli.run("run", "count", "--thread", "t").code == 0
    path = re.findall(r'read_file\(path="([^"]+)"', model.requests[-1].messages[-1]["content"])[0]
    point = cli.run("fork", "t").stdout.splitlines()[-1].split()[0]
    assert cli.run("fork", "t", "--at", point, "--thread", "new").code == 0
    assert cli.run("threads", "--delete", "t").code == 0
    assert not (cli.home / "threads" / "t").exists()
    read = Call("read_file", {"path": path, "lines": "20000"})
    model.add(Reply(calls=(read, Call("bash", {"command": f"tail -1 {path}"}))), Reply("Seen."))
    assert cli.run("run", "look again", "--thread", "new").code == 0
    outputs = [message["content"] for message in model.requests[-1].messages[-2:]]
    assert [text.split()[-1] for text in outputs] == ["20000", "20000"]


def point_after(cli: Cli, what: str, thread: str = "t") -> str:
    points = [json.loads(line) for line in cli.run("fork", thread, "--json").stdout.splitlines()]
    return next(str(point["number"]) for point in points if what in point["what"])


def test_a_forks_files_are_those_of_its_point(cli: Cli, model: OpenAIServer) -> None:
    model.add(bash("echo one > a; mkdir d"), bash("rm -r d a; echo two > b"), Reply("Done."))
    assert cli.run("run", "work", "--thread", "t").code == 0
    made = cli.run("fork", "t", "--at", point_after(cli, "bash gave"), "--thread", "new", "--json")
    folder = cli.cwd / "workspace" / "new"
    assert json.loads(made.stdout)["files"] == "restored"
    assert json.loads(made.stdout)["workspace"] == str(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "d"]
    assert [path.name for path in (cli.cwd / "workspace" / "t").iterdir()] == ["b"]
    first = cli.run("fork", "t", "--at", point_after(cli, "you: work"), "--thread", "first")
    assert (first.code, list((cli.cwd / "workspace" / "first").iterdir())) == (0, [])
    kept = cli.run("fork", "t", "--at", "3", "--thread", "kept", "--keep-files", "--json")
    assert json.loads(kept.stdout)["files"] == "kept"
    assert [path.name for path in (cli.cwd / "workspace" / "kept").iterdir()] == ["b"]


def test_a_fork_of_a_named_folder_gets_one_beside_it(cli: Cli, model: OpenAIServer) -> None:
    project = cli.cwd / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("main")
    (project / "given").write_text("given")
    model.add(bash("echo changed > given"), Reply("Done."))
    assert cli.run("run", "work", "--thread", "t", "--workspace", "project").code == 0
    (project / "given").write_text("by hand")
    at = point_after(cli, "you: work")
    made = cli.run("fork", "t", "--at", at, "--thread", "new", "--json")
    beside = cli.cwd / "project-new"
    assert json.loads(made.stdout)["workspace"] == str(beside)
    assert "Copied as they are now, because snapshots leave them alone: .git." in made.stderr
    assert [(beside / name).read_text() for name in ("given", ".git/HEAD")] == ["given", "main"]
    assert (project / "given").read_text() == "by hand"
    model.add(bash("pwd; cat given"), Reply("Seen."))
    assert cli.run("resume", "new").code == 0
    assert model.requests[-1].messages[-1]["content"].split() == [str(beside), "given"]
    here = cli.run("fork", "t", "--at", at, "--thread", "here", "--in-place")
    assert (project / "given").read_text() == "given"
    aside = re.findall(r"lies in (\S+) now: given", here.stderr)[0]
    assert (cli.cwd / aside / "given").read_text() == "by hand"
    both = cli.run("fork", "t", "--at", at, "--in-place", "--keep-files")
    assert (both.code, "cannot be used together" in both.stderr) == (2, True)


def test_a_fork_is_turned_back_in_its_own_folder(cli: Cli, model: OpenAIServer) -> None:
    model.add(bash("echo one > a"), bash("echo two > a"), Reply("Done."))
    assert cli.run("run", "work", "--thread", "t").code == 0
    at = point_after(cli, "echo two")
    assert cli.run("fork", "t", "--at", at, "--thread", "new").code == 0
    assert cli.run("threads", "--delete", "t").code == 0
    again = cli.run("fork", "new", "--at", point_after(cli, "you", "new"), "--thread", "newer")
    assert (again.code, list((cli.cwd / "workspace" / "newer").iterdir())) == (0, [])
    for thread in ("new", "newer"):
        assert cli.run("threads", "--delete", thread).code == 0


def test_diff_shows_what_changed_between_two_points(cli: Cli, model: OpenAIServer) -> None:
    model.add(bash("echo one > a"), bash("echo two > a; echo b > b"), Reply("Done."))
    assert cli.run("run", "work", "--thread", "t").code == 0
    whole = cli.run("diff", "t")
    assert whole.code == 0
    assert whole.stdout == (
        "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+two\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"
    )
    first = point_after(cli, "bash gave")
    later = cli.run("diff", "t", "--from", first, "--json")
    changes = [json.loads(line) for line in later.stdout.splitlines()]
    assert [(one["path"], one["change"]) for one in changes] == [("a", "changed"), ("b", "added")]
    assert "-one\n+two\n" in changes[0]["diff"]
    assert cli.run("diff", "t", "--from", first, "--to", first).stderr == "No file changed.\n"
    model.add(Reply("Nothing to do."))
    assert cli.run("run", "rest", "--thread", "quiet").code == 0
    assert "no snapshots" in cli.run("diff", "quiet").stderr


@pytest.mark.parametrize("kind", sampled(["tool_start", "tool_end", "think_start"], 1, "kinds"))
def test_after_kill_9_every_point_has_its_files(cli: Cli, model: OpenAIServer, kind: str) -> None:
    def decide(body: dict[str, Any]) -> Reply:
        made = sum(bool(message.get("tool_calls")) for message in body["messages"])
        return bash(f"echo {made} >> log") if made < 4 else Reply("Done.")

    model.add(*[decide] * 9)
    running = cli.start("run", "count", "--thread", "t", "--json")
    seen = itertools.count(1)
    running.wait_for(lambda event: event["type"] == kind and next(seen) == 2)
    running.signal(signal.SIGKILL)
    running.finish()
    assert cli.run("resume", "t").code == 0
    log = (cli.cwd / "workspace" / "t" / "log").read_text()
    points = [json.loads(line) for line in cli.run("fork", "t", "--json").stdout.splitlines()]
    found, after_calls = "", [one for one in points if one["what"].startswith("bash ")]
    for number, point in enumerate(after_calls):
        made = cli.run("fork", "t", "--at", point["checkpoint"], "--thread", f"f{number}")
        assert made.code == 0
        before, found = found, (cli.cwd / "workspace" / f"f{number}" / "log").read_text()
        assert found.startswith(before)
        assert log.startswith(found)
    assert (found, len(after_calls)) == (log, 4)


def test_a_fork_whose_snapshots_are_gone_keeps_the_files_and_says_so(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(bash("echo one > a"), Reply("Done."))
    assert cli.run("run", "work", "--thread", "t").code == 0
    for path in cli.home.glob("snapshots.db*"):
        path.unlink()
    made = cli.run("fork", "t", "--at", "0", "--thread", "new", "--json")
    assert (made.code, json.loads(made.stdout)["files"]) == (0, "kept")
    assert "it was deleted, or taken on another machine" in made.stderr
    assert (cli.cwd / "workspace" / "new" / "a").exists()
    compared = cli.run("diff", "t")
    assert (compared.code, "taken on another machine" in compared.stderr) == (2, True)
