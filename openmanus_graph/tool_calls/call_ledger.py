"""What `run_call` writes to the ledger before and after a tool runs, and reads after a crash.

The ledger itself, with its table, is `backends.persistence.ledger`.
"""

import json
import logging
import sys
from dataclasses import asdict, fields
from typing import Any, cast

from langgraph.errors import GraphBubbleUp

from openmanus_graph.backends.persistence.ledger import EffectKey, LedgerEntry
from openmanus_graph.backends.snapshots.remote_objects import FilesUnavailableError
from openmanus_graph.backends.snapshots.shared_files import put_files_back
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.runtime.replaying import Replay, current_replay
from openmanus_graph.runtime.session import changed_state
from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.state.context import Policy
from openmanus_graph.state.interrupts import unknown_outcome_request
from openmanus_graph.state.tool_traits import Observation, Reconcile
from openmanus_graph.tool_calls.context import CallExecution
from openmanus_graph.tool_calls.permission import Permission, evaluate
from openmanus_graph.tool_calls.questions import Questions, believed, seal

log = logging.getLogger(__name__)
EXCEPTION_CHARS = 4000
"""Characters kept of an exception's text."""
_OBSERVATION_FIELDS = {field.name for field in fields(Observation)}


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
    module, _, name = str(address).partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # Without `getattr`, by which a module may load another one.
        found = getattr(found, "__dict__", {}).get(part)
    plain = isinstance(found, type) and issubclass(found, Exception)
    if plain and not issubclass(found, GraphBubbleUp):  # what steers the graph is never stored
        made = cast("type[Exception]", found)
        error = made.__new__(made)  # its constructor may want more than a text
        error.args = (text,)
        return error
    return RuntimeError(f"{name}: {text}")


async def find_entry(execution: CallExecution, *, begin: bool = False) -> LedgerEntry | None:
    """Return what the ledger knows of the call; None for a new one, or without a checkpointer.

    In a replay every call is known. ReplayEndedError: it is not.

    Args:
        execution: Of the call.
        begin: Whether a new one is about to run, which is written down at the same time.
    """
    if (replay := current_replay()) is not None:
        if replay.policy_before is not None:
            await _check_policy(execution, replay.policy_before, replay)
        recorded: LedgerEntry = await replay.outcome(execution.key, execution.call["id"])
        return recorded
    ledger, call = execution.context.ledger, execution.call
    if ledger is None:
        return None
    if begin:
        return await ledger.begin(execution.key, call["args"], call["id"])
    return await ledger.find(execution.key)


async def _check_policy(execution: CallExecution, before: Policy, replay: Replay) -> None:
    """Compare what both policies decide on a call. ReplayEndedError: it is something else."""
    args = execution.call["args"]
    then, now = await evaluate(execution, args, before), await evaluate(execution, args)
    replay.check_decision(
        f"{execution.name} {canonical_args(args)}",
        f"{then.decision}: {then.why}",
        f"{now.decision}: {now.why}",
    )


def was_cut_off(execution: CallExecution, entry: LedgerEntry) -> bool:
    """Say whether a crash ended the call and it must not simply run again."""
    traits = execution.traits
    waits = execution.context.session.has_open_call(execution.key.digest)
    repeatable = traits.effect == "read_only" or traits.runs_agent
    return entry.stage in ("intent", "task") and not waits and not repeatable


async def runs_as_task(execution: CallExecution, entry: LedgerEntry) -> bool:
    """Say whether another side runs the call, and can say what becomes of it."""
    if not entry.server_task:
        return False
    tool = execution.context.toolset.find(execution.name)
    return execution.context.session.has_open_call(execution.key.digest) or (
        isinstance(tool, JsonSchemaTool) and await tool.knows_task(entry.server_task)
    )


async def replay_outcome(execution: CallExecution, entry: LedgerEntry) -> Observation:
    """Return the observation of a call that has run, with what it changed in the chain."""
    outcome = entry.outcome or {}
    execution.announce(entry.args)
    execution.context.handle_state.update(outcome.get("handle_state", {}))
    config = execution.context.config
    for approval in await believed(config, "call", [outcome.get("remembered_approval", "")]):
        execution.context.add_remembered_approval(approval)
    approved = await believed(config, "value", outcome.get("approved_values", ()))
    execution.context.add_remembered_approval("", approved)
    found: dict[str, Any] = {
        key: value for key, value in outcome.items() if key in _OBSERVATION_FIELDS
    }
    raised = outcome.get("raised")  # JSON made lists of tuples
    found |= {"images": tuple(outcome["images"]), "raised": tuple(raised) if raised else None}
    found["edited"] = entry.args != execution.call["args"]
    return Observation(**found)


async def resolve_unknown_outcome(
    execution: CallExecution, entry: LedgerEntry
) -> Observation | None:
    """Decide on a call that a crash cut off; None means: run it again."""
    traits, key = execution.traits, execution.first_key.digest
    known = await ask_elsewhere(traits.reconcile, execution.name, entry.args, key)
    outcome = (
        Observation(known)
        if known is not None
        else await decide_unknown_outcome(
            execution.key,
            entry,
            execution.call["id"],
            execution.context.questions,
            external=traits.effect == "external",
        )
    )
    if outcome is None:
        return None
    execution.announce(entry.args)
    if execution.context.ledger is not None:
        await execution.context.ledger.conclude(execution.key, entry.args, asdict(outcome))
    return outcome


async def ask_elsewhere(
    reconcile: Reconcile | None, name: str, args: dict[str, Any], key: str
) -> str | None:
    """Return the result of a call as the other side knows it; None if it cannot tell.

    Args:
        reconcile: Asks the other side.
        name: The tool's.
        args: The call's.
        key: Its idempotency key.
    """
    if reconcile is None:
        return None
    try:
        found = await reconcile(dict(args), key)
    except Exception:  # a person can still be asked
        log.warning("what became of a call of %s could not be found out", name, exc_info=True)
        return None
    return found if found is None or isinstance(found, str) else json.dumps(found, default=str)


async def decide_unknown_outcome(
    key: EffectKey, entry: LedgerEntry, call_id: str, questions: Questions, *, external: bool
) -> Observation | None:
    """Return what a call counts as that a crash cut off, if the other side cannot tell.

    The model looks itself at what it did to files; what it did outside, a person has to say.

    Args:
        key: Of the call.
        entry: What the ledger has of it.
        call_id: The model's.
        questions: Those of the call.
        external: Whether its effect is outside; else it is on files.

    Returns:
        None: The person wants it to run again.
    """
    cut_off = f"{key.tool} was cut off while it ran"
    if not external:
        return Observation(
            f"{cut_off}, and may have run in part or in full. Look at what is there before you "
            "repeat it.",
            failed=True,
        )
    request = unknown_outcome_request(key.tool, entry.args, call_id)
    decision = await questions.decide(key, f"unknown outcome {entry.attempts}", request)
    if decision.type == "approve":
        return None
    if decision.type == "respond":
        return Observation(decision.message)
    left = f"{cut_off}; a person decided not to repeat it. {decision.message}"
    return Observation(left.rstrip(), failed=True)


async def record_intent(execution: CallExecution, permission: Permission) -> None:
    """Write down what is about to happen, and what a person approved for later calls.

    Of a call that another side runs already, more is written down. Others may have begun.
    """
    execution.context.add_remembered_approval(
        permission.remembered_approval, permission.approved_values
    )
    known = execution.begun or execution.server_task
    if execution.context.ledger is not None and not known:
        await execution.context.ledger.intend(execution.key, permission.args, execution.call["id"])


async def record_waiting(execution: CallExecution, permission: Permission) -> None:
    """Write down that the call asks a person, or was never started: its outcome is not unknown."""
    ledger, session = execution.context.ledger, execution.context.session
    # An open call has begun, and is lost with us.
    if ledger is not None and not session.has_open_call(execution.key.digest):
        await ledger.wait(execution.key, permission.args)


async def record_outcome(
    execution: CallExecution, permission: Permission, observation: Observation
) -> None:
    """Write down what came of the call, and what its handles hold since.

    Its files are put back first: whoever reads the outcome on another machine finds them. Raises
    StorageError, after that, if they cannot be.
    """
    context = execution.context
    if context.ledger is None:
        return
    unavailable: FilesUnavailableError | None = None
    try:
        if execution.traits.effect != "read_only":
            await put_files_back(context.session, context.emit)
    except FilesUnavailableError as error:  # it is noted that they are newer here
        unavailable = error
    changed = changed_state(context.handle_state, context.session.handle_states())
    context.handle_state.update(changed)
    approval = [permission.remembered_approval] if permission.remembered_approval else []
    beside = {
        "handle_state": changed,
        "remembered_approval": "".join(await seal(context.config, "call", approval)),
        "approved_values": await seal(context.config, "value", permission.approved_values),
    }
    outcome = asdict(observation) | {name: value for name, value in beside.items() if value}
    await context.ledger.conclude(execution.key, permission.args, outcome)
    if unavailable is not None:
        raise unavailable
