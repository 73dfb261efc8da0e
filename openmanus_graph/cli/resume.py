"""`openmanus resume`: go on with a thread that was stopped, waits, or was cut off."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openmanus_graph.cli.launch import launch, to_context
from openmanus_graph.cli.options import OutputOptions, RunOptions
from openmanus_graph.errors import ConfigError

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot

    from openmanus_graph.cli.runner import Run
    from openmanus_graph.persistence.threads import Thread


@dataclass(frozen=True)
class Reply:
    """What the person says to an open question."""

    answer: str | None = None
    approve: bool = False
    reject: bool = False
    reason: str = ""
    interrupt: str | None = None
    every: bool = False
    """It answers all open questions."""

    def value(self) -> Any:
        """Return the value to resume with, or None if nothing was said."""
        said = [self.answer is not None, self.approve, self.reject]
        if sum(said) > 1:
            raise ConfigError("Give one of --answer, --approve and --reject.")
        if self.every and (self.interrupt or not any(said)):
            raise ConfigError("--all goes with --approve, --reject or --answer, and without --id.")
        if self.approve:
            return {"decisions": [{"type": "approve"}]}
        if self.reject:
            return {"decisions": [{"type": "reject", "message": self.reason}]}
        return self.answer


def resume_thread(thread: str, reply: Reply, options: RunOptions, output: OutputOptions) -> int:
    """Go on with a thread and return the exit code."""
    reply.value()  # wrong usage is told before anything is opened
    from openmanus_graph.cli.trust import ask_for_trust

    ask_for_trust(options.config)
    return launch(lambda: plan_resume(thread, reply, options), output)


def plan_resume(thread: str, reply: Reply, options: RunOptions) -> "Run":
    """Plan how a thread goes on. ConfigError if there is no such thread."""
    from openmanus_graph.cli.runner import Run
    from openmanus_graph.cli.threads import known_thread

    known = known_thread(thread)
    merged = options.over(known.options)
    context = to_context(merged)
    return Run(
        thread=thread,
        agent=known.agent,
        task=known.task,
        context=context,
        options=merged.stored(),
        make_input=lambda: _next_input(asyncio.run(standing_of(thread, known.agent)), known, reply),
    )


@dataclass(frozen=True)
class Standing:
    """How a thread stands."""

    state: "StateSnapshot"
    restart: str
    """The node at which a run that ended goes on."""
    told: bool
    """Somebody has told it something that it has not read."""


def _next_input(standing: Standing, known: "Thread", reply: Reply) -> Any:
    """Decide how a thread goes on: answered, from where it was cut off, or with a new limit."""
    from langgraph.types import Command

    state = standing.state
    value = reply.value()
    cut_off = known.status == "running"
    if value is None and (lost := _lost_message(state, known, cut_off=cut_off)):
        return lost
    if state.interrupts:
        return _answered(state, value, reply)
    if value is not None:
        raise ConfigError("This thread asks nothing; resume it without an answer.")
    if state.tasks:  # `next` leaves out those that have ended, whose step is not saved yet
        return None
    if state.values.get("status") == "finished" or state.values.get("stop_reason") == "terminate":
        if cut_off:
            return None  # between its end and the answer: there is only that to tell
        if standing.told and standing.restart == "think":
            return Command(goto=standing.restart)
        raise ConfigError(
            "This thread is finished. Ask for more with: openmanus run --thread ID TASK."
        )
    return Command(goto=standing.restart)


def _lost_message(state: "StateSnapshot", known: "Thread", *, cut_off: bool) -> Any:
    """Return the newest user message as an input if no checkpoint has it, else None.

    Under its own id: the ledger knows by that what was done for it.
    """
    from openmanus_graph.cli.runner import user_message
    from openmanus_graph.cli.threads import open_threads

    held = state.values.get("messages", [])
    if held and not cut_off:
        return None
    message = open_threads().newest_message(known.id)
    if message is None:
        return None if held else user_message(known.task, [])
    return None if message.id in {one.id for one in held} else {"messages": [message]}


def _answered(state: "StateSnapshot", value: Any, reply: Reply) -> Any:
    from langgraph.types import Command

    from openmanus_graph.cli.threads import questions_of
    from openmanus_graph.events import interrupt_event

    kinds = {waiting.id: interrupt_event(waiting)["kind"] for waiting in state.interrupts}
    open_ids, wanted = list(kinds), reply.interrupt
    if wanted is not None and wanted not in open_ids:
        raise ConfigError(f"There is no question {wanted}. Open:{questions_of(state)}")
    if value is None:
        return None  # asked again: on a terminal the person can answer then
    if reply.every:  # an approval answers no question
        meant = [name for name in open_ids if reply.answer or kinds[name] != "question"]
        return Command(resume=dict.fromkeys(meant, value)) if meant else None
    if wanted is None and len(open_ids) > 1:
        choose = "choose one with --id, or --all of them"
        raise ConfigError(f"Several questions are open; {choose}:{questions_of(state)}")
    return Command(resume={wanted or open_ids[0]: value})


async def standing_of(thread: str, agent: str) -> Standing:
    """Return how a thread stands."""
    from openmanus_graph.agents import build_agent, restart_node
    from openmanus_graph.config.resolve import openmanus_home
    from openmanus_graph.inbox import open_remarks
    from openmanus_graph.persistence.checkpoints import open_checkpointer

    remarks = open_remarks(openmanus_home())
    told = any(not remark.read for remark in await remarks.of(thread))
    async with open_checkpointer(openmanus_home()) as checkpointer:
        graph = build_agent(agent, checkpointer=checkpointer)
        state: StateSnapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
        return Standing(state, restart_node(graph) or next(iter(graph.nodes)), told)
