"""Old threads are deleted with all that is kept of them, and nothing else is."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import fork, open_checkpointer, points_of
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.backends.persistence.recording import ModelCallRecords, NewCall
from openmanus_graph.backends.persistence.threads import TABLES_OF_THREAD, Threads
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import retention
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.retention import Storage
from openmanus_graph.interfaces.service.threads import hold_thread
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.setting_declaration import seconds, times_by_state
from tests.support.graphs import calls, scripted

pytestmark = pytest.mark.slow

MONTH = times_by_state("30d")


class Home:
    """A database with threads that ran some days ago."""

    def __init__(self, url: DatabaseUrl) -> None:
        self.url, self.database = url, open_database(url)
        self.threads = Threads(self.database)

    def run(self, thread: str, text: str = "", *, days: int = 40, **context: Any) -> None:
        """Run a thread that writes a file, and let it be old."""
        asyncio.run(self._run(thread, text or thread, context))
        workspace = str(Path(context.get("workspace", f"workspace/{thread}")).absolute())
        self.threads.begin(thread, "manus", "write", {"workspace": workspace}, HumanMessage("w"))
        self.mark(thread, "finished", days)

    async def _run(self, thread: str, text: str, context: dict[str, Any]) -> None:
        command = f"echo {text} > made.txt"
        model = scripted(calls(("bash", {"command": command}), prefix=thread), "done")
        async with open_checkpointer(self.url) as saver:
            await build_manus_graph(checkpointer=saver).ainvoke(
                {"messages": [HumanMessage("write")]},
                {"configurable": {"thread_id": thread}},
                context=Context(model=model, **context),
            )

    def mark(self, thread: str, status: str, days: int) -> None:
        self.threads.end(thread, status)
        time = (
            "datetime('now', ?)"
            if self.url.is_local
            else "CURRENT_TIMESTAMP + CAST(? AS text)::interval"
        )
        self.database.run(
            f"UPDATE threads SET updated = {time} WHERE id = ?", (f"-{days} days", thread)
        )

    def prune(self, **options: Any) -> list[str]:
        with contextlib.closing(Storage()) as storage:
            return list(storage.prune(options.pop("keep", MONTH), **options)[0])

    def rows(self, thread: str) -> int:
        """Count what is stored of a thread: rows, checkpoints, names of snapshots, folders."""
        tables = [(name, "thread") for name in TABLES_OF_THREAD]
        counts = [
            self.database.run(f"SELECT count(*) FROM {name} WHERE {column} = ?", (thread,))
            for name, column in (*tables, ("threads", "id"))
        ]
        with contextlib.closing(Storage()) as storage:
            saver = storage._saver  # pyright: ignore[reportPrivateUsage]
            counts += [
                saver.database.run(f"SELECT count(*) FROM {name} WHERE thread_id = ?", (thread,))
                for name in saver.columns
            ]
        snapshots = SnapshotStore(openmanus_home())
        named = snapshots._run("SELECT count(*) FROM snapshots WHERE thread = ?", (thread,))  # pyright: ignore[reportPrivateUsage]
        folders = list(openmanus_home().glob(f"threads/{thread}"))
        return sum(int(rows[0][0]) for rows in (*counts, named)) + len(folders)


@pytest.fixture
def home(each_database: DatabaseUrl) -> Home:
    return Home(each_database)


@pytest.fixture
def local(_own_place: None) -> Iterator[Home]:
    yield Home(DatabaseUrl.in_folder(openmanus_home()))
    close_databases()


def test_of_an_old_thread_nothing_stays_and_a_new_one_is_whole(home: Home) -> None:
    home.run("old")
    home.run("new", days=20)
    for thread in ("old", "new"):
        JournalTable(home.database).write(thread, [(1, '{"type": "notice"}')])
        asyncio.run(_record(home, thread))
        home.database.run("INSERT INTO shares (digest, thread) VALUES (?, ?)", (thread, thread))
        home.database.run("INSERT INTO owners (thread, owner) VALUES (?, 'ann')", (thread,))
    before = home.rows("new")
    assert home.rows("old") == before
    with contextlib.closing(Storage()) as storage:
        would = storage.expired(MONTH)
        used = storage.used(["old"])
        assert storage.prune(MONTH)[0] == would[0] == ["old"]
    for kind in ("checkpoints", "events", "recordings", "ledger", "threads", "private folders"):
        assert used[kind]["old"] > 0, kind
    assert used["workspaces"]["old"] == len("old\n")
    assert would[1] == sum(one.total() for one in used.values())
    assert (home.rows("old"), home.rows("new")) == (0, before)
    assert (Path("workspace/old").exists(), Path("workspace/new/made.txt").read_text()) == (
        False,
        "new\n",
    )


async def _record(home: Home, thread: str) -> None:
    records = ModelCallRecords(home.database)
    records.add(thread, NewCall("think", None, 0, [{"name": "m"}], {}), lambda _: None)
    await records.add_fact(thread, "folders", {})


@pytest.mark.parametrize("status", ["waiting", "finished", "running", "damaged"])
def test_what_waits_is_pinned_works_or_is_damaged_stays(home: Home, status: str) -> None:
    home.run("t")
    home.mark("t", status if status in ("waiting", "running") else "finished", 40)
    if status == "finished":
        home.database.run("UPDATE threads SET pinned = 1")
    elif status == "running":
        asyncio.run(_ask(home))
    elif status == "damaged":
        if not home.url.is_local:
            return  # its times cannot be damaged
        home.database.run("UPDATE threads SET updated = ''")
    before = home.rows("t")
    assert home.prune(keep=times_by_state("0m")) == []
    assert home.rows("t") == before


async def _ask(home: Home) -> None:
    """Ask about a call, as of a run that lost its process then."""
    ledger, key = Ledger(home.database), EffectKey("t", "b", "pay", "{}", 0)
    await ledger.begin(key, {}, "c")
    await ledger.wait(key, {})


def test_a_thread_that_a_run_works_on_stays(home: Home) -> None:
    home.run("t")
    with hold_thread(openmanus_home(), "t"):
        if home.url.is_local:  # in PostgreSQL this very process could share its own lease
            assert home.prune() == []
    assert home.prune() == ["t"]


def test_a_thread_whose_run_waits_to_start_stays(home: Home) -> None:
    home.run("t")
    home.threads.touch("t")
    assert home.prune() == []


def test_a_thread_that_is_used_while_others_are_pruned_stays(home: Home) -> None:
    home.run("t")

    def use() -> bool:
        home.threads.touch("t")
        return False

    assert home.prune(halted=use) == []
    assert home.threads.find("t") is not None


def test_how_a_run_ended_says_how_long_it_is_kept(home: Home) -> None:
    for number, status in enumerate(("finished", "failed", "stopped", "cancelled", "running")):
        home.threads.begin(status, "manus", "t", {}, None)
        home.mark(status, status, 10 + number)
    keep = times_by_state({"failed": "10d", "cancelled": "30d", "interrupted": "13d"})
    assert home.prune(keep=keep) == ["failed", "running"]
    assert home.prune(keep=times_by_state("300h")) == ["cancelled"]
    for wrong in ("", "90", "d", "90 days", "-1d"):
        with pytest.raises(ConfigError, match="Write it like"):
            seconds(wrong)
    assert home.prune(keep=times_by_state("999999999w")) == []


def test_a_folder_that_a_person_named_or_another_thread_uses_stays(home: Home) -> None:
    Path("workspace/there").mkdir(parents=True)
    home.run("named", workspace="workspace/named")
    home.run("there")  # the folder was there before the thread
    home.run("lent")
    home.run("guest", workspace="workspace/lent/inside", days=1)
    home.run("own")
    assert sorted(home.prune()) == ["lent", "named", "own", "there"]
    kept = sorted(str(path) for path in Path("workspace").rglob("*.txt"))
    assert kept == [
        f"workspace/{one}/made.txt" for one in ("lent/inside", "lent", "named", "there")
    ]


def test_a_snapshot_of_a_kept_thread_is_whole(local: Home) -> None:
    local.run("one", "shared")
    local.run("two", "shared", days=1)
    local.run("three", "alone")
    store = SnapshotStore(openmanus_home())
    names = store._run("SELECT thread, id FROM snapshots")  # pyright: ignore[reportPrivateUsage]
    store.share("one", "copy")
    before = store.stored_bytes()
    assert sorted(local.prune()) == ["one", "three"]
    assert store.stored_bytes() < before
    for _, snapshot in names:
        whole = snapshot in {one for thread, one in names if thread != "three"}
        assert store.has(snapshot) == whole
        if whole:
            read = [store.read(one.content) for _, one in store.files_in(snapshot)]
            assert read in ([], [b"shared\n"])


class Killed(BaseException):
    """Ends a prune as a kill does: nothing after it is done."""


def steps_of_a_prune() -> list[tuple[Any, str]]:
    return [
        (retention, "remove_folder"),
        (Storage, "delete"),
        (retention, "forget_thread"),
        (Threads, "delete"),
        (SnapshotStore, "forget_names"),
        (SnapshotStore, "sweep"),
    ]


@pytest.mark.parametrize(("place", "name"), steps_of_a_prune(), ids=lambda one: str(one))
@pytest.mark.parametrize("after", [False, True])
def test_after_a_kill_the_next_prune_finishes(
    home: Home, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, *, after: bool
) -> None:
    for thread in ("a", "b"):
        home.run(thread)
    step: Callable[..., Any] = getattr(place, name)

    def killed(*args: Any, **options: Any) -> Any:
        if after:
            step(*args, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(place, name, killed)
        with pytest.raises(Killed):
            home.prune()
    left = home.threads.expired(MONTH)
    assert home.prune() == left
    assert (home.rows("a"), home.rows("b")) == (0, 0)
    assert SnapshotStore(openmanus_home()).stored_bytes() == 0
    assert not list(Path("workspace").iterdir())


def test_one_prune_works_at_a_time(home: Home) -> None:
    home.run("t")
    begun, go_on = threading.Event(), threading.Event()

    def halted() -> bool:
        begun.set()
        go_on.wait()
        return False

    found: list[list[str]] = []
    first = threading.Thread(target=lambda: found.append(home.prune(halted=halted)))
    first.start()
    begun.wait()
    with pytest.raises(RunError, match="prune of old threads is in use"):
        home.prune()
    go_on.set()
    first.join()
    assert (found, home.prune()) == ([["t"]], [])


def test_once_a_day_is_enough_and_a_clock_that_was_ahead_delays_nothing(home: Home) -> None:
    home.run("t")
    assert home.prune(daily=True) == ["t"]
    home.run("u")
    assert home.prune(daily=True) == []
    for change in (f"at - {retention.DAY_S}", "at + 1000000"):
        home.database.run(f"UPDATE chores SET at = {change}")
        assert home.prune(daily=True) == ["u"]
        home.run("u")


def test_a_server_that_ends_stops_after_a_thread(home: Home) -> None:
    for thread in ("a", "b", "c"):
        home.run(thread)
    answers = iter([False, True])
    assert len(home.prune(halted=lambda: next(answers))) == 1
    assert len(home.threads.expired(MONTH)) == 2


def test_sqlites_files_shrink(local: Home) -> None:
    for number in range(4):
        local.run(f"t{number}", "$(head -c 100000 /dev/urandom | base64)")
        event = f'{{"type": "notice", "text": "{number * "x" * 100_000}"}}'
        JournalTable(local.database).write(f"t{number}", [(1, event)])
    close_databases()
    files = [openmanus_home() / name for name in ("openmanus.db", "checkpoints.db", SNAPSHOTS)]
    before = [file.stat().st_size for file in files]
    assert len(Home(local.url).prune()) == 4
    close_databases()
    after = [file.stat().st_size for file in files]
    assert after[0] < before[0] - 500_000
    assert after[1] < before[1] / 2
    assert after[2] < before[2] - 400_000


def test_a_fork_of_a_pruned_thread_is_whole(home: Home) -> None:
    home.run("t")

    async def copy() -> int:
        async with open_checkpointer(home.url) as saver:
            points = await points_of(saver, "t")
            await fork(saver, "t", points[-1].checkpoint, "copy")
            return len(await points_of(saver, "copy"))

    points = asyncio.run(copy())
    assert home.prune() == ["t"]

    async def read() -> int:
        async with open_checkpointer(home.url) as saver:
            return len(await points_of(saver, "copy"))

    assert asyncio.run(read()) == points > 0
