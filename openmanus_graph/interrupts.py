"""Questions to people: what an interrupt shows, and what an answer may look like.

Approvals have the `HITLRequest` form that agent-chat-ui and Agent Inbox understand, with our
`kind`, `question` and `calls` beside it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from openmanus_graph.plans import plan_text
from openmanus_graph.state.plan import Plan

PLAN_FIELDS = ("id", "text", "executor", "depends_on", "done_when")
Kind = Literal["question", "approval", "unknown_outcome"]


@dataclass(frozen=True)
class Decision:
    """What a person decided about a call."""

    type: Literal["approve", "edit", "reject", "respond"]
    args: Mapping[str, Any] | None = None
    """New arguments of an edit."""
    tool: str = ""
    """The tool that an edit names, if it does."""
    message: str = ""
    """A rejection's reason, or the answer itself."""
    remember: bool = False
    """An approval holds for calls of this kind in the rest of the run."""


def question_request(question: str) -> dict[str, Any]:
    """Return what an interrupt shows for a question.

    Inboxes send what was typed as `respond` or, not knowing that, as a rejection's reason: both
    are the answer.
    """
    name, args = "ask_human", {"inquire": question}
    request = _request("question", question, name, args, "", ("respond", "reject"))
    return {**request, "calls": []}


def approval_request(
    name: str, args: Mapping[str, Any], call_id: str, reason: str = ""
) -> dict[str, Any]:
    """Return what an interrupt shows to have a call allowed."""
    question = f"{reason} Allow {name}?".lstrip()
    allowed = ("approve", "edit", "reject", "respond")
    return _request("approval", question, name, args, call_id, allowed)


def unknown_outcome_request(name: str, args: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    """Return what an interrupt shows to learn what became of a call that a crash cut off."""
    question = (
        f"{name} was under way when the run was cut off, and nobody knows whether it took place. "
        "Approve to run it again, reject to leave it, or answer with its result."
    )
    allowed = ("approve", "reject", "respond")
    return _request("unknown_outcome", question, name, args, call_id, allowed)


def plan_request(plan: Plan, problem: str) -> dict[str, Any]:
    """Return what an interrupt shows to have a plan approved.

    Args:
        plan: What would be done.
        problem: What was wrong with the answer before, if there was one.
    """
    steps = [
        {key: value for key, value in step.items() if key in PLAN_FIELDS} for step in plan["steps"]
    ]
    again = f"That cannot be done: {problem}. " if problem else ""
    question = (
        f"{again}Carry out this plan? Approve, edit its steps, reject, or say what to change."
        f"\n\n{plan_text(plan)}"
    )
    args = {"title": plan["title"], "steps": steps}
    allowed = ("approve", "edit", "reject", "respond")
    return _request("approval", question, "planning", args, plan["plan_id"], allowed)


def allowed_decisions(request: Mapping[str, Any]) -> list[str]:
    """Return the decisions that answer a request."""
    return list(request["review_configs"][0]["allowed_decisions"])


def read_decision(value: Any) -> Decision | None:
    """Understand an answer; None if it is none.

    Args:
        value: A word, a decision, `{"decisions": [one]}` or, as Agent Inbox sends it, `[one]`.
    """
    value = _alone(_written_out(value))
    if isinstance(value, str):
        return _read_word(value)
    fields = _fields(value)
    given = fields.get("args")
    said = given if isinstance(given, str) else ""
    message = str(fields.get("message") or fields.get("reason") or said)
    match fields.get("type"):
        case "approve" | "accept":
            return Decision("approve", remember=fields.get("remember") is True)
        case "reject" | "ignore":
            return Decision("reject", message=message)
        case "respond" | "response":
            return Decision("respond", message=message)
        case "edit":
            edited = _fields(fields.get("edited_action") or given or fields)
            args = edited.get("args", edited if edited is given else None)
            tool = str(edited.get("name") or edited.get("action") or "")
            return Decision("edit", _fields(args), tool) if isinstance(args, Mapping) else None
        case _:
            return None


def _read_word(text: str) -> Decision | None:
    word = text.strip().lower()
    if word in ("approve", "reject"):
        return Decision(word)  # type: ignore[arg-type]  # narrowed by the line above
    if word == "always":
        return Decision("approve", remember=True)
    return Decision("respond", message=text) if word else None


def _alone(value: Any) -> Any:
    """Take a single decision out of what inboxes wrap round it."""
    for _ in range(2):
        inner: Any = _fields(value).get("decisions", value)
        if isinstance(inner, list):
            made = cast("list[Any]", inner)
            inner = made[0] if len(made) == 1 else None
        value = inner
    return value


def _written_out(value: Any) -> Any:
    """Read a decision that was typed as JSON; any other text stays as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        written = json.loads(value)
    except ValueError:
        return value
    return written if "type" in _fields(_alone(written)) else value


def read_text(value: Any) -> str | None:
    """Understand the answer to a question; None if it is none."""
    alone = _alone(value)
    fields = _fields(alone)
    for key in ("answer", "message", "args", "content", "text"):
        if isinstance(fields.get(key), str):
            return str(fields[key])
    if fields.get("type") in ("reject", "ignore"):
        return "The person does not want to answer that."
    return None if alone is None or isinstance(alone, Mapping | list) else str(alone)


def _request(
    kind: Kind,
    question: str,
    name: str,
    args: Mapping[str, Any],
    call_id: str,
    allowed: Sequence[str],
) -> dict[str, Any]:
    return {
        "kind": kind,
        "question": question,
        "calls": [{"call_id": call_id, "tool": name, "args": dict(args)}],
        "action_requests": [{"name": name, "args": dict(args), "description": question}],
        "review_configs": [{"action_name": name, "allowed_decisions": list(allowed)}],
    }


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
