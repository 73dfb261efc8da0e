"""The seam through which every tool call runs.

validate -> ledger -> policy and approval -> intent -> run within the time limit -> outcome.
Whatever a tool does, the model gets an observation; only interrupts and cancellation pass.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from openmanus_graph.canonical import canonical
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.events import Emit
from openmanus_graph.interrupts import approval_request, unknown_outcome_request
from openmanus_graph.limits import Progress
from openmanus_graph.lost import changes, lost
from openmanus_graph.models.tool_model import ToolModel
from openmanus_graph.persistence.ledger import EffectKey, Entry, Ledger
from openmanus_graph.provenance import strange_addresses
from openmanus_graph.sessions import (
    ASK_KEY,
    CALL_KEY,
    CONVERSE_KEY,
    EMIT_KEY,
    MODEL_KEY,
    PLANS_KEY,
    SESSION_KEY,
    Session,
)
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import Plans, current_step
from openmanus_graph.state.reducers import Held, Holdings
from openmanus_graph.tools.declaration import ForeignTool, Observation, Traits, traits_of
from openmanus_graph.tools.observations import labelled, of_blocks, out_of_time, remembered
from openmanus_graph.tools.output import LIMIT, shorten
from openmanus_graph.tools.questions import Questions
from openmanus_graph.tools.toolset import Toolset

GRACE_S = 15.0
"""Time a tool with a time limit of its own has to answer after it."""

log = logging.getLogger(__name__)


@dataclass
class PlanBook:
    """The thread's plans, as the calls of a chain change them."""

    plans: Plans


@dataclass(frozen=True)
class CallScope:
    """Where a call runs."""

    session: Session
    toolset: Toolset
    config: RunnableConfig
    emit: Emit
    branch: str
    thread: str | None
    ledger: Ledger | None
    """None without a checkpointer."""
    questions: Questions
    progress: Progress
    """How far the run had come before this step."""
    book: PlanBook
    deadline: float | None = None
    """When the run's time limit is over, on the monotonic clock."""
    held: Holdings = field(default_factory=dict[str, Held])
    """What is known of the session's handles; brought up to date after each call."""


async def run_call(call: PlannedCall, scope: CallScope) -> ToolMessage:
    """Run one tool call and return the message that answers it."""
    started = time.monotonic()
    try:
        observation = await _settled(call, scope)
    except ToolError as error:
        _announce(call, call["args"], scope)
        observation = Observation(str(error), failed=True)
    serves = current_step(scope.book.plans)
    if observation.plans is not None:
        scope.book.plans = observation.plans
    return _answer(call, observation, serves, scope, started)


async def _settled(call: PlannedCall, scope: CallScope) -> Observation:
    """Return what came of a call: from the ledger, or by running it. ToolError: it may not run."""
    traits = _checked(call, scope)
    key = EffectKey(
        scope.thread or "", scope.branch, call["name"], canonical(call["args"]), call["occurrence"]
    )
    entry = None if scope.ledger is None else await scope.ledger.find(key)
    if entry is not None and entry.outcome is not None:
        _announce(call, entry.args, scope)
        scope.held.update(entry.outcome.get("held", {}))
        return replace(remembered(entry.outcome), edited=entry.args != call["args"])
    cut_off = (
        entry is not None and entry.stage == "intent" and not scope.session.is_open(key.digest)
    )
    if entry is not None and cut_off and traits.effect != "pure":
        known = await _cut_off(call, key, entry, traits, scope)
        if known is not None:
            return known
        args = entry.args
    else:
        _refuse_in_vain(call, traits, scope)
        args = await _allowed(call, key, traits, scope)
    observation = await _recorded(call, key, args, traits, scope)
    return replace(observation, edited=args != call["args"])


def _checked(call: PlannedCall, scope: CallScope) -> Traits:
    """Validate a call. ToolError says what is wrong with it."""
    if call["problem"] is not None:
        raise ToolError(call["problem"])
    traits = traits_of(scope.toolset.find(call["name"]))
    scope.toolset.check(call["name"], call["args"])
    return replace(traits, effect=traits.effect_of(call["args"]))


def _refuse_in_vain(call: PlannedCall, traits: Traits, scope: CallScope) -> None:
    """Raise ToolError for a call whose process has ended since the model planned it.

    In a new process it would not do what was meant: `rm *` after a `cd` that is forgotten. What
    changes nothing, opening another page say, may run all the same.
    """
    resource = None if traits.effect == "pure" else traits.resource_of(call["args"])
    if resource and lost(scope.held, scope.session.identities(), f"{resource}:"):
        raise ToolError(
            f"{call['name']} was not run: the process it was meant for has ended, and with it what "
            "earlier calls had left there. Make that again if this call needs it, then repeat it."
        )


async def _allowed(
    call: PlannedCall, key: EffectKey, traits: Traits, scope: CallScope
) -> dict[str, Any]:
    """Get a call allowed and return its arguments, which a person may have edited."""
    policy = scope.session.settings.policy
    unvouched = call.get("unvouched", [])
    if policy == "auto" or not (traits.approval or unvouched):
        return call["args"]
    reason = strange_addresses(unvouched) if unvouched else ""
    if policy == "never":
        why = reason or "The policy refuses calls with external effects."
        raise ToolError(
            f"{call['name']} was not run. {why} Find another way, or say in the answer what is "
            "left to do."
        )
    request = approval_request(call["name"], call["args"], call["id"], reason)
    decision = await scope.questions.decide(key, "approval", request)
    if decision.type == "edit" and decision.args is not None:
        scope.toolset.check(call["name"], decision.args)
        return dict(decision.args)
    if decision.type == "approve":
        return call["args"]
    raise ToolError(
        f"A person did not allow {call['name']}. {decision.message or 'No reason was given.'} "
        "Do not repeat the call; adapt to this."
    )


async def _cut_off(
    call: PlannedCall, key: EffectKey, entry: Entry, traits: Traits, scope: CallScope
) -> Observation | None:
    """Decide on a call that a crash cut off; None means: run it again."""
    name = call["name"]
    outcome = Observation(
        f"{name} was cut off while it ran, and may have run in part or in full. "
        "Look at what is there before you repeat it.",
        failed=True,
    )
    if traits.effect == "external":
        request = unknown_outcome_request(name, entry.args, call["id"])
        decision = await scope.questions.decide(key, f"unknown outcome {entry.attempts}", request)
        if decision.type == "approve":
            return None
        if decision.type == "respond":
            outcome = Observation(decision.message)
        else:
            left = f"{name} was cut off while it ran; a person decided not to repeat it."
            outcome = Observation(f"{left} {decision.message}".rstrip(), failed=True)
    _announce(call, entry.args, scope)
    if scope.ledger is not None:
        await scope.ledger.conclude(key, asdict(outcome))
    return outcome


async def _recorded(
    call: PlannedCall,
    key: EffectKey,
    args: dict[str, Any],
    traits: Traits,
    scope: CallScope,
) -> Observation:
    """Run a call between the ledger's two entries."""
    _announce(call, args, scope)
    call = {**call, "args": args}
    if scope.ledger is None:
        return await _observe(call, key, traits, scope)
    await scope.ledger.intend(key, args, call["id"])
    try:
        observation = await _observe(call, key, traits, scope)
    except (GraphBubbleUp, ConfigError):
        # The tool asks a person, or was never started: it waits, its outcome is not unknown.
        if not scope.session.is_open(key.digest):  # an open call has begun, and is lost with us
            await scope.ledger.wait(key)
        raise
    held = changes(scope.held, scope.session.held())
    scope.held.update(held)
    await scope.ledger.conclude(key, asdict(observation) | ({"held": held} if held else {}))
    return observation


async def _observe(
    call: PlannedCall, key: EffectKey, traits: Traits, scope: CallScope
) -> Observation:
    """Run the tool and turn whatever happens into an observation of bearable length."""
    left_s = None if scope.deadline is None else scope.deadline - time.monotonic()
    traits = replace(traits, timeout_s=max(traits.timeout_s, own_limit_s(call, scope)))
    limit_s = time_limit_s(call["args"], traits, left_s)
    clock = asyncio.timeout(limit_s)
    model = ToolModel(scope.session, scope.progress, scope.emit)
    try:
        async with clock:
            observation = await _invoke(call, key, scope, model)
    except (GraphBubbleUp, ConfigError):
        raise  # nothing the model could mend
    except ToolError as error:
        observation = Observation(str(error), failed=True)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        observation = Observation(f"{call['name']} cancelled itself.", failed=True)
    except Exception as error:  # one raising tool must not end the run
        if clock.expired():
            observation = Observation(out_of_time(call["name"], limit_s, traits), failed=True)
        else:
            log.info("tool %s raised", call["name"], exc_info=error)
            observation = Observation(f"{type(error).__name__}: {error}", failed=True)
    observation = replace(observation, usage=model.spent)
    return await _shortened(call, observation, traits, scope)


async def _shortened(
    call: PlannedCall, observation: Observation, traits: Traits, scope: CallScope
) -> Observation:
    if observation.ends_run is not None:
        return observation  # the answer itself, which is never cut
    text = observation.text
    if len(text) > LIMIT and not observation.bounded:
        text = await asyncio.to_thread(shorten, text, scope.session.workspace)
    return replace(observation, text=labelled(text, call["name"]) if traits.untrusted else text)


def own_limit_s(call: PlannedCall, scope: CallScope) -> float:
    """Return the limit that a tool with a `timeout_s` argument keeps when the model names none."""
    limited = call["name"] in scope.toolset.limited
    return scope.session.settings.sandbox.timeout_s if limited else 0.0


def time_limit_s(args: Mapping[str, Any], traits: Traits, remaining_s: float | None) -> float:
    """Return the seconds after which a call is cut off."""
    own = args.get("timeout_s")
    limit = float(own) + GRACE_S if isinstance(own, int | float) else traits.timeout_s + GRACE_S
    return limit if remaining_s is None else max(0.1, min(limit, remaining_s))


async def _invoke(
    call: PlannedCall, key: EffectKey, scope: CallScope, model: ToolModel
) -> Observation:
    configurable = {
        **scope.config.get("configurable", {}),
        SESSION_KEY: scope.session,
        ASK_KEY: partial(_ask, scope, key),
        MODEL_KEY: model.ask,
        CONVERSE_KEY: model.converse,
        CALL_KEY: key.digest,
        EMIT_KEY: scope.emit,
        PLANS_KEY: scope.book.plans,
    }
    config: RunnableConfig = {**scope.config, "configurable": configurable}
    tool = scope.toolset.find(call["name"])
    if isinstance(tool, ForeignTool):
        return await tool.observe(call["args"], config)
    request = {"type": "tool_call", "id": call["id"], "name": call["name"], "args": call["args"]}
    results: Any = await scope.toolset.runner.ainvoke([request], config)
    if isinstance(results, dict):
        results = cast("dict[str, Any]", results)["messages"]
    message: Any = results[0]
    if isinstance(message, Command):
        raise ToolError(
            f"{call['name']} returned a Command, which this graph does not carry out. "
            "Return a value instead."
        )
    if isinstance(message.artifact, Observation):
        return message.artifact
    failed = message.status == "error"
    if isinstance(message.content, str):
        return Observation(message.content or "(no output)", failed=failed)
    return await asyncio.to_thread(of_blocks, message, failed, scope.session.workspace)


async def _ask(
    scope: CallScope, key: EffectKey, request: Mapping[str, Any], name: str = "question"
) -> Any:
    return await scope.questions.ask(key, name, request)


def _announce(call: PlannedCall, args: dict[str, Any], scope: CallScope) -> None:
    scope.emit({"type": "tool_start", "call_id": call["id"], "tool": call["name"], "args": args})


def _answer(
    call: PlannedCall,
    observation: Observation,
    serves: str | None,
    scope: CallScope,
    started: float,
) -> ToolMessage:
    scope.emit(
        {
            "type": "tool_end",
            "call_id": call["id"],
            "tool": call["name"],
            "ok": not observation.failed,
            "seconds": round(time.monotonic() - started, 3),
            "output": observation.text,
        }
    )
    extra = {
        key: value
        for key in ("images", "usage", "structured", "ends_run")
        if (value := getattr(observation, key)) not in (None, ())
    }
    if observation.edited:
        extra["edited"] = True
    if serves is not None:
        extra["plan_step"] = serves
    return ToolMessage(
        content=observation.text,
        name=call["name"],
        tool_call_id=call["id"],
        status="error" if observation.failed else "success",
        artifact=extra or None,
    )
