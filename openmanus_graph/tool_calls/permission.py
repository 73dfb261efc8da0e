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
from openmanus_graph.tool_calls.context import CallRun


@dataclass(frozen=True)
class Permission:
    """What a call may do."""

    args: dict[str, Any]
    """To run with; a person may have edited them."""
    result: str | None = None
    """What a person gave as its result, instead of running it."""
    standing_approval: str = ""
    """What a person allowed for the rest of the run by this approval."""


async def request_permission(run: CallRun) -> Permission:
    """Have a call allowed by the policy, or by a person. ToolError: it may not run, and why.

    Each decision is read again by its place when the call's chain runs again after a crash.
    """
    call, args = run.call, run.call["args"]
    verdict = await _evaluate(run, args)
    if verdict.decision == "deny":
        raise ToolError(
            f"{run.name} was not run. {verdict.why} Find another way, or say in the answer "
            "what is left to do."
        )
    if verdict.decision == "allow":
        return Permission(args)
    request = approval_request(run.name, args, call["id"], verdict.why)
    decision = await run.context.questions.decide(
        run.key, "approval", request, partial(_objection, run)
    )
    if decision.type == "edit":
        return Permission(dict(decision.args or {}))
    if decision.type == "respond":
        return Permission(args, result=decision.message)
    if decision.type == "approve":
        return Permission(
            args, standing_approval=verdict.standing_approval if decision.remember else ""
        )
    raise ToolError(
        f"A person did not allow {run.name}. {decision.message or 'No reason was given.'} "
        "Do not repeat the call; adapt to this."
    )


async def _objection(run: CallRun, decision: Decision) -> str:
    """Say why an edit cannot be carried out: a person is no more above a `deny` than the model."""
    if decision.type != "edit":
        return ""
    if decision.tool not in ("", run.name):
        return f"An edit cannot change the tool to {decision.tool}."
    args = dict(decision.args or {})
    try:
        run.context.toolset.check(run.name, args)
    except ToolError as error:
        return str(error)
    verdict = await _evaluate(run, args)
    return verdict.why if verdict.decision == "deny" else ""


async def _evaluate(run: CallRun, args: Mapping[str, Any]) -> PolicyDecision:
    """Look a call up in the policy, off the event loop: links are followed, long texts parsed."""
    unverified = run.call.get("unverified", [])
    proposed = ProposedCall(
        name=run.name,
        args=run.context.toolset.with_defaults(run.name, args),
        traits=run.traits,
        unverified=explain_unverified(unverified) if unverified else "",
    )
    return await asyncio.to_thread(
        evaluate_policy, proposed, run.context.session.settings, run.context.standing_approvals
    )
