"""What the page's own world tells ours: who waits for pointers, and closed shadow roots."""

import asyncio

from openmanus_graph.browser.page.frames import Answer, Frames, FrameWorld, ScriptFault


async def report_listeners(frames: Frames, world: FrameWorld) -> int:
    """Let a frame's page world tell ours which elements wait for pointers and keys.

    That world is the page's: where a page has put things of its own in place of what we call
    there, less is known of it, and the rest is shown all the same.

    Returns:
        How many closed shadow roots there are that ours does not know.
    """
    declared = {"functionDeclaration": "function () { return this(); }"}
    try:
        answer = await frames.send(
            world.session,
            "Runtime.callFunctionOn",
            {"objectId": world.listeners, **declared, "returnByValue": True},
        )
    except ScriptFault:
        return 0
    unknown = answer["result"].get("value")
    return unknown if isinstance(unknown, int) else 0


async def adopt_roots(frames: Frames, world: FrameWorld) -> None:
    """Let our script of a frame see into the closed shadow roots that it does not know yet."""
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
    given = [one["value"] for one in roots["result"] if one["name"].isdecimal()]
    await asyncio.gather(*(_adopt(frames, world, root) for root in given))


async def _adopt(frames: Frames, world: FrameWorld, root: Answer) -> None:
    session = world.session
    node = await frames.send(session, "DOM.describeNode", {"objectId": root["objectId"]})
    same = {
        "backendNodeId": node["node"]["backendNodeId"],
        "executionContextId": world.context_id,
    }
    ours = await frames.send(session, "DOM.resolveNode", same)
    await frames.send(
        session,
        "Runtime.callFunctionOn",
        {
            "objectId": ours["object"]["objectId"],
            "functionDeclaration": "function () { openmanus.adopt(this); }",
        },
    )
