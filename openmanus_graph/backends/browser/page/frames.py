"""Our scripts in the frames of one page, each in an isolated world that the page cannot see."""

import asyncio
import contextlib
import functools
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, TypeVar, cast

from playwright.async_api import BrowserContext, CDPSession, Error, Frame, Page

from openmanus_graph.errors import TrustedToolError

EVENTS = "om" + secrets.token_hex(6)
"""The prefix of our events and the name of our world, in this process."""
_SCRIPTS = (
    "dom", "names", "quiet", "hover", "walk", "clickable", "collect", "act", "press",
    "editors", "forms", "dropdowns", "tables",
)  # fmt: skip
_CALLABLE = (
    "collect, mark, quiet, showing, point, under, follow, aim, landing, pointNow, bringTogether, "
    "framePlace, showFramePlace, scrollPage, scrollToText, numberOfText, field, enter, "
    "focusElsewhere, assign, slider, nativeOptions, selectOption, paste, copied, noteLists, "
    "customOptions, pageList, shownChoice, fileInput, fileFacts, connected, numberOf, "
    "focusedNumber, adopt, storedValues, around, nameAt, namesOf, clickFacts, tables, dragTaken"
)
MAX_FRAMES = 40
CALL_LIMIT_S = 30.0
UNRESPONSIVE = (
    "The page does not answer: its scripts keep it busy. Wait and try again, or load it again."
)
CRASHED = "The page has crashed."

JsonObject = dict[str, Any]  # a message of the DevTools protocol, or a result of our script
T = TypeVar("T")


@functools.cache
def script(name: str) -> str:
    """Read one of our scripts, with event names that differ from process to process."""
    path = files("openmanus_graph.backends.browser.page").joinpath("script", f"{name}.js")
    return path.read_text("utf-8").replace("openmanus-", EVENTS)


@functools.cache
def isolated_script() -> str:
    """Return the program of our isolated world, which makes `openmanus` known there."""
    body = "\n".join(map(script, _SCRIPTS))
    return (
        "if (!globalThis.openmanus) globalThis.openmanus = (() => {\n"
        f"'use strict';\n{body}\nreturn {{ {_CALLABLE} }};\n}})(); 0"
    )


async def prepare_context(context: BrowserContext) -> None:
    """Make the pages of a context report their timers and closed shadow roots."""
    await context.add_init_script(script("timers"))
    await context.add_init_script(script("roots"))


def listen(page: Page, handlers: Mapping[str, Callable[[Any], None]]) -> Callable[[], None]:
    """Subscribe to events of a page, and return a function that unsubscribes."""
    untyped: Any = page  # its stubs have an overload for each event
    for event, handler in handlers.items():
        untyped.on(event, handler)

    def stop() -> None:
        for event, handler in handlers.items():
            untyped.remove_listener(event, handler)

    return stop


class FrameDetached(Exception):  # no error: the page has navigated
    """The document of a call is no longer loaded."""


class ScriptError(RuntimeError):
    """A script raised an error."""


class DialogOpen(Exception):  # no error
    """A dialog of the page (alert, confirm, prompt) blocks it."""


@dataclass(frozen=True)
class FrameWorld:
    """The isolated world of our script in one frame's document."""

    key: str
    session: CDPSession
    frame_id: str
    context_id: int
    listeners: str
    """The object id of the function that reports which elements have pointer listeners."""
    parent_id: str  # the parent's frame id, empty for the page itself
    owner: tuple[str, int] | None = None
    """The parent's key, and the number of the frame's element in it."""


class Frames:
    """The isolated worlds of a page's frames, refreshed whenever the page loads something."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.dialog_open = False  # whether an alert, confirm or prompt blocks the page
        self._crashed = False
        self._session: CDPSession | None = None
        self._own_sessions: dict[Frame, CDPSession] = {}
        self._worlds: dict[str, FrameWorld] = {}
        self._stale = True
        self._calls: set[asyncio.Future[Any]] = set()

        def on_frames_changed(_frame: object) -> None:
            self._stale = True

        changed = ("framenavigated", "framedetached", "frameattached")
        handlers = {"crash": self._on_crash, **dict.fromkeys(changed, on_frames_changed)}
        self.close = listen(page, handlers)

    async def worlds(self) -> list[FrameWorld]:
        if self._stale or not self._worlds:
            await self._refresh()
        return list(self._worlds.values())

    def known(self, key: str) -> FrameWorld | None:
        """Return a frame's world by its key; None if its document is no longer loaded."""
        return self._worlds.get(key)

    async def call(self, world: FrameWorld, function: str, *args: object) -> Any:
        """Call a function of our script in a frame and return what it returns, as JSON."""
        call = f"openmanus.{function}({', '.join(json.dumps(arg) for arg in args)})"
        result = await self.evaluate(world, call, awaitPromise=True, returnByValue=True)
        return result.get("value")

    async def evaluate(self, world: FrameWorld, expression: str, **options: bool) -> JsonObject:
        """Evaluate an expression in a frame; return its `value`, or the `objectId` of a node."""
        params = {"expression": expression, "uniqueContextId": world.key, **options}
        response = await self.send(world.session, "Runtime.evaluate", params)
        return cast(JsonObject, response["result"])

    async def call_on(
        self, session: CDPSession, object_id: str, body: str, *, by_value: bool = True
    ) -> JsonObject:
        """Call a function with an object as `this`; return its `value`, or an `objectId`."""
        function = f"function () {{ {body} }}"
        params = {"objectId": object_id, "functionDeclaration": function, "returnByValue": by_value}
        response = await self.send(session, "Runtime.callFunctionOn", params)
        return cast(JsonObject, response["result"])

    async def send(self, session: CDPSession, method: str, params: JsonObject) -> JsonObject:
        """Send one request; raises FrameDetached or DialogOpen if there can be no response."""
        try:
            sent = cast("Awaitable[JsonObject]", session.send(method, params))
            response = await self.unless_dialog(sent)
        except TimeoutError as error:
            raise TrustedToolError(UNRESPONSIVE) from error
        except Error as error:
            if self.page.is_closed() or "crashed" in error.message:
                raise
            self._stale = True
            raise FrameDetached(error.message) from error
        if "exceptionDetails" in response:
            exception = response["exceptionDetails"].get("exception", {})
            raise ScriptError(f"{method}: {exception.get('description', response)}")
        return response

    async def unless_dialog(self, work: Awaitable[T]) -> T:
        """Await work of the page; raises DialogOpen as soon as a dialog blocks it."""
        call = asyncio.ensure_future(work)
        if self.dialog_open or self._crashed:
            call.cancel()
            raise TrustedToolError(CRASHED) if self._crashed else DialogOpen
        self._calls.add(call)
        try:
            return await asyncio.wait_for(call, CALL_LIMIT_S)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not (task and task.cancelling()):
                if self._crashed:
                    raise TrustedToolError(CRASHED) from None
                if self.dialog_open:
                    raise DialogOpen from None
            raise
        finally:
            self._calls.discard(call)

    def _on_crash(self, _page: object) -> None:
        self._crashed = True
        self._cancel_calls()

    def _on_dialog_opened(self, _event: JsonObject) -> None:
        self.dialog_open = True
        self._cancel_calls()

    def _on_dialog_closed(self, _event: JsonObject) -> None:
        self.dialog_open = False

    def _cancel_calls(self) -> None:
        for call in list(self._calls):
            call.cancel()

    async def _refresh(self) -> None:
        self._stale = False
        if self._session is None:
            self._session = session = await self.page.context.new_cdp_session(self.page)
            session.on("Page.javascriptDialogOpening", self._on_dialog_opened)
            session.on("Page.javascriptDialogClosed", self._on_dialog_closed)
            await self.send(session, "Page.enable", {})
        found = await self._load_script(self._session)
        if len(found) < len(self.page.frames):
            for other in await self._sessions_of_other_processes():
                found += await self._load_script(other)
        by_frame = {world.frame_id: world for world in found}

        async def with_owner(world: FrameWorld) -> FrameWorld:
            parent = by_frame.get(world.parent_id)
            if not parent or world.owner:
                return world
            frame_id = {"frameId": world.frame_id}
            owner = await self.send(parent.session, "DOM.getFrameOwner", frame_id)
            body = "return openmanus.numberOf(this);"
            number = await self._call_on_node(parent, owner["backendNodeId"], body)
            return replace(world, owner=(parent.key, number["value"]))

        self._worlds = {one.key: one for one in await asyncio.gather(*map(with_owner, found))}

    async def _sessions_of_other_processes(self) -> list[CDPSession]:
        """Return the sessions of frames that do not run in the page's own process."""
        for gone in [frame for frame in self._own_sessions if frame.is_detached()]:
            del self._own_sessions[gone]
        for frame in self.page.frames[1:MAX_FRAMES]:
            if frame not in self._own_sessions:
                with contextlib.suppress(Error):  # it is drawn in its parent's process
                    self._own_sessions[frame] = await self.page.context.new_cdp_session(frame)
        return list(self._own_sessions.values())

    async def _load_script(self, session: CDPSession) -> list[FrameWorld]:
        try:
            tree = await self.send(session, "Page.getFrameTree", {})
            frames = list(_flatten(tree["frameTree"]))[:MAX_FRAMES]
            contexts = await self._contexts(session, [frame["id"] for frame in frames])
            pending = [self._world_of(session, frame, contexts) for frame in frames]
            return [world for world in await asyncio.gather(*pending) if world]
        except FrameDetached:
            self._own_sessions = {k: v for k, v in self._own_sessions.items() if v is not session}
            if session is self._session:
                raise
            return []

    async def _contexts(self, session: CDPSession, frame_ids: list[str]) -> list[JsonObject]:
        contexts: list[JsonObject] = []

        def on_context(event: JsonObject) -> None:
            contexts.append(event["context"])

        session.on("Runtime.executionContextCreated", on_context)
        try:
            worlds = [{"frameId": frame_id, "worldName": EVENTS} for frame_id in frame_ids]
            create = [self.send(session, "Page.createIsolatedWorld", world) for world in worlds]
            await asyncio.gather(*create)
            await self.send(session, "Runtime.enable", {})
            await self.send(session, "Runtime.disable", {})
        finally:
            session.remove_listener("Runtime.executionContextCreated", on_context)
        return contexts

    async def _world_of(
        self, session: CDPSession, frame: JsonObject, contexts: list[JsonObject]
    ) -> FrameWorld | None:
        of_frame = [one for one in contexts if one["auxData"]["frameId"] == frame["id"]]
        isolated = next((one for one in of_frame if one["name"] == EVENTS), None)
        main = next((one for one in of_frame if one["auxData"]["isDefault"]), None)
        if not isolated or not main:
            return None
        key = isolated["uniqueId"]
        if key in self._worlds:
            return self._worlds[key]
        load_script = {"uniqueContextId": key, "expression": isolated_script()}
        get_listeners = {"uniqueContextId": main["uniqueId"], "includeCommandLineAPI": True}
        get_listeners["expression"] = script("listeners")
        both = (load_script, get_listeners)
        calls = [self.send(session, "Runtime.evaluate", params) for params in both]
        _, response = await asyncio.gather(*calls)
        listeners = response["result"]["objectId"]
        parent = frame.get("parentId", "")
        return FrameWorld(key, session, frame["id"], isolated["id"], listeners, parent)

    async def _call_on_node(self, world: FrameWorld, backend_id: int, body: str) -> JsonObject:
        node = {"backendNodeId": backend_id, "executionContextId": world.context_id}
        resolved = await self.send(world.session, "DOM.resolveNode", node)
        return await self.call_on(world.session, resolved["object"]["objectId"], body)

    async def report_listeners(self, world: FrameWorld) -> int:
        """Report which elements have listeners; return the number of unknown closed shadow roots.

        The main world belongs to the page. If the page has replaced the functions that we call
        there, fewer listeners are known.
        """
        try:
            result = await self.call_on(world.session, world.listeners, "return this();")
        except ScriptError:
            return 0
        unknown = result.get("value")
        return unknown if isinstance(unknown, int) else 0

    async def adopt_roots(self, world: FrameWorld) -> None:
        """Give our script in a frame the closed shadow roots that it does not know yet."""
        session, fresh = world.session, "return this.fresh();"
        listed = await self.call_on(session, world.listeners, fresh, by_value=False)
        params = {"objectId": listed["objectId"], "ownProperties": True}
        roots = await self.send(session, "Runtime.getProperties", params)

        async def adopt(root: JsonObject) -> None:
            described = await self.send(session, "DOM.describeNode", {"objectId": root["objectId"]})
            number = described["node"]["backendNodeId"]
            await self._call_on_node(world, number, "openmanus.adopt(this);")

        numbered = [one["value"] for one in roots["result"] if one["name"].isdecimal()]
        await asyncio.gather(*map(adopt, numbered))


def _flatten(tree: JsonObject) -> Iterator[JsonObject]:
    yield tree["frame"]
    for child in tree.get("childFrames", []):
        yield from _flatten(child)
