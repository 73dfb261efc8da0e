"""What the run of a step's executor came to: pure functions over what it returned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, convert_to_messages

from openmanus_graph.limits import LimitReason
from openmanus_graph.state.planning import Outcome
from openmanus_graph.state.reducers import Usage, add_usage, no_usage

_OUR_STATUSES = ("finished", "failed", "stopped", "cancelled")


@dataclass(frozen=True)
class StepLimits:
    """What bounds one step's run."""

    seconds: float
    """Of its run."""
    seconds_of_all: bool
    """Whether that is what is left of the whole plan's time, and not the step's own limit."""
    max_steps: int
    """Model calls."""
    max_steps_of_all: bool
    """Whether that is the whole plan's limit."""

    def of_all(self, reason: str | None) -> LimitReason | None:
        """Return the limit of the whole plan that a run's stop reason stands for, if it does."""
        match reason:
            case "budget":
                return "budget"
            case "timeout" if self.seconds_of_all:
                return "timeout"
            case "max_steps" if self.max_steps_of_all:
                return "max_steps"
            case _:
                return None


@dataclass(frozen=True)
class StepOutcome:
    """What an executor's run came to."""

    kind: Outcome
    text: str
    """Its answer, or why there is none."""
    usage: Usage
    steps: int = 0
    """Model calls as an agent."""
    elapsed_s: float = 0.0
    """As it counted itself, over all its processes."""
    messages: Sequence[AnyMessage] = ()


def read_outcome(values: Mapping[str, Any], limits: StepLimits, asked: int) -> StepOutcome:
    """Understand what an executor came to: our agents' state, or any graph's messages.

    Args:
        values: The state of its graph, when it had ended.
        limits: Of its run.
        asked: How many messages it was given.
    """
    messages = messages_in(values)
    text = _answer(values, messages)
    status, reason = values.get("status"), values.get("stop_reason")
    if status not in _OUR_STATUSES:  # somebody else's graph: its words mean what they like
        status = None
    if limit := limits.of_all(reason) if status == "stopped" else None:
        return outcome_at(values, limit, text, asked)
    if status == "finished" or (status is None and text):
        return outcome_at(values, "succeeded", text, asked)
    return outcome_at(values, "failed", _why(status, reason, text, limits), asked)


def outcome_at(values: Mapping[str, Any], kind: Outcome, text: str, asked: int) -> StepOutcome:
    """Return an outcome with what the executor's state tells of its costs."""
    messages = messages_in(values)
    counted: Usage | None = values.get("usage") if "run_message" in values else None
    return StepOutcome(
        kind=kind,
        text=text,
        usage=counted or _reported(messages[asked:]),
        steps=_number(values, "step_count"),
        elapsed_s=_number(values, "elapsed_s"),
        messages=messages,
    )


def messages_in(values: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the messages of a graph's state, in whatever form it keeps them."""
    found: Any = values.get("messages")
    if not isinstance(found, list | tuple):
        return []
    try:
        return convert_to_messages(found)  # type: ignore[return-value]  # it says less
    except (TypeError, ValueError, LookupError, NotImplementedError):
        return []


def _answer(values: Mapping[str, Any], messages: Sequence[AnyMessage]) -> str:
    last = messages[-1].text.strip() if messages and messages[-1].type == "ai" else ""
    answer = values.get("answer")
    return answer if isinstance(answer, str) and answer else last


def _why(status: Any, reason: Any, text: str, limits: StepLimits) -> str:
    """Say why a run was no success, for people and for the model that tries again."""
    match reason if status else "":
        case "":
            return "It ended without an answer."
        case "terminate":
            return text or "Its agent gave it up."
        case "max_steps":
            return f"It was not done after {limits.max_steps} model calls. {_last(text)}".strip()
        case "timeout":
            return f"It was not done after {limits.seconds:g} s. {_last(text)}".strip()
        case "stuck":
            return f"Its last steps repeated themselves without any result. {_last(text)}".strip()
        case _:
            return text or "It failed."


def _last(text: str) -> str:
    """Return what an agent said last, without the sentence that its own limit added."""
    said = text.rpartition("\n\n")[0]
    return f"It said last: {said}" if said else ""


def _reported(messages: Sequence[AnyMessage]) -> Usage:
    """Add up the tokens that a graph of somebody else's says its model used."""
    usage = no_usage()
    for message in messages:
        used = message.usage_metadata if isinstance(message, AIMessage) else None
        if used is not None:
            cached = used.get("input_token_details", {}).get("cache_read", 0)
            usage = add_usage(
                usage,
                Usage(
                    input_tokens=used["input_tokens"],
                    cached_tokens=cached,
                    output_tokens=used["output_tokens"],
                    model_calls=1,
                    cost_usd=0.0,
                ),
            )
    return usage


def _number(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    return value if isinstance(value, int | float) and "run_message" in values else 0
