"""The ledger's part of a tool call: what is written round it, and what a crash left of it."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from langgraph.errors import GraphBubbleUp

from openmanus_graph.errors import ConfigError
from openmanus_graph.interrupts import unknown_outcome_request
from openmanus_graph.lost import changes
from openmanus_graph.persistence.ledger import EffectKey, Entry
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.tools.approval import Leave
from openmanus_graph.tools.declaration import Observation, Traits
from openmanus_graph.tools.scope import CallScope


async def cut_off(
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
    scope.announce(call, entry.args)
    if scope.ledger is not None:
        await scope.ledger.conclude(key, asdict(outcome))
    return outcome


async def recorded(
    call: PlannedCall,
    key: EffectKey,
    leave: Leave,
    scope: CallScope,
    observe: Callable[[], Awaitable[Observation]],
) -> Observation:
    """Run a call between the ledger's two entries."""
    scope.announce(call, leave.args)
    if scope.ledger is None:
        return await observe()
    await scope.ledger.intend(key, leave.args, call["id"])
    try:
        observation = await observe()
    except (GraphBubbleUp, ConfigError):
        # The tool asks a person, or was never started: it waits, its outcome is not unknown.
        await scope.ledger.wait(key)
        raise
    held = changes(scope.held, scope.session.held())
    scope.held.update(held)
    beside = {"held": held, "grant": leave.grant}
    outcome = asdict(observation) | {name: value for name, value in beside.items() if value}
    await scope.ledger.conclude(key, outcome)
    return observation
