"""Messages that clients supply: of all of them only what the user typed last verifies anything.

What a client says of the model's replies, of tools' results and of earlier turns may be edited, and
so may the keys in which we note where a message came from.
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, cast

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_graph.conversation.history import COMPACT_KEY, ORIGIN_KEY
from openmanus_graph.graphs.catalog import RESTART_NODES
from openmanus_graph.safety.provenance import person_words
from openmanus_graph.state.manus import ManusState
from openmanus_graph.state.plan import Origin
from openmanus_graph.state.planning import PlanningState

_OWN = "openmanus"
"""Begins the keys in which we note things in messages."""
_UNTRUSTED = Origin(words="", urls=[], tainted=True)
_CLIENTS_OWN = frozenset({"messages", "answer"})
"""Channels of our graphs that clients may write."""
_GRAPHS_OWN = (
    ManusState.__annotations__.keys() | PlanningState.__annotations__.keys()
) - _CLIENTS_OWN
"""The others: approvals, progress and what was seen. Graphs of others may have more."""
_STATE = re.compile(r"(?:/noauth)?/threads(?:/[^/]+/state)?/?")
"""Paths of LangGraph's API by which clients write a thread's state."""


class UnreadableMessagesError(Exception):
    """Messages that are not taken; the text says why."""


def checked_input(given: Any, *, tainted: bool = False) -> Any:
    """Return a graph's input with its messages as `checked_messages`.

    Args:
        given: By the client.
        tainted: Whether the client brings other texts that the model reads.

    Raises:
        UnreadableMessagesError: A message is none, or removes another one.
    """
    if not isinstance(given, dict) or "messages" not in given:
        return cast("Any", given)
    fields = cast("dict[str, Any]", given)
    return {**fields, "messages": checked_messages(fields["messages"], tainted=tainted)}


def checked_messages(given: Any, *, tainted: bool = False) -> list[dict[str, Any]]:
    """Return a client's messages as plain data, each with its origin, and an id.

    The newest human message is the user's; what it says of its own parts can only narrow what
    verifies. Everything else is untrusted.

    Args:
        given: By the client.
        tainted: Whether the newest one taints the thread, too.

    Raises:
        UnreadableMessagesError: A message is none, or removes another one.
    """
    several = cast("list[Any]", given if isinstance(given, list) else [given])
    try:
        messages = convert_to_messages(several)
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise UnreadableMessagesError(
            f"The messages cannot be read: {str(error).splitlines()[0]} Send objects with role (or "
            "type) and content. A message cannot remove another one: begin at an earlier "
            "checkpoint instead."
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
    # An artifact is where tools note what a person said, and which page they showed.
    fields = message.model_dump(mode="json", exclude={"artifact"})
    kept = {name: one for name, one in fields.items() if one or name == "content"}
    return {**kept, "id": message.id or str(uuid.uuid4()), "additional_kwargs": extra}


def _narrowed(given: Any, text: str) -> Origin:
    """Return what a message says of its parts; it can claim no words that its text lacks."""
    origin = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    words = str(origin.get("words", ""))
    return Origin(
        words=words if words in text else "",
        urls=[],
        tainted=origin.get("tainted") is not False,
        names=bool(origin.get("names")),
    )


def _checked_update(given: Any, *, tainted: bool = False) -> Any:
    """Return an update of a graph's state, checked like its input, whose schema keeps out more.

    Raises:
        UnreadableMessagesError: It writes what only the graph may, or its messages are not taken.
    """
    names = cast("dict[Any, Any]", given).keys() if isinstance(given, dict) else set[Any]()
    if own := sorted(_GRAPHS_OWN & names):
        raise UnreadableMessagesError(
            f"Only the graph writes {', '.join(own)}. A client can write "
            f"{' and '.join(sorted(_CLIENTS_OWN))}."
        )
    return checked_input(given, tainted=tainted)


class CheckedStateUpdates:
    """ASGI middleware that checks the messages of edits of a thread's state.

    LangGraph's handlers for authorization are not told what an edit writes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with an edit's messages checked."""
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or _STATE.fullmatch(scope["path"]) is None
        ):
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            part = await receive()
            if part["type"] != "http.request":
                return  # the client hung up
            body, more = body + part.get("body", b""), part.get("more_body", False)
        try:
            checked = _checked_body(body)
        except UnreadableMessagesError as error:
            await JSONResponse({"detail": str(error)}, 422)(scope, receive, send)
            return
        length = (b"content-length", str(len(checked)).encode())
        headers = [one for one in scope["headers"] if one[0] != b"content-length"]
        await self._app({**scope, "headers": [*headers, length]}, _read(checked, receive), send)


def _checked_body(body: bytes) -> bytes:
    try:
        given: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body  # which the server refuses
    if not isinstance(given, dict):
        return body
    payload = cast("dict[str, Any]", given)
    if "values" in payload:
        payload["values"] = _each(payload["values"])
    for step in _objects(payload.get("supersteps")):
        for update in _objects(step.get("updates")):
            update |= {"values": _each(update["values"])} if "values" in update else {}
            for command in _objects([update.get("command")]):
                update["command"] = checked_command(command)
    return json.dumps(payload).encode()


def _objects(given: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; none if it is no list."""
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    return [cast("dict[str, Any]", one) for one in listed if isinstance(one, dict)]


def _each(values: Any) -> Any:
    """Check the values of an edit: an object, or a list of them."""
    if isinstance(values, list):
        return [_checked_update(one) for one in cast("list[Any]", values)]
    return _checked_update(values)


def checked_command(command: Mapping[str, Any], *, tainted: bool = False) -> dict[str, Any]:
    """Return a command with its update's messages checked.

    Raises:
        UnreadableMessagesError: A message is none, or removes another one. Or the command does or
            writes more than a client may: a node that is given its own input runs forged calls.
    """
    unknown = [name for name in command if name not in ("resume", "update", "goto")]
    if unknown:
        raise UnreadableMessagesError(
            f"A command cannot have {', '.join(map(str, unknown))}. Use resume, update or goto."
        )
    goto: Any = command.get("goto")
    for node in cast("list[Any]", goto if isinstance(goto, list) else [goto]):
        if node not in (None, "", *RESTART_NODES):
            raise UnreadableMessagesError(
                "A command can go to one of the nodes "
                f"{', '.join(RESTART_NODES)}, by its name alone. Leave goto out, and send what "
                "the run needs as input or update."
            )
    update: Any = command.get("update")
    if isinstance(update, list):  # pairs of a name and a value
        pairs = cast("list[Any]", update)
        update = cast(
            "Any", dict(pairs) if all(isinstance(one, list | tuple) for one in pairs) else pairs
        )
    return (
        {**command, "update": _checked_update(update, tainted=tainted)}
        if update is not None
        else dict(command)
    )


def _read(body: bytes, receive: Receive) -> Callable[[], Any]:
    """Return what an app reads a body with that is known, and after it what comes from outside."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return parts.pop() if parts else await receive()

    return read
