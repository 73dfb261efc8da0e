"""What `run_call` writes to the ledger before and after a tool runs, and reads after a crash.

The ledger itself, with its table, is `backends.persistence.ledger`.
"""

import base64
import json
import sys
from dataclasses import asdict, fields
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from openmanus_graph.backends.persistence.ledger import Entry
from openmanus_graph.runtime.session import changed_state
from openmanus_graph.state.interrupts import unknown_outcome_request
from openmanus_graph.state.renamed import with_current_names
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.context import CallRun
from openmanus_graph.tool_calls.permission import Permission

EXCEPTION_CHARS = 4000
"""Characters kept of an exception's text."""
_OBSERVATION_FIELDS = {field.name for field in fields(Observation)}


def serialised(update: dict[str, Any]) -> str:
    """Return a state update as text, in the way in which checkpoints keep it."""
    kind, content = JsonPlusSerializer().dumps_typed(update)
    return json.dumps([kind, base64.b64encode(content).decode()])


def deserialised(text: str) -> dict[str, Any]:
    """Return the state update that `serialised` was given."""
    kind, content = json.loads(text)
    update: dict[str, Any] = JsonPlusSerializer().loads_typed((kind, base64.b64decode(content)))
    return update


def exception_record(error: Exception) -> tuple[str, str]:
    """Return an exception's type and text."""
    cls = type(error)
    return f"{cls.__module__}:{cls.__qualname__}", str(error)[:EXCEPTION_CHARS]


def exception_of(record: tuple[str, str]) -> Exception:
    """Return an exception like the recorded one.

    Of the same type if this process has loaded it, since retries go by the type; else a
    `RuntimeError`.
    """
    address, text = record
    module, _, name = address.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Exception):
        error = found.__new__(found)  # its constructor may want more than a text
        error.args = (text,)
        return error
    return RuntimeError(f"{name}: {text}")


async def find_entry(run: CallRun) -> Entry | None:
    """Return what the ledger knows of the call; None for a new one, or without a checkpointer."""
    ledger = run.context.ledger
    return None if ledger is None else await ledger.find(run.key)


def was_cut_off(run: CallRun, entry: Entry) -> bool:
    """Say whether a crash ended the call and it must not simply run again."""
    waits = run.context.session.has_open_call(run.key.digest)
    return entry.stage == "intent" and not waits and run.traits.effect != "pure"


def replay_outcome(run: CallRun, entry: Entry) -> Observation:
    """Return the observation of a call that has run, with what it changed in the chain."""
    outcome = with_current_names(entry.outcome or {})
    run.announce(entry.args)
    run.context.handle_state.update(outcome.get("handle_state", {}))
    run.context.add_standing_approval(outcome.get("standing_approval", ""))
    found: dict[str, Any] = {
        key: value for key, value in outcome.items() if key in _OBSERVATION_FIELDS
    }
    raised = outcome.get("raised")  # JSON made lists of tuples
    found |= {"images": tuple(outcome["images"]), "raised": tuple(raised) if raised else None}
    found["edited"] = entry.args != run.call["args"]
    return Observation(**found)


async def resolve_unknown_outcome(run: CallRun, entry: Entry) -> Observation | None:
    """Decide on a call that a crash cut off; None means: run it again."""
    outcome = Observation(
        f"{run.name} was cut off while it ran, and may have run in part or in full. "
        "Look at what is there before you repeat it.",
        failed=True,
    )
    if run.traits.effect == "external":
        request = unknown_outcome_request(run.name, entry.args, run.call["id"])
        name = f"unknown outcome {entry.attempts}"
        decision = await run.context.questions.decide(run.key, name, request)
        if decision.type == "approve":
            return None
        if decision.type == "respond":
            outcome = Observation(decision.message)
        else:
            left = f"{run.name} was cut off while it ran; a person decided not to repeat it."
            outcome = Observation(f"{left} {decision.message}".rstrip(), failed=True)
    run.announce(entry.args)
    if run.context.ledger is not None:
        await run.context.ledger.conclude(run.key, asdict(outcome))
    return outcome


async def record_intent(run: CallRun, permission: Permission) -> None:
    """Write down durably what is about to happen."""
    run.context.add_standing_approval(permission.standing_approval)
    if run.context.ledger is not None:
        await run.context.ledger.intend(run.key, permission.args, run.call["id"])


async def record_waiting(run: CallRun) -> None:
    """Write down that the call asks a person, or was never started: its outcome is not unknown."""
    # An open call has begun, and is lost with us.
    if run.context.ledger is not None and not run.context.session.has_open_call(run.key.digest):
        await run.context.ledger.wait(run.key)


async def record_outcome(run: CallRun, permission: Permission, observation: Observation) -> None:
    """Write down what came of the call, and what its handles hold since."""
    if run.context.ledger is None:
        return
    changed = changed_state(run.context.handle_state, run.context.session.handle_states())
    run.context.handle_state.update(changed)
    beside = {"handle_state": changed, "standing_approval": permission.standing_approval}
    outcome = asdict(observation) | {name: value for name, value in beside.items() if value}
    await run.context.ledger.conclude(run.key, outcome)
