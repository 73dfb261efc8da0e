"""`openmanus fork`: going back in a thread, as a new one."""

import json
import re

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


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
    assert "not turned back" in made.stderr
    assert cli.run("tell", "new", "and a third").code == 0
    model.add(bash("echo three >> log"), Reply("Three."))
    resumed = cli.run("resume", "new", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Three.")
    # The second call ran again: in the new thread it had never been made.
    logs = [(cli.cwd / "workspace" / name / "log").read_text() for name in ("t", "new")]
    assert logs == ["one\ntwo\n", "one\ntwo\ntwo\nthree\n"]
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
