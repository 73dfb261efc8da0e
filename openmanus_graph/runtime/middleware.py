"""Calls the hooks of LangChain's `AgentMiddleware`, and checks what they write to the state.

A hook exists twice, as `hook` and as `ahook`; a middleware overrides one of the two or both. Where
only the synchronous one is there, it runs in a thread, so that it does not stop the event loop.
The `messages` channel is incremental and wants messages with ids; runs begin with a human message,
and the ledger knows calls by their branch and by how many like them came before.
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
"""What a wrapping hook is given: takes a request, returns the response."""


def overrides(middleware: "Middleware", method: str) -> bool:
    """Say whether a middleware has a method of its own, by its name in `AgentMiddleware`."""
    from langchain.agents.middleware import AgentMiddleware

    return getattr(type(middleware), method) is not getattr(AgentMiddleware, method)


def with_hook(middleware: Sequence["Middleware"], hook: NodeHook | WrapHook) -> list["Middleware"]:
    """Return those that have the hook, synchronous or not, in their order."""
    return [one for one in middleware if overrides(one, hook) or overrides(one, f"a{hook}")]


async def call_node_hook(
    middleware: "Middleware", hook: NodeHook, state: Any, runtime: Runtime[Any]
) -> Any:
    """Call a hook that stands between the steps, and return what it returns."""
    if overrides(middleware, f"a{hook}"):
        method = getattr(middleware, f"a{hook}")
        return await method(state, runtime, **_asked_for(method, runtime))
    method = getattr(middleware, hook)
    return await asyncio.to_thread(method, state, runtime, **_asked_for(method, runtime))


def _asked_for(method: Callable[..., Any], runtime: Runtime[Any]) -> dict[str, Any]:
    """Return what else a hook names as a parameter, as LangGraph would fill it in."""
    known = {"config": get_config(), "store": runtime.store, "writer": runtime.stream_writer}
    return {name: known[name] for name in inspect.signature(method).parameters if name in known}


def wrapped(middleware: Sequence["Middleware"], hook: WrapHook, handler: Handler) -> Handler:
    """Put the hooks around a handler; the first middleware is the outermost.

    Args:
        middleware: Those that have the hook.
        hook: Which of the two.
        handler: What the innermost hook is given.
    """
    for one in reversed(middleware):
        handler = partial(_call_wrap_hook, one, hook, handler)
    return handler


async def _call_wrap_hook(
    middleware: "Middleware", hook: WrapHook, handler: Handler, request: Any
) -> Any:
    if overrides(middleware, f"a{hook}"):
        return await getattr(middleware, f"a{hook}")(request, handler)
    return await _in_thread(getattr(middleware, hook), request, handler)


async def _in_thread(
    hook: Callable[[Any, Callable[[Any], Any]], Any], request: Any, handler: Handler
) -> Any:
    """Run a synchronous hook in a thread; its handler does its work on the event loop."""
    loop = asyncio.get_running_loop()
    asked: list[Future[Any]] = []

    def ask(changed: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(_awaited(handler, changed), loop)
        asked.append(future)
        return future.result()

    try:
        return await asyncio.to_thread(hook, request, ask)
    finally:
        for future in asked:  # else the thread of a cancelled call would wait for ever
            future.cancel()


async def _awaited(handler: Handler, request: Any) -> Any:
    return await handler(request)


Update = dict[str, Any]


def checked_update(update: Any) -> Update:
    """Return what a hook wants written. ConfigError: it is no update, or writes the graph's own."""
    if not isinstance(update, Mapping):
        raise ConfigError(f"A middleware returned {update!r}, which is no update of the state.")
    given = dict(cast("Mapping[str, Any]", update))
    if own := sorted(given.keys() & (ManusState.__annotations__.keys() - {"messages"})):
        raise ConfigError(
            f"A middleware writes {', '.join(own)}, which is the graph's own and only to be read. "
            "Declare a key of another name in its state_schema."
        )
    return given


def command_update(command: Command[Any]) -> Update:
    """Return the update of a command that only updates. ConfigError: it wants more than that."""
    if command.goto or command.graph is not None or command.resume is not None:
        raise ConfigError(
            "A middleware returned a Command that goes somewhere or resumes, which this graph does "
            "not carry out. Return an update, with `jump_to` where the hook declares it."
        )
    update = command.update
    if update is None:
        return {}
    return checked_update(update)


def added_messages(update: Mapping[str, Any]) -> Update:
    """Return an update from within a step: its messages are added, and get ids.

    Raises:
        ConfigError: It removes messages or jumps, which only a hook between the steps can do.
    """
    if update.get("jump_to") is not None:
        raise ConfigError(
            "A middleware or tool jumps while a step is under way. Do it in a hook between the "
            "steps: before_model or after_model."
        )
    if "messages" not in update:
        return dict(update)
    messages = _with_ids(update["messages"])
    if any(isinstance(message, RemoveMessage) for message in messages):
        raise ConfigError(
            "A middleware or tool removes messages while a step is under way. Do it in a hook "
            "between the steps: before_model or after_model."
        )
    return {**update, "messages": [_marked(message) for message in messages]}


def with_updates(update: Update, more: Sequence[Update]) -> Update | list[Update | Command[Any]]:
    """Return a node's update together with what a middleware or a tool wants written."""
    if not more:
        return update
    return [update, *(Command(update=added_messages(one)) for one in more)]


def changed_messages(update: Mapping[str, Any], state: ManusState) -> Update:
    """Return the update of a hook between the steps, fit for the `messages` channel.

    New human messages begin no run; where all are replaced and the one that began the run is gone,
    the first human message stands for it. Where calls disappear or change, what follows is another
    branch, or else the ledger would take new calls for old ones.

    Args:
        update: As the hook returned it.
        state: Before the hook.
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
    """Have a human message begin no run, and verify no address: no person wrote it."""
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
