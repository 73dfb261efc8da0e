"""`openmanus replay --go-on`: a what-if replay that goes on as a run of a new thread.

A thread's record goes on in a fork of it, with the files of then in a folder of its own; a bundle's
in a new thread, if the run had changed no files by then: a bundle holds none.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import Point, open_checkpointer
from openmanus_graph.backends.persistence.ledger import EffectKey, open_ledger
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_tools, build_agent
from openmanus_graph.interfaces.cli.fork import FilesChoice, begin_fork, read_points
from openmanus_graph.interfaces.cli.run import execute_run
from openmanus_graph.interfaces.cli.trust import ask_for_trust
from openmanus_graph.interfaces.service.lock import hold_thread
from openmanus_graph.interfaces.service.options import OutputOptions, RunOptions
from openmanus_graph.interfaces.service.run_setup import (
    ResumeAnswer,
    graph_arguments,
    new_thread,
    resuming_run,
)
from openmanus_graph.interfaces.service.threads import open_threads
from openmanus_graph.model_calls.replay import Divergence
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.replaying import knowing_reply
from openmanus_graph.state.mcp_server import Effect
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of


@dataclass(frozen=True)
class Departure:
    """Where a what-if replay left the record."""

    source: Thread | Recording
    """What was replayed: a thread, or a bundle."""
    graph: Any
    """The replay's, with its checkpoints."""
    divergence: Divergence
    options: Mapping[str, Any]
    """Of the runs from there on."""

    @property
    def config(self) -> RunnableConfig:
        """Names the replay's checkpoints."""
        return {"configurable": {"thread_id": self._thread, "checkpoint_ns": ""}}

    @property
    def _thread(self) -> str:
        return self.source.id if isinstance(self.source, Thread) else self.source.thread


def go_on(departure: Departure) -> int:
    """Go on as a new thread, and return the exit code of its run.

    Raises:
        ConfigError: It cannot go on, and why.
    """
    if departure.divergence.run_path:
        raise ConfigError(
            f"It cannot go on: it left the record inside {departure.divergence.run_path}, and a "
            "fork begins at a step of the whole run."
        )
    options = RunOptions().over(dict(departure.options))
    graph_arguments(departure.source.agent, options)  # before anything is made
    ask_for_trust(options.config)
    new = new_thread()
    with hold_thread(openmanus_home(), new):
        where = _begin(departure, new)
        asyncio.run(_keep_outcomes(departure, new))
    name = shlex.quote(new)
    sys.stderr.write(
        printable(f"It goes on from there as thread {new}. {where} What it does now is real.")
        + f"\nIf it is cut off: openmanus resume {name}\n"
    )
    with knowing_reply(departure.divergence.reply):
        return execute_run(lambda: resuming_run(new, ResumeAnswer(), RunOptions()), OutputOptions())


def _begin(departure: Departure, new: str) -> str:
    """Make the new thread, and say where its files lie."""
    if isinstance(departure.source, Thread):
        point = asyncio.run(_point_of(departure, departure.source))
        found = begin_fork(departure.source, point, new, FilesChoice(), departure.options)
        state = "as they were then" if found.state == "restored" else "as they are now"
        return " ".join([f"Its files, {state}, lie in {found.folder}.", *found.notices])
    if departure.source.beginning:
        raise ConfigError(
            "It cannot go on from a bundle: the run went on from an earlier point, whose files a "
            "bundle does not hold. Replay the thread where it ran."
        )
    if changing := _file_calls(departure):
        raise ConfigError(
            f"It cannot go on from a bundle: the run had changed files by then (by {changing}), "
            "and a bundle holds no files. Replay the thread where it ran."
        )
    asyncio.run(_take_over(departure, new))
    threads = open_threads()
    threads.begin(new, departure.source.agent, departure.source.task, dict(departure.options), None)
    threads.end(new, "forked")
    return "Its folder is empty: a bundle holds no files."


async def _point_of(departure: Departure, known: Thread) -> Point:
    """Find the point of a thread at which the replay of it stopped."""
    stopped = await departure.graph.aget_state(departure.config)
    number = stopped.metadata["step"]
    points = sorted(await read_points(known.id), key=lambda one: abs(one.number - number))
    wanted = stopped.next, _shape(stopped.values["messages"])
    async with open_checkpointer(database_url()) as saver:
        graph = build_agent(known.agent, checkpointer=saver)
        for point in points:
            at = {"thread_id": known.id, "checkpoint_ns": "", "checkpoint_id": point.checkpoint}
            state = await graph.aget_state({"configurable": at})
            if (state.next, _shape(state.values["messages"])) == wanted:
                return point
    raise ConfigError(
        f"It cannot go on: thread {known.id} has no point that is as the replay was when it "
        f"stopped. Choose one yourself: openmanus fork {shlex.quote(known.id)}"
    )


def _shape(messages: list[AnyMessage]) -> list[tuple[str, Any]]:
    """Return what two runs have in common that made the same calls and got the same outcomes."""
    return [
        (one.type, [(call["name"], call["args"]) for call in one.tool_calls])
        if isinstance(one, AIMessage)
        else (one.type, one.text)
        for one in messages
    ]


def _file_calls(departure: Departure) -> str:
    """Name the tools by whose calls the run had changed files before the replay stopped."""
    made = departure.divergence.earlier
    names = (one.tool for one in made if _effect(departure, one) == "workspace")
    return ", ".join(dict.fromkeys(names))


def _effect(departure: Departure, call: EffectKey) -> Effect:
    """Say what a call may change; of tools that are not the agent's own the worst is assumed."""
    tools = {tool.name: tool for tool in agent_tools(departure.source.agent)}
    traits = traits_of(tools[call.tool]) if call.tool in tools else Traits()
    return traits.effect_of(json.loads(call.args))


async def _take_over(departure: Departure, new: str) -> None:
    """Put the replay's checkpoints into the database, as those of the new thread.

    What tasks wrote after the newest one is left out: they run again.
    """
    memory: InMemorySaver = departure.graph.checkpointer
    line = [one async for one in memory.alist(departure.config)][::-1]
    async with open_checkpointer(database_url()) as saver:
        for position, one in enumerate(line):
            parent = one.parent_config or {}
            before = parent.get("configurable", {}).get("checkpoint_id")
            at: RunnableConfig = {
                "configurable": {"thread_id": new, "checkpoint_ns": "", "checkpoint_id": before}
            }
            versions = one.checkpoint["channel_versions"]
            written = await saver.aput(at, one.checkpoint, one.metadata, versions)
            if position + 1 < len(line):
                await _take_over_writes(memory, one, saver, written)


async def _take_over_writes(
    memory: InMemorySaver, one: CheckpointTuple, saver: Checkpointer, written: RunnableConfig
) -> None:
    """Put what the tasks after a checkpoint wrote to it, each in its place."""
    at = one.config.get("configurable", {})
    tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    kept = memory.writes[at["thread_id"], at["checkpoint_ns"], at["checkpoint_id"]]
    for task, channel, value, path in kept.values():
        tasks.setdefault((task, path), []).append((channel, memory.serde.loads_typed(value)))
    for (task, path), writes in tasks.items():
        await saver.aput_writes(written, writes, task, path)


async def _keep_outcomes(departure: Departure, new: str) -> None:
    """Let the record answer, for the new thread, the calls before the first different one.

    Of the reply that the replay stopped at. Those that change files are made again, in the new
    thread's folder: its files are those from before the reply.
    """
    ledger = await asyncio.to_thread(open_ledger, database_url())
    for effect, entry in departure.divergence.answered:
        if _effect(departure, effect) == "external":
            key = replace(effect, thread=new)
            await ledger.intend(key, entry.args, "")
            await ledger.conclude(key, entry.args, entry.outcome or {})
