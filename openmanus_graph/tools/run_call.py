"""The seam through which every tool call runs.

validate -> ledger -> policy and approval -> intent -> run within the time limit -> outcome.
Whatever a tool does, the model gets an observation; only interrupts and cancellation pass.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from openmanus_graph.canonical import canonical
from openmanus_graph.errors import ConfigError, OwnWordsError, ToolError
from openmanus_graph.lost import lost
from openmanus_graph.models.tool_model import ToolModel
from openmanus_graph.persistence.ledger import EffectKey
from openmanus_graph.sessions import (
    ASK_KEY,
    CALL_KEY,
    CONVERSE_KEY,
    EMIT_KEY,
    MODEL_KEY,
    PLANS_KEY,
    SESSION_KEY,
)
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import current_step
from openmanus_graph.state.reducers import Usage
from openmanus_graph.tools.approval import Leave, get_leave
from openmanus_graph.tools.declaration import ForeignTool, Observation, Traits, traits_of
from openmanus_graph.tools.observations import labelled, of_blocks, out_of_time, remembered
from openmanus_graph.tools.output import LIMIT, shorten
from openmanus_graph.tools.recording import cut_off, recorded
from openmanus_graph.tools.scope import CallScope
from openmanus_graph.tools.stopping import RunStopping, unless_stopped

GRACE_S = 15.0
"""Time a tool with a time limit of its own has to answer after it."""

log = logging.getLogger(__name__)


async def run_call(call: PlannedCall, scope: CallScope) -> ToolMessage:
    """Run one tool call and return the message that answers it."""
    started = time.monotonic()
    try:
        observation = await _settled(call, scope)
    except ToolError as error:
        scope.announce(call, call["args"])
        observation = Observation(str(error), failed=True, own_words=True)
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
        scope.announce(call, entry.args)
        scope.held.update(entry.outcome.get("held", {}))
        scope.grant(entry.outcome.get("grant", ""))
        return replace(remembered(entry.outcome), edited=entry.args != call["args"])
    interrupted = (
        entry is not None and entry.stage == "intent" and not scope.session.is_open(key.digest)
    )
    if entry is not None and interrupted and traits.effect != "pure":
        known = await cut_off(call, key, entry, traits, scope)
        if known is not None:
            return known
        leave = Leave(entry.args)
    else:
        _refuse_in_vain(call, traits, scope)
        leave = await get_leave(call, key, traits, scope)
    if leave.result is not None:
        scope.announce(call, call["args"])
        return Observation(leave.result, edited=True)  # it did not run with these arguments
    scope.grant(leave.grant)
    observe = partial(_observe, {**call, "args": leave.args}, key, traits, scope)
    observation = await recorded(call, key, leave, scope, observe)
    return observation if leave.args == call["args"] else replace(observation, edited=True)


def _checked(call: PlannedCall, scope: CallScope) -> Traits:
    """Validate a call. ToolError says what is wrong with it."""
    if call["problem"] is not None:
        raise ToolError(call["problem"])
    traits = traits_of(scope.toolset.find(call["name"]))
    scope.toolset.check(call["name"], call["args"])
    effect = traits.effect_of(call["args"])
    return traits if effect == traits.effect else replace(traits, effect=effect)


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


async def _observe(
    call: PlannedCall, key: EffectKey, traits: Traits, scope: CallScope
) -> Observation:
    """Run the tool and turn whatever happens into an observation of bearable length."""
    limit_s = time_limit_s(call, traits, scope)
    clock = asyncio.timeout(limit_s)
    model = ToolModel(scope.session, scope.progress, scope.emit)
    try:
        async with clock:
            pure = traits.effect == "pure"
            observation = await unless_stopped(_invoke(call, key, scope, model), pure=pure)
    except (GraphBubbleUp, ConfigError):
        raise  # nothing the model could mend
    except RunStopping:
        text = f"{call['name']} was given up: the run was stopped. Repeat it if it is still needed."
        observation = Observation(text, failed=True, own_words=traits.resource is None)
    except ToolError as error:
        ours = isinstance(error, OwnWordsError)
        observation = Observation(str(error), failed=True, own_words=ours)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        observation = Observation(f"{call['name']} cancelled itself.", failed=True)
    except Exception as error:  # one raising tool must not end the run
        if clock.expired():
            text = out_of_time(call["name"], limit_s, traits)
            # What a tool holds open may show itself in the next request.
            observation = Observation(text, failed=True, own_words=traits.resource is None)
        else:
            log.info("tool %s raised", call["name"], exc_info=error)
            observation = Observation(f"{type(error).__name__}: {error}", failed=True)
    return await _shortened(call, _with_usage(observation, model.spent), traits, scope)


def _with_usage(observation: Observation, spent: Usage | None) -> Observation:
    return observation if spent is None else replace(observation, usage=spent)


async def _shortened(
    call: PlannedCall, observation: Observation, traits: Traits, scope: CallScope
) -> Observation:
    if observation.ends_run is not None:
        return observation  # the answer itself, which is never cut
    text = observation.text
    if len(text) > LIMIT and not observation.bounded:
        text = await asyncio.to_thread(shorten, text, scope.session.workspace)
    if traits.untrusted and not observation.own_words:
        text = labelled(text, call["name"])
    return observation if text is observation.text else replace(observation, text=text)


def time_limit_s(call: PlannedCall, traits: Traits, scope: CallScope) -> float:
    """Return the seconds after which a call is cut off."""
    limit_s = traits.timeout_s
    if call["name"] in scope.toolset.limited:
        named = call["args"].get("timeout_s")
        kept_s = max(limit_s, scope.session.settings.sandbox.timeout_s)
        limit_s = (named if isinstance(named, int | float) else kept_s) + GRACE_S
    if scope.deadline is None:
        return limit_s
    return max(0.1, min(limit_s, scope.deadline - time.monotonic()))


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
    extra |= {key: True for key in ("edited", "own_words") if getattr(observation, key)}
    if serves is not None:
        extra["plan_step"] = serves
    return ToolMessage(
        content=observation.text,
        name=call["name"],
        tool_call_id=call["id"],
        status="error" if observation.failed else "success",
        artifact=extra or None,
    )
