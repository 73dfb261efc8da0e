"""`openmanus replay --go-on`: continues a what-if replay for real, as a run of a new thread.

A thread continues in a fork of it, with the files of that point in a folder of its own. A bundle
holds no files, so it continues only if the run had not changed any by then.
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
from openmanus_graph.interfaces.cli.fork import begin_fork, read_points
from openmanus_graph.interfaces.cli.run import execute_run
from openmanus_graph.interfaces.cli.skills import ask_for_trust
from openmanus_graph.interfaces.service import run_setup
from openmanus_graph.interfaces.service.options import OutputOptions, RunOptions
from openmanus_graph.interfaces.service.threads import hold_thread, open_threads
from openmanus_graph.model_calls.replay import Divergence
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.replaying import knowing_reply
from openmanus_graph.state.context import Effect
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of


@dataclass(frozen=True)
class DivergedReplay:
    """A what-if replay that stopped at its first difference from the record."""

    source: Thread | Recording
    """What was replayed: a thread, or a bundle."""
    graph: Any
    """The replay's, with its checkpoints."""
    divergence: Divergence
    options: Mapping[str, Any]
    """Of the runs that continue it."""

    @property
    def config(self) -> RunnableConfig:
        thread = self.source.id if isinstance(self.source, Thread) else self.source.thread
        return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def continue_from(diverged: DivergedReplay) -> int:
    """Continue as a new thread, and return the exit code of its run.

    ConfigError says why it cannot continue.
    """
    if diverged.divergence.run_path:
        raise ConfigError(
            f"It cannot continue: it left the record inside {diverged.divergence.run_path}, and a "
            "fork begins at a step of the whole run."
        )
    options = RunOptions().over(dict(diverged.options))
    run_setup.graph_arguments(diverged.source.agent, options)  # before anything is made
    ask_for_trust(options.config)
    new = run_setup.new_thread()
    with hold_thread(openmanus_home(), new):
        if isinstance(diverged.source, Thread):
            point = asyncio.run(_point_of(diverged, diverged.source))
            files = begin_fork(diverged.source, point, new, "copy", diverged.options)
            where = " ".join([str(files), *files.notices])
        else:
            _begin_from_bundle(diverged, diverged.source, new)
            where = "Its folder is empty: a bundle holds no files."
        asyncio.run(_keep_outcomes(diverged, new))
    sys.stderr.write(
        printable(f"It continues from there as thread {new}. {where} What it does now is real.")
        + f"\nIf it is interrupted: openmanus resume {shlex.quote(new)}\n"
    )
    with knowing_reply(diverged.divergence.reply):
        return execute_run(
            lambda: run_setup.resuming_run(new, run_setup.ResumeAnswer(), RunOptions()),
            OutputOptions(),
        )


def _begin_from_bundle(diverged: DivergedReplay, source: Recording, new: str) -> None:
    if source.beginning:
        raise ConfigError(
            "It cannot continue from a bundle: the run continued from an earlier point, whose "
            "files a bundle does not hold. Replay the thread where it ran."
        )
    made = diverged.divergence.earlier
    changing = dict.fromkeys(one.tool for one in made if _effect(diverged, one) == "workspace")
    if changing:
        raise ConfigError(
            "It cannot continue from a bundle: the run had changed files by then (by "
            f"{', '.join(changing)}), and a bundle holds no files. Replay the thread where it ran."
        )
    asyncio.run(_copy_checkpoints(diverged, new))
    threads = open_threads()
    threads.begin(new, source.agent, source.task, dict(diverged.options), None)
    threads.end(new, "forked")


async def _point_of(diverged: DivergedReplay, known: Thread) -> Point:
    """Find the point of a thread at which the replay of it stopped."""
    stopped = await diverged.graph.aget_state(diverged.config)
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
        f"It cannot continue: no point of thread {known.id} equals the replay when it stopped. "
        f"Choose one yourself: openmanus fork {shlex.quote(known.id)}"
    )


def _shape(messages: list[AnyMessage]) -> list[tuple[str, Any]]:
    """Return what is equal in two runs that made the same calls and got the same outcomes."""
    return [
        (one.type, [(call["name"], call["args"]) for call in one.tool_calls])
        if isinstance(one, AIMessage)
        else (one.type, one.text)
        for one in messages
    ]


def _effect(diverged: DivergedReplay, call: EffectKey) -> Effect:
    """Return what a call may change; the worst is assumed of tools that the agent does not have."""
    tools = {tool.name: tool for tool in agent_tools(diverged.source.agent)}
    traits = traits_of(tools[call.tool]) if call.tool in tools else Traits()
    return traits.effect_of(json.loads(call.args))


async def _copy_checkpoints(diverged: DivergedReplay, new: str) -> None:
    """Put the replay's checkpoints into the database, as those of the new thread.

    What tasks wrote after the newest one is left out: they run again.
    """
    memory: InMemorySaver = diverged.graph.checkpointer
    line = [one async for one in memory.alist(diverged.config)][::-1]
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
                await _copy_writes(memory, one, saver, written)


async def _copy_writes(
    memory: InMemorySaver, one: CheckpointTuple, saver: Checkpointer, written: RunnableConfig
) -> None:
    """Copy what the tasks after a checkpoint wrote, each with its own path."""
    at = one.config.get("configurable", {})
    tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    kept = memory.writes[at["thread_id"], at["checkpoint_ns"], at["checkpoint_id"]]
    for task, channel, value, path in kept.values():
        tasks.setdefault((task, path), []).append((channel, memory.serde.loads_typed(value)))
    for (task, path), writes in tasks.items():
        await saver.aput_writes(written, writes, task, path)


async def _keep_outcomes(diverged: DivergedReplay, new: str) -> None:
    """Let the record answer, for the new thread, the calls before the first different one.

    Of the reply that the replay stopped at. Those that change files are made again, in the new
    thread's folder: its files are those from before the reply.
    """
    ledger = await asyncio.to_thread(open_ledger, database_url())
    for effect, entry in diverged.divergence.answered:
        if _effect(diverged, effect) == "external":
            key = replace(effect, thread=new)
            await ledger.intend(key, entry.args, "")
            await ledger.conclude(key, entry.args, entry.outcome or {})
