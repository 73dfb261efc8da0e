"""Reports from the page's main world to ours: pointer listeners, and closed shadow roots."""

import asyncio

from openmanus_graph.backends.browser.page.frames import Frames, FrameWorld, JsonObject, ScriptError


async def report_listeners(frames: Frames, world: FrameWorld) -> int:
    """Report from a frame's main world which elements have pointer or key listeners.

    The main world belongs to the page: where a page has replaced the functions that we call
    there, fewer listeners are known, and the page is shown all the same.

    Returns:
        The number of closed shadow roots that our script does not know yet.
    """
    declared = {"functionDeclaration": "function () { return this(); }"}
    try:
        response = await frames.send(
            world.session,
            "Runtime.callFunctionOn",
            {"objectId": world.listeners, **declared, "returnByValue": True},
        )
    except ScriptError:
        return 0
    unknown = response["result"].get("value")
    return unknown if isinstance(unknown, int) else 0


async def adopt_roots(frames: Frames, world: FrameWorld) -> None:
    """Give our script in a frame the closed shadow roots that it does not know yet."""
    listed = await frames.send(
        world.session,
        "Runtime.callFunctionOn",
        {
            "objectId": world.listeners,
            "functionDeclaration": "function () { return this.fresh(); }",
        },
    )
    roots = await frames.send(
        world.session,
        "Runtime.getProperties",
        {"objectId": listed["result"]["objectId"], "ownProperties": True},
    )
    objects = [one["value"] for one in roots["result"] if one["name"].isdecimal()]
    await asyncio.gather(*(_adopt(frames, world, root) for root in objects))


async def _adopt(frames: Frames, world: FrameWorld, root: JsonObject) -> None:
    session = world.session
    node = await frames.send(session, "DOM.describeNode", {"objectId": root["objectId"]})
    same = {
        "backendNodeId": node["node"]["backendNodeId"],
        "executionContextId": world.context_id,
    }
    isolated = await frames.send(session, "DOM.resolveNode", same)
    await frames.send(
        session,
        "Runtime.callFunctionOn",
        {
            "objectId": isolated["object"]["objectId"],
            "functionDeclaration": "function () { openmanus.adopt(this); }",
        },
    )
