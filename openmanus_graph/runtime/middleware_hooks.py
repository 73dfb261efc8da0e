"""Calling the hooks of LangChain's `AgentMiddleware`.

A hook exists twice, as `hook` and as `ahook`; a middleware overrides one of the two or both. Where
only the synchronous one is there, it runs in a thread, so that it does not stop the event loop.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langgraph.config import get_config
from langgraph.runtime import Runtime

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
