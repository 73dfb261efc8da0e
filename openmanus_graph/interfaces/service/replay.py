"""Replays a thread from its flight record, to compare what its models would be sent now."""

import asyncio
import dataclasses
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import convert_to_messages
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.constants import START

from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.ledger import open_ledger
from openmanus_graph.backends.persistence.model_call_records import (
    RecordedCall,
    open_model_call_records,
)
from openmanus_graph.config.resolve import database_url, openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.interfaces.service.lock import holding_thread
from openmanus_graph.interfaces.service.step_events import RECURSION_LIMIT
from openmanus_graph.model_calls.replay import Difference, RecordReplay
from openmanus_graph.runtime.replaying import ReplayEndedError, replaying
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.testing import ScriptedChatModel

if TYPE_CHECKING:
    from openmanus_graph.backends.persistence.threads import Thread
    from openmanus_graph.state.context import Context


@dataclass(frozen=True)
class Replayed:
    """What a replay found."""

    model_calls: int
    """In the record."""
    differences: list[Difference]
    """In the order in which the requests were sent."""
    ended: str
    """Why it ended before the record did; empty if it did not."""

    @property
    def is_equal(self) -> bool:
        """Say whether the runs went as they are recorded."""
        return not self.differences and not self.ended


async def replay_thread(known: "Thread", context: "Context") -> Replayed:
    """Run a thread's runs again, answered by its record; nothing is written, no model reached.

    Raises:
        ConfigError: Its record does not suffice, or the settings are wrong.
        RunError: A run works on the thread.
        sqlite3.Error: The database is damaged or cannot be used.
    """
    url = await asyncio.to_thread(database_url)
    records = await asyncio.to_thread(open_model_call_records, url)
    ledger = await asyncio.to_thread(open_ledger, url)
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(holding_thread(openmanus_home(), known.id))
        record = await asyncio.to_thread(records.of, known.id)
        if not record:
            raise ConfigError(
                f"Thread {known.id} has no record of its model calls: it ran with an earlier "
                "version, or has asked no model yet."
            )
        facts = await asyncio.to_thread(records.facts_of, known.id)
        inputs = await _inputs(known.id)
        await opened.enter_async_context(open_session(known.id))
        replay = RecordReplay(record, ledger, facts)
        context = _with_recorded_model(context, record[0])
        ended = await _run_all(known, context, replay, inputs)
    return Replayed(len(record), replay.differences, ended)


def _with_recorded_model(context: "Context", call: RecordedCall) -> "Context":
    """Name the recorded model where the thread does not; what was none of ours is stood in for."""
    if context.model is not None:
        return context
    name: str = call.request[0]["name"]
    model = name if ":" in name else ScriptedChatModel(model_name=name)
    return dataclasses.replace(context, model=model)


async def _run_all(
    known: "Thread", context: "Context", replay: RecordReplay, inputs: list[Any]
) -> str:
    """Run a thread's runs, and return why they ended before the record did; empty if not."""
    graph = build_agent(known.agent, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": known.id}, "recursion_limit": RECURSION_LIMIT}
    with replaying(replay):
        for given in inputs:
            try:
                await graph.ainvoke(given, config, context=context)
            except ReplayEndedError as error:
                return str(error)
            if (await graph.aget_state(config)).interrupts:
                return "The run waits for a person here, and the record holds no answer."
            if replay.ended:  # what had asked went on without an answer
                return replay.ended
    if replay.unused:
        return f"The runs ended before model call {replay.unused[0]} of the record."
    return ""


async def _inputs(thread: str) -> list[Any]:
    """Read from a thread's checkpoints what its runs were given. ConfigError if it was forked."""
    inputs: list[Any] = []
    seen = set[str]()
    async with open_checkpointer(database_url()) as saver:
        given: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        history = [one async for one in saver.alist(given)]
    for one in reversed(history):
        values, source = one.checkpoint["channel_values"], one.metadata.get("source")
        if source in ("fork", "update"):
            raise ConfigError(
                f"Thread {thread} was edited or went back to an earlier point, so its record holds "
                "several ways. Only threads that went straight on can be replayed yet."
            )
        if source == "input" and START in values:
            inputs.append(values[START])
        run = values.get("run_message")
        if inputs and run is not None and run not in seen:
            seen.add(run)
            inputs[-1] = _with_id(inputs[-1], run)
    return inputs


def _with_id(given: Any, message_id: str) -> Any:
    """Return an input whose last message has the id that it got when it was first read.

    By it the ledger knows the calls of the run.
    """
    *others, last = convert_to_messages(given["messages"])
    return {**given, "messages": [*others, last.model_copy(update={"id": message_id})]}
