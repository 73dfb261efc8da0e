"""`threads`, `show`, `export`, and a home folder that cannot be used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.state.addresses import DatabaseUrl
from tests.e2e.terminal import Terminal
from tests.support.cli import OPENMANUS, Cli
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

EVIL = "``` <script>alert(1)</script> ````"


def test_threads_are_listed_shown_exported_and_deleted(cli: Cli, model: OpenAIServer) -> None:
    shell = Call("bash", {"command": f"echo '{EVIL}'; touch made.txt"})
    model.add(Reply("I look.", calls=(shell,)), Reply("Seen: **it**"))
    model.add(Reply("second"), Reply("third"))
    long = "a-thread-name-of-some-length-that-must-stay-whole-when-it-is-listed"
    assert cli.run("run", "look at it", "--thread", long, "--workspace", "files").code == 0
    assert cli.run("run", "two\nlines", "--thread", "2nd").code == 0
    assert cli.run("run", "and then?", "--thread", "2nd").code == 0

    listed = cli.run("threads")
    rows = listed.stdout.splitlines()
    assert (listed.code, len(rows)) == (0, 3)
    assert "two lines" in rows[1], "a thread is named by its first task"
    assert long in rows[2]
    as_json = [json.loads(line) for line in cli.run("threads", "--json").stdout.splitlines()]
    assert [(row["id"], row["status"], row["task"]) for row in as_json] == [
        ("2nd", "finished", "and then?"),
        (long, "finished", "look at it"),
    ]

    commands = ["show", long], ["export", long], ["export", long, "--output", "out.md"]
    shown, exported, written = cli.run_all(*commands)
    assert (shown.code, exported.code, written.code) == (0, 0, 0)
    for part in ("look at it", "I look.", "**bash**", EVIL, "Seen: **it**", "made.txt"):
        assert part in shown.stdout
        assert part in exported.stdout
    assert "\n`````\n" in exported.stdout, "the fence is longer than any in the output"
    assert (cli.cwd / "out.md").read_text() == exported.stdout
    state = json.loads(cli.run("show", long, "--json").stdout)
    assert [message["type"] for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert state["answer"] == "Seen: **it**"

    assert len(list((cli.home / "threads").iterdir())) == 2
    deleted = cli.run("threads", "--delete", long)
    assert deleted.code == 0
    assert [path.name for path in (cli.home / "threads").iterdir()] == ["2nd"]
    assert cli.run("show", long).code == 2
    assert (cli.workspace / "made.txt").exists()
    for path in cli.home.rglob("*"):
        assert not path.is_file() or b"look at it" not in path.read_bytes()
    model.add(Reply("fresh"))
    assert cli.run("run", "again", "--thread", long).code == 0
    assert len(model.requests[-1].messages) == 2


def test_of_many_threads_the_newest_are_listed_and_the_rest_is_told(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("done"))
    assert cli.run("run", "the last", "--thread", "zz").code == 0
    database = open_database(DatabaseUrl.in_folder(cli.home))
    rows = [(f"20260101-{number:06d}-ab", "manus", f"task {number}") for number in range(10_000)]
    add = (
        "INSERT INTO threads (id, agent, task, options, status, rowid)"
        " VALUES (?, ?, ?, '{}', 'running', -10000 + ?)"
    )
    database.run_many((add, [(*row, number) for number, row in enumerate(rows)]))
    listed, as_json, longer = cli.run_all(
        ["threads"], ["threads", "--json"], ["threads", "--limit", "120"]
    )
    for found, count in ((listed, 51), (as_json, 50), (longer, 121)):
        assert (found.code, len(found.stdout.splitlines())) == (0, count)
        assert "There are more. To see them:" in found.stderr
    ids = [json.loads(line)["id"] for line in as_json.stdout.splitlines()]
    assert ids == ["zz", *(row[0] for row in reversed(rows[-49:]))]
    assert cli.run("threads", "--limit", "10001").stderr == ""
    assert cli.run("threads", "--limit", "0").code == 2
    assert "Write more of the id" in cli.run("show", "2026").stderr
    assert cli.run("show", "20260101-000007").stdout.startswith("# Thread 20260101-000007-ab")


def test_threads_of_the_terminal_are_found_pinned_archived_and_deleted(
    cli: Cli, model: OpenAIServer
) -> None:
    shell = Call("bash", {"command": "echo; echo 'the palimpsest is 木版画'"})
    model.add(Reply("I look.", calls=(shell,)), Reply("It is an École of Berlin."))
    model.add(*(Reply(f"done {number}") for number in range(3)))
    for name, task in (("aaaa-1", "Look at it"), *((f"bbbb-{n}", "Count") for n in range(3))):
        assert cli.run("run", task, "--thread", name).code == 0

    def listed(*options: str) -> list[str]:
        lines = cli.run("threads", "--json", *options).stdout.splitlines()
        return [json.loads(line)["id"] for line in lines]

    for words in ("palimp", "版画", "ECOLE berlin", "look", "i loo"):
        assert listed("--search", words) == ["aaaa-1"], words
    assert listed("--search", "palimpsest nowhere") == []
    assert listed("--search", "done") == ["bbbb-2", "bbbb-1", "bbbb-0"]
    found = cli.run("threads", "--search", '"PALIMPSEST')
    assert "\n     the palimpsest is 木版画\n" in found.stdout
    assert cli.run("threads", "pin", "aaaa").code == 0
    assert cli.run("threads", "archive", "bbbb-0", "bbbb-1").code == 0
    assert listed() == ["aaaa-1", "bbbb-2"]
    assert listed("--all") == ["aaaa-1", "bbbb-2", "bbbb-1", "bbbb-0"]
    assert listed("--archived") == ["bbbb-1", "bbbb-0"]
    assert "[pinned] Look at it" in cli.run("threads").stdout
    assert cli.run("threads", "unpin", "aaaa-1").code == 0
    assert cli.run("threads", "unarchive", "bbbb-1").code == 0
    assert listed() == ["bbbb-2", "bbbb-1", "aaaa-1"]
    model.add(Reply("more"))
    assert cli.run("run", "Count on", "--thread", "bbbb-0").code == 0
    assert listed()[0] == "bbbb-0", "a thread that works again is not archived"
    unknown = cli.run("threads", "delete", "bbbb-0", "no-such-thread")
    assert unknown.code == 2
    assert listed()[0] == "bbbb-0", "none is deleted if one is unknown"
    assert cli.run("threads", "delete", "bbbb-0", "aaaa").code == 0
    assert listed("--all") == ["bbbb-2", "bbbb-1"]
    assert listed("--search", "palimpsest") == []


def test_a_shown_id_continues_its_thread_and_a_name_may_begin_like_another(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("one"), Reply("two"), Reply("three"), Reply("four"))
    assert cli.run("run", "say\none thing").code == 0
    (listed,) = cli.run("threads", "--json").stdout.splitlines()
    assert cli.run("run", "say more", "--thread", json.loads(listed)["id"][:8]).code == 0
    assert "one thing" in str(model.requests[-1].messages)
    assert cli.run("run", "write it", "--thread", "report-2").code == 0
    assert cli.run("run", "write another", "--thread", "report").code == 0
    assert "write it" not in str(model.requests[-1].messages)
    assert len(cli.run("threads", "--json").stdout.splitlines()) == 3
    with Terminal(cli, "threads", columns=40) as terminal:
        assert terminal.finish() == 0
        assert "now      say one" in terminal.screen
    with Terminal(cli, "usage", "--by", "model", columns=80) as terminal:
        assert terminal.finish() == 0
        assert "say one thing" in terminal.screen
        row = "\nwrite it               1     100%        100     40%          20  "
        assert row in terminal.screen


def test_the_list_loads_neither_graphs_nor_models(cli: Cli) -> None:
    program = (
        "import sys; from openmanus_graph.interfaces.cli.threads import list_threads;"
        "list_threads(); print([m for m in sys.modules"
        " if m.startswith(('langgraph', 'langchain_core', 'httpx', 'openai'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cli.cwd, env=cli.env, capture_output=True, check=True, timeout=BACKSTOP_S,
    )  # fmt: skip
    assert done.stdout.endswith(b"[]\n")


def test_what_a_server_noted_of_a_thread_is_deleted_with_it(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("done"))
    assert cli.run("run", "do it", "--thread", "t").code == 0
    journal = JournalTable(open_database(DatabaseUrl.in_folder(cli.home)))
    for thread in ("t", "other"):
        journal.write(thread, [(1, "{}")])
    assert cli.run("threads", "--delete", "t").code == 0
    assert [journal.last(thread) for thread in ("t", "other")] == [0, 1]


def test_long_outputs_are_cut_in_show_but_not_in_export(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "seq 1000"}),)), Reply("ok"))
    assert cli.run("run", "count", "--thread", "t").code == 0
    shown, exported = cli.run_all(["show", "t"], ["export", "t"])
    assert "\n1000\n" not in shown.stdout
    assert "more characters" in shown.stdout
    assert "\n1000\n" in exported.stdout


def test_nothing_yet_is_no_error(bare_cli: Cli) -> None:
    assert bare_cli.run("threads", "--json").stdout == ""
    assert bare_cli.run("threads").code == 0
    none = bare_cli.run("show", "x")
    assert none.code == 2
    assert "none yet" in none.stderr


def test_head_of_show_is_quiet(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("line\n" * 100_000, piece_size=100_000))
    assert cli.run("run", "long", "--thread", "t").code == 0
    done = subprocess.run(
        ["bash", "-c", f"{OPENMANUS} show t | head -1"],
        cwd=cli.cwd, env=cli.env, capture_output=True, check=False, timeout=BACKSTOP_S,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"# Thread t\n", b"")


@pytest.mark.parametrize("name", ["openmanus.db", "checkpoints.db"])
def test_a_damaged_database_is_exit_1_and_named(cli: Cli, model: OpenAIServer, name: str) -> None:
    model.add(Reply("one"), Reply("two"))
    assert cli.run("run", "x", "--thread", "t").code == 0
    for path in cli.home.glob(f"{name}*"):
        path.unlink()
    (cli.home / name).write_bytes(b"this is not a database, " * 1000)
    for done in cli.run_all(["run", "x"], ["resume", "t"], ["show", "t"]):
        assert (done.code, done.stdout) == (1, "")
        assert "damaged" in done.stderr
        assert str(cli.home) in done.stderr
    assert (cli.home / name).read_bytes().startswith(b"this is not a database")
    assert len(model.requests) == 1


@pytest.mark.parametrize("home", ["/proc/home", "plain/home"])
def test_a_home_that_cannot_be_written_is_exit_2(cli: Cli, model: OpenAIServer, home: str) -> None:
    cli.write("plain", "a file")
    model.add(Reply("never"))
    cli.env["OPENMANUS_HOME"] = home
    for done in cli.run_all(["run", "x"], ["threads"]):
        assert (done.code, done.stdout) == (2, "")
        assert "OPENMANUS_HOME" in done.stderr
        assert Path(home).name in done.stderr
    assert model.requests == []
