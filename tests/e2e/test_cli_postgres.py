"""The command with everything in PostgreSQL: the same commands, and nothing in the home folder."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from tests.support.cli import Cli, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres

PASSWORD = "hunter2neverseen"


@pytest.fixture
def address(postgres: Postgres, cli: Cli) -> Iterator[str]:
    """An empty place in PostgreSQL, with a password in its address; no file may have that."""
    with_password = postgres.database().replace("postgres@", f"postgres:{PASSWORD}@")
    yield with_password
    assert not [text for text in cli.seen if PASSWORD in text]
    for path in cli.root.rglob("*"):
        assert not (path.is_file() and PASSWORD.encode() in path.read_bytes()), path


def test_all_commands_know_a_thread_in_postgresql(
    cli: Cli, model: OpenAIServer, address: str
) -> None:
    cli.env[DATABASE_VARIABLE] = address
    question = Reply(calls=(Call("ask_human", {"inquire": "Which?"}),))
    model.add(Reply(calls=(Call("bash", {"command": "echo 1"}),)), question)
    done = cli.run(
        "run",
        "go",
        "--thread",
        "t",
        "--workspace",
        "files",
        "--json",
        "--log",
        str(cli.root / "log"),
    )
    assert done.code == 4, done.stderr
    assert "It waits for you" in cli.run("show", "t").stdout
    assert cli.run("tell", "t", "Hurry.").code == 0
    model.add(Reply("The answer."))
    assert cli.run("resume", "t", "--answer", "This.").code == 0
    assert [m["role"] for m in model.requests[-1].messages].count("user") == 2
    assert "The answer." in cli.run("export", "t").stdout
    point = json.loads(cli.run("fork", "t", "--json").stdout.splitlines()[0])
    assert cli.run("fork", "t", "--at", str(point["number"]), "--thread", "new").code == 0
    listed = [json.loads(row) for row in cli.run("threads", "--json").stdout.splitlines()]
    assert [(one["id"], one["status"]) for one in listed] == [("new", "forked"), ("t", "finished")]
    assert cli.run("threads", "--delete", "t").code == 0
    assert cli.run("show", "t").code == 2
    found = cli.run("doctor").stdout
    assert "database: postgresql://postgres@" in found
    assert list(cli.home.glob("*.db*")) == []


def test_the_address_is_an_option_of_each_command(
    cli: Cli, model: OpenAIServer, address: str
) -> None:
    model.add(Reply("The answer."))
    option = ("--database-url", address)
    assert cli.run("run", "go", "--thread", "t", *option).code == 0
    assert "The answer." in cli.run("show", "t", *option).stdout
    told = cli.run("show", "t")
    assert (told.code, str(cli.home) in told.stderr) == (2, True)
    cli.write("other.toml", f'[storage]\ndatabase_url = "sqlite:///{cli.root}/other.db"\n')
    model.add(Reply("Another answer."))
    assert cli.run("run", "go", "--thread", "u", "--config", "other.toml").code == 0
    assert (cli.root / "other.db").exists()
    assert (
        "Another" in cli.run("show", "u", "--database-url", f"sqlite:///{cli.root}/other.db").stdout
    )


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (f"postgresql://u:{PASSWORD}@127.0.0.1:1/db", "cannot be reached"),
        (f"postgresql://u:{PASSWORD}@h", "names no database"),
        (f"postgres//u:{PASSWORD}@h/db", "no address"),
    ],
)
def test_an_address_that_leads_nowhere_is_told_in_one_line(
    cli: Cli, model: OpenAIServer, address: str, told: str
) -> None:
    cli.env[DATABASE_VARIABLE] = address
    for command in (("run", "go"), ("threads",), ("resume", "t"), ("show", "t")):
        done = cli.run(*command)
        assert done.code in (1, 2)
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
        assert PASSWORD not in done.stderr
    assert told in cli.run("doctor").stdout


def test_a_server_that_is_killed_in_the_middle_ends_the_run_which_goes_on_later(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    with Postgres.running("fsync=on") as server:
        cli.env[DATABASE_VARIABLE] = server.url()
        wait = "until test -e go; do sleep 0.05; done"
        work = f"echo begun >> log; touch begun; {wait}; echo over >> log"
        model.add(Reply(calls=(Call("bash", {"command": work}),)), Reply("Finished."))
        running = cli.start("run", "go", "--thread", "t", "--workspace", "files")
        until((cli.workspace / "begun").exists)
        server.stop()
        (cli.workspace / "go").touch()
        done = running.finish()
        assert done.code == 1
        assert "cannot be reached" in done.final["answer"]
        server.start()
        done = cli.run("resume", "t", "--json")
        assert done.final["answer"] == "Finished."
    assert (cli.workspace / "log").read_text() == "begun\nover\n"
    tool = next(m for m in model.requests[-1].messages if m["role"] == "tool")
    assert "cut off" in tool["content"]
