"""Getting a call allowed: by the policy, or by a person."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.safety.approval_questions import (
    explain_change,
    explain_excess,
    explain_unverified,
    explain_values,
)
from openmanus_graph.safety.destinations import approval_key, texts
from openmanus_graph.safety.policy import PolicyDecision, ProposedCall, evaluate_policy
from openmanus_graph.state.context import Policy
from openmanus_graph.state.interrupts import Decision, approval_request
from openmanus_graph.tool_calls.context import CallExecution
from openmanus_graph.tool_calls.questions import Questions

QUESTION = "approval"
"""Begins the ledger's names of the questions whether a call may run."""


class RejectedError(ToolError):
    """A person did not allow a call."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason
        """In the person's words; may be empty."""


@dataclass(frozen=True)
class Permission:
    """What a call may do."""

    args: dict[str, Any]
    """To run with; a person may have edited them."""
    result_from_person: str | None = None
    """What a person gave as its result, instead of running it."""
    remembered_approval: str = ""
    """What a person allowed for the rest of the run by this approval."""
    approved_values: Sequence[str] = ()
    """Values that a person allowed for the rest of the thread by this approval."""
    said: Sequence[str] = ()
    """What a person wrote with the decision: it verifies what it names."""


async def request_permission(execution: CallExecution) -> Permission:
    """Have a call allowed by the policy, or by a person. ToolError: it may not run, and why.

    A decision that was made before the chain began counts, unless the policy denies the call.
    """
    args = execution.call["args"]
    verdict = await evaluate(execution, args)
    if verdict.decision == "deny":
        raise ToolError(
            f"{execution.name} was not run. {verdict.why} Find another way, or say in the answer "
            "what is left to do."
        )
    decision = execution.context.decisions.get(execution.key)
    if decision is None:
        if verdict.decision == "allow":
            return Permission(args)
        questions = execution.context.questions
        decision = await ask_person(execution, verdict.why, questions, execution.key)
    if decision.type == "respond":
        return Permission(args, result_from_person=decision.message, said=[decision.message])
    if decision.type in ("approve", "edit"):
        await _accept_change(execution)
        return _permission_by(decision, execution, verdict)
    why = f"They said: {decision.message}\n" if decision.message else "No reason was given. "
    raise RejectedError(
        f"A person did not allow {execution.name}. {why}Do not repeat the call; adapt to this.",
        decision.message,
    )


def _permission_by(
    decision: Decision, execution: CallExecution, verdict: PolicyDecision
) -> Permission:
    """Return what a call may do that a person approved or edited."""
    if decision.type == "edit":
        edited = dict(decision.args or {})
        return Permission(edited, said=[value for _, value in texts(edited)])
    if not decision.remember:
        return Permission(execution.call["args"])
    values = execution.call.get("unverified_values", [])
    return Permission(
        execution.call["args"],
        remembered_approval=verdict.remembered_approval,
        approved_values=[approval_key(value["value"]) for value in values],
    )


async def _accept_change(execution: CallExecution) -> None:
    """Note that a person has seen how a tool's server describes it now, and allowed a call."""
    tool = execution.context.toolset.find(execution.name)
    if execution.traits.changed and isinstance(tool, JsonSchemaTool):
        await asyncio.to_thread(tool.accept)


async def ask_person(
    execution: CallExecution, why: str, questions: Questions, key: EffectKey
) -> Decision:
    """Have a person decide on a call.

    Args:
        execution: Of the call.
        why: It needs a person.
        questions: Of the task that asks; each decision is read again by its place when that runs
            again after a crash.
        key: What the ledger knows the question by.
    """
    call = execution.call
    request = approval_request(execution.name, call["args"], call["id"], why)
    return await questions.decide(key, QUESTION, request, partial(_objection, execution))


async def _objection(execution: CallExecution, decision: Decision) -> str:
    """Say why an edit cannot be carried out: a person is no more above a `deny` than the model."""
    if decision.type != "edit":
        return ""
    if decision.tool not in ("", execution.name):
        return f"An edit cannot change the tool to {decision.tool}."
    args = dict(decision.args or {})
    try:
        execution.context.toolset.check(execution.name, args)
    except ToolError as error:
        return str(error)
    verdict = await evaluate(execution, args)
    return verdict.why if verdict.decision == "deny" else ""


async def evaluate(
    execution: CallExecution, args: Mapping[str, Any], policy: Policy | None = None
) -> PolicyDecision:
    """Look a call up in the policy; where that has rules, off the event loop.

    They follow links and parse long texts.

    Args:
        execution: Of the call.
        args: What it would run with.
        policy: Instead of the run's own.
    """
    settings = execution.context.session.settings
    proposed = ProposedCall(
        name=execution.name,
        args=execution.context.toolset.with_defaults(execution.name, args),
        traits=execution.traits,
        unverified=_unverified(execution),
    )
    look_up = partial(
        evaluate_policy,
        proposed,
        settings if policy is None else replace(settings, policy=policy),
        execution.context.remembered_approvals,
    )
    return await asyncio.to_thread(look_up) if settings.rules else look_up()


def _unverified(execution: CallExecution) -> str:
    """Say which addresses and values of a call are unverified; empty if none is."""
    addresses, excess = execution.call.get("unverified", []), execution.call.get("excess", [])
    values = execution.call.get("unverified_values", [])
    tool = execution.context.toolset.find(execution.name)
    asks = execution.traits.changed == "changed" and execution.traits.effect == "external"
    explained = [
        explain_change(execution.name, tool.description) if asks else "",
        explain_unverified(addresses) if addresses else "",
        explain_excess(excess) if excess else "",
        explain_values(execution.name, tool.description, values) if values else "",
    ]
    return " ".join(filter(None, explained))
