"""What a new run must satisfy, whoever asks for it, and what it is given from its thread."""

import re
import uuid
from collections.abc import Mapping
from typing import Any, cast

from openmanus_graph.persistence.threads import Thread
from openmanus_graph.server.options import context_of
from openmanus_graph.server.store import Store, state_of, store

INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")
RECURSION_LIMIT = 100_000
"""Far above what our own limits allow; see `RunOptions.max_steps`."""


class Refused(Exception):
    """A request that cannot be granted, in words for the person."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def admit(thread: str | None, run: dict[str, Any]) -> None:
    """Check a run that LangGraph's server is about to queue, and complete it in place.

    Args:
        thread: None for a run that nothing is kept of.
        run: The server's `kwargs`: input, command, context, config, durability ...

    Raises:
        Refused: The thread is another process's, or the answered question is not open.
    """
    run["durability"] = "sync"  # else a crash takes the thread along
    config: dict[str, Any] = run.setdefault("config", {})
    config.setdefault("recursion_limit", RECURSION_LIMIT)
    _name_messages(run.get("input"))
    if thread is None:
        return
    kept = store()
    known = await kept.find(thread)
    if known is None:
        return
    if await kept.is_held_elsewhere(thread):
        raise Refused(409, f"Thread {thread} is in use by another process. Wait, or stop it first.")
    given: Mapping[str, Any] = run.get("context") or {}
    run["context"] = {**context_of(known.options), **{k: v for k, v in given.items() if v != ""}}
    command: Mapping[str, Any] = run.get("command") or {}
    if command.get("resume") is not None:
        await _check_answer(kept, known, command["resume"])


async def _check_answer(kept: Store, known: Thread, answer: Any) -> None:
    if kept.journal.is_running(known.id):
        raise Refused(409, "That was answered already: the run goes on.")
    state = await state_of(known.id, known.agent)
    if state is None:
        return
    waiting = [interrupt.id for interrupt in state.interrupts]
    if not waiting:
        raise Refused(409, "This thread asks nothing any more: that was answered already.")
    ids = _ids(answer)
    if ids is None and len(waiting) > 1:
        raise Refused(409, f"Several questions are open; answer by id: {', '.join(waiting)}.")
    closed = [one for one in ids or () if one not in waiting]
    if closed:
        raise Refused(409, f"Not open: {', '.join(closed)}. Open: {', '.join(waiting)}.")


def _ids(answer: Any) -> list[str] | None:
    """Return the interrupts that an answer names, None if it is a bare value."""
    fields = cast("Mapping[Any, Any]", answer) if isinstance(answer, Mapping) else {}
    named = bool(fields) and all(INTERRUPT_ID.fullmatch(str(key)) for key in fields)
    return [str(key) for key in fields] if named else None


def _name_messages(given: Any) -> None:
    """Give messages the ids by which the ledger and a crashed run find them again."""
    messages: Any = cast("dict[str, Any]", given).get("messages") if isinstance(given, dict) else ()
    for message in cast("list[Any]", messages) if isinstance(messages, list) else ():
        if isinstance(message, dict) and not cast("dict[str, Any]", message).get("id"):
            message["id"] = str(uuid.uuid4())
