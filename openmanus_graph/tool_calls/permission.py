"""Getting a call allowed: by the policy, or by a person."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from openmanus_graph.errors import ToolError
from openmanus_graph.safety.policy import PolicyDecision, ProposedCall, evaluate_policy
from openmanus_graph.safety.provenance import explain_unverified
from openmanus_graph.state.interrupts import Decision, approval_request
from openmanus_graph.tool_calls.context import CallExecution


@dataclass(frozen=True)
class Permission:
    """What a call may do."""

    args: dict[str, Any]
    """To run with; a person may have edited them."""
    result_from_person: str | None = None
    """What a person gave as its result, instead of running it."""
    standing_approval: str = ""
    """What a person allowed for the rest of the run by this approval."""


async def request_permission(execution: CallExecution) -> Permission:
    """Have a call allowed by the policy, or by a person. ToolError: it may not run, and why.

    Each decision is read again by its place when the call's chain runs again after a crash.
    """
    call, args = execution.call, execution.call["args"]
    verdict = await _evaluate(execution, args)
    if verdict.decision == "deny":
        raise ToolError(
            f"{execution.name} was not run. {verdict.why} Find another way, or say in the answer "
            "what is left to do."
        )
    if verdict.decision == "allow":
        return Permission(args)
    request = approval_request(execution.name, args, call["id"], verdict.why)
    decision = await execution.context.questions.decide(
        execution.key, "approval", request, partial(_objection, execution)
    )
    if decision.type == "edit":
        return Permission(dict(decision.args or {}))
    if decision.type == "respond":
        return Permission(args, result_from_person=decision.message)
    if decision.type == "approve":
        return Permission(
            args, standing_approval=verdict.standing_approval if decision.remember else ""
        )
    raise ToolError(
        f"A person did not allow {execution.name}. {decision.message or 'No reason was given.'} "
        "Do not repeat the call; adapt to this."
    )


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
    verdict = await _evaluate(execution, args)
    return verdict.why if verdict.decision == "deny" else ""


async def _evaluate(execution: CallExecution, args: Mapping[str, Any]) -> PolicyDecision:
    """Look a call up in the policy, off the event loop: links are followed, long texts parsed."""
    unverified = execution.call.get("unverified", [])
    proposed = ProposedCall(
        name=execution.name,
        args=execution.context.toolset.with_defaults(execution.name, args),
        traits=execution.traits,
        unverified=explain_unverified(unverified) if unverified else "",
    )
    return await asyncio.to_thread(
        evaluate_policy,
        proposed,
        execution.context.session.settings,
        execution.context.standing_approvals,
    )
