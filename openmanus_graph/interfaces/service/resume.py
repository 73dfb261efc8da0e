"""Resuming a thread that was stopped, waits for a person, or was interrupted."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.run_setup import graph_arguments, to_context

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot

    from openmanus_graph.backends.persistence.threads import Thread
    from openmanus_graph.interfaces.service.runner import Run


@dataclass(frozen=True)
class ResumeAnswer:
    """The person's answer to an open question."""

    answer: str | None = None
    approve: bool = False
    reject: bool = False
    reason: str = ""
    interrupt: str | None = None
    every: bool = False
    """It answers all open questions."""

    def value(self) -> Any:
        """Return the value to resume with, or None if no answer was given."""
        given = [self.answer is not None, self.approve, self.reject]
        if sum(given) > 1:
            raise ConfigError("Give one of --answer, --approve and --reject.")
        if self.every and (self.interrupt or not any(given)):
            raise ConfigError("--all goes with --approve, --reject or --answer, and without --id.")
        if self.approve:
            return {"decisions": [{"type": "approve"}]}
        if self.reject:
            return {"decisions": [{"type": "reject", "message": self.reason}]}
        return self.answer


def resuming_run(thread: str, reply: ResumeAnswer, options: RunOptions) -> "Run":
    """Return the run that resumes a thread. ConfigError if there is no such thread."""
    from openmanus_graph.interfaces.service.runner import Run
    from openmanus_graph.interfaces.service.threads import whole_thread, with_stored

    known = whole_thread(thread)
    merged = with_stored(options, known)
    context = to_context(merged)
    return Run(
        thread=thread,
        agent=known.agent,
        task=known.task,
        context=context,
        options=merged.stored(),
        graph_arguments=graph_arguments(known.agent, merged),
        make_input=lambda: _next_input(
            asyncio.run(read_thread_state(thread, known.agent)), known, reply
        ),
    )


@dataclass(frozen=True)
class ThreadState:
    """The state of a thread, and how a run on it resumes."""

    state: "StateSnapshot"
    restart: Sequence[str]
    """The nodes from which a run that has ended is resumed."""
    has_unread_interjection: bool
    """Whether there is an interjection that the run has not read."""


def _next_input(thread_state: ThreadState, known: "Thread", reply: ResumeAnswer) -> Any:
    """Return the input that resumes a thread: an answer, None to continue, or a restart."""
    from langgraph.types import Command

    state = thread_state.state
    value = reply.value()
    cut_off = known.status == "running"
    if value is None and (unsaved := _unsaved_message(state, known, cut_off=cut_off)):
        return unsaved
    if state.interrupts:
        return _answer_command(state, value, reply)
    if value is not None:
        raise ConfigError("This thread asks nothing; resume it without an answer.")
    if state.tasks:  # `next` omits tasks that have ended in a step that is not saved yet
        return None
    if state.values.get("status") == "finished" or state.values.get("stop_reason") == "terminate":
        if cut_off:
            return None  # interrupted after its end: only the answer is still to be shown
        if thread_state.has_unread_interjection and {"begin", "think"} & {*thread_state.restart}:
            return Command(goto=thread_state.restart)
        raise ConfigError(
            "This thread is finished. Ask for more with: openmanus run --thread ID TASK."
        )
    return Command(goto=thread_state.restart)


def _unsaved_message(state: "StateSnapshot", known: "Thread", *, cut_off: bool) -> Any:
    """Return the newest user message as an input if no checkpoint has it, else None.

    It keeps its id, by which the ledger finds the effects of its run.
    """
    from openmanus_graph.interfaces.service.runner import user_message
    from openmanus_graph.interfaces.service.threads import open_threads

    saved = state.values.get("messages", [])
    if saved and not cut_off:
        return None
    message = open_threads().newest_message(known.id)
    if message is None:
        return None if saved else user_message(known.task, [])
    return None if message.id in {one.id for one in saved} else {"messages": [message]}


def _answer_command(state: "StateSnapshot", value: Any, reply: ResumeAnswer) -> Any:
    from langgraph.types import Command

    from openmanus_graph.interfaces.service.transcript import questions_of
    from openmanus_graph.runtime.events import interrupt_event
    from openmanus_graph.state.interrupts import middleware_answer

    asked = {waiting.id: waiting.value for waiting in state.interrupts}
    kinds = {waiting.id: interrupt_event(waiting)["kind"] for waiting in state.interrupts}
    open_ids, wanted = list(kinds), reply.interrupt
    if wanted is not None and wanted not in open_ids:
        raise ConfigError(f"There is no question {wanted}. Open:{questions_of(state)}")
    if value is None:
        return None  # the question is asked again: on a terminal the person can answer it
    if reply.every:  # an approval answers no question
        answered_ids = [name for name in open_ids if reply.answer or kinds[name] != "question"]
        answers = {name: middleware_answer(asked[name], value) for name in answered_ids}
        return Command(resume=answers) if answered_ids else None
    if wanted is None and len(open_ids) > 1:
        choose = "choose one with --id, or --all of them"
        raise ConfigError(f"Several questions are open; {choose}:{questions_of(state)}")
    chosen = wanted or open_ids[0]
    return Command(resume={chosen: middleware_answer(asked[chosen], value)})


async def read_thread_state(thread: str, agent: str) -> ThreadState:
    """Read the state of a thread."""
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.backends.persistence.interjections import open_interjections
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.graphs.catalog import build_agent, restart_node

    url = await asyncio.to_thread(database_url)
    interjections = await asyncio.to_thread(open_interjections, url)
    has_unread_interjection = any(
        not interjection.read for interjection in await interjections.of(thread)
    )
    async with open_checkpointer(url) as checkpointer:
        graph = build_agent(agent, checkpointer=checkpointer)
        state: StateSnapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
        known = restart_node(graph)
        return ThreadState(
            state, [known] if known else _first_nodes(graph), has_unread_interjection
        )


def _first_nodes(graph: Any) -> list[str]:
    """Return the entry nodes of a foreign graph."""
    from langgraph.constants import START

    edges = getattr(getattr(graph, "builder", None), "edges", ())
    entries = sorted(end for start, end in edges if start == START)
    return entries or [next(name for name in graph.nodes if name != START)]
