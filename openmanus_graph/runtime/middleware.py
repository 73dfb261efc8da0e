"""Calls the hooks of LangChain's `AgentMiddleware`, and checks what they write to the state.

A hook exists twice, as `hook` and `ahook`; a middleware overrides one or both. A synchronous hook
runs in a thread if there is no asynchronous one, so that it does not block the event loop.
The `messages` channel is incremental and needs messages with ids. Runs begin with a human message.
The ledger identifies a call by its branch and the number of equal calls before it.
"""

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    convert_to_messages,
)
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite

from openmanus_graph.conversation.history import ORIGIN_KEY, STEERING_KEY, last_user_message
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.provenance import origin_of
from openmanus_graph.state.manus import ManusState

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware

    Middleware = AgentMiddleware[Any, Any, Any]

NodeHook = Literal["before_agent", "before_model", "after_model", "after_agent"]
WrapHook = Literal["wrap_model_call", "wrap_tool_call"]
Handler = Callable[[Any], Awaitable[Any]]
"""Passed to a wrapping hook: takes a request, returns the response."""


def overrides(middleware: "Middleware", method: str) -> bool:
    from langchain.agents.middleware import AgentMiddleware

    return getattr(type(middleware), method) is not getattr(AgentMiddleware, method)


def with_hook(middleware: Sequence["Middleware"], hook: NodeHook | WrapHook) -> list["Middleware"]:
    """Return the middleware with the hook, synchronous or not, in their order."""
    return [one for one in middleware if overrides(one, hook) or overrides(one, f"a{hook}")]


async def call_node_hook(
    middleware: "Middleware", hook: NodeHook, state: Any, runtime: Runtime[Any]
) -> Any:
    """Call a hook between the steps, and return what it returns.

    Further parameters that the hook names are filled in as LangGraph does.
    """
    is_async = overrides(middleware, f"a{hook}")
    method = getattr(middleware, f"a{hook}" if is_async else hook)
    known = {"config": get_config(), "store": runtime.store, "writer": runtime.stream_writer}
    more = {name: known[name] for name in inspect.signature(method).parameters if name in known}
    if is_async:
        return await method(state, runtime, **more)
    return await asyncio.to_thread(method, state, runtime, **more)


def wrapped(middleware: Sequence["Middleware"], hook: WrapHook, handler: Handler) -> Handler:
    """Wrap the hooks around a handler. The first middleware is the outermost."""
    for one in reversed(middleware):
        handler = partial(_call_wrap_hook, one, hook, handler)
    return handler


async def _call_wrap_hook(
    middleware: "Middleware", hook: WrapHook, handler: Handler, request: Any
) -> Any:
    """Call a hook; a synchronous one runs in a thread, and its handler on the event loop."""
    if overrides(middleware, f"a{hook}"):
        return await getattr(middleware, f"a{hook}")(request, handler)
    loop = asyncio.get_running_loop()
    handled: list[Future[Any]] = []

    async def awaited(changed: Any) -> Any:
        return await handler(changed)

    def handle(changed: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(awaited(changed), loop)
        handled.append(future)
        return future.result()

    try:
        return await asyncio.to_thread(getattr(middleware, hook), request, handle)
    finally:
        for future in handled:  # else the thread of a cancelled call would wait for ever
            future.cancel()


Update = dict[str, Any]


def checked_update(update: Any) -> Update:
    """Return what a hook writes. ConfigError: it is not an update, or writes the graph's keys."""
    if not isinstance(update, Mapping):
        raise ConfigError(f"A middleware returned {update!r}, which is not an update of the state.")
    given = dict(cast("Mapping[str, Any]", update))
    if own := sorted(given.keys() & (ManusState.__annotations__.keys() - {"messages"})):
        raise ConfigError(
            f"A middleware writes {', '.join(own)}, which only the graph may write. Declare a "
            "key of another name in its state_schema."
        )
    return given


def command_update(command: Command[Any]) -> Update:
    """Return the update of a command that only updates. ConfigError: it does more than that."""
    if command.goto or command.graph is not None or command.resume is not None:
        raise ConfigError(
            "A middleware returned a Command with `goto`, `graph` or `resume`, which this graph "
            "does not carry out. Return an update, with `jump_to` if the hook declares it."
        )
    return {} if command.update is None else checked_update(command.update)


def added_messages(update: Mapping[str, Any]) -> Update:
    """Return an update from within a step: its messages are added, and get ids.

    ConfigError: It removes messages or jumps, which only a hook between the steps can do.
    """
    if update.get("jump_to") is not None:
        raise ConfigError(
            "A middleware or tool jumps during a step. Do it in a hook between the steps: "
            "before_model or after_model."
        )
    if "messages" not in update:
        return dict(update)
    messages = _with_ids(update["messages"])
    if any(isinstance(message, RemoveMessage) for message in messages):
        raise ConfigError(
            "A middleware or tool removes messages during a step. Do it in a hook between the "
            "steps: before_model or after_model."
        )
    return {**update, "messages": [_marked(message) for message in messages]}


def with_updates(update: Update, more: Sequence[Update]) -> Update | list[Update | Command[Any]]:
    """Return a node's update together with the updates of a middleware or tool."""
    if not more:
        return update
    return [update, *(Command(update=added_messages(one)) for one in more)]


def changed_messages(update: Mapping[str, Any], state: ManusState) -> Update:
    """Return the update of a hook between the steps, adapted to the `messages` channel.

    New human messages do not begin a run. If all messages are replaced and the one that began the
    run is missing, the first human message takes its id. If calls disappear or change, the branch
    changes as well; without this, the ledger would treat new calls as old ones.

    `update` is what the hook returned, `state` the state before it.
    """
    if "messages" not in update:
        return dict(update)
    known = {message.id: message for message in state["messages"]}
    given = _with_ids(update["messages"])
    removed = [place for place, one in enumerate(given) if one.id == REMOVE_ALL_MESSAGES]
    messages = given[removed[-1] + 1 :] if removed else given
    run = state["run_message"]
    missing = bool(removed) and run not in {one.id for one in messages}
    fit: list[AnyMessage] = []
    for message in messages:
        if message.id in known or not isinstance(message, HumanMessage):
            fit.append(message)
        elif missing:
            origin = origin_of(last_user_message(state["messages"]), [], tainted=True)
            fit.append(_with(message.model_copy(update={"id": run}), {ORIGIN_KEY: origin}))
            missing = False
        else:
            fit.append(_marked(message))
    changed: Update = {**update, "messages": Overwrite(fit) if removed else fit}
    if removed or any(_changes_calls(message, known.get(message.id)) for message in fit):
        changed["branch"] = state["branch"] + "+"
    return changed


def _with_ids(given: Any) -> list[AnyMessage]:
    listed: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given]
    made = convert_to_messages(listed)
    for message in made:
        if message.id is None:
            message.id = str(uuid.uuid4())
    return cast("list[AnyMessage]", made)


def _marked(message: AnyMessage) -> AnyMessage:
    """Mark a human message: it begins no run and verifies no address, as no person wrote it."""
    if not isinstance(message, HumanMessage):
        return message
    origin = origin_of(None, [], tainted=False)
    return _with(message, {STEERING_KEY: True, ORIGIN_KEY: origin})


def _with(message: AnyMessage, more: Mapping[str, Any]) -> AnyMessage:
    additional_kwargs = {**message.additional_kwargs, **more}
    return message.model_copy(update={"additional_kwargs": additional_kwargs})


def _changes_calls(message: BaseMessage, before: BaseMessage | None) -> bool:
    if isinstance(message, RemoveMessage):
        return True
    if not isinstance(message, AIMessage) or not isinstance(before, AIMessage):
        return False
    return message.tool_calls != before.tool_calls
