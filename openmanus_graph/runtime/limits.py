"""The limits of a run and of a tool call, and what ends when one is reached or the run is stopped.

`limit_reached` is checked before each model call. `limit_call` decides how long one tool call may
take. `unless_stopped` and `pause` abandon calls without effects, and waits, when the run is asked
to stop.
"""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from langgraph.runtime import Runtime, get_runtime

from openmanus_graph.state.manus import ManusState
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.state.settings import SandboxSettings, Settings
from openmanus_graph.state.tool_traits import Traits

LimitReason = Literal["max_steps", "budget", "timeout"]


class LimitReached(Exception):  # not an error: a regular end of a run
    """A limit forbids another model call."""

    def __init__(self, reason: LimitReason) -> None:
        super().__init__(reason)
        self.reason: LimitReason = reason
        self.spent = no_usage()
        """What other requests of the same model call had cost, where a middleware sends several."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    steps: int
    """Agent steps; in plans, those of the planner too."""
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
    usage, max_tokens = progress.usage, settings.max_total_tokens
    if progress.steps >= settings.max_steps:
        return "max_steps"
    if usage["cost_usd"] >= settings.max_cost_usd:
        return "budget"
    if max_tokens is not None and _tokens(usage) >= max_tokens:
        return "budget"
    if settings.timeout_s is not None and progress.elapsed_s >= settings.timeout_s:
        return "timeout"
    return None


def _tokens(usage: Usage) -> int:
    return usage["input_tokens"] + usage["output_tokens"]


STEPS_NEAR = 3
"""The model is told how many steps are left from so many on, the next one included."""
SHARE_NEAR = 0.9
"""The model is told what is left of a budget once this share of it is used, or so few steps and a
closing turn fit into it."""
CLOSING_SHARE, CLOSING_MOST_S = 0.1, 30.0
"""Share of a run's time that is kept for its closing turn, and the most of it."""


def near_limits(progress: Progress, call: Usage, settings: Settings) -> dict[str, str]:
    """Say what is left of each limit that a run comes near to, by what it limits.

    Args:
        progress: How far the run has come.
        call: What one model call may cost.
        settings: Hold the limits.
    """
    usage, near = progress.usage, dict[str, str]()
    ahead = (STEPS_NEAR + 1) * call["cost_usd"], (STEPS_NEAR + 1) * _tokens(call)
    tokens, max_tokens = _tokens(usage), settings.max_total_tokens
    if (steps := settings.max_steps - progress.steps) <= STEPS_NEAR:
        near["steps"] = f"{steps} of {settings.max_steps} steps, this one included"
    dollars = usage["cost_usd"]
    if dollars >= SHARE_NEAR * settings.max_cost_usd or dollars + ahead[0] > settings.max_cost_usd:
        left = max(0.0, settings.max_cost_usd - dollars)
        near["dollars"] = f"${left:.2g} of ${settings.max_cost_usd:g}"
    if max_tokens and (tokens >= SHARE_NEAR * max_tokens or tokens + ahead[1] > max_tokens):
        near["tokens"] = f"{max(0, max_tokens - tokens)} of {max_tokens} tokens"
    if settings.timeout_s is not None and progress.elapsed_s >= SHARE_NEAR * settings.timeout_s:
        left_s = max(0.0, settings.timeout_s - progress.elapsed_s)
        near["time"] = f"{left_s:.0f} of {settings.timeout_s:g} seconds"
    return near


def closing_time_s(settings: Settings) -> float:
    """Return the seconds at the end of a run's time that are kept for its closing turn."""
    return min(CLOSING_MOST_S, CLOSING_SHARE * (settings.timeout_s or 0))


def last_call_limit(progress: Progress, call: Usage, settings: Settings) -> LimitReason | None:
    """Return the limit that leaves room for one more model call, but not for two.

    Args:
        progress: How far the run has come.
        call: What one model call may cost.
        settings: Hold the limits.
    """
    if has_room(progress, call, settings) and not has_room(progress, call, settings, calls=2):
        return "budget"
    if settings.timeout_s is not None:
        left_s = settings.timeout_s - progress.elapsed_s
        return "timeout" if left_s <= closing_time_s(settings) else None
    return None


def has_room(progress: Progress, call: Usage, settings: Settings, calls: int = 1) -> bool:
    """Say whether the budgets of dollars and tokens hold so many more model calls of this cost."""
    spent, max_tokens = progress.usage, settings.max_total_tokens
    tokens = _tokens(spent) + calls * _tokens(call)
    dollars = spent["cost_usd"] + calls * call["cost_usd"]
    return dollars <= settings.max_cost_usd and (max_tokens is None or tokens <= max_tokens)


def deadline(settings: Settings, started: float, elapsed_s: float) -> float | None:
    """Return when the run's time for work is over, on the monotonic clock.

    Args:
        settings: Hold the limit.
        started: When the current agent step started, on the monotonic clock.
        elapsed_s: The run's time before that agent step, and what is kept of it at its end.
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
    what, name = limit_name(reason, settings, usage, steps)
    return f"The run stopped at its limit of {what}. It goes on with a higher {name}."


def limit_name(
    reason: LimitReason, settings: Settings, usage: Usage, steps: str = "steps"
) -> tuple[str, str]:
    """Return a limit in words, and the name of its setting. Arguments as of `limit_text`."""
    match reason:
        case "max_steps":
            return f"{settings.max_steps} {steps}", "max_steps"
        case "timeout":
            return f"{settings.timeout_s:g} seconds", "timeout_s"
        case "budget":
            most = settings.max_total_tokens
            if (
                most is not None
                and _tokens(usage) / most > usage["cost_usd"] / settings.max_cost_usd
            ):
                return f"{most} tokens", "max_total_tokens"
            return f"${settings.max_cost_usd:g}", "max_cost_usd"


STOP_GRACE_S = 5.0
"""Time that a call without effects still gets after the run was asked to stop."""
CUT_OFF_GRACE_S = 15.0
"""Time beyond a call's own limit, to open what it needs and to stop it."""
STOPPING_S = 5.0
"""Part of that: time to stop what a call runs and to read what it has printed. Shorter than the
grace that a step of a plan gets, since it is also added to the time of the whole run."""
_LEAST_LIMIT_S = 0.1
_POLL_S = 0.25

T = TypeVar("T")


class RunStopping(Exception):  # an event, not an error
    """The run was asked to stop, and the wait is abandoned."""


async def unless_stopped(work: Awaitable[T], *, pure: bool) -> T:
    """Wait for a call; one without effects is abandoned on a stop, since it can be repeated.

    Raises:
        RunStopping: It was abandoned.
    """
    runtime = _runtime()
    if not pure or runtime is None:
        return await work
    call, ends = asyncio.ensure_future(work), None
    try:
        while not call.done():
            await asyncio.wait({call}, timeout=_POLL_S)
            if ends is None and runtime.drain_requested:
                ends = time.monotonic() + STOP_GRACE_S
            if ends is not None and time.monotonic() > ends and not call.done():
                raise RunStopping
    finally:
        call.cancel()
    return call.result()


async def pause(seconds: float) -> None:
    """Sleep, unless the run is asked to stop.

    Raises:
        RunStopping: The run was asked to stop.
    """
    runtime, ends = _runtime(), time.monotonic() + seconds
    while (left_s := ends - time.monotonic()) > 0:
        if runtime is not None and runtime.drain_requested:
            raise RunStopping
        await asyncio.sleep(min(left_s, _POLL_S))


def _runtime() -> Runtime[Any] | None:
    try:
        return get_runtime()
    except RuntimeError:
        return None  # a call by itself, without a run


@dataclass(frozen=True)
class TimeLimit:
    """How long one call may take."""

    seconds: float
    """Limit of the call's own work."""
    cut_off_at: float
    """When the harness cancels the call, on the monotonic clock; its output is then lost."""

    def remaining_s(self) -> float:
        """Return how long work that starts now may take, with time left to return its output."""
        left_s = self.cut_off_at - STOPPING_S - time.monotonic()
        return max(_LEAST_LIMIT_S, min(self.seconds, left_s))


def limit_call(
    own_s: float | None,
    traits: Traits,
    sandbox: SandboxSettings,
    now: float,
    deadline: float | None,
    *,
    stops_itself: bool,
) -> TimeLimit:
    """Decide how long a call may take.

    Args:
        own_s: The limit in the call's arguments, or its tool's default.
        traits: Of the tool.
        sandbox: Holds the limit of calls where neither they nor their tool set one.
        now: When the call starts, on the monotonic clock.
        deadline: When the run's time is over, on that clock.
        stops_itself: Whether the tool keeps the limit itself, and needs time to return its output.
    """
    seconds = declared_limit_s(traits, sandbox) if own_s is None else own_s
    cut_off_at = now + seconds + (CUT_OFF_GRACE_S if stops_itself else 0)
    if deadline is None:
        return TimeLimit(seconds, cut_off_at)
    left_s = max(_LEAST_LIMIT_S, deadline - now)
    over_at = now + left_s + (STOPPING_S if stops_itself else 0)
    return TimeLimit(min(seconds, left_s), min(cut_off_at, over_at))


def declared_limit_s(traits: Traits, sandbox: SandboxSettings) -> float:
    """Return the limit of a call that sets none."""
    return sandbox.timeout_s if traits.timeout_s is None else traits.timeout_s
