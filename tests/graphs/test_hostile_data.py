"""Rows that somebody else wrote: every reader of a database refuses them, and runs none of it."""

import base64
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.types import Command
from pydantic import BaseModel

from openmanus_graph import build_manus_graph, manus_tool
from openmanus_graph.backends.persistence.backend import crc32
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer, read_embedded_agents
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.recording import read_recording
from openmanus_graph.backends.persistence.sqlite_checkpointer import CHECKPOINTS
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.errors import ConfigError, RefusedDataError
from openmanus_graph.middleware import EffectLedger
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.testing import ScriptedChatModel
from tests.graphs.test_effect_ledger import ForgetfulSaver
from tests.support.graphs import calls, run_graph, scripted
from tests.support.hostile import payloads
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

CONFIG: Any = {"configurable": {"thread_id": "t"}}
NAMES = [*payloads(Path("/nowhere"))]
SOME = sampled(NAMES, 6, "hostile rows")


class Note(BaseModel):
    text: str


class NotesState(AgentState[Any]):
    """What the middleware adds to the state."""

    notes: list[Any]


class Notes(AgentMiddleware[Any, Any, Any]):
    """Keeps notes."""

    state_schema = NotesState


@tool(parse_docstring=True)
def write_note(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Write a note.

    Args:
        text: What it says.
    """
    message = ToolMessage("noted", tool_call_id=call_id)
    return Command(update={"messages": [message], "notes": [text]})


@dataclass
class Rows:
    """The database of a thread whose last step was cut off after its call."""

    url: DatabaseUrl

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Execute a statement with the marks of SQLite, in the database that has its table."""
        close_databases()
        if not self.url.is_local:
            with psycopg.connect(self.url.secret.get_secret_value()) as connection:
                cursor = connection.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        in_checkpoints = any(f" {table}" in statement for table in ("checkpoints", "writes"))
        name = CHECKPOINTS if in_checkpoints else self.url.file.name
        with sqlite3.connect(self.url.file.with_name(name)) as file:
            rows = file.execute(statement, values).fetchall()
        file.close()
        return rows

    def spoil_values(self, kind: str, content: bytes) -> None:
        """Put a value in place of all that checkpoints hold."""
        if self.url.is_local:
            self.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", kind, content)
        else:
            self.execute("UPDATE checkpoint_blobs SET type = ?, blob = ?", kind, content)
        self.spoil_writes(kind, content)

    def spoil_writes(self, kind: str, content: bytes) -> None:
        """Put a value in place of all that tasks wrote."""
        table, column = ("writes", "value") if self.url.is_local else ("checkpoint_writes", "blob")
        self.execute(f"UPDATE {table} SET type = ?, {column} = ?", kind, content)

    def forget_after(self, checkpoint: str) -> None:
        """Lose what came after a checkpoint, as a crash does."""
        writes = "writes" if self.url.is_local else "checkpoint_writes"
        self.execute("DELETE FROM checkpoints WHERE checkpoint_id > ?", checkpoint)
        self.execute(f"DELETE FROM {writes} WHERE checkpoint_id >= ?", checkpoint)

    def change_outcomes(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what the ledger says came of calls; their checksums are right."""
        for effect, args, outcome in self.execute("SELECT effect, args, outcome FROM ledger"):
            found = json.loads(outcome)
            change(found)
            text = json.dumps(found)
            checksum = crc32(args, "done", text)
            self.execute(
                "UPDATE ledger SET outcome = ?, checksum = ? WHERE effect = ?",
                text, checksum, effect,
            )  # fmt: skip


@pytest.fixture
async def rows(each_database: DatabaseUrl) -> Rows:
    """A thread with a finished call, whose checkpoints since then are lost."""
    async with open_checkpointer(each_database) as saver:
        graph = build_manus_graph(tools=[write_note], checkpointer=saver, middleware=[Notes()])
        reply = calls(("write_note", {"text": "a"}))
        await run_graph(graph, reply, "done", config=CONFIG, policy="auto")
        before = [one async for one in graph.aget_state_history(CONFIG) if one.next == ("act",)]
    found, at = Rows(each_database), before[0].config.get("configurable", {})
    found.forget_after(at["checkpoint_id"])
    return found


async def go_on(url: DatabaseUrl) -> list[str]:
    async with open_checkpointer(url) as saver:
        graph = build_manus_graph(tools=[write_note], checkpointer=saver, middleware=[Notes()])
        context = {"model": scripted("done"), "policy": "auto"}
        return (await run_graph(graph, task=None, config=CONFIG, **context)).results()


async def test_a_sound_thread_goes_on(rows: Rows) -> None:
    assert await go_on(rows.url) == ["noted"]
    async with open_checkpointer(rows.url) as saver:
        state = await build_manus_graph(
            tools=[write_note], checkpointer=saver, middleware=[Notes()]
        ).aget_state(CONFIG)
    assert state.values["notes"] == ["a"]


@pytest.mark.parametrize("name", SOME)
async def test_no_reader_of_checkpoints_runs_what_they_hold(
    rows: Rows, tmp_path: Path, name: str
) -> None:
    marker = tmp_path / "marker"
    for spoil in (rows.spoil_writes, rows.spoil_values):
        spoil(*payloads(marker)[name])
        async with open_checkpointer(rows.url) as saver:
            graph = build_manus_graph(tools=[write_note], checkpointer=saver, middleware=[Notes()])

            async def history(graph: Any = graph) -> Any:
                return [one async for one in graph.aget_state_history(CONFIG)]

            async def listed(saver: Any = saver) -> Any:
                return [one async for one in saver.alist(CONFIG)]

            readers: list[Callable[[], Any]] = [history, listed]
            if spoil == rows.spoil_values:
                readers += [
                    partial(graph.aget_state, CONFIG),
                    partial(saver.aget_tuple, CONFIG),
                    partial(read_embedded_agents, saver, "t"),
                    partial(go_on, rows.url),
                ]
            for read in readers:
                with pytest.raises(RefusedDataError):
                    await read()
    assert not marker.exists()


@pytest.mark.parametrize("name", SOME)
async def test_no_export_of_a_record_runs_what_it_holds(
    rows: Rows, tmp_path: Path, name: str
) -> None:
    threads = Threads(open_database(rows.url))
    threads.begin("t", "manus", "the task", {}, None)
    known = threads.find("t")
    assert known is not None
    rows.spoil_values(*payloads(tmp_path / "marker")[name])
    with pytest.raises(RefusedDataError):
        await read_recording(rows.url, known)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", SOME)
async def test_no_update_in_the_ledger_is_run(rows: Rows, tmp_path: Path, name: str) -> None:
    kind, content = payloads(tmp_path / "marker")[name]
    update = json.dumps([kind, base64.b64encode(content).decode()])
    rows.change_outcomes(lambda outcome: outcome.update(update=update))
    with pytest.raises(RefusedDataError):
        await go_on(rows.url)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "update",
    [{"approved_values": ["x"]}, {"remembered_approvals": ["bash"]}, {"status": "finished"}, ["x"]],
)
async def test_an_update_in_the_ledger_writes_no_keys_of_the_graph(rows: Rows, update: Any) -> None:
    text = StrictSerializer().to_text(update)
    rows.change_outcomes(lambda outcome: outcome.update(update=text))
    with pytest.raises(RefusedDataError, match="no tool may write"):
        await go_on(rows.url)


@pytest.mark.parametrize(
    "address",
    ["os:system", "langgraph.errors:GraphInterrupt", "posix:_exit", "nowhere:X", "builtins:exit"],
)
async def test_an_exception_in_the_ledger_is_of_a_plain_type(rows: Rows, address: str) -> None:
    rows.change_outcomes(lambda outcome: outcome.update(raised=[address, "text"], failed=True))
    assert await go_on(rows.url) == ["noted"]


@pytest.mark.parametrize("name", SOME)
async def test_the_effect_ledger_runs_nothing_that_its_rows_hold(
    each_database: DatabaseUrl, tmp_path: Path, name: str
) -> None:
    kind, content = payloads(tmp_path / "marker")[name]
    with pytest.raises(RefusedDataError):
        await again(Rows(each_database), json.dumps([kind, base64.b64encode(content).decode()]))
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("result", ["text", Command(update={}), {"a": 1}, None])
async def test_the_effect_ledger_takes_results_only(
    each_database: DatabaseUrl, result: Any
) -> None:
    text = StrictSerializer().to_text(result)
    if isinstance(result, Command):
        await again(Rows(each_database), text)
    else:
        with pytest.raises(RefusedDataError, match="no tool may return"):
            await again(Rows(each_database), text)


async def again(rows: Rows, result: str) -> None:
    """Make a call of an agent again whose checkpoint was lost, with this result in the ledger."""
    saver = ForgetfulSaver()

    @manus_tool(effect="external")
    def pay(amount: int) -> str:
        """Pay."""
        saver.losing = True
        return "paid"

    model = ScriptedChatModel([calls(("pay", {"amount": 1})), ConnectionError(), "done"])

    def agent() -> Any:
        return create_agent(model, [pay], middleware=[EffectLedger()], checkpointer=saver)

    with pytest.raises(ConnectionError):
        await agent().ainvoke({"messages": [("user", "Go.")]}, CONFIG)
    saver.losing = False
    rows.change_outcomes(lambda outcome: outcome.update(result=result))
    await agent().ainvoke(None, CONFIG)


async def test_an_app_registers_its_own_types(each_database: DatabaseUrl) -> None:
    @tool(parse_docstring=True)
    def note(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note it.

        Args:
            text: It.
        """
        message = ToolMessage("noted", tool_call_id=call_id, artifact=None)
        return Command(update={"messages": [message], "notes": [Note(text=text)]})

    reply = calls(("note", {"text": "a"}))
    async with open_checkpointer(each_database) as saver:
        plain = build_manus_graph(tools=[note], checkpointer=saver, middleware=[Notes()])
        ran = await run_graph(plain, reply, "done", config=CONFIG, policy="auto")
        assert "stored_types" in ran.results()[0]
    own: Any = {"configurable": {"thread_id": "own"}}
    async with open_checkpointer(each_database) as saver:
        graph = build_manus_graph(
            tools=[note], checkpointer=saver, middleware=[Notes()], stored_types=[Note]
        )
        await run_graph(graph, reply, "done", config=own, policy="auto")
        assert (await graph.aget_state(own)).values["notes"] == [Note(text="a")]
    async with open_checkpointer(each_database) as saver:
        with pytest.raises(RefusedDataError, match="Note"):
            await build_manus_graph(checkpointer=saver, middleware=[Notes()]).aget_state(own)
    with pytest.raises(ConfigError, match="cannot be a stored type"):
        build_manus_graph(stored_types=[int])
    with pytest.raises(ConfigError, match="cannot be a stored type"):
        EffectLedger(stored_types=[dict])
