"""Checks each new run before it is queued, and completes it with its thread's options."""

import asyncio
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_graph.backends.models.spec import api_key, parse_spec
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.conversation.history import COMPACT_KEY, ORIGIN_KEY
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import RESTART_NODES
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.service import accounts
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.runtime.limits import RECURSION_LIMIT
from openmanus_graph.safety.provenance import person_words
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import middleware_answer
from openmanus_graph.state.json_values import json_or
from openmanus_graph.state.manus import ManusState, Origin
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.state.settings import Settings

_OWN = "openmanus"
"""The beginning of our keys in messages and in metadata."""
_UNTRUSTED = Origin(words="", urls=[], tainted=True)
_CLIENTS_OWN = frozenset({"messages", "answer"})
"""Channels of our graphs that clients may write."""
_GRAPHS_OWN = (
    ManusState.__annotations__.keys() | PlanningState.__annotations__.keys()
) - _CLIENTS_OWN
"""The others: approvals, progress and what was seen. Third-party graphs may have more."""
_STATE = re.compile(r"(?:/noauth)?/threads(?:/[^/]+/state)?/?")
"""Paths of LangGraph's API by which clients write a thread's state."""


def checked_input(given: Any, *, tainted: bool = False) -> Any:
    if not isinstance(given, dict) or "messages" not in given:
        return cast("Any", given)
    fields = cast("dict[str, Any]", given)
    return {**fields, "messages": checked_messages(fields["messages"], tainted=tainted)}


def checked_messages(given: Any, *, tainted: bool = False) -> list[dict[str, Any]]:
    """Return a client's messages as plain data, each with its origin and an id.

    The newest human message is the user's. Its own description of its parts can only narrow what
    it verifies. All other messages are untrusted. `tainted`: the client also sends other texts that
    the model reads, which taint the thread. Refused if one is not a message, or removes another.
    """
    several = cast("list[Any]", given if isinstance(given, list) else [given])
    try:
        messages = convert_to_messages(several)
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise Refused(
            422,
            f"The messages cannot be read: {str(error).splitlines()[0]} Send objects with role (or "
            "type) and content. A message cannot remove another one: begin at an earlier "
            "checkpoint instead.",
        ) from error
    newest = next((one for one in reversed(messages) if isinstance(one, HumanMessage)), None)
    return [_checked(one, is_newest=one is newest, tainted=tainted) for one in messages]


def _checked(message: BaseMessage, *, is_newest: bool, tainted: bool) -> dict[str, Any]:
    noted: Mapping[str, Any] = message.additional_kwargs
    extra = {key: one for key, one in noted.items() if not key.startswith(_OWN) and key != "images"}
    if not is_newest:
        extra[ORIGIN_KEY] = _UNTRUSTED
    elif (origin := noted.get(ORIGIN_KEY)) is not None:
        extra[ORIGIN_KEY] = _narrowed(origin, message.text)
    if is_newest and tainted:
        words = person_words(message) if isinstance(message, HumanMessage) else ""
        own = extra.get(ORIGIN_KEY) or Origin(words=words, urls=[], tainted=True)
        extra[ORIGIN_KEY] = {**own, "tainted": True}
    if is_newest and noted.get(COMPACT_KEY):
        extra[COMPACT_KEY] = True
    images: Any = noted.get("images")
    if isinstance(message, HumanMessage) and isinstance(images, list):
        extra["images"] = [str(path) for path in cast("list[Any]", images)]
    # In artifacts tools record what a user said, and which page they showed.
    fields = message.model_dump(mode="json", exclude={"artifact"})
    kept = {name: one for name, one in fields.items() if one or name == "content"}
    return {**kept, "id": message.id or str(uuid.uuid4()), "additional_kwargs": extra}


def _narrowed(given: Any, text: str) -> Origin:
    """Return a message's description of its parts; it cannot claim words that its text lacks."""
    origin = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    words = str(origin.get("words", ""))
    return Origin(
        words=words if words in text else "",
        urls=[],
        tainted=origin.get("tainted") is not False,
        names=bool(origin.get("names")),
    )


def _checked_update(given: Any, *, tainted: bool = False) -> Any:
    """Return an update of a graph's state, checked like its input, whose schema refuses more.

    Refused if it writes what only the graph may, or its messages are not accepted.
    """
    names = cast("dict[Any, Any]", given).keys() if isinstance(given, dict) else set[Any]()
    if own := sorted(_GRAPHS_OWN & names):
        raise Refused(
            422,
            f"Only the graph writes {', '.join(own)}. A client can write "
            f"{' and '.join(sorted(_CLIENTS_OWN))}.",
        )
    return checked_input(given, tainted=tainted)


class CheckedStateUpdates:
    """ASGI middleware that checks the messages of edits of a thread's state.

    LangGraph's authorization handlers do not get the content of an edit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        if not is_post or _STATE.fullmatch(scope["path"]) is None:
            await self._app(scope, receive, send)
            return
        try:
            checked = _checked_body(await Request(scope, receive).body())
        except ClientDisconnect:
            return
        except Refused as error:
            await JSONResponse({"detail": str(error)}, error.status)(scope, receive, send)
            return
        length = (b"content-length", str(len(checked)).encode())
        headers = [one for one in scope["headers"] if one[0] != b"content-length"]
        parts: list[Message] = [{"type": "http.request", "body": checked, "more_body": False}]

        async def read() -> Message:
            return parts.pop() if parts else await receive()

        await self._app({**scope, "headers": [*headers, length]}, read, send)


def _checked_body(body: bytes) -> bytes:
    given = json_or(body)
    if not isinstance(given, dict):
        return body  # the server refuses it
    payload = cast("dict[str, Any]", given)
    if "values" in payload:
        payload["values"] = _checked_values(payload["values"])
    for step in _objects(payload.get("supersteps")):
        for update in _objects(step.get("updates")):
            if "values" in update:
                update["values"] = _checked_values(update["values"])
            for command in _objects([update.get("command")]):
                update["command"] = checked_command(command)
    return json.dumps(payload).encode()


def _objects(given: Any) -> list[dict[str, Any]]:
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    return [cast("dict[str, Any]", one) for one in listed if isinstance(one, dict)]


def _checked_values(values: Any) -> Any:
    if isinstance(values, list):
        return [_checked_update(one) for one in cast("list[Any]", values)]
    return _checked_update(values)


def checked_command(command: Mapping[str, Any], *, tainted: bool = False) -> dict[str, Any]:
    """Return a command with its update's messages checked.

    Refused as there, or if the command does or writes more than a client may: a
    node that gets its own input would run forged calls.
    """
    unknown = [name for name in command if name not in ("resume", "update", "goto")]
    if unknown:
        raise Refused(
            422,
            f"A command cannot have {', '.join(map(str, unknown))}. Use resume, update or goto.",
        )
    goto: Any = command.get("goto")
    for node in cast("list[Any]", goto if isinstance(goto, list) else [goto]):
        if node not in (None, "", *RESTART_NODES):
            raise Refused(
                422,
                "A command can go to one of the nodes "
                f"{', '.join(RESTART_NODES)}, by its name alone. Leave goto out, and send what "
                "the run needs as input or update.",
            )
    update: Any = command.get("update")
    if update is None:
        return dict(command)
    if isinstance(update, list):  # pairs of a name and a value
        pairs = cast("list[Any]", update)
        update = dict(pairs) if all(isinstance(one, list | tuple) for one in pairs) else pairs
    return {**command, "update": _checked_update(update, tainted=tainted)}


_CONTEXT_FIELDS = frozenset(field.name for field in fields(Context))
_TEXTS = ("prompts", "response_format")
"""Fields of a run's context whose texts the model reads."""
INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")


async def admit(
    thread: str | None, run: dict[str, Any], assistant: Mapping[str, Any] | None = None
) -> None:
    """Check a run that LangGraph's server is about to queue, and complete it in place.

    `thread` is None for a stateless run. `run` has the server's `kwargs`: input, command, context,
    config, durability and others. `assistant` has defaults for the run.
    """
    if run.get("temporary"):  # a stateless run: LangGraph warns if a durability is set
        run["durability"] = run["checkpoint_during"] = None
    else:
        run["durability"] = "sync"  # else a crash loses the newest checkpoints
    drop_reserved(run)
    run["config"] = {"recursion_limit": RECURSION_LIMIT, **(run.get("config") or {})}
    threads = store.current()
    known = None if thread is None else await threads.find(thread)
    given: Mapping[str, Any] = run.get("context") or {}
    stored = store.context_of(known.options) if known else {}
    run["context"] = {**stored, **{k: v for k, v in given.items() if v not in ("", None)}}
    brought = (*contexts_in(assistant or {}), *contexts_in(run))
    brings_text = any(one.get(name) for one in brought for name in _TEXTS)
    if brings_text:
        run["context"]["untrusted_prompt"] = True
    _check_messages(run, tainted=brings_text)
    context = {name: one for name, one in run["context"].items() if name in _CONTEXT_FIELDS}
    try:
        await asyncio.to_thread(settings_of, Context(**context), thread or "new")
    except ConfigError as error:
        raise Refused(422, str(error)) from error
    if known is None:
        return
    # First: a prune has looked before, and holds the thread, or leaves it alone.
    await asyncio.to_thread(threads.threads.touch, known.id)
    if await threads.is_held_elsewhere(known.id):
        raise Refused(409, f"Thread {thread} is in use by another process. Wait, or stop it first.")
    if threads.journal.is_running(known.id) and not store.own_server.is_alone:
        raise Refused(409, "A run works on this thread. Wait for its end, or stop it first.")
    command: dict[str, Any] = run.get("command") or {}
    if command.get("resume") is not None:
        command["resume"] = await _checked_answer(threads, known, command["resume"])


_CONFIG = {"configurable", "metadata", "tags", "recursion_limit", "max_concurrency", "run_name"}
_NAMING = ("metadata", "configurable", "context", "checkpoint")
_OF_USERS = frozenset(
    {
        *("model", "profile", "max_steps", "max_cost_usd", "max_total_tokens", "timeout_s"),
        *("max_parallel_steps", "step_timeout_s", "review_plan", "answer_check", "policy"),
        *("listing", "code_mode", "search_tools_above", "prompts", "response_format"),
        "untrusted_prompt",
    }
)
"""Fields of a run's context that every user may set. The others reach beyond the user's threads:
folders, programs, addresses, the sandbox."""


def may_set(field: str) -> bool:
    """Return True if the current user may set a field of a run's context."""
    return accounts.current_user().role == "admin" or field in _OF_USERS


def require_allowed(*contexts: Mapping[str, Any]) -> None:
    """Refuse (403) what a client's context may not set for the current user."""
    names = {name for one in contexts for name, value in one.items() if value not in ("", None)}
    refused = sorted(name for name in names & _CONTEXT_FIELDS if not may_set(name))
    if any("://" in str(one.get("model")) for one in contexts) and not may_set("base_url"):
        refused.append("model with an address")
    if refused:
        raise Refused(403, f"Only an admin may set {', '.join(refused)}. Leave it out.")


def contexts_in(described: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both places from which a server takes the context of a run."""
    config: Mapping[str, Any] = described.get("config") or {}
    return config.get("configurable") or {}, described.get("context") or {}


def drop_reserved(described: Mapping[str, Any]) -> None:
    """Remove, in place, what only servers and graphs say of a run: it names the run's thread."""
    config: Any = described.get("config")
    config = cast("dict[str, Any]", config) if isinstance(config, dict) else {}
    for name in config.keys() - _CONFIG:  # LangGraph would add them to `configurable`
        del config[name]
    for one in (described, config):
        for known in _objects([one.get(part) for part in _NAMING]):
            for name in [*known]:
                if name in ("thread_id", "run_id") or name.startswith(_OWN):
                    del known[name]


async def admit_deletion(thread: str) -> None:
    """Refuse to delete a thread on which a run works: the user could not see or stop the run."""
    if await store.current().is_running(thread):
        raise Refused(409, "A run works on this thread. Stop it first.")


def settings_of(context: Context, thread: str) -> Settings:
    """Return the settings of a run. Blocks. ConfigError if it has no model, or no key for it."""
    settings = resolve_settings(context, thread)
    if isinstance(settings.main.model, str):
        api_key(parse_spec(settings.main.model), settings.main)
    accounts.require_separation(settings.sandbox)
    return settings


async def _checked_answer(threads: store.Store, known: Thread, answer: Any) -> Any:
    """Return an answer by its question's id, in the question's form. Refused if it is not open.

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


async def _open_questions(threads: store.Store, known: Thread) -> dict[str, Any] | None:
    """Return the values of the open questions, by id; None if the thread's state is unknown."""
    is_running = threads.journal.is_running(known.id)
    unanswered = threads.journal.unanswered(known.id)
    if is_running and not unanswered:
        raise Refused(409, "That was answered already: the run continues.")
    state = await store.state_of(known.id, known.agent)
    if state is None:
        return None
    asked = {interrupt.id: interrupt.value for interrupt in state.interrupts}
    if is_running:
        asked = {one: value for one, value in asked.items() if one in unanswered}
    if not asked:
        raise Refused(409, "This thread has no open question: it was answered already.")
    return asked


def answered_ids(answer: Any) -> list[str] | None:
    """Return the interrupts that an answer names; None if it is a bare value."""
    if not isinstance(answer, Mapping):
        return None
    keys = [str(key) for key in cast("Mapping[Any, Any]", answer)]
    return keys if keys and all(map(INTERRUPT_ID.fullmatch, keys)) else None


def _check_messages(run: dict[str, Any], *, tainted: bool) -> None:
    """Give a run's messages their origin and ids, by which the ledger and a resumed run find them.

    Refused if they cannot be read. `tainted` says that the context has texts that the user did not
    type: what the model writes after it read them stays untrusted in later runs of the thread.
    """
    if "input" in run:
        run["input"] = checked_input(run["input"], tainted=tainted)
    if command := run.get("command"):
        run["command"] = checked_command(cast("dict[str, Any]", command), tainted=tainted)
