"""Checks each new run before it is queued, and completes it with its thread's options."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from openmanus_graph.backends.models.endpoint import api_key
from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.client_messages import (
    UnreadableMessagesError,
    checked_command,
    checked_input,
)
from openmanus_graph.interfaces.server.options import context_of
from openmanus_graph.interfaces.server.own_api import own_server
from openmanus_graph.interfaces.server.store import Store, state_of, store
from openmanus_graph.runtime.limits import RECURSION_LIMIT
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import middleware_answer

_TEXTS = ("prompts", "response_format")
"""Fields of a run's context whose texts the model reads."""
INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")


class Refused(Exception):
    """A request is refused; the text tells the person why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def admit(
    thread: str | None, run: dict[str, Any], assistant: Mapping[str, Any] | None = None
) -> None:
    """Check a run that LangGraph's server is about to queue, and complete it in place.

    Args:
        thread: None for a stateless run.
        run: The server's `kwargs`: input, command, context, config, durability ...
        assistant: What the run's assistant says, for what the run itself leaves out.

    Raises:
        Refused: Another process uses the thread, or the answered question is not open.
    """
    if run.get("temporary"):  # a stateless run: LangGraph warns where a durability is set
        run["durability"] = run["checkpoint_during"] = None
    else:
        run["durability"] = "sync"  # otherwise a crash loses the newest checkpoints
    config: dict[str, Any] = run.get("config") or {}
    run["config"] = config
    config.setdefault("recursion_limit", RECURSION_LIMIT)
    threads = store()
    known = None if thread is None else await threads.find(thread)
    given: Mapping[str, Any] = run.get("context") or {}
    stored = context_of(known.options) if known else {}
    run["context"] = {**stored, **{k: v for k, v in given.items() if v not in ("", None)}}
    brought = (*map(_context_in, (assistant or {}, run)), run["context"])
    brings_text = any(one.get(name) for one in brought for name in _TEXTS)
    if brings_text:
        run["context"]["untrusted_prompt"] = True
    _check_messages(run, tainted=brings_text)
    await asyncio.to_thread(_check_context, run["context"], thread or "new")
    if known is None:
        return
    if await threads.is_held_elsewhere(known.id):
        raise Refused(409, f"Thread {thread} is in use by another process. Wait, or stop it first.")
    if threads.journal.is_running(known.id) and not own_server().is_alone:
        raise Refused(409, "A run works on this thread. Wait for its end, or stop it first.")
    command: dict[str, Any] = run.get("command") or {}
    if command.get("resume") is not None:
        command["resume"] = await _checked_answer(threads, known, command["resume"])


def _context_in(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of an assistant, or of a run, in either way of writing it."""
    config: Mapping[str, Any] = described.get("config") or {}
    return {**(config.get("configurable") or {}), **(described.get("context") or {})}


async def admit_deletion(thread: str) -> None:
    """Refuse to delete a thread with a running run, which nobody could see or stop any more."""
    if store().journal.is_running(thread) or await store().is_held_elsewhere(thread):
        raise Refused(409, "A run works on this thread. Stop it first.")


def _check_context(context: Mapping[str, Any], thread: str) -> None:
    names = {field.name for field in fields(Context)}
    try:
        known = Context(**{k: v for k, v in context.items() if k in names})
        main = resolve_settings(known, thread).main
        if isinstance(main.model, str):
            api_key(parse_spec(main.model), main)
    except ConfigError as error:
        raise Refused(422, str(error)) from error


async def _checked_answer(threads: Store, known: Thread, answer: Any) -> Any:
    """Return an answer by its question's id, in the form that this reads. Refused: it is not open.

    A step of a plan asks while others run: the answer is queued until these have ended.
    """
    asked = await _open_questions(threads, known)
    if asked is None:
        return answer
    ids = answered_ids(answer)
    if ids is None:
        if len(asked) > 1:
            raise Refused(409, f"Several questions are open; answer by id: {', '.join(asked)}.")
        ids = list(asked)
        answer = {ids[0]: answer}
    closed = [one for one in ids if one not in asked]
    if closed:
        raise Refused(409, f"Not open: {', '.join(closed)}. Open: {', '.join(asked)}.")
    if threads.journal.is_running(known.id):
        threads.journal.keep_answered(known.id, ids)
    return {one: middleware_answer(asked[one], answer[one]) for one in ids}


async def _open_questions(threads: Store, known: Thread) -> dict[str, Any] | None:
    """Return what the open questions ask, by id; None if nothing is known of the thread's state."""
    is_running = threads.journal.is_running(known.id)
    unanswered = threads.journal.unanswered(known.id)
    if is_running and not unanswered:
        raise Refused(409, "That was answered already: the run goes on.")
    state = await state_of(known.id, known.agent)
    if state is None:
        return None
    asked = {interrupt.id: interrupt.value for interrupt in state.interrupts}
    if is_running:
        asked = {one: value for one, value in asked.items() if one in unanswered}
    if not asked:
        raise Refused(409, "This thread asks nothing any more: that was answered already.")
    return asked


def answered_ids(answer: Any) -> list[str] | None:
    """Return the interrupts that an answer names, None if it is a bare value."""
    if not isinstance(answer, Mapping):
        return None
    keys = [str(key) for key in cast("Mapping[Any, Any]", answer)]
    return keys if keys and all(map(INTERRUPT_ID.fullmatch, keys)) else None


def _check_messages(run: dict[str, Any], *, tainted: bool) -> None:
    """Give a run's messages their origin, and ids, by which the ledger and a resumed run know them.

    Args:
        run: The server's `kwargs`.
        tainted: Whether its context holds texts that the user did not type: what the model writes
            after it read them stays untrusted in later runs of the thread, too.

    Raises:
        Refused: They cannot be read.
    """
    try:
        if "input" in run:
            run["input"] = checked_input(run["input"], tainted=tainted)
        if command := run.get("command"):
            given = cast("dict[str, Any]", command)
            run["command"] = checked_command(given, tainted=tainted)
    except UnreadableMessagesError as error:
        raise Refused(422, str(error)) from error
