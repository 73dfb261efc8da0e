"""A thread in PostgreSQL has one worker, and one that lost it writes nothing more."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from openmanus_graph import build_manus_graph, manus_tool
from openmanus_graph.backends.persistence import leases
from openmanus_graph.backends.persistence.backend import Database, LeaseLostError
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.leases import (
    Holder,
    ThreadInUseError,
    give_back_lease,
    holder_of,
    take_lease,
)
from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.backends.persistence.steering import SteeringMessages
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.threads import hold_thread, is_running
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.testing.replays import tool_session
from tests.support.cli import until
from tests.support.graphs import calls, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.postgres import Postgres, rows_of

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
KEY = EffectKey("t", "b", "pay", "{}", 0)
PLACE = ("b", "", "m", "pay", "{}", 0)
LONG_S = 1000.0


@pytest.fixture
def urls(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DatabaseUrl]]:
    """The address of a place, as two workers have it: each has connections of its own."""
    address = postgres.database()
    monkeypatch.setenv(DATABASE_VARIABLE, address)
    yield [DatabaseUrl.parse(address), DatabaseUrl.parse(f"{address}&application_name=other")]
    close_databases()


@pytest.fixture
def ours(urls: list[DatabaseUrl]) -> Database:
    """A worker's connections."""
    return open_database(urls[0])


@pytest.fixture
def theirs(urls: list[DatabaseUrl]) -> Database:
    """Those of another worker."""
    return open_database(urls[1])


def address_of(urls: list[DatabaseUrl]) -> str:
    return urls[0].secret.get_secret_value()


def let_expire(database: Database) -> None:
    """Have the time of all leases be over."""
    database.run("UPDATE leases SET expires = clock_timestamp() - interval '1 second'")


def take_over(taker: Database, holder: Database) -> None:
    """Take a lease that is over, again if its holder has renewed it in between."""
    while True:
        let_expire(holder)
        with contextlib.suppress(ThreadInUseError):
            take_lease(taker, "t", LONG_S, "run")
            return


def test_a_thread_has_one_worker(ours: Database, theirs: Database) -> None:
    take_lease(ours, "t", LONG_S, "run")
    with pytest.raises(ThreadInUseError, match="Thread t is in use by process .* ends in \\d+ s"):
        take_lease(theirs, "t", LONG_S, "run")
    take_lease(theirs, "another", LONG_S, "run")
    assert holder_of(theirs, "t") is not None
    give_back_lease(ours, "t", "run")
    assert holder_of(theirs, "t") is None
    take_lease(theirs, "t", LONG_S, "run")
    for thread in ("t", "another"):
        give_back_lease(theirs, thread, "run")


def test_runs_of_one_process_share_a_lease_unless_they_want_it_alone(
    ours: Database, theirs: Database
) -> None:
    take_lease(ours, "t", LONG_S, "command", alone=True)
    take_lease(ours, "t", LONG_S, "graph")
    with pytest.raises(ThreadInUseError):
        take_lease(ours, "t", LONG_S, "another command", alone=True)
    give_back_lease(ours, "t", "command")
    assert holder_of(theirs, "t") is not None
    give_back_lease(ours, "t", "graph")
    assert holder_of(theirs, "t") is None


async def test_what_a_cancelled_run_left_to_be_written_is_fenced(
    urls: list[DatabaseUrl], ours: Database, theirs: Database
) -> None:
    take_lease(ours, "t", LONG_S, "run")
    Threads(ours).begin("t", "manus", "task", {}, None)
    let_expire(ours)
    take_lease(theirs, "t", LONG_S, "run")
    busy = threading.Event()
    waiting = asyncio.ensure_future(ours.write(busy.wait, "another"))
    update = "UPDATE threads SET status = 'finished'"
    late = asyncio.ensure_future(ours.arun(update, worker_of="t"))
    await asyncio.sleep(0)
    late.cancel()
    giving = asyncio.ensure_future(asyncio.to_thread(give_back_lease, ours, "t", "run"))
    await asyncio.sleep(0)
    busy.set()
    await giving
    await waiting
    assert theirs.run("SELECT status FROM threads") == [("running",)]
    await asyncio.to_thread(give_back_lease, theirs, "t", "run")


async def later(database: Database) -> None:
    """Write something that nobody waits for, and wait for it."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note(_: Any, error: BaseException | None) -> None:
        ended.set_exception(error) if error else ended.set_result(None)

    database.run_later("DELETE FROM ledger", (), note, worker_of="t")
    await ended


async def test_a_worker_that_lost_its_thread_changes_no_row(
    urls: list[DatabaseUrl], ours: Database, theirs: Database
) -> None:
    lost = threading.Event()
    take_lease(ours, "t", 1.0, "run", lost.set)
    threads, ledger = Threads(ours), Ledger(ours)
    threads.begin("t", "manus", "task", {}, HumanMessage("task"))
    ours.run("DELETE FROM titles")  # as of a thread that an earlier version began
    await ledger.intend(KEY, {}, "c")
    steering_text = await SteeringMessages(ours).add("t", "text")
    async with open_checkpointer(urls[0]) as saver:
        stored = await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})
        take_over(theirs, ours)
        before = rows_of(address_of(urls))
        journal, steering = JournalTable(ours), SteeringMessages(ours)
        for write in (
            lambda: asyncio.to_thread(threads.begin, "t", "manus", "again", {}, None),
            lambda: asyncio.to_thread(threads.end, "t", "finished"),
            lambda: ledger.begin(replace(KEY, occurrence=7), {}, "c2"),
            lambda: ledger.intend(KEY, {}, "c2"),
            lambda: ledger.conclude(KEY, {}, {"text": "paid"}),
            lambda: ledger.wait(KEY, {}),
            lambda: ledger.ask(KEY, "question", 0),
            lambda: ledger.unask(KEY, 0),
            lambda: asyncio.to_thread(journal.write, "t", [(1, "{}")]),
            lambda: steering.mark_read("t", [steering_text]),
            lambda: steering.forget_read("t"),
            lambda: saver.aput(stored, empty_checkpoint(), {"step": 2}, {}),
            lambda: saver.aput_writes(stored, [("a", 1)], "task"),
            lambda: saver.adelete_thread("t"),
            lambda: ledger.first_at("t", PLACE, "m", "c"),
            lambda: asyncio.to_thread(threads.delete, "t"),
            lambda: later(ours),
        ):
            with pytest.raises(LeaseLostError, match="may have taken over thread"):
                await write()
        assert rows_of(address_of(urls)) == before
        await Ledger(theirs).conclude(KEY, {}, {"text": "paid"})
    assert await asyncio.to_thread(lost.wait, BACKSTOP_S), "it is told"
    await asyncio.to_thread(give_back_lease, ours, "t", "run")
    assert holder_of(ours, "t") is not None, "that of the other worker"
    await asyncio.to_thread(give_back_lease, theirs, "t", "run")


def test_a_lease_is_renewed_as_long_as_it_is_held(
    ours: Database, theirs: Database, postgres: Postgres
) -> None:
    def ends() -> Any:
        return theirs.run("SELECT expires FROM leases WHERE thread = 't'")[0][0]

    take_lease(ours, "t", 2.0, "run")
    seen = {ends()}
    end = threading.Event()
    while len(seen) < 3:
        assert holder_of(theirs, "t") is not None, "it was not renewed in time"
        seen.add(ends())
        postgres.cut_connections()
        end.wait(0.05)
    with pytest.raises(ThreadInUseError):
        take_lease(theirs, "t", 1.0, "run")
    give_back_lease(ours, "t", "run")


def test_a_worker_that_hears_late_of_a_renewal_asks_whether_it_still_has_its_thread(
    urls: list[DatabaseUrl], ours: Database, theirs: Database
) -> None:
    def waiting(statement: str, at_least_s: int) -> bool:
        old = f"clock_timestamp() - xact_start > interval '{at_least_s} seconds'"
        found = f"SELECT count(*) FROM pg_stat_activity WHERE {old} AND wait_event_type = 'Lock'"
        return theirs.run(f"{found} AND query LIKE ?", (f"%{statement}%",)) == [(1,)]

    take_lease(ours, "t", 1.0, "run")
    with psycopg.connect(address_of(urls)) as slow:
        slow.execute("SELECT 1 FROM leases FOR UPDATE").fetchone()
        until(lambda: waiting("UPDATE leases SET expires", 1))
        taking = threading.Thread(target=take_lease, args=(theirs, "t", LONG_S, "run"))
        taking.start()
        until(lambda: waiting("INSERT INTO leases", 0))
    taking.join()
    with pytest.raises(LeaseLostError):
        leases.require_lease(urls[0], "t")
    for database in (ours, theirs):
        give_back_lease(database, "t", "run")


def test_a_worker_that_is_paused_within_a_write_keeps_nobody_from_its_thread(
    urls: list[DatabaseUrl], ours: Database, theirs: Database
) -> None:
    take_lease(ours, "t", LONG_S, "run")
    let_expire(ours)
    with psycopg.connect(address_of(urls), autocommit=True) as paused:
        pid = paused.info.backend_pid

        def waits_for_its_client() -> bool:
            age = "clock_timestamp() - xact_start > interval '0.1 second'"
            statement = f"SELECT {age} FROM pg_stat_activity WHERE pid = ?"
            return theirs.run(statement, (pid,)) == [(True,)]

        with contextlib.ExitStack() as write:
            write.enter_context(paused.pipeline())
            paused.execute("SELECT require_lease('t', %s)", (ours.tokens["t"],)).fetchone()
            until(waits_for_its_client)
            take_lease(theirs, "t", 0.2, "run")
            with pytest.raises(psycopg.OperationalError):
                write.close()
    assert holder_of(theirs, "t") is not None
    give_back_lease(theirs, "t", "run")
    give_back_lease(ours, "t", "run")


def held_by(database: Database, name: str) -> None:
    database.run(
        "INSERT INTO leases VALUES ('t', nextval('lease_tokens'), ?, now() + interval '1 hour')",
        (name,),
    )


def test_a_dead_process_of_this_machine_is_not_waited_for(
    ours: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, process, began, machine = leases.own_name().split("/")
    held_by(ours, f"{host}/{process}/{int(began) - 9}/{machine}")
    assert holder_of(ours, "t") is None
    take_lease(ours, "t", LONG_S, "run")
    give_back_lease(ours, "t", "run")
    assert Holder(f"{host}/{process}/{began}/{machine}", 1.0).is_dead is False
    for of_another in (f"{host}/999999/1.0/other", f"{host}/999999/1.0/", "anything"):
        assert Holder(of_another, 1.0).is_dead is False


def test_a_thread_of_another_machine_is_in_use_until_its_lease_ends(
    ours: Database, urls: list[DatabaseUrl], tmp_path: Any
) -> None:
    held_by(ours, "far/7/1.0/elsewhere")
    assert is_running(tmp_path, "t")
    with (
        pytest.raises(RunError, match="in use by process 7 on far.*ends in 3\\d+ s"),
        hold_thread(tmp_path, "t"),
    ):
        pass
    let_expire(ours)
    assert not is_running(tmp_path, "t")
    with hold_thread(tmp_path, "t"):
        assert is_running(tmp_path, "t")
    assert not is_running(tmp_path, "t")


async def test_an_embedded_graph_waits_for_a_dead_worker_and_fences_its_effects(
    urls: list[DatabaseUrl],
    ours: Database,
    theirs: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "LEASE_POLL_S", 0.01)
    paid: list[int] = []

    @manus_tool(effect="external", approval=False, resource="till")
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        assert holder_of(theirs, "t") is not None
        paid.append(amount)
        if amount == 2:
            let_expire(theirs)
            take_lease(theirs, "t", LONG_S, "run")
        return "paid"

    held_by(ours, "far/7/1.0/elsewhere")
    asyncio.get_running_loop().call_later(0.1, let_expire, theirs)
    async with open_checkpointer(urls[0]) as saver:
        graph = build_manus_graph(tools=[pay], checkpointer=saver)
        ran = await run_graph(graph, calls(("pay", {"amount": 1})), "done", config=CONFIG)
        assert ran.results() == ["paid"]
        assert holder_of(ours, "t") is None, "it is given back with the run"
        with pytest.raises(LeaseLostError):
            await run_graph(
                graph, calls(("pay", {"amount": 2}), ("pay", {"amount": 3})), config=CONFIG
            )
    assert paid == [1, 2], "nothing is begun after the loss"
    assert ours.run("SELECT stage FROM ledger ORDER BY args") == [("done",), ("intent",)]
    await asyncio.to_thread(give_back_lease, theirs, "t", "run")


async def test_a_worker_that_was_paused_asks_its_model_only_while_the_thread_is_its_own(
    urls: list[DatabaseUrl], ours: Database, theirs: Database
) -> None:
    class Pauses(AgentMiddleware):
        """Does before each request what a pause of the process does: no lease is renewed."""

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            held = leases._leases.values()  # pyright: ignore[reportPrivateUsage]
            (lease,) = (one for one in held if one.database is ours)
            lease.renewed -= LONG_S
            if model.requests:  # at the second another worker takes the thread
                let_expire(theirs)
                take_lease(theirs, "t", LONG_S, "run")
            return await handler(request)

    @manus_tool(effect="read_only")
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedChatModel([calls(("look", {})), "asked for nothing"])
    take_lease(ours, "t", LONG_S, "server")
    async with open_checkpointer(urls[0]) as saver:
        graph = build_manus_graph(tools=[look], checkpointer=saver, middleware=[Pauses()])
        with pytest.raises(LeaseLostError):
            await run_graph(graph, model=model, config=CONFIG)
    assert len(model.requests) == 1
    await asyncio.to_thread(give_back_lease, theirs, "t", "run")
    await asyncio.to_thread(give_back_lease, ours, "t", "server")


async def test_a_living_worker_is_not_waited_for_longer_than_a_lease(
    urls: list[DatabaseUrl], theirs: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_GRACE_S", 0.1)
    monkeypatch.setenv("OPENMANUS_LEASE_S", "1")
    take_lease(theirs, "t", 1.0, "run")

    @manus_tool(effect="external", approval=False)
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        raise AssertionError("it is not this worker's thread")

    async with open_checkpointer(urls[0]) as saver:
        graph = build_manus_graph(tools=[pay], checkpointer=saver)
        with pytest.raises(ThreadInUseError, match="in use by process"):
            await run_graph(graph, calls(("pay", {"amount": 1})), "done", config=CONFIG)
    await asyncio.to_thread(give_back_lease, theirs, "t", "run")


async def test_a_run_that_is_cancelled_while_it_takes_its_lease_keeps_none(
    urls: list[DatabaseUrl], tmp_path: Path
) -> None:
    """Other threads' leases are taken and given back meanwhile."""
    ours = await asyncio.to_thread(open_database, urls[0])
    session = tool_session(tmp_path / "here")
    session.settings = replace(session.settings, database=urls[0])
    await asyncio.to_thread(take_lease, ours, "other", LONG_S, "run")
    with psycopg.connect(address_of(urls)) as blocking:
        blocking.execute("SELECT FROM leases FOR UPDATE")
        blocking.execute(
            "INSERT INTO leases (thread, token, holder, expires) VALUES ('t', 0, '', now())"
        )
        taking = asyncio.ensure_future(leases.hold_run_lease(session, "t"))

        def waits() -> bool:
            return bool(blocking.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())

        await asyncio.to_thread(until, waits)
        taking.cancel()
        await asyncio.to_thread(take_lease, ours, "third", LONG_S, "run")
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert await asyncio.to_thread(holder_of, ours, "t") is None
    assert await asyncio.to_thread(holder_of, ours, "third") is not None
    for thread in ("other", "third"):
        await asyncio.to_thread(give_back_lease, ours, thread, "run")
    session.close()
