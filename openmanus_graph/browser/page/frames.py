"""Our scripts in the frames of one page, each in an isolated world that the page cannot see."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from openmanus_graph.browser.page.scripts import EVENTS, isolated_script, script
from openmanus_graph.errors import OwnWordsError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page

Answer = dict[str, Any]  # what the browser's protocol or our script says, as JSON
T = TypeVar("T")

MAX_FRAMES = 40
CALL_LIMIT_S = 30.0
UNRESPONSIVE = (
    "The page does not answer: its scripts keep it busy. Wait and try again, or load it anew."
)
CRASHED = "The page has crashed."


class FrameGone(Exception):  # an event, not a fault: the page moved on
    """The document a call was meant for is no longer there."""


class ScriptFault(RuntimeError):
    """A script raised an error."""


class DialogOpen(Exception):  # an event, not a fault
    """A dialog of the page (alert, confirm, prompt) blocks it."""


@dataclass(frozen=True)
class FrameWorld:
    """One frame's document as our script sees it."""

    key: str
    session: "CDPSession"
    frame_id: str
    context_id: int
    listeners: str
    """The object id of the function that tells which elements wait for pointers."""
    parent_id: str
    """The parent's frame id, empty for the page itself."""
    owner: tuple[str, int] | None = None
    """The parent frame's key and the number of the frame's element there."""


class Frames:
    """The worlds of a page's frames, found again whenever the page loads something."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.dialog_open = False
        self._crashed = False
        self._session: CDPSession | None = None
        self._own_sessions: dict[Frame, CDPSession] = {}
        self._worlds: dict[str, FrameWorld] = {}
        self._stale = True
        self._calls: set[asyncio.Future[Any]] = set()
        page.on("crash", self._crash)
        page.on("framenavigated", self._moved)
        page.on("framedetached", self._moved)
        page.on("frameattached", self._moved)

    def close(self) -> None:
        """Stop listening to the page."""
        self.page.remove_listener("crash", self._crash)
        self.page.remove_listener("framenavigated", self._moved)
        self.page.remove_listener("framedetached", self._moved)
        self.page.remove_listener("frameattached", self._moved)

    async def worlds(self) -> list[FrameWorld]:
        """Return every frame's world, the page's own first."""
        if self._stale or not self._worlds:
            await self._find()
        return list(self._worlds.values())

    def known(self, key: str) -> FrameWorld | None:
        """Return a frame's world by its key; None if its document is no longer there."""
        return self._worlds.get(key)

    async def call(self, world: FrameWorld, function: str, *args: object) -> Any:
        """Call a function of our script in a frame and return what it returns, as JSON."""
        given = ", ".join(json.dumps(arg) for arg in args)
        answer = await self.send(
            world.session,
            "Runtime.evaluate",
            {
                "expression": f"openmanus.{function}({given})",
                "uniqueContextId": world.key,
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        return answer["result"].get("value")

    async def object_id(self, world: FrameWorld, function: str, number: int) -> str | None:
        """Return the protocol's id of the node that a function of our script returns."""
        answer = await self.send(
            world.session,
            "Runtime.evaluate",
            {"expression": f"openmanus.{function}({number})", "uniqueContextId": world.key},
        )
        return cast(str | None, answer["result"].get("objectId"))

    async def send(self, session: "CDPSession", method: str, params: Answer) -> Answer:
        """Send one message; FrameGone and DialogOpen say why there is no answer."""
        from playwright.async_api import Error

        try:
            answer = await self.unless_dialog(_sent(session, method, params))
        except TimeoutError as error:
            raise OwnWordsError(UNRESPONSIVE) from error
        except Error as error:
            if self.page.is_closed() or "crashed" in error.message:
                raise
            self._stale = True
            raise FrameGone(error.message) from error
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"].get("exception", {})
            raise ScriptFault(f"{method}: {thrown.get('description', answer)}")
        return answer

    async def unless_dialog(self, work: Awaitable[T]) -> T:
        """Wait for the page to do something; DialogOpen as soon as a dialog blocks it."""
        call = asyncio.ensure_future(work)
        if self.dialog_open or self._crashed:
            call.cancel()
            raise OwnWordsError(CRASHED) if self._crashed else DialogOpen
        self._calls.add(call)
        try:
            return await asyncio.wait_for(call, CALL_LIMIT_S)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not (task and task.cancelling()):
                if self._crashed:
                    raise OwnWordsError(CRASHED) from None
                if self.dialog_open:
                    raise DialogOpen from None
            raise
        finally:
            self._calls.discard(call)

    def _moved(self, _frame: object) -> None:
        self._stale = True

    def _crash(self, _page: object) -> None:
        self._crashed = True
        self._give_up()

    def _dialog_opened(self, _event: Answer) -> None:
        self.dialog_open = True
        self._give_up()

    def _give_up(self) -> None:
        """End the calls that nothing will answer now."""
        for call in list(self._calls):
            call.cancel()

    def _dialog_closed(self, _event: Answer) -> None:
        self.dialog_open = False

    async def _find(self) -> None:
        self._stale = False
        session = await self._main_session()
        found = await self._attach(session)
        if len(found) < len(self.page.frames):
            for other in await self._other_sessions():
                found += await self._attach(other)
        by_frame = {world.frame_id: world for world in found}
        owned = [self._owned(world, by_frame.get(world.parent_id)) for world in found]
        self._worlds = {world.key: world for world in await asyncio.gather(*owned)}

    async def _main_session(self) -> "CDPSession":
        if self._session is None:
            session = await self.page.context.new_cdp_session(self.page)
            session.on("Page.javascriptDialogOpening", self._dialog_opened)
            session.on("Page.javascriptDialogClosed", self._dialog_closed)
            self._session = session
            await self.send(session, "Page.enable", {})
        return self._session

    async def _other_sessions(self) -> list["CDPSession"]:
        """Return the sessions of frames that live in processes of their own."""
        from playwright.async_api import Error

        for gone in [frame for frame in self._own_sessions if frame.is_detached()]:
            del self._own_sessions[gone]
        for frame in self.page.frames[1:MAX_FRAMES]:
            if frame not in self._own_sessions:
                with contextlib.suppress(Error):  # it is drawn in its parent's process
                    self._own_sessions[frame] = await self.page.context.new_cdp_session(frame)
        return list(self._own_sessions.values())

    async def _attach(self, session: "CDPSession") -> list[FrameWorld]:
        """Find the frames of one process and put our script into each."""
        try:
            tree = await self.send(session, "Page.getFrameTree", {})
            frames = list(_flat(tree["frameTree"]))[:MAX_FRAMES]
            contexts = await self._contexts(session, frames)
            made = [self._world(session, frame, contexts) for frame in frames]
            return [world for world in await asyncio.gather(*made) if world]
        except FrameGone:
            self._own_sessions = {k: v for k, v in self._own_sessions.items() if v is not session}
            if session is self._session:
                raise
            return []

    async def _contexts(self, session: "CDPSession", frames: Iterable[Answer]) -> list[Answer]:
        """List the script contexts of frames, one of ours in each among them."""
        contexts: list[Answer] = []

        def note(event: Answer) -> None:
            contexts.append(event["context"])

        session.on("Runtime.executionContextCreated", note)
        try:
            worlds = [{"frameId": frame["id"], "worldName": EVENTS} for frame in frames]
            create = [self.send(session, "Page.createIsolatedWorld", world) for world in worlds]
            await asyncio.gather(*create)
            await self.send(session, "Runtime.enable", {})
            await self.send(session, "Runtime.disable", {})
        finally:
            session.remove_listener("Runtime.executionContextCreated", note)
        return contexts

    async def _world(
        self, session: "CDPSession", frame: Answer, contexts: Iterable[Answer]
    ) -> FrameWorld | None:
        here = [one for one in contexts if one["auxData"]["frameId"] == frame["id"]]
        ours = next((one for one in here if one["name"] == EVENTS), None)
        theirs = next((one for one in here if one["auxData"]["isDefault"]), None)
        if not ours or not theirs:
            return None
        key = ours["uniqueId"]
        if key in self._worlds:
            return self._worlds[key]
        run = {"uniqueContextId": key, "expression": isolated_script()}
        ask = {
            "uniqueContextId": theirs["uniqueId"],
            "includeCommandLineAPI": True,
            "expression": script("listeners"),
        }
        _, answer = await asyncio.gather(
            self.send(session, "Runtime.evaluate", run),
            self.send(session, "Runtime.evaluate", ask),
        )
        listeners = answer["result"]["objectId"]
        parent = frame.get("parentId", "")
        return FrameWorld(key, session, frame["id"], ours["id"], listeners, parent)

    async def _owned(self, world: FrameWorld, parent: FrameWorld | None) -> FrameWorld:
        """Note which element of its parent a frame is drawn in."""
        if not parent or world.owner:
            return world
        owner = await self.send(parent.session, "DOM.getFrameOwner", {"frameId": world.frame_id})
        node = {"backendNodeId": owner["backendNodeId"], "executionContextId": parent.context_id}
        resolved = await self.send(parent.session, "DOM.resolveNode", node)
        number = await self.send(
            parent.session,
            "Runtime.callFunctionOn",
            {
                "objectId": resolved["object"]["objectId"],
                "functionDeclaration": "function () { return openmanus.numberOf(this); }",
                "returnByValue": True,
            },
        )
        return replace(world, owner=(parent.key, number["result"]["value"]))


async def _sent(session: "CDPSession", method: str, params: Answer) -> Answer:
    return cast(Answer, await session.send(method, params))


def _flat(tree: Answer) -> Iterator[Answer]:
    yield tree["frame"]
    for child in tree.get("childFrames", []):
        yield from _flat(child)
