"""A thread's files go from machine to machine; here a machine is a home folder and a workspace."""

import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from openmanus_graph import Context
from openmanus_graph.backends.persistence.backend import LeaseLostError
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.backends.snapshots import remote_objects, take, thread_snapshots
from openmanus_graph.backends.snapshots.objects import NewObjects
from openmanus_graph.backends.snapshots.remote_objects import FilesUnavailableError, RemoteObjects
from openmanus_graph.backends.snapshots.shared_files import (
    ThreadFiles,
    find_location,
    home_id,
    put_files_back,
    take_up_files,
)
from openmanus_graph.backends.snapshots.thread_snapshots import ThreadSnapshots
from openmanus_graph.config.resolve import private_folder, resolve_settings
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.interfaces.service.threads import forget_thread
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.addresses import DatabaseUrl, WorkspaceUrl
from openmanus_graph.state.settings import Settings
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.postgres import Postgres

pytestmark = pytest.mark.slow


class Machine:
    """One of several with the same database and store."""

    def __init__(self, place: Path, name: str, database: DatabaseUrl) -> None:
        home, root = place / name / "home", place / name / "work"
        found = resolve_settings(Context(workspace=str(root)), "t", without_model=True)
        url = WorkspaceUrl.parse(str(place / "shared"))
        self.settings: Settings = dataclasses.replace(
            found,
            home=home,
            database=database,
            private=private_folder(home, root, "t"),
            storage=dataclasses.replace(found.storage, workspace_url=url),
        )
        self.workspace = Workspace.of(self.settings)
        self.workspace.prepare()
        self.files = ThreadFiles("t", self.settings)

    def take_up(self) -> list[str]:
        """Begin a run, in a process of its own."""
        self.files = ThreadFiles("t", self.settings)
        return self.files.take_up()

    def put(self, **texts: str) -> None:
        """Do what a tool does that writes files."""
        self.write(**texts)
        self.files.put_back()

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.workspace.root / name).write_text(text)

    def has(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.workspace.root.iterdir()}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    database = DatabaseUrl.of_file(tmp_path / "threads.db")
    yield Machine(tmp_path, "a", database), Machine(tmp_path, "b", database)
    close_databases()


def objects_in(place: Path) -> list[Path]:
    return sorted(path for path in (place / "shared").rglob("*") if path.is_file())


def test_only_what_changed_is_put(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = machines
    first.take_up()
    first.put(a="1" * 3_000_000, b="2")
    before = {path: path.stat().st_mtime_ns for path in objects_in(tmp_path)}
    first.put(b="3")
    after = {path: path.stat().st_mtime_ns for path in objects_in(tmp_path)}
    assert after.items() >= before.items(), "none is written again"
    assert len(after) == len(before) + 2, "the file, and the folder that lists it"
    (reported,) = second.take_up()
    assert reported.startswith("The thread's files, last used on "), "nothing was turned back"
    assert second.has() == {"a": "1" * 3_000_000, "b": "3"}


def test_what_a_person_added_stays_and_what_a_person_changed_is_put_aside(
    machines: tuple[Machine, Machine],
) -> None:
    first, second = machines
    first.take_up()
    first.put(a="1", b="1", c="1", d="1")
    second.take_up()
    (second.workspace.root / "c").unlink()
    (second.workspace.root / "d").unlink()
    second.put(a="2", b="2")
    first.write(a="mine", d="mine", new="mine")
    reported = first.take_up()
    assert first.has() == {"a": "2", "b": "2", "d": "mine", "new": "mine"}
    (aside,) = (first.settings.home / "aside").iterdir()
    assert [path.name for path in aside.iterdir()] == ["a"]
    assert any(str(aside) in text for text in reported)


def test_a_fetch_that_was_cut_off_leaves_nothing_to_the_next(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machines
    first.take_up()
    first.put(a="1", b="1")
    whole, reads = RemoteObjects.read, iter(range(3))  # the tree, twice, and one file

    def cut_off(store: RemoteObjects, digest: str) -> bytes:
        if next(reads, None) is None:
            raise KeyboardInterrupt
        return whole(store, digest)

    with monkeypatch.context() as patched:
        patched.setattr(RemoteObjects, "read", cut_off)
        with pytest.raises(KeyboardInterrupt):
            second.take_up()
    assert second.has() == {"a": "1"}
    (first.workspace.root / "a").unlink()
    first.put(b="2")
    second.take_up()
    assert second.has() == {"b": "2"}


def test_damage_in_the_store_is_told(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = machines
    first.take_up()
    first.put(a="1", b="2")
    damaged = next(path for path in objects_in(tmp_path) if path.read_bytes() == b"1")
    damaged.write_bytes(b"other")
    assert any("Not restored: a" in text for text in second.take_up())
    assert second.has() == {"b": "2"}
    shutil.rmtree(tmp_path / "shared")
    with pytest.raises(StorageError, match="gone from file://.* Resume it on the machine"):
        first.take_up()


def test_an_older_copy_is_never_taken_for_the_newest(machines: tuple[Machine, Machine]) -> None:
    first, second = machines
    first.take_up()
    first.put(a="1")
    second.take_up()
    second.put(a="2")
    shutil.rmtree(second.workspace.root)
    second.workspace.prepare()
    second.take_up()
    assert second.has() == {"a": "2"}, "a folder that was lost is fetched again"
    first.take_up()
    assert first.has() == {"a": "2"}


def test_an_object_that_was_half_written_does_not_count(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    first, second = machines
    first.take_up()
    whole = cast("Any", LocalFileSystem).pipe_file  # fsspec has no types

    def half(self: LocalFileSystem, path: str, data: bytes) -> None:
        whole(self, path, data[:1])
        raise OSError("power failure")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "pipe_file", half)
        with pytest.raises(FilesUnavailableError, match="power failure"):
            first.put(a="whole")
    with pytest.raises(ConfigError, match="could not be put into"):
        second.take_up()
    first.take_up()
    second.take_up()
    assert second.has() == {"a": "whole"}


def test_a_file_that_changes_while_it_is_put_is_named_and_put_again(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machines
    first.take_up()
    first.write(log="1")
    whole = take.add_file

    def growing(file: BinaryIO, size: int, new: NewObjects) -> str:
        with (first.workspace.root / "log").open("a") as log:
            log.write("2")
        return whole(file, size, new)

    with monkeypatch.context() as patched:
        patched.setattr(take, "add_file", growing)
        assert any("Part of log may be" in text for text in first.files.put_back())
    first.files.put_back()
    second.take_up()
    assert second.has() == first.has()


def test_what_vanishes_from_the_store_while_it_is_fetched_is_named(
    machines: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machines
    first.take_up()
    first.put(a="1", b="2")
    whole = RemoteObjects.read

    def vanishing(store: RemoteObjects, digest: str) -> bytes:
        data = whole(store, digest)
        if data == b"1":  # a comes before b
            next(path for path in objects_in(tmp_path) if path.read_bytes() == b"2").unlink()
        return data

    with monkeypatch.context() as patched:
        patched.setattr(RemoteObjects, "read", vanishing)
        assert any("Not restored: b" in text for text in second.take_up())
    assert second.has() == {"a": "1"}


async def test_a_long_way_there_or_back_is_shown_while_it_lasts(
    machines: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machines
    monkeypatch.setattr(take, "FIRST_PROGRESS_S", 0.01)
    noticed, texts = threading.Event(), list[str]()
    reads, writes = RemoteObjects.read, RemoteObjects.write

    def emit(event: dict[str, Any]) -> None:
        texts.append(event["text"])
        noticed.set()

    def slow_read(store: RemoteObjects, digest: str) -> bytes:
        data = reads(store, digest)
        assert noticed.wait(BACKSTOP_S), "nothing was shown"
        return data

    def slow_write(store: RemoteObjects, objects: Mapping[str, bytes]) -> None:
        writes(store, objects)
        assert noticed.wait(BACKSTOP_S), "nothing was shown"

    sessions = [Session("t", one.settings) for one in machines]
    for session in sessions:
        session.checkpointed = True
    first.write(large="x" * (3 << 20))
    monkeypatch.setattr(RemoteObjects, "write", slow_write)
    await take_up_files(sessions[0], emit)
    await put_files_back(sessions[0], emit)
    place = f"file://{tmp_path}/shared"
    assert re.fullmatch(
        rf"The thread's files go to {place}: [1-3] MB in \d objects so far\.", texts[0]
    )
    monkeypatch.setattr(RemoteObjects, "read", slow_read)
    noticed.clear()
    texts.clear()
    await take_up_files(sessions[1], emit)
    assert texts[0].startswith(f"The thread's files come from {place}: 0 of at most ")
    assert second.has() == first.has()


def test_a_worker_that_lost_the_thread_changes_no_shared_file(
    postgres: Postgres, tmp_path: Path
) -> None:
    from openmanus_graph.backends.persistence.leases import give_back_lease, take_lease

    address = postgres.database()
    urls = [DatabaseUrl.parse(address), DatabaseUrl.parse(f"{address}&application_name=other")]
    machines = [Machine(tmp_path, name, url) for name, url in zip("ab", urls, strict=True)]
    databases = [open_database(url) for url in urls]
    first, second = machines
    take_lease(databases[0], "t", 1000.0, "run")
    first.take_up()
    first.put(a="1")
    databases[0].run("UPDATE leases SET expires = clock_timestamp() - interval '1 second'")
    take_lease(databases[1], "t", 1000.0, "run")
    second.take_up()
    before = {path: path.read_bytes() for path in objects_in(tmp_path)}
    place = find_location(databases[1], "t")
    with pytest.raises(LeaseLostError):
        first.put(a="late")
    assert find_location(databases[1], "t") == place
    assert {path: path.read_bytes() for path in before} == before
    second.take_up()
    assert second.has() == {"a": "1"}
    give_back_lease(databases[0], "t", "run")
    give_back_lease(databases[1], "t", "run")
    close_databases()


PAUSED_WRITER = """
import signal, sys, threading
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.leases import take_lease
from openmanus_graph.state.addresses import DatabaseUrl
from tests.unit.test_shared_files import Machine

place, address, moment, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
whole = getattr(LocalFileSystem, moment)

def paused(*args, **options):
    global count
    done = whole(*args, **options)
    count -= 1
    if count == 0:
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    return done

url = DatabaseUrl.parse(address)
take_lease(open_database(url), "t", 1.0, "run")
first = Machine(place, "a", url)
first.take_up()
first.write(**{f"a{number}": f"{number}" for number in range(20)})
setattr(LocalFileSystem, moment, paused)
first.files.put_back()
"""


@pytest.mark.parametrize(("moment", "count"), [("pipe_file", 1), ("pipe_file", 7), ("mv", 7)])
def test_a_worker_that_is_paused_within_a_long_write_adds_nothing_when_it_has_lost_the_thread(
    postgres: Postgres, tmp_path: Path, moment: str, count: int
) -> None:
    from openmanus_graph.backends.persistence.leases import give_back_lease, holder_of, take_lease

    address = postgres.database()
    argv = [sys.executable, "-c", PAUSED_WRITER, str(tmp_path), address, moment, str(count)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as writer:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it has ended before"
        url = DatabaseUrl.parse(f"{address}&application_name=other")
        database = open_database(url)
        until(lambda: database.run("SELECT expires < clock_timestamp() FROM leases") == [(True,)])
        take_lease(database, "t", 1000.0, "run")
        second = Machine(tmp_path, "b", url)
        second.take_up()
        second.put(b="theirs")
        before = {path for path in objects_in(tmp_path) if "." not in path.name}
        writer.send_signal(signal.SIGCONT)
        _, said = writer.communicate()
    assert b"LeaseLostError" in said, said
    assert set(objects_in(tmp_path)) == before
    assert holder_of(database, "t") is not None
    give_back_lease(database, "t", "run")
    close_databases()


def test_who_lost_the_thread_deletes_nothing(
    machines: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(database: DatabaseUrl, thread: str) -> None:
        raise LeaseLostError(thread)

    machines[0].put(a="1")
    before = objects_in(tmp_path)
    monkeypatch.setattr(remote_objects, "require_lease", lost)
    url = WorkspaceUrl.parse(str(tmp_path / "shared"))
    with pytest.raises(LeaseLostError):
        RemoteObjects(url, "t", machines[0].settings.database).forget()
    assert objects_in(tmp_path) == before


def test_an_s3_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_objects, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(remote_objects, "ATTEMPTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }.items():
            monkeypatch.setenv(name, value)
        store = RemoteObjects(
            WorkspaceUrl.parse("s3://bucket/folder"), "t", DatabaseUrl.of_file(Path("threads.db"))
        )
        with pytest.raises(FilesUnavailableError, match="folder cannot be read: .*[Tt]ime"):
            store.read("00")


def test_a_home_keeps_its_name(tmp_path: Path) -> None:
    assert home_id(tmp_path / "a") == home_id(tmp_path / "a") != home_id(tmp_path / "b")


@pytest.mark.parametrize(
    ("given", "read"),
    [("/shared/x/", "file:///shared/x"), ("s3://b/x/", "s3://b/x"), ("file:///x", "file:///x")],
)
def test_addresses(given: str, read: str) -> None:
    assert str(WorkspaceUrl.parse(given)) == read


def test_what_another_machine_deleted_is_forgotten_here(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.database()
    here, elsewhere = DatabaseUrl.parse(address), DatabaseUrl.parse(postgres.database())
    home = tmp_path / "home"
    monkeypatch.setattr(thread_snapshots, "FORGET_EVERY_S", 0.0)

    def run(thread: str, url: DatabaseUrl, *, listed: bool = True) -> ThreadSnapshots:
        """Do what a run does that takes a snapshot, on this machine."""
        if listed:
            Threads(open_database(url)).begin(thread, "manus", "task", {}, None)
        found = Machine(tmp_path, "a", url).settings
        private = home / "threads" / thread
        settings = dataclasses.replace(found, home=home, private=private)
        session = Session(thread, settings)
        session.workspace.prepare()
        (session.workspace.root / "f").write_text(thread)
        snapshots = thread_snapshots.snapshots_of(session)
        snapshots.take(session.workspace, settings.storage)
        return snapshots

    for kept in ("kept", "deleted"):
        run(kept, here)
    run("elsewhere", elsewhere)
    run("an app's", here, listed=False)
    with monkeypatch.context() as other:
        other.setenv("OPENMANUS_HOME", str(tmp_path / "other"))
        other.setenv(DATABASE_VARIABLE, address)
        forget_thread("deleted")
    find = run("next", here).store._run  # pyright: ignore[reportPrivateUsage]
    left = {row[0] for row in find("SELECT thread FROM snapshots")}
    assert left == {"kept", "elsewhere", "an app's", "next"}
    assert not (home / "threads" / "deleted").exists()
    assert (home / "threads" / "kept").exists()
    close_databases()
