"""`computer_use`: a desktop of the agent's own, by mouse and keyboard."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from langgraph.prebuilt import ToolRuntime
from pydantic import WithJsonSchema

from openmanus_graph.backends.desktop.desktop import HANDLE, Desktop, why_no_desktop
from openmanus_graph.backends.sandbox.confinement import warn_of_sandbox
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.session import run_blocking
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.context import Effect
from openmanus_graph.state.tool_traits import Effects, Limits, Observation
from openmanus_graph.tool_calls.declaration import MaybeNumber, MaybeText, manus_tool

TIMEOUT_S = 240

ActionName = Literal[
    "screenshot", "open", "move_to", "click", "double_click", "right_click", "drag_to", "scroll",
    "typing", "press", "hotkey", "mouse_down", "mouse_up", "wait",
]  # fmt: skip
_LOOKS = ("screenshot", "wait")


def effect_of(args: Mapping[str, Any]) -> Effect:
    """Return what a call may change; programs of the desktop run in the sandbox."""
    return "read_only" if args.get("action") in _LOOKS else "workspace"


@manus_tool(
    effect=effect_of,
    resource=HANDLE,
    timeout_s=TIMEOUT_S,
    untrusted=True,
    approval=False,
    effects=Effects(shell="command", sandboxed=True),
    limits=Limits(needs_pictures=True, unavailable=why_no_desktop),
)
async def computer_use(  # the model is not shown `runtime`
    action: Annotated[ActionName, WithJsonSchema({"type": "string"})],
    runtime: ToolRuntime[Any, Any],
    x: MaybeNumber = None,
    y: MaybeNumber = None,
    button: Literal["left", "right", "middle"] = "left",
    num_clicks: MaybeNumber = None,
    amount: MaybeNumber = None,
    text: MaybeText = None,
    key: MaybeText = None,
    keys: MaybeText = None,
    duration: Annotated[float | None, WithJsonSchema({"type": "number"})] = None,
    command: MaybeText = None,
) -> Observation:
    """Use a desktop of your own, 1280x800. You are shown its screen after each call.

    Args:
        action: open(command: starts a program), click(x?, y?, button?, num_clicks?),
            double_click, right_click, move_to(x, y), drag_to(x, y: from where the mouse is),
            scroll(amount: 3 is up, -3 down; x?, y?), typing(text), press(key),
            hotkey(keys: "ctrl+s"), mouse_down, mouse_up, wait(duration), screenshot.
        x: Pixels from the left.
        y: Pixels from the top.
        button: For click.
        num_clicks: Default 1.
        amount: To scroll.
        text: To type.
        key: Such as enter.
        keys: Pressed together.
        duration: Seconds.
        command: Program and file.
    """
    session = call_runtime(runtime).session
    if why := await asyncio.to_thread(why_no_desktop, session.settings.sandbox):
        raise TrustedToolError(f"There is no desktop. {why}")
    from openmanus_graph.backends.desktop.actions import ActionArguments, run_action
    from openmanus_graph.tools.execution import ask_about_hosts, sandbox_for

    def open_desktop() -> tuple[Desktop, str]:
        """Return the session's desktop, and a note if it replaces one that has ended. Blocks."""
        sandbox = sandbox_for(call_runtime(runtime))
        desktop = session.handle(HANDLE, lambda: Desktop(sandbox))
        if desktop.pool.submit(desktop.alive).result():
            return desktop, ""
        session.drop(HANDLE)
        note = "[The desktop had ended, and its programs with it. This is a new one, empty.]\n"
        return session.handle(HANDLE, lambda: Desktop(sandbox)), note

    desktop, note = await asyncio.to_thread(open_desktop)
    warn_of_sandbox(session, runtime.stream_writer)
    given = ActionArguments(
        x, y, button, 1 if num_clicks is None else num_clicks, amount, text, keys or key, duration,
        command,
    )  # fmt: skip
    work = partial(run_action, desktop, action, given)
    text = note + await run_blocking(desktop.pool, work, desktop.stop)
    return ask_about_hosts(Observation(text, bounded=True), runtime)
