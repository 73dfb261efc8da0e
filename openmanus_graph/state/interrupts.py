"""Questions to people: the value of an interrupt, and the answers that are understood.

Approvals have the `HITLRequest` form that agent-chat-ui and Agent Inbox understand, with our
`kind`, `question` and `calls` in addition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from langgraph.types import Interrupt

from openmanus_graph.state.json_values import json_or

MIDDLEWARE_KEY = "openmanus_middleware_calls"
"""In a middleware's question: how many decisions it wants."""
REACH_HOST = "reach_host"
"""The tool that is called when a host was refused to a program."""
Kind = Literal["question", "approval", "unknown_outcome"]


@dataclass(frozen=True)
class Decision:
    """A person's decision about a call."""

    type: Literal["approve", "edit", "reject", "respond"]
    args: Mapping[str, Any] | None = None
    """New arguments of an edit."""
    tool: str = ""
    """The tool that an edit names, if it does."""
    message: str = ""
    """A rejection's reason, or the answer itself."""
    remember: bool = False
    """Whether an approval also allows calls of this kind in the rest of the thread."""


def decision_request(
    kind: Kind,
    question: str,
    name: str,
    args: Mapping[str, Any],
    call_id: str,
    allowed: Sequence[str],
) -> dict[str, Any]:
    """Return a request about a call of the tool `name`, in the form that inboxes understand.

    `allowed` lists the decisions that answer the question.
    """
    return {
        "kind": kind,
        "question": question,
        "calls": [{"call_id": call_id, "tool": name, "args": dict(args)}],
        "action_requests": [{"name": name, "args": dict(args), "description": question}],
        "review_configs": [{"action_name": name, "allowed_decisions": list(allowed)}],
    }


def question_request(question: str, *, browser: str | None = None) -> dict[str, Any]:
    """Return the value of an interrupt for a question.

    With `browser` the person is asked to act in the browser of the worker with this name (empty:
    the thread's own), and to answer when it is done.
    """
    # Inboxes send the typed text as `respond` or as a rejection's reason: both are the answer.
    allowed = ("respond", "reject")
    request = decision_request(
        "question", question, "ask_human", {"inquire": question}, "", allowed
    )
    more = {"browser": browser} if browser is not None else {}
    return {**request, "calls": [], **more}


def approval_request(
    name: str, args: Mapping[str, Any], call_id: str, reason: str = "", always: str = ""
) -> dict[str, Any]:
    """Return a question about a call. `always` says what its answer `always` allows."""
    what = f"programs to reach {args.get('address')}" if name == REACH_HOST else name
    question = f"{reason} Allow {what}?".lstrip()
    allowed = ("approve", "edit", "reject", "respond")
    request = decision_request("approval", question, name, args, call_id, allowed)
    return {**request, "always": always} if always else request


def unknown_outcome_request(name: str, args: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    """Return the value of an interrupt that asks for the outcome of a call that a crash cut off."""
    question = (
        f"{name} was running when the run was cut off, so it is not known whether it took place. "
        "Approve to run it again, reject to leave it, or give its result."
    )
    allowed = ("approve", "reject", "respond")
    return decision_request("unknown_outcome", question, name, args, call_id, allowed)


def as_approval(waiting: Interrupt, plan_step: str = "") -> Interrupt:
    """Return a LangChain middleware's question with our `kind`, `question` and `calls` too.

    Other questions, and those that have these, are returned unchanged. `plan_step` is the plan step
    that asks, if it is one.
    """
    value = _fields(waiting.value)
    actions: list[Any] = list(value.get("action_requests", ()))
    if value.get("type") == "tool_approval":  # HumanInTheLoop's other form: one call, as it runs
        actions = [value]
    if "kind" in value or not actions:
        return waiting
    shown = [_fields(action) for action in actions]
    calls: list[dict[str, Any]] = [
        {
            "call_id": str(action.get("tool_call_id", "")),
            "tool": str(action.get("name", "")),
            "args": dict(action.get("args", {})),
        }
        for action in shown
    ]
    question = "\n\n".join(filter(None, (str(action.get("description", "")) for action in shown)))
    if not question:
        question = f"Allow {', '.join(call['tool'] for call in calls)}?"
    ours: dict[str, Any] = {"kind": "approval", "question": question, "calls": calls}
    ours |= {"plan_step": plan_step} if plan_step else {}
    return _with_value(waiting, {**value, **ours, MIDDLEWARE_KEY: len(calls)})


def asked_again(waiting: Interrupt, problem: str) -> Interrupt:
    """Return a question that is asked again, with the reason why its answer could not be used.

    The value of a question that is neither a text nor an object is unchanged.
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
    question = f"{preface} {value.get('question', '')}".strip()
    return _with_value(waiting, {**value, "question": question})


def _with_value(waiting: Interrupt, value: Any) -> Interrupt:
    return Interrupt(value, waiting.id, response_schema=waiting.response_schema)


def middleware_answer(asked: Any, answer: Any) -> Any:
    """Return an answer in the form that the asking middleware reads; others are unchanged.

    LangChain's middleware wants a decision for each call of a reply, in order. A single decision
    counts for all of them, except an edit: several calls must not become the same one. An answer is
    a word, a decision, or `{"decisions": [...]}`.
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
    return list(request["review_configs"][0]["allowed_decisions"])


def read_decision(value: Any) -> Decision | None:
    """Parse an answer; None if it is not a decision.

    A decision is a text as `read_typed_decision` takes it, an object, also as JSON text,
    `{"decisions": [one]}` or, as Agent Inbox sends it, `[one]`.
    """
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        written = json_or(value)
        value = written if "type" in _fields(_alone(written)) else value
    value = _alone(value)
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
    """Parse a decision that a person typed; None if the text is none.

    `a` (`approve`, `y`, `yes`) approves, `always` also the calls of its kind. `r WHY` (`reject`,
    `n`, `no`, with or without a reason) rejects. `= RESULT` is the call's result. Nothing else
    counts: `yes please do` may be an approval or a result.
    """
    typed = text.strip()
    if typed.startswith("="):
        result = typed[1:].strip()
        return Decision("respond", message=result) if result else None
    first, *rest = typed.split(maxsplit=1)[:2] or [""]
    word, reason = first.lower(), "".join(rest)
    if word in _REJECT:
        return Decision("reject", message=reason)
    if reason or word not in {*_APPROVE, "always"}:
        return None
    return Decision("approve", remember=word == "always")


def read_decision_on(kind: str, value: Any) -> Decision | None:
    """Parse an answer to a question of a kind; None if it is none.

    The outcome of a call can be written in any words, because they allow nothing. A text that
    should be JSON and is not is not an answer there either.
    """
    decision = read_decision(value)
    if decision is None and kind == "unknown_outcome" and isinstance(value, str):
        reported = value.strip()
        if reported and not reported.startswith(("{", "[", "=")):
            return Decision("respond", message=reported)
    return decision


def no_decision(allowed: Sequence[str]) -> str:
    """Return the sentence for an answer that is not one of the allowed decisions."""
    words = {"approve": "`approve`", "reject": "`reject WHY`", "respond": "`= RESULT`"}
    known = [words[one] for one in allowed if one in words]
    return f"That is not a decision, and nothing was done: answer {', '.join(known)}."


def read_text(value: Any) -> str | None:
    """Parse the answer to a question; None if it is none."""
    alone = _alone(value)
    fields = _fields(alone)
    for key in ("answer", "message", "args", "content", "text"):
        if isinstance(fields.get(key), str):
            return str(fields[key])
    if fields.get("type") in ("reject", "ignore"):
        return "The person does not want to answer that."
    return None if alone is None or isinstance(alone, Mapping | list) else str(alone)


def _alone(value: Any) -> Any:
    """Return the single decision in the lists and objects that inboxes put around it."""
    for _ in range(2):
        inner: Any = _fields(value).get("decisions", value)
        if isinstance(inner, list):
            made = cast("list[Any]", inner)
            inner = made[0] if len(made) == 1 else None
        value = inner
    return value


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
