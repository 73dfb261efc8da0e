"""The limits of a run: pure checks, made before each model call."""

from dataclasses import dataclass
from typing import Literal

from openmanus_graph.state.manus import ManusState
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.state.settings import Settings

LimitReason = Literal["max_steps", "budget", "timeout"]


class LimitReached(Exception):  # not an error: a regular end of a run
    """A limit forbids another model call."""

    def __init__(self, reason: LimitReason) -> None:
        super().__init__(reason)
        self.reason = reason
        self.spent = no_usage()
        """What other requests of the same step had cost, where a middleware makes several."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    steps: int
    usage: Usage
    elapsed_s: float

    def plus(self, other: "Progress") -> "Progress":
        """Add the progress of a parallel run, without its time."""
        usage = add_usage(self.usage, other.usage)
        return Progress(self.steps + other.steps, usage, self.elapsed_s)

    @classmethod
    def of(cls, state: ManusState) -> "Progress":
        """Read it from the state."""
        return cls(
            state.get("step_count", 0),
            state.get("usage") or no_usage(),
            state.get("elapsed_s", 0.0),
        )


def limit_reached(progress: Progress, settings: Settings) -> LimitReason | None:
    """Return the limit that forbids another model call."""
    usage = progress.usage
    tokens, max_tokens = usage["input_tokens"] + usage["output_tokens"], settings.max_total_tokens
    if progress.steps >= settings.max_steps:
        return "max_steps"
    if usage["cost_usd"] >= settings.max_cost_usd:
        return "budget"
    if max_tokens is not None and tokens >= max_tokens:
        return "budget"
    if settings.timeout_s is not None and progress.elapsed_s >= settings.timeout_s:
        return "timeout"
    return None


def deadline(settings: Settings, started: float, elapsed_s: float) -> float | None:
    """Return when the run's time is over, on the monotonic clock.

    Args:
        settings: Hold the limit.
        started: When the current step started, on the monotonic clock.
        elapsed_s: The run's time before that step.
    """
    return None if settings.timeout_s is None else started + settings.timeout_s - elapsed_s


def limit_text(reason: LimitReason, settings: Settings, usage: Usage, steps: str = "steps") -> str:
    """Say in words which limit ended the run, and how to go on.

    Args:
        reason: The limit.
        settings: Hold its value.
        usage: The run's usage.
        steps: What `max_steps` counts, where that is not steps.
    """
    match reason:
        case "max_steps":
            what, name = f"{settings.max_steps} {steps}", "max_steps"
        case "timeout":
            what, name = f"{settings.timeout_s:g} seconds", "timeout_s"
        case "budget":
            what, name = f"${settings.max_cost_usd:g}", "max_cost_usd"
            if usage["cost_usd"] < settings.max_cost_usd:
                what, name = f"{settings.max_total_tokens} tokens", "max_total_tokens"
    return f"The run stopped at its limit of {what}. It goes on with a higher {name}."
