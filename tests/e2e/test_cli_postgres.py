"""The command with everything in PostgreSQL: the same commands, only snapshots in the home."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from tests.support.cli import Cli, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres, lease_is_over, rows_of
from tests.support.serving import Served, new_page
from tests.support.zygote import Zygote

PASSWORD = "hunter2neverseen"


@pytest.fixture
def address(postgres: Postgres, cli: Cli) -> Iterator[str]:
    """An empty place in PostgreSQL, with a password in its address; no file may have that."""
    with_password = postgres.database().replace("postgres@", f"postgres:{PASSWORD}@")
    yield with_password
    assert not [text for text in cli.seen if PASSWORD in text]
    for path in cli.root.rglob("*"):
        assert not (path.is_file() and PASSWORD.encode() in path.read_bytes()), path


@pytest.mark.slow
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
    assert {path.name.partition(".")[0] for path in cli.home.glob("*.db*")} == {"snapshots"}


@pytest.mark.slow
def test_going_back_restores_files_where_their_snapshots_are(
    cli: Cli, model: OpenAIServer, address: str
) -> None:
    cli.env[DATABASE_VARIABLE] = address
    write = (Reply(calls=(Call("bash", {"command": f"echo {n} > a"}),)) for n in (1, 2))
    model.add(*write, Reply("Done."))
    assert cli.run("run", "go", "--thread", "t").code == 0
    points = [json.loads(row) for row in cli.run("fork", "t", "--json").stdout.splitlines()]
    first = next(str(one["number"]) for one in points if one["what"].startswith("bash gave"))
    made = cli.run("fork", "t", "--at", first, "--thread", "new", "--json")
    assert json.loads(made.stdout)["files"] == "restored"
    assert (cli.cwd / "workspace" / "new" / "a").read_text() == "1\n"
    assert "-1\n+2\n" in cli.run("diff", "t", "--from", first).stdout
    cli.env["OPENMANUS_HOME"] = str(cli.root / "another machine")
    elsewhere = cli.run("fork", "t", "--at", first, "--thread", "other", "--json")
    assert json.loads(elsewhere.stdout)["files"] == "kept"
    assert "it was deleted, or taken on another machine" in elsewhere.stderr
    assert "taken on another machine" in cli.run("diff", "t").stderr
    model.add(Reply("Went on."))
    assert cli.run("resume", "other").code == 0


@pytest.mark.slow
def test_the_address_is_an_option_of_each_command(
    cli: Cli, model: OpenAIServer, address: str
) -> None:
    model.add(Reply("The answer."))
    option = ("--database-url", address)
    assert cli.run("run", "go", "--thread", "t", *option).code == 0
    assert "The answer." in cli.run("show", "t", *option).stdout
    reported = cli.run("show", "t")
    assert (reported.code, str(cli.home) in reported.stderr) == (2, True)
    cli.write("other.toml", f'[storage]\ndatabase_url = "sqlite:///{cli.root}/other.db"\n')
    model.add(Reply("Another answer."))
    assert cli.run("run", "go", "--thread", "u", "--config", "other.toml").code == 0
    assert (cli.root / "other.db").exists()
    assert (
        "Another" in cli.run("show", "u", "--database-url", f"sqlite:///{cli.root}/other.db").stdout
    )


@pytest.mark.parametrize(
    ("address", "reported"),
    [
        (f"postgresql://u:{PASSWORD}@127.0.0.1:1/db", "cannot be reached"),
        (f"postgresql://u:{PASSWORD}@h", "names no database"),
        (f"postgres//u:{PASSWORD}@h/db", "not an address"),
    ],
)
@pytest.mark.slow
def test_an_address_that_leads_nowhere_is_told_in_one_line(
    cli: Cli, model: OpenAIServer, address: str, reported: str
) -> None:
    cli.env[DATABASE_VARIABLE] = address
    for command in (("run", "go"), ("threads",), ("resume", "t"), ("show", "t")):
        done = cli.run(*command)
        assert done.code in (1, 2)
        assert reported in done.stderr
        assert done.stderr.count("\n") == 1
        assert PASSWORD not in done.stderr
    assert reported in cli.run("doctor").stdout


@pytest.mark.slow
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


@pytest.mark.slow
async def test_the_server_keeps_its_threads_in_postgresql(
    cli: Cli, model: OpenAIServer, postgres: Postgres, zygote: Zygote
) -> None:
    cli.env[DATABASE_VARIABLE] = postgres.database()
    names = ("OPENMANUS_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", DATABASE_VARIABLE)
    env = {name: cli.env[name] for name in names}
    question = Reply(calls=(Call("ask_human", {"inquire": "Which?"}),))
    model.add(question, Reply("The answer."), Reply("More."))
    with Served(cli.root / "served", env, zygote=zygote) as served:
        async with new_page(served) as page:
            await page.ask(agent="manus", message="Go.")
            final = await page.final()
            assert final["status"] == "waiting"
            thread = page.thread
            done = await asyncio.to_thread(cli.run, "resume", thread, "--answer", "This.")
            assert (done.code, "The answer." in done.stdout) == (0, True), "in the terminal"
            await page.ask(message="Go on.")
            assert (await page.final())["answer"] == "More."
        kept = {path.name.partition(".")[0] for path in served.home.glob("*.db*")}
        assert kept == {"snapshots"}
    assert "More." in cli.run("show", thread).stdout


WORK = "touch begun; until test -e go; do sleep 0.05; done; echo over >> log"


@pytest.mark.slow
def test_a_paused_worker_that_goes_on_after_its_lease_writes_nothing(
    cli: Cli, model: OpenAIServer, postgres: Postgres
) -> None:
    url = postgres.database()
    cli.env |= {DATABASE_VARIABLE: url, "OPENMANUS_LEASE_S": "1"}
    model.add(Reply(calls=(Call("bash", {"command": WORK}),)), Reply("Finished."))
    paused = cli.start("run", "go", "--thread", "t", "--workspace", "files")
    until((cli.workspace / "begun").exists)
    refused = cli.run("resume", "t")
    assert (refused.code, "in use by process" in refused.stderr) == (1, True)
    paused.signal(signal.SIGSTOP)
    until(lambda: lease_is_over(url))
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "Finished.")
    before = rows_of(url)
    (cli.workspace / "go").touch()
    paused.signal(signal.SIGCONT)
    ended = paused.finish()
    assert ended.code == 1
    assert ended.final["status"] == "failed"
    assert "may have taken over thread" in ended.final["answer"]
    assert rows_of(url) == before
    assert len(model.requests) == 2, "it asked the model nothing more"


@pytest.mark.slow
def test_a_killed_worker_of_this_machine_is_not_waited_for(
    cli: Cli, model: OpenAIServer, postgres: Postgres
) -> None:
    cli.env |= {DATABASE_VARIABLE: postgres.database(), "OPENMANUS_LEASE_S": "1000"}
    model.add(Reply(calls=(Call("bash", {"command": WORK}),)), Reply("Finished."))
    killed = cli.start("run", "go", "--thread", "t", "--workspace", "files")
    until((cli.workspace / "begun").exists)
    for process in killed.family():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
            process.kill()
    killed.finish()
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "Finished.")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("real_start")  # the clock jumps from the interpreter's start
def test_a_clock_that_jumps_loses_no_lease(
    cli: Cli, model: OpenAIServer, postgres: Postgres
) -> None:
    folder = str(Path(__file__).parent.parent / "support" / "jumping_clock")
    clock = {"PYTHONPATH": folder, "CLOCK_JUMPS_H": "0,5,-5,100"}
    cli.env |= {DATABASE_VARIABLE: postgres.database(), "OPENMANUS_LEASE_S": "2"}
    model.add(Reply(calls=(Call("bash", {"command": WORK}),)), Reply("Finished."))
    running = cli.start("run", "go", "--thread", "t", "--workspace", "files", env=clock)
    until((cli.workspace / "begun").exists)
    refused = cli.run("resume", "t", env={**clock, "CLOCK_JUMPS_H": "200"})
    assert (refused.code, "in use by process" in refused.stderr) == (1, True)
    postgres.cut_connections()
    (cli.workspace / "go").touch()
    done = running.finish()
    assert (done.code, done.final["answer"]) == (0, "Finished.")
