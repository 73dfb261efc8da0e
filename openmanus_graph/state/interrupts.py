"""Questions to people: what an interrupt shows, and what an answer may look like.

Approvals have the `HITLRequest` form that agent-chat-ui and Agent Inbox understand, with our
`kind`, `question` and `calls` beside it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from langgraph.types import Interrupt

MIDDLEWARE_KEY = "openmanus_middleware_calls"
"""In a middleware's question: how many decisions it wants."""
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


def question_request(question: str, *, browser: str | None = None) -> dict[str, Any]:
    """Return what an interrupt shows for a question.

    With `browser` the person is asked to act in an agent's browser, and to answer when it is done:
    the name of the worker whose it is, empty for the thread's own.

    Inboxes send what was typed as `respond` or, not knowing that, as a rejection's reason: both
    are the answer.
    """
    name, args = "ask_human", {"inquire": question}
    request = decision_request("question", question, name, args, "", ("respond", "reject"))
    more = {"browser": browser} if browser is not None else {}
    return {**request, "calls": [], **more}


def approval_request(
    name: str, args: Mapping[str, Any], call_id: str, reason: str = ""
) -> dict[str, Any]:
    """Return what an interrupt shows to have a call allowed."""
    question = f"{reason} Allow {name}?".lstrip()
    allowed = ("approve", "edit", "reject", "respond")
    return decision_request("approval", question, name, args, call_id, allowed)


def unknown_outcome_request(name: str, args: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    """Return what an interrupt shows to learn what became of a call that a crash cut off."""
    question = (
        f"{name} was under way when the run was cut off, and nobody knows whether it took place. "
        "Approve to run it again, reject to leave it, or give its result."
    )
    allowed = ("approve", "reject", "respond")
    return decision_request("unknown_outcome", question, name, args, call_id, allowed)


def as_approval(waiting: Interrupt, plan_step: str = "") -> Interrupt:
    """Return the question of a LangChain middleware with our `kind`, `question` and `calls` too.

    Others, and those that have them, stay as they are.

    Args:
        waiting: The question.
        plan_step: The plan step that asks, if it is one.
    """
    value = _fields(waiting.value)
    actions: list[Any] = list(value.get("action_requests", ()))
    if value.get("type") == "tool_approval":  # HumanInTheLoop's other form: one call, as it runs
        actions = [value]
    if "kind" in value or not actions:
        return waiting
    shown = [_fields(action) for action in actions]
    names = [str(action.get("name", "")) for action in shown]
    calls = [
        {
            "call_id": str(action.get("tool_call_id", "")),
            "tool": name,
            "args": dict(action.get("args", {})),
        }
        for name, action in zip(names, shown, strict=True)
    ]
    descriptions = [str(action.get("description", "")) for action in shown]
    question = "\n\n".join(filter(None, descriptions)) or f"Allow {', '.join(names)}?"
    ours: dict[str, Any] = {"kind": "approval", "question": question, "calls": calls}
    ours |= {"plan_step": plan_step} if plan_step else {}
    return _with_value(waiting, {**value, **ours, MIDDLEWARE_KEY: len(calls)})


def asked_again(waiting: Interrupt, problem: str) -> Interrupt:
    """Return a question that is put again, since its answer could not be used.

    It says so if it is a text or an object; other values stay as they are.

    Args:
        waiting: The question.
        problem: What was wrong with the answer.
    """
    preface = f"The answer could not be used: {problem}."
    if isinstance(waiting.value, str):
        return _with_value(waiting, f"{preface} {waiting.value}")
    if not isinstance(waiting.value, Mapping):
        return waiting
    value = _fields(waiting.value)
    if value.get("type") == "tool_approval":
        preface += ' Its form is {"type": "approve"}.'
    elif count := value.get(MIDDLEWARE_KEY, 0):
        form = '{"decisions": [{"type": "approve"}, ...]}'
        preface += f" Its form is {form}, with a decision for each call ({count}), in their order."
    return _with_value(
        waiting, {**value, "question": f"{preface} {value.get('question', '')}".strip()}
    )


def _with_value(waiting: Interrupt, value: Any) -> Interrupt:
    return Interrupt(value, waiting.id, response_schema=waiting.response_schema)


def middleware_answer(asked: Any, answer: Any) -> Any:
    """Return an answer in the form that the asking middleware reads; others stay as they are.

    LangChain's middleware wants a decision for each call of a reply, in order. A single one counts
    for all of them, but for an edit: several calls must not become the same one.

    Args:
        asked: What the interrupt showed.
        answer: A word, a decision, or `{"decisions": [...]}`.
    """
    count: int = _fields(asked).get(MIDDLEWARE_KEY, 0)
    decision = read_decision(answer) if count else None
    if decision is None or (decision.type == "edit" and count > 1):
        return answer
    made: dict[str, Any] = {"type": decision.type}
    if decision.type == "edit":
        name = decision.tool or asked["calls"][0]["tool"]
        made["edited_action"] = {"name": name, "args": dict(decision.args or {})}
    elif decision.message or decision.type == "respond":
        made["message"] = decision.message
    if _fields(asked).get("type") == "tool_approval":
        return made
    return {"decisions": [made] * count}


def allowed_decisions(request: Mapping[str, Any]) -> list[str]:
    """Return the decisions that answer a request."""
    return list(request["review_configs"][0]["allowed_decisions"])


def read_decision(value: Any) -> Decision | None:
    """Understand an answer; None if it is none.

    Args:
        value: A text as `read_typed_decision` takes it, a decision, also written out as JSON,
            `{"decisions": [one]}` or, as Agent Inbox sends it, `[one]`.
    """
    value = _alone(_written_out(value))
    if isinstance(value, str):
        return read_typed_decision(value)
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
            edited = fields.get("edited_action") or given or fields
            named = _fields(edited)
            args = named.get("args", edited if edited is given else None)
            tool = str(named.get("name") or named.get("action") or "")
            return Decision("edit", _fields(args), tool) if isinstance(args, Mapping) else None
        case _:
            return None


_APPROVE = frozenset({"a", "approve", "y", "yes"})
_REJECT = frozenset({"r", "reject", "n", "no"})


def read_typed_decision(text: str) -> Decision | None:
    """Understand a decision that a person typed; None if the text is none.

    `a` (`approve`, `y`, `yes`) approves, `always` also the calls of its kind, `r WHY` (`reject`,
    `n`, `no`; the reason may be missing) rejects, `= RESULT` is the call's result. Nothing else
    counts: of `yes please do` nobody knows whether it is an approval or a result.
    """
    typed = text.strip()
    if typed.startswith("="):
        result = typed[1:].strip()
        return Decision("respond", message=result) if result else None
    first, *rest = typed.split(maxsplit=1)[:2] or [""]
    word, reason = first.lower(), "".join(rest)
    if word in _REJECT:
        return Decision("reject", message=reason)
    if reason:
        return None
    if word in _APPROVE:
        return Decision("approve")
    return Decision("approve", remember=True) if word == "always" else None


def read_decision_on(kind: str, value: Any) -> Decision | None:
    """Understand an answer to a question of a kind; None if it is none.

    What became of a call is told in any words, as nothing is allowed by them. A text that should be
    JSON and is not is no answer there either.
    """
    decision = read_decision(value)
    if decision is None and kind == "unknown_outcome" and isinstance(value, str):
        reported = value.strip()
        if reported and not reported.startswith(("{", "[", "=")):
            return Decision("respond", message=reported)
    return decision


def no_decision(allowed: Sequence[str]) -> str:
    """Say that an answer is no decision, and which words would be.

    Args:
        allowed: Decisions that answer the request.
    """
    words = {"approve": "`approve`", "reject": "`reject WHY`", "respond": "`= RESULT`"}
    known = [words[one] for one in allowed if one in words]
    return f"That is no decision, and nothing was done: answer {', '.join(known)}."


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
    except (ValueError, RecursionError):
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


def decision_request(
    kind: Kind,
    question: str,
    name: str,
    args: Mapping[str, Any],
    call_id: str,
    allowed: Sequence[str],
) -> dict[str, Any]:
    """Return a request in the form that inboxes understand.

    Args:
        kind: What is asked for.
        question: For the person.
        name: Of the tool.
        args: Of the call.
        call_id: The model's.
        allowed: Decisions that answer it.
    """
    return {
        "kind": kind,
        "question": question,
        "calls": [{"call_id": call_id, "tool": name, "args": dict(args)}],
        "action_requests": [{"name": name, "args": dict(args), "description": question}],
        "review_configs": [{"action_name": name, "allowed_decisions": list(allowed)}],
    }


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
