"""Asks a person about all calls of a chain that need one, in one pause, before any of them runs.

Each question is a task of its own for LangGraph, inside the chain's. So it has its own id, any of
them can be answered, and an answer is kept while others are open.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.func import task
from langgraph.types import Interrupt

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.safety.policy import PolicyDecision
from openmanus_graph.state.interrupts import Decision
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.tool_calls.approval_seals import believed, seal
from openmanus_graph.tool_calls.call_ledger import find_entry
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.permission import QUESTION, ask_person, evaluate
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.run_call import refuse_if_process_ended, validate


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
