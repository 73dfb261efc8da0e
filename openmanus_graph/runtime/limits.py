"""The limits of a run and of a tool call, and what ends when one is reached or the run is stopped.

`reached_limit` is asked before each model call. `limit_call` decides how long one tool call may
take. `unless_stopped` and `sleep_unless_stopped` abandon calls without effects, and waits, when the
run is asked to stop.
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
"""Of a graph that sets none itself: our own have limits of their own, far below."""
CALLS_NEAR = 3
"""The model is told what is left of a limit from so many calls before the final summary on."""
SHARE_NEAR = 0.9
"""The model is told what is left of a budget once this share of it is used."""
CLOSING_SHARE, CLOSING_MOST_S = 0.1, 30.0
"""Share of a run's time that is kept for its final summary, and the most of it."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come, or what one call takes."""

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


A_STEP = Progress(1, no_usage(), 0.0)
"""What a step takes at least."""


@dataclass(frozen=True)
class Limit:
    """One limit of a run, how much of it is used, and what the calls to come take of it."""

    reason: LimitReason
    setting: str
    """Name of its setting."""
    unit: str
    most: float
    used: float
    next_call: float
    """What the next model call may take; of time nothing is known."""
    summary: float
    """What is kept for the final summary."""

    @property
    def left(self) -> float:
        """What is not used."""
        return max(0, self.most - self.used)

    def is_reached(self, *, keeps_reserve: bool) -> bool:
        """Say whether the next call is forbidden; by the steps only one that is a step."""
        kept = self.summary if keeps_reserve else 0
        used_up = self.left <= 0 and self.reason != "max_steps"
        return used_up or self.left < self.next_call + kept

    def is_near(self) -> bool:
        """Say whether few calls and a final summary fit into what is left, or little of it is."""
        share = 1 if self.reason == "max_steps" else SHARE_NEAR
        return self.used >= share * self.most or self.left < (CALLS_NEAR + 1) * self.next_call

    def words(self, steps: str = "steps") -> str:
        """Return the limit in words.

        Args:
            steps: What `max_steps` counts, where that is not steps.
        """
        return self._amount(self.most, steps)

    def left_words(self) -> str:
        """Say in words what is left."""
        own = ", this one included" if self.reason == "max_steps" else ""
        return f"{self._number(self.left)} of {self.words()}{own}"

    def event(self) -> dict[str, Any]:
        """Return the event that says which limit ends the run."""
        return {
            "type": "limit",
            "reason": self.reason,
            "setting": self.setting,
            "limit": self.most,
            "higher": max(2 * self.most, self.used + 2 * (self.next_call + self.summary)),
        }

    def text(self, steps: str = "steps") -> str:
        """Say which limit ended the run, and how to go on. Arguments as of `words`."""
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
        return (
            f"The run stopped at its limit of {what}{why}. It goes on with a higher {self.setting}."
        )

    def _amount(self, value: float, steps: str) -> str:
        if self.unit == "$":
            return self._number(value)
        return f"{self._number(value)} {steps if self.reason == 'max_steps' else self.unit}"

    def _number(self, value: float) -> str:
        if self.unit == "$":
            return f"${round(value, 4):.10g}"
        return f"{round(value, 2):.10g}"


class LimitReached(Exception):  # not an error: a regular end of a run
    """A limit forbids another model call."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.reason)
        self.limit = limit
        self.spent = no_usage()
        """What other requests of the same model call had cost, where a middleware sends several."""

    @property
    def reason(self) -> LimitReason:
        """The kind of the limit, as the state and the events name it."""
        return self.limit.reason


def recursion_limit(graph: Any) -> int:
    """Return the supersteps that a graph may take: what it sets itself, or as good as no limit."""
    own: dict[str, Any] = getattr(graph, "config", None) or {}
    limit: int = own.get("recursion_limit", RECURSION_LIMIT)
    return limit


def run_limits(progress: Progress, settings: Settings, next_call: Progress = A_STEP) -> list[Limit]:
    """Return the limits of a run.

    Args:
        progress: How far the run has come.
        settings: Hold the limits.
        next_call: What the next model call may take.
    """
    done, ahead = progress.usage, next_call.usage
    dollars = done["cost_usd"], ahead["cost_usd"], ahead["cost_usd"]
    steps = progress.steps, next_call.steps, 0
    limits = [Limit("max_steps", "max_steps", "steps", settings.max_steps, *steps)]
    if (most := settings.max_total_tokens) is not None:
        tokens = _tokens(done), _tokens(ahead), _tokens(ahead)
        limits.append(Limit("budget", "max_total_tokens", "tokens", most, *tokens))
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
    """Return the limit that forbids the next model call. Arguments as of `run_limits`."""
    limits = run_limits(progress, settings, next_call)
    return next((limit for limit in limits if limit.is_reached(keeps_reserve=keeps_reserve)), None)


def most_used_limit(reason: LimitReason, progress: Progress, settings: Settings) -> Limit:
    """Return the limit of a kind that a run has used most of."""
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


def _tokens(usage: Usage) -> int:
    return usage["input_tokens"] + usage["output_tokens"]


STOP_GRACE_S = 5.0
"""Time that a call without effects still gets after the run was asked to stop."""
CUT_OFF_GRACE_S = 15.0
"""Time beyond a call's own limit, to open what it needs and to stop it."""
STOPPING_S = 5.0
"""Part of that: time to stop what a call runs and to read what it has printed. Shorter than the
grace that a step of a plan gets, since it is also added to the time of the whole run."""
INTERRUPT = "SIGINT"
"""Why a run is asked to stop by Ctrl-C."""
_LEAST_LIMIT_S = 0.1
_POLL_S = 0.25

T = TypeVar("T")


class RunStopping(Exception):  # an event, not an error
    """The run was asked to stop, and the wait is abandoned."""


async def unless_stopped(work: Awaitable[T], *, read_only: bool) -> T:
    """Wait for a tool call; one without effects is abandoned on a stop: it can be repeated.

    Raises:
        RunStopping: It was abandoned.
    """
    runtime = _runtime()
    if not read_only or runtime is None:
        return await work
    return await _unless(work, lambda: runtime.drain_requested, STOP_GRACE_S, RunStopping())


async def unless_interrupted(work: Awaitable[T]) -> T:
    """Wait for a model request, which Ctrl-C ends at once: nothing of it would be kept before.

    Other signals let it finish, as it is paid for.

    Raises:
        GraphDrained: It was abandoned. The thread goes on before it.
    """
    runtime = _runtime()
    if runtime is None:
        return await work
    interrupted = GraphDrained(INTERRUPT)
    return await _unless(work, lambda: runtime.drain_reason == INTERRUPT, 0, interrupted)


async def _unless(
    work: Awaitable[T], stopped: Callable[[], bool], grace_s: float, error: Exception
) -> T:
    call, ends = asyncio.ensure_future(work), None
    try:
        while not call.done():
            await asyncio.wait({call}, timeout=_POLL_S)
            if ends is None and stopped():
                ends = time.monotonic() + grace_s
            if ends is not None and time.monotonic() >= ends and not call.done():
                raise error
    finally:
        if not call.done():
            call.cancel()
            await asyncio.wait({call}, timeout=STOPPING_S)  # what it uses is the next call's then
    return call.result()


async def sleep_unless_stopped(seconds: float) -> None:
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
