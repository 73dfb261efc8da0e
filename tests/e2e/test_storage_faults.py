"""Full disks, damaged and locked databases: one clear line, and nothing lost."""

import contextlib
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from langgraph.checkpoint.base.id import uuid6

from tests.support.cli import Cli, Result, Running, until
from tests.support.disk import Disk, small_disk
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

WORK = "echo begun >> log; touch begun; until [ -e go ]; do sleep 0.02; done; echo over >> log"
FILES = ("openmanus.db", "checkpoints.db")


@pytest.fixture
def disk(cli: Cli) -> Iterator[Disk]:
    """The home folder's disk, which is small."""
    with small_disk(cli.home) as made:
        yield made


def working(body: dict[str, Any]) -> Reply:
    """Answer by what the conversation holds: call once, look if that is in doubt, answer."""
    results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    if not results:
        return Reply(calls=(Call("bash", {"command": WORK}),))
    if "in part" in results[-1]:
        return Reply(calls=(Call("bash", {"command": "cat log"}),))
    return Reply("Finished.")


def reported_in_one_line(done: Result, *words: str) -> None:
    """Check that a command failed with one line that holds some words."""
    assert done.code == 1, done.stderr
    if done.stdout:
        assert (done.final["status"], done.final["stop_reason"]) == ("failed", "error")
        assert done.stderr == ""
        line = done.final["answer"]
    else:
        line = done.stderr.strip().splitlines()[-1]
        assert line.startswith("openmanus: ")
    assert "\n" not in line
    for word in words:
        assert word in line


def resume(cli: Cli, model: OpenAIServer) -> Result:
    """Go on with the thread; its work must have been done exactly once, and be known."""
    (cli.workspace / "go").touch()
    done = cli.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "Finished."), done.stderr
    assert (cli.workspace / "log").read_text() == "begun\nover\n"
    return done


def start(cli: Cli) -> Running:
    return cli.start("run", "go", "--thread", "t", "--workspace", "files")


def of(running: Running) -> psutil.Process:
    return psutil.Process(running.process.pid)


def test_a_disk_full_at_the_start_is_said(cli: Cli, model: OpenAIServer, disk: Disk) -> None:
    model.add(*[working] * 5)
    disk.fill()
    command = ("run", "go", "--thread", "t", "--workspace", "files", "--json")
    reported_in_one_line(cli.run(*command, wrapper=disk.wrapper), str(cli.home))
    assert model.requests == []
    disk.free()
    (cli.workspace).mkdir(exist_ok=True)
    (cli.workspace / "go").touch()
    assert cli.run(*command).final["answer"] == "Finished."


def test_a_disk_full_when_the_reply_is_saved(cli: Cli, model: OpenAIServer, disk: Disk) -> None:
    started: list[Running] = []

    def fill_first(body: dict[str, Any]) -> Reply:
        disk.fill(of(started[0]))
        return working(body)

    model.add(fill_first, *[working] * 5)
    started.append(start(cli))
    reported_in_one_line(started[0].finish())
    assert not (cli.workspace / "log").exists(), "what cannot be written down is not run"
    disk.free()
    resume(cli, model)


def test_a_disk_full_when_the_result_is_saved(cli: Cli, model: OpenAIServer, disk: Disk) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    disk.fill(of(running))
    (cli.workspace / "go").touch()
    reported_in_one_line(running.finish())
    assert (cli.workspace / "log").read_text() == "begun\nover\n"
    disk.free()
    resume(cli, model)


@pytest.mark.parametrize(
    ("name", "moment"),
    sampled(list(itertools.product(FILES, ("reply", "result"))), 2, "full", rows=True),
)
def test_one_full_database_repeats_nothing(
    cli: Cli, model: OpenAIServer, tmp_path: Path, name: str, moment: str
) -> None:
    started: list[Running] = []
    with small_disk(tmp_path / "small") as disk:
        cli.home.mkdir()
        (cli.home / name).symlink_to(disk.folder / name)

        def reply(body: dict[str, Any]) -> Reply:
            if moment == "reply" and len(model.requests) == 1:
                disk.fill(of(started[0]))
            return working(body)

        model.add(*[reply] * 6)
        started.append(start(cli))
        if moment == "result":
            until((cli.workspace / "begun").exists)
            disk.fill(of(started[0]))
            (cli.workspace / "go").touch()
        reported_in_one_line(started[0].finish())
        assert (cli.workspace / "log").exists() == (moment == "result")
        disk.free()
        resume(cli, model)


def test_output_is_not_lost_with_the_workspaces_disk(cli: Cli, model: OpenAIServer) -> None:
    long = "print('head' + 'x' * 100_000 + 'tail')"
    edit = {"command": "str_replace", "path": "kept.txt", "old_str": "o", "new_str": "n" * 9000}
    started: list[Running] = []
    with small_disk(cli.workspace) as disk:
        cli.write("files/kept.txt", "old")

        def fill_first(body: dict[str, Any]) -> Reply:
            disk.fill(of(started[0]))
            tools = Call("python_execute", {"code": long}), Call("bash", {"command": "seq 50000"})
            return Reply(calls=(*tools, Call("str_replace_editor", edit)))

        warm = Call("python_execute", {"code": "1"}), Call("bash", {"command": "true"})
        model.add(Reply(calls=warm), fill_first, Reply("Done."))
        started.append(start(cli))
        done = started[0].finish()
        if not disk.mounted:  # then the home is as full, and the ledger has the word
            reported_in_one_line(done)
            return
        said = {event["tool"]: event["output"] for event in done.of("tool_end")}
        assert said["python_execute"].startswith("headxxx")
        assert said["python_execute"].endswith("xxxtail")
        # What the tools keep lies on another disk, the home's.
        assert "left out; the whole is in " in said["python_execute"]
        assert said["bash"].rstrip().endswith("50000")
        assert "no file was changed" in said["str_replace_editor"]
        assert (cli.workspace / "kept.txt").read_text() == "old"
        assert list(cli.workspace.rglob("*.part")) == []
        assert done.final["answer"] == "Done."


def damaged(whole: bytes) -> list[bytes]:
    """Return what may become of a file: cut off, overwritten at its head, emptied."""
    half = len(whole) // 2 // 4096 * 4096
    return [whole[:half], b"garbage!" * 512 + whole[4096:], whole[:4096] + bytes(len(whole) - 4096)]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_database_is_named_and_left_alone(
    cli: Cli, model: OpenAIServer, name: str
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "seq 1 2000"}),)), Reply("Done."))
    assert cli.run("run", "go", "--thread", "t").code == 0
    path = cli.home / name
    whole = path.read_bytes()
    for spoilt in damaged(whole):
        path.write_bytes(spoilt)
        reported_in_one_line(cli.run("resume", "t"), str(cli.home), "damaged")
        assert path.read_bytes() == spoilt
    path.write_bytes(whole)
    assert cli.run("show", "t").code == 0


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a database as another program."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


@pytest.mark.parametrize("name", FILES)
def test_a_database_locked_for_a_moment_is_waited_for(
    cli: Cli, model: OpenAIServer, name: str
) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    with locked(cli.home / name):
        (cli.workspace / "go").touch()
        until(lambda: "over" in (cli.workspace / "log").read_text())
    assert running.finish().final["answer"] == "Finished."


@pytest.mark.parametrize("name", FILES)
def test_a_database_locked_for_ever_ends_the_run_with_a_reason(
    cli: Cli, model: OpenAIServer, name: str
) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    with locked(cli.home / name):
        (cli.workspace / "go").touch()
        reported_in_one_line(running.finish(), "Another program holds the database")
    resume(cli, model)


def test_a_home_that_vanishes_ends_the_run(cli: Cli, model: OpenAIServer) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    shutil.move(cli.home, cli.root / "elsewhere")
    (cli.workspace / "go").touch()
    reported_in_one_line(running.finish(), "gone")
    shutil.move(cli.root / "elsewhere", cli.home)
    resume(cli, model)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("real_start")  # the clock jumps from the interpreter's start
def test_a_clock_that_jumps_ends_nothing_and_hides_nothing(cli: Cli, model: OpenAIServer) -> None:
    folder = str(Path(__file__).parent.parent / "support" / "jumping_clock")
    step = [Reply(calls=(Call("bash", {"command": f"echo {n} >> log"}),)) for n in range(6)]
    stopped = Reply("Two more are done.")
    model.add(*step[:2], stopped, *step[2:4], stopped, *step[4:], stopped, Reply("Finished."))
    command = ["run", "go", "--thread", "t", "--workspace", "files", "--timeout", "1000"]
    for jumps, steps in (("0,5,-5,100", 2), ("200", 4), ("-100", 6)):
        clock = {"PYTHONPATH": folder, "CLOCK_JUMPS_H": jumps}
        done = cli.run(*command, "--max-steps", str(steps), "--json", env=clock)
        assert (done.code, done.final["stop_reason"]) == (3, "max_steps"), done.stderr
        command = ["resume", "t"]
    with contextlib.closing(sqlite3.connect(cli.home / "checkpoints.db")) as database:
        ((newest,),) = database.execute("SELECT max(checkpoint_id) FROM checkpoints").fetchall()
    assert newest > str(uuid6()), "the clock did jump"
    done = cli.run("resume", "t", "--max-steps", "9", "--json")
    assert (done.code, done.final["answer"]) == (0, "Finished.")
    assert (cli.workspace / "log").read_text().split() == list("012345")
    assert [m["role"] for m in model.requests[-1].messages].count("tool") == 6


def test_on_a_terminal_a_fault_is_said_once_with_the_command_that_goes_on(
    cli: Cli, model: OpenAIServer
) -> None:
    def remove_home(body: dict[str, Any]) -> Reply:
        shutil.move(cli.home, cli.root / "elsewhere")
        return working(body)

    model.add(remove_home)
    done = cli.run("run", "go", "--thread", "t", "--workspace", "files")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.count("cannot be used") == 1
    assert "Continue with: openmanus resume t" in done.stderr


def alter(path: Path, statement: str) -> None:
    """Damage a row as a bad disk may, but by a statement."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)


@pytest.mark.parametrize(
    ("damage", "shown"),
    sampled(
        [
            ("options = '{\"a'", True),
            ("task = CAST(x'676fff' AS TEXT)", True),
            ("agent = CAST(x'6d616eff' AS TEXT)", False),
            ("status = x'00'", True),
        ],
        2,
        "rows",
        rows=True,
    ),
)
def test_a_damaged_row_costs_that_thread_only(
    cli: Cli, model: OpenAIServer, damage: str, shown: bool
) -> None:
    model.add(*[Reply("The answer.")] * 4)
    for name in ("hit", "sound"):
        assert cli.run("run", "go", "--thread", name, "--workspace", "files").code == 0
    alter(cli.home / "openmanus.db", f"UPDATE threads SET {damage} WHERE id = 'hit'")
    listed = cli.run("threads", "--json")
    statuses = {one["id"]: one["status"] for one in map(json.loads, listed.stdout.splitlines())}
    assert (listed.code, statuses) == (0, {"hit": "damaged", "sound": "finished"})
    assert "damaged" in cli.run("threads").stdout
    assert "The answer." in cli.run("show", "sound").stdout
    if shown:
        assert "The answer." in cli.run("show", "hit").stdout
    else:
        reported_in_one_line(cli.run("show", "hit"), "thread hit", "damaged", "openmanus run")
    for command in (("resume", "hit"), ("fork", "hit"), ("run", "go", "--thread", "hit")):
        reported_in_one_line(cli.run(*command), "thread hit", "damaged", "openmanus run")
    again = ("run", "go", "--thread", "hit", "--agent", "manus", "--workspace", "files")
    assert cli.run(*again).code == 0, "as the sentence says"
    assert len(model.requests[-1].messages) > len(model.requests[0].messages)
    assert '"damaged"' not in cli.run("threads", "--json").stdout


@pytest.mark.parametrize(
    ("intact", "spoilt"),
    sampled(
        [
            (b"CREATE TABLE threads", b"CREATE TABLE thr\xffads"),
            (b"CREATE TABLE threads", b"CREATE TRBLE threads"),
            (b"status TEXT NOT NULL", b"stbtus TEXT NOT NULL"),
            (b"updated TEXT NOT NULL", b"upd\xfeted TEXT NOT NULL"),
        ],
        2,
        "schemas",
        rows=True,
    ),
)
def test_a_damaged_schema_is_a_damaged_database(
    cli: Cli, model: OpenAIServer, intact: bytes, spoilt: bytes
) -> None:
    model.add(Reply("Done."))
    assert cli.run("run", "go", "--thread", "t").code == 0
    path = cli.home / "openmanus.db"
    whole = path.read_bytes()
    assert intact in whole
    path.write_bytes(whole.replace(intact, spoilt))
    for command in (("threads",), ("show", "t"), ("resume", "t")):
        reported_in_one_line(cli.run(*command), str(cli.home), "is damaged", ".recover")


def test_an_outcome_with_a_flipped_byte_is_looked_at_again(cli: Cli, model: OpenAIServer) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    with locked(cli.home / "checkpoints.db"):  # so that only the ledger has the outcome
        (cli.workspace / "go").touch()
        reported_in_one_line(running.finish(), "Another program holds the database")
    alter(cli.home / "openmanus.db", "UPDATE ledger SET outcome = replace(outcome, 'text', 'tezt')")
    resume(cli, model)
    assert "in part" in "".join(str(one.messages) for one in model.requests)


WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def read_only(cli: Cli, way: str) -> Sequence[str]:
    """Return what a command is started with so that it cannot write the home folder."""
    if way == "mount":
        home = str(cli.home)
        return ("bwrap", "--dev-bind", "/", "/", "--ro-bind", home, home)
    for path in (cli.home, *cli.home.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    return WITHOUT_RIGHTS if os.geteuid() == 0 else ()


@pytest.mark.parametrize(
    ("way", "before"),
    sampled(list(itertools.product(("mount", "mode"), ("ended", "killed"))), 1, "home", rows=True),
)
def test_a_home_that_cannot_be_written_can_be_read(
    cli: Cli, model: OpenAIServer, way: str, before: str
) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    if before == "killed":
        running.process.kill()
        running.process.wait()
    else:
        (cli.workspace / "go").touch()
        assert running.finish().code == 0
    wrapper = read_only(cli, way)
    listed = cli.run("threads", "--json", wrapper=wrapper)
    status = "interrupted" if before == "killed" else "finished"
    assert (listed.code, json.loads(listed.stdout)["status"]) == (0, status), listed.stderr
    for command in (("show", "t"), ("export", "t")):
        done = cli.run(*command, wrapper=wrapper)
        assert done.code == 0, done.stderr
        assert "echo begun" in done.stdout
    reported_in_one_line(cli.run("tell", "t", "Hello.", wrapper=wrapper), "can be written")


def test_a_home_that_cannot_be_written_shows_who_is_at_work(cli: Cli, model: OpenAIServer) -> None:
    model.add(*[working] * 5)
    running = start(cli)
    until((cli.workspace / "begun").exists)
    listed = cli.run("threads", "--json", wrapper=read_only(cli, "mount"))
    assert (listed.code, json.loads(listed.stdout)["status"]) == (0, "running"), listed.stderr
    (cli.workspace / "go").touch()
    assert running.finish().code == 0
