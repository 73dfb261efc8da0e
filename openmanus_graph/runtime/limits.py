"""The limits of a run and of a tool call, and how work ends when a run is stopped.

`reached_limit` is called before each model call; `limit_call` sets the time limit of a tool call.
`unless_stopped` and `sleep_unless_stopped` abandon waits, and calls without effects, on a stop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from langgraph.errors import GraphDrained
from langgraph.runtime import Runtime, get_runtime

from openmanus_graph.state.manus import ManusState, Usage, add_usage, no_usage
from openmanus_graph.state.settings import SandboxSettings, Settings
from openmanus_graph.state.tool_traits import Traits

LimitReason = Literal["max_steps", "budget", "timeout"]
RECURSION_LIMIT = 100_000
"""For a graph that sets none itself; our graphs have their own limits, far below."""
CALLS_NEAR = 3
"""Number of calls before the final summary from which the model sees what is left of a limit."""
SHARE_NEAR = 0.9
"""Used share of a budget from which the model sees what is left of it."""
CLOSING_SHARE, CLOSING_MOST_S = 0.1, 30.0
"""Share of a run's time that is reserved for its final summary, and the maximum in seconds."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come, or what one call takes."""

    steps: int
    """Agent steps, including those of a plan's planner."""
    usage: Usage
    elapsed_s: float

    def plus(self, other: "Progress") -> "Progress":
        """Add the progress of a parallel run, without its time."""
        usage = add_usage(self.usage, other.usage)
        return Progress(self.steps + other.steps, usage, self.elapsed_s)

    @classmethod
    def of(cls, state: ManusState) -> "Progress":
        return cls(
            state.get("step_count", 0),
            state.get("usage") or no_usage(),
            state.get("elapsed_s", 0.0),
        )


A_STEP = Progress(1, no_usage(), 0.0)
"""The least that a step needs."""


@dataclass(frozen=True)
class Limit:
    """One limit of a run, how much of it is used, and how much the next calls need."""

    reason: LimitReason
    setting: str
    unit: str
    most: float
    used: float
    next_call: float
    """What the next model call may need; 0 for time, where it is unknown."""
    summary: float
    """What is reserved for the final summary."""

    @property
    def left(self) -> float:
        return max(0, self.most - self.used)

    def is_reached(self, *, keeps_reserve: bool) -> bool:
        """Return True if the next call is forbidden. `max_steps` forbids only agent steps."""
        kept = self.summary if keeps_reserve else 0
        used_up = self.left <= 0 and self.reason != "max_steps"
        return used_up or self.left < self.next_call + kept

    def is_near(self) -> bool:
        """Return True if little is left, or only enough for a few calls and a final summary."""
        share = 1 if self.reason == "max_steps" else SHARE_NEAR
        return self.used >= share * self.most or self.left < (CALLS_NEAR + 1) * self.next_call

    def words(self, steps: str = "steps") -> str:
        """Return the limit in words. `steps` is what `max_steps` counts."""
        return self._amount(self.most, steps)

    def left_words(self) -> str:
        own = ", this one included" if self.reason == "max_steps" else ""
        return f"{self._number(self.left)} of {self.words()}{own}"

    def event(self) -> dict[str, Any]:
        return {
            "type": "limit",
            "reason": self.reason,
            "setting": self.setting,
            "limit": self.most,
            "higher": max(2 * self.most, self.used + 2 * (self.next_call + self.summary)),
        }

    def text(self, steps: str = "steps") -> str:
        """Return which limit ended the run, and how to continue. `steps` as for `words`."""
        what, next_call = self.words(steps), self._amount(self.next_call, steps)
        if self.reason == "budget" and not self.used:
            takes = f", which takes about {next_call}" if self.next_call else ""
            return (
                f"The run did not begin: its limit of {what} is too small for one model call"
                f"{takes}. It begins with a higher {self.setting}."
            )
        why = ""
        if 0 < self.left < self.next_call:
            left = self._amount(self.left, steps)
            why = f": {left} are left, and the next model call takes about {next_call}"
        stopped = f"The run stopped at its limit of {what}{why}."
        return f"{stopped} It continues with a higher {self.setting}."

    def _amount(self, value: float, steps: str) -> str:
        if self.unit == "$":
            return self._number(value)
        return f"{self._number(value)} {steps if self.reason == 'max_steps' else self.unit}"

    def _number(self, value: float) -> str:
        return f"${round(value, 4):.10g}" if self.unit == "$" else f"{round(value, 2):.10g}"


class LimitReached(Exception):  # not an error: a regular end of a run
    """A limit forbids another model call."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.reason)
        self.limit = limit
        self.spent = no_usage()
        """Cost of other requests of the same model call, if a middleware sends several."""

    @property
    def reason(self) -> LimitReason:
        return self.limit.reason


def recursion_limit(graph: Any) -> int:
    """Return the supersteps that a graph may take: its own limit, or practically no limit."""
    own: dict[str, int] = getattr(graph, "config", None) or {}
    return own.get("recursion_limit", RECURSION_LIMIT)


def run_limits(progress: Progress, settings: Settings, next_call: Progress = A_STEP) -> list[Limit]:
    """Return the limits of a run. `next_call` is what the next model call may need."""
    used, ahead = progress.usage, next_call.usage
    steps = progress.steps, next_call.steps, 0
    limits = [Limit("max_steps", "max_steps", "steps", settings.max_steps, *steps)]
    if (most := settings.max_total_tokens) is not None:
        done, needed = (one["input_tokens"] + one["output_tokens"] for one in (used, ahead))
        limits.append(Limit("budget", "max_total_tokens", "tokens", most, done, needed, needed))
    dollars = used["cost_usd"], ahead["cost_usd"], ahead["cost_usd"]
    limits.append(Limit("budget", "max_cost_usd", "$", settings.max_cost_usd, *dollars))
    if (most_s := settings.timeout_s) is not None:
        seconds = progress.elapsed_s, 0, min(CLOSING_MOST_S, CLOSING_SHARE * most_s)
        limits.append(Limit("timeout", "timeout_s", "seconds", most_s, *seconds))
    return limits


def reached_limit(
    progress: Progress,
    settings: Settings,
    next_call: Progress = A_STEP,
    *,
    keeps_reserve: bool = False,
) -> Limit | None:
    """Return the limit that forbids the next model call. Arguments as for `run_limits`."""
    limits = run_limits(progress, settings, next_call)
    return next((limit for limit in limits if limit.is_reached(keeps_reserve=keeps_reserve)), None)


def most_used_limit(reason: LimitReason, progress: Progress, settings: Settings) -> Limit:
    limits = [limit for limit in run_limits(progress, settings) if limit.reason == reason]
    return max(limits, key=lambda limit: limit.used / limit.most if limit.most else 1)


def time_left_s(
    progress: Progress, settings: Settings, *, keeps_reserve: bool = False
) -> float | None:
    """Return the seconds that a run still has for its calls; None without a limit."""
    for limit in run_limits(progress, settings):
        if limit.reason == "timeout":
            return limit.most - limit.used - (limit.summary if keeps_reserve else 0)
    return None


STOP_GRACE_S = 5.0
"""Time that a call without effects still has after the run was asked to stop."""
CUT_OFF_GRACE_S = 15.0
"""Time beyond a call's own limit, to open what it needs and to stop it."""
STOPPING_S = 5.0
"""Part of that: time to stop what a call runs and to read its output. Shorter than the grace period
of a plan step, because it is also added to the time of the whole run."""
INTERRUPT = "SIGINT"
"""The reason for a stop by Ctrl-C."""
_LEAST_LIMIT_S = 0.1
_POLL_S = 0.25

T = TypeVar("T")


class RunStopping(Exception):  # an event, not an error
    """The run was asked to stop, and the wait is abandoned."""


async def unless_stopped(work: Awaitable[T], *, read_only: bool) -> T:
    """Wait for a tool call. One without effects can be repeated: on a stop it is abandoned.

    RunStopping: It was abandoned.
    """
    if not read_only:
        return await work
    return await _unless(work, lambda run: run.drain_requested, STOP_GRACE_S, RunStopping())


async def unless_interrupted(work: Awaitable[T]) -> T:
    """Wait for a model request. Only Ctrl-C ends it at once: it is paid for.

    GraphDrained: It was abandoned. The thread continues before it.
    """
    interrupted = GraphDrained(INTERRUPT)
    return await _unless(work, lambda run: run.drain_reason == INTERRUPT, 0, interrupted)


async def _unless(
    work: Awaitable[T], stopped: Callable[[Runtime[Any]], bool], grace_s: float, error: Exception
) -> T:
    runtime = _runtime()
    if runtime is None:
        return await work
    call, ends = asyncio.ensure_future(work), None
    try:
        while not call.done():
            await asyncio.wait({call}, timeout=_POLL_S)
            if ends is None and stopped(runtime):
                ends = time.monotonic() + grace_s
            if ends is not None and time.monotonic() >= ends and not call.done():
                raise error
    finally:
        if not call.done():
            call.cancel()
            await asyncio.wait({call}, timeout=STOPPING_S)  # the next call may need its resources
    return call.result()


def is_stopping() -> bool:
    """Return True if the run was asked to stop."""
    runtime = _runtime()
    return runtime is not None and runtime.drain_requested


async def sleep_unless_stopped(seconds: float) -> None:
    """Sleep. RunStopping: the run was asked to stop."""
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
    """For the call's own work."""
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

    `own_s` is the limit in the call's arguments, or its tool's default. The call starts `now` and
    the run's time ends at the `deadline`, on the monotonic clock. A tool that stops itself at the
    limit needs time to return its output.
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
