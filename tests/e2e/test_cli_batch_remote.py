"""`openmanus batch --remote`: a server does the tasks."""

from collections import Counter

import pytest

from tests.e2e.test_cli_batch import OUT, Gate, kill, numbered, results, task_of, works, write_tasks
from tests.support.cli import Cli, Process, no_input, until
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served

pytestmark = pytest.mark.slow

REPLIES = 40
"""More than the tasks of a test ask for."""


def command(served: Served, *args: str) -> tuple[str, ...]:
    return ("batch", "tasks.jsonl", "--out", OUT, "--remote", served.url, *args)


def start(cli: Cli, *args: str) -> Process:
    out = (cli.root / "stdout").open("ab")
    with no_input() as nothing, out:
        return cli.launch(args, nothing, out, out)


def test_a_server_does_the_tasks(bare_cli: Cli, served: Served, served_model: OpenAIServer) -> None:
    bare_cli.write("notes.txt", "read me")
    write_tasks(
        bare_cli,
        {"id": "a", "task": "<a>", "files": ["notes.txt"]},
        {"id": "b", "task": "<b>", "max_steps": 1},
    )
    served_model.add(*[works] * REPLIES)
    refused = bare_cli.run(*command(served))
    assert (refused.code, "OPENMANUS_TOKEN" in refused.stderr) == (2, True)
    bare_cli.env["OPENMANUS_TOKEN"] = served.token
    done = bare_cli.run(*command(served))
    assert done.code == 3, done.stderr
    found = results(bare_cli)
    assert {name: one["status"] for name, one in found.items()} == {
        "a": "finished",
        "b": "stopped",
    }
    assert found["a"]["answer"] == "Done a."
    assert found["a"]["usage"]["model_calls"] == 2
    folder = served.folder / "workspace" / found["a"]["thread"]
    assert (folder / "notes.txt").read_text() == "read me"
    assert (folder / "log").read_text() == "once\n"


def test_a_killed_client_finds_its_runs_again(
    bare_cli: Cli, served: Served, served_model: OpenAIServer
) -> None:
    bare_cli.env["OPENMANUS_TOKEN"] = served.token
    write_tasks(bare_cli, *numbered(4))
    gate = Gate({"1", "2"})
    served_model.add(*[gate] * REPLIES)
    process = start(bare_cli, *command(served, "--jobs", "2"))
    until(lambda: gate.waiting == {"1", "2"})
    until(lambda: set(results(bare_cli)) == {"t0"})
    kill(process)
    gate.open.set()
    done = bare_cli.run(*command(served, "--jobs", "2"))
    assert done.code == 0, done.stderr
    assert {one["answer"] for one in results(bare_cli).values()} == {f"Done {n}." for n in range(4)}
    asked = Counter(task_of(request.body) for request in served_model.requests)
    assert asked == {str(number): 2 for number in range(4)}


def test_an_address_without_a_server(bare_cli: Cli) -> None:
    write_tasks(bare_cli, *numbered(1))
    address = ("--remote", "http://127.0.0.1:9")
    done = bare_cli.run("batch", "tasks.jsonl", *address)
    assert (done.code, "cannot be reached" in done.stderr) == (1, True)
    with_file = bare_cli.run("batch", "tasks.jsonl", *address, "--secret", "A=b@example.org")
    assert with_file.code == 2
