"""Getting a call allowed: by the policy, or by a person."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from openmanus_graph.errors import ToolError
from openmanus_graph.interrupts import Decision, approval_request
from openmanus_graph.persistence.ledger import EffectKey
from openmanus_graph.policy import Proposal, Ruling, judge
from openmanus_graph.provenance import strange_addresses
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.tools.declaration import Traits
from openmanus_graph.tools.scope import CallScope


@dataclass(frozen=True)
class Leave:
    """What a call may do."""

    args: dict[str, Any]
    """To run with; a person may have edited them."""
    result: str | None = None
    """What a person gave as its result, instead of running it."""
    grant: str = ""
    """What a person allowed for the rest of the run by this approval."""


async def get_leave(call: PlannedCall, key: EffectKey, traits: Traits, scope: CallScope) -> Leave:
    """Get a call allowed. ToolError: it may not run, and why.

    Each decision is read again by its place when the call's chain runs again after a crash.
    """
    args = call["args"]
    ruling = _judge(call, args, traits, scope)
    if ruling.decision == "deny":
        raise ToolError(
            f"{call['name']} was not run. {ruling.why} Find another way, or say in the answer "
            "what is left to do."
        )
    if ruling.decision == "allow":
        return Leave(args)
    request = approval_request(call["name"], args, call["id"], ruling.why)
    objection = partial(_objection, call, traits, scope)
    decision = await scope.questions.decide(key, "approval", request, objection)
    if decision.type == "edit":
        return Leave(dict(decision.args or {}))
    if decision.type == "respond":
        return Leave(args, result=decision.message)
    if decision.type == "approve":
        return Leave(args, grant=ruling.grant if decision.remember else "")
    raise ToolError(
        f"A person did not allow {call['name']}. {decision.message or 'No reason was given.'} "
        "Do not repeat the call; adapt to this."
    )


def _objection(call: PlannedCall, traits: Traits, scope: CallScope, decision: Decision) -> str:
    """Say why an edit cannot be carried out: a person is no more above a `deny` than the model."""
    if decision.type != "edit":
        return ""
    if decision.tool not in ("", call["name"]):
        return f"An edit cannot change the tool to {decision.tool}."
    args = dict(decision.args or {})
    try:
        scope.toolset.check(call["name"], args)
    except ToolError as error:
        return str(error)
    ruling = _judge(call, args, traits, scope)
    return ruling.why if ruling.decision == "deny" else ""


def _judge(call: PlannedCall, args: Mapping[str, Any], traits: Traits, scope: CallScope) -> Ruling:
    unvouched = call.get("unvouched", [])
    proposal = Proposal(
        name=call["name"],
        args=scope.toolset.with_defaults(call["name"], args),
        traits=traits,
        strange=strange_addresses(unvouched) if unvouched else "",
    )
    return judge(proposal, scope.session.settings, scope.granted)
