"""Chains: which of a reply's calls run in order, and which at once.

A call may need what an earlier one leaves: a chart that a program writes, a page that a click
opens. So calls run in the order in which the model made them, unless their tools declare that none
can affect another.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain as joined
from itertools import takewhile
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.func import task
from langgraph.types import Interrupt

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.conversation.history import last_reply, pending_calls
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.safety.information_flow import add_questions, is_tainted
from openmanus_graph.safety.openings import SharedOpenings
from openmanus_graph.safety.policy import PolicyDecision
from openmanus_graph.safety.provenance import JudgedReply
from openmanus_graph.state.interrupts import Decision
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.call_ledger import find_entry
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.permission import QUESTION, ask_person, evaluate
from openmanus_graph.tool_calls.questions import Questions, believed, seal
from openmanus_graph.tool_calls.run_call import refuse_if_process_ended, validate
from openmanus_graph.tool_calls.toolset import with_declared_names


async def open_groups(
    tools: Mapping[str, BaseTool],
    traits: Mapping[str, Traits],
    messages: Sequence[AnyMessage],
    approved_values: Sequence[str] = (),
    *,
    network: bool = False,
    tainted: bool = False,
) -> list[list[PendingCall]]:
    """Group the calls; where some send anything, off the loop: all that was read is looked at."""
    reply = last_reply(messages)
    names = {call["name"] for call in reply.tool_calls} if reply else set[str]()
    known = [traits[name] for name in names if name in traits]
    budget = shared_budget()
    groups = partial(
        call_groups,
        tools,
        traits,
        messages,
        approved_values,
        network=network,
        tainted=tainted,
        shared=None if budget is None else budget.openings,
    )
    judged = (
        one.reaches_out or one.outlasts_thread or (network and one.sandboxed) for one in known
    )
    if any(judged):
        return await asyncio.to_thread(groups)
    return groups()


def call_groups(
    tools: Mapping[str, BaseTool],
    traits: Mapping[str, Traits],
    messages: Sequence[AnyMessage],
    approved_values: Sequence[str] = (),
    *,
    network: bool = False,
    tainted: bool = False,
    shared: SharedOpenings | None = None,
) -> list[list[PendingCall]]:
    """Group the open calls into chains, each in call order; no chain can affect another.

    A call's arguments get the names that its tool declares, before anything looks at them.

    Args:
        tools: On offer.
        traits: Theirs, as `flow_traits` reads them.
        messages: The conversation.
        approved_values: What the person approved for the rest of the thread.
        network: Whether the sandbox has the network.
        tainted: Whether the prompt holds untrusted text.
        shared: The openings of the runs beside this one.
    """
    calls = pending_calls(messages)
    reply = JudgedReply(messages, traits, tainted, network, approved_values)
    for call in calls:
        if call["name"] in tools:
            named = with_declared_names(tools[call["name"]], call["args"])
            if named != call["args"]:
                call["requested_args"], call["args"] = call["args"], named
        add_questions(call, reply, shared)
        if call["name"] in traits and traits[call["name"]].outlasts_thread:
            call["tainted"] = is_tainted(reply)
    declared = [_declared_for(call, traits) for call in calls]
    return [
        [calls[position] for position in positions]
        for group in dependent_groups(declared)
        for positions in first_groups(group, declared)
    ]


def dependent_groups(calls: Sequence[Traits]) -> list[list[int]]:
    """Return the positions of calls in groups: within one each depends on another, directly or not.

    Args:
        calls: What is declared for each, with its arguments.
    """
    groups: list[list[int]] = []
    for position, call in enumerate(calls):
        linked = [one for one in groups if not all(independent(call, calls[n]) for n in one)]
        others = [one for one in groups if one not in linked]
        groups = [*others, [*sorted(joined.from_iterable(linked)), position]]
    return sorted(groups)


def first_groups(group: Sequence[int], calls: Sequence[Traits]) -> list[list[int]]:
    """Return the chains with which a group of dependent calls begins; the others come after them.

    A call that runs an agent is a chain, and so a task, of its own: of several graphs in one task
    LangGraph could not tell after a crash which checkpoints are whose.

    Args:
        group: Places of calls, in call order.
        calls: What is declared for each.
    """
    agents = list(takewhile(lambda position: calls[position].runs_agent, group))
    if agents:
        return [[position] for position in agents]
    return [list(takewhile(lambda position: not calls[position].runs_agent, group))]


def independent(one: Traits, other: Traits) -> bool:
    """Say whether two calls are known not to affect each other, whichever runs first.

    Args:
        one: What is declared for a call with its arguments.
        other: The same for the other call.
    """
    if one.resource is not None and one.resource == other.resource:
        return False
    if one.effect == other.effect == "read_only" or (one.runs_agent and other.runs_agent):
        return True
    return one.uses_one_file and other.uses_one_file


def _declared_for(call: PendingCall, traits: Mapping[str, Traits]) -> Traits:
    """Return what is declared for a call; of a made-up tool nothing is known."""
    declared = traits.get(call["name"], Traits())
    try:
        return declared.with_args(call["args"])
    except Exception:  # noqa: BLE001  # the arguments are not checked yet, and wrong for its author
        return Traits()


async def request_permissions(calls: Sequence[PendingCall], context: ToolCallContext) -> None:
    """Add a person's decisions to the context; a single call is asked about in its turn."""
    ledger = context.ledger
    if ledger is None or len(calls) == 1:
        return
    executions = [CallExecution(call, context) for call in calls]
    verdicts = [await _verdict_of(execution) for execution in executions]
    if any(verdicts):
        if await _was_asked_one_by_one(executions, ledger):
            return
    elif not any([await ledger.asked(_question(one)) for one in executions]):
        return

    @task
    async def permission(position: int) -> str | None:
        return await _decide(executions[position], verdicts[position])

    # LangGraph knows the tasks within a task by their places, so each call of the chain has one.
    answers = await _all_answers([permission(position) for position in range(len(executions))])
    for execution, answer in zip(executions, answers, strict=True):
        if decision := await _believed_decision(execution, answer):
            context.decisions[execution.key] = decision


async def _verdict_of(execution: CallExecution) -> PolicyDecision | None:
    """Return why a person must be asked about a call; None if nobody need be."""
    try:
        validate(execution)
        refuse_if_process_ended(execution)
    except ToolError:
        return None  # said in its turn
    verdict = await evaluate(execution, execution.call["args"])
    if verdict.decision != "ask" or current_replay() is not None:  # which asks nobody
        return None
    known = await find_entry(execution) is not None
    return None if known else verdict


async def _was_asked_one_by_one(executions: Sequence[CallExecution], ledger: Ledger) -> bool:
    """Say whether a chain stopped at one of its calls to ask about it, as earlier versions did."""
    names = [name for one in executions for name in await ledger.asked(one.key)]
    return any(name.startswith(QUESTION) for name in names)


async def _decide(execution: CallExecution, verdict: PolicyDecision | None) -> str | None:
    """Have a person decide, within the question's own task; return it as sealed JSON."""
    if verdict is None:
        return None
    questions, asked = Questions(execution.context.ledger, get_config()), _question(execution)
    decision = await ask_person(execution, verdict.why, questions, asked)
    text = json.dumps([asked.digest, asdict(decision)])
    (sealed,) = await seal(execution.context.config, "answer", [text])
    return sealed


async def _believed_decision(execution: CallExecution, answer: str | None) -> Decision | None:
    """Return what `_decide` sealed; None of what is not ours: the call is asked about in turn."""
    stored = [] if answer is None else [answer]
    for text in await believed(execution.context.config, "answer", stored):
        asked, decision = json.loads(text)
        if asked == _question(execution).digest:
            return Decision(**decision)
    return None


def _question(execution: CallExecution) -> EffectKey:
    """Return what the ledger knows a call's question by: its place is not one among the call's."""
    return replace(execution.key, execution="permission")


async def _all_answers(asking: Sequence[Any]) -> list[str | None]:
    """Return the answers of all questions, or pause the run with those that are open."""
    results: list[Any] = await asyncio.gather(*asking, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, GraphInterrupt):
            raise result
    paused = [result for result in results if isinstance(result, GraphInterrupt)]
    if paused:
        raise GraphInterrupt(_shown_here([one for pause in paused for one in pause.args[0]]))
    return results


def _shown_here(waiting: list[Interrupt]) -> list[Interrupt]:
    """Return what the chain's task shows of its open questions.

    A graph within another one hands up those of all its tasks: the chain's would be there twice.
    """
    namespace: str = get_config().get("configurable", {})["checkpoint_ns"]
    return [] if "|" in namespace else waiting
