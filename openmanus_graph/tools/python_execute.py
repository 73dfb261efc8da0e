"""`python_execute`: Python code in a kernel that keeps its variables."""

import asyncio
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.sandbox.blocking import run_blocking
from openmanus_graph.sandbox.confinement import sandbox_of, warn_of_sandbox
from openmanus_graph.sandbox.kernel import CellResult, Kernel
from openmanus_graph.sessions import Session, session_of
from openmanus_graph.tools.declaration import Observation, manus_tool

_DEFAULT_S = 120
_SEEN = (".png", ".jpg")


@manus_tool(effect="workspace", resource="python", timeout_s=_DEFAULT_S)
async def python_execute(  # noqa: D417  # the model never sees `runtime`
    code: str, runtime: ToolRuntime[Any, Any], timeout_s: int = _DEFAULT_S
) -> Observation:
    """Run Python code as in a notebook: variables stay, the last expression's value is shown.

    Starts in the workspace. Plots are saved there as pictures. `%pip install` works when the
    network is allowed. No input().

    Args:
        code: The code.
        timeout_s: Seconds until it is interrupted.
    """
    own = session_of(runtime).settings.sandbox.timeout_s
    return await run_code(code, runtime, own if timeout_s == _DEFAULT_S else max(1.0, timeout_s))


async def run_code(code: str, runtime: ToolRuntime[Any, Any], limit: float) -> Observation:
    """Run code in the thread's kernel.

    Args:
        code: The code.
        runtime: Of the tool call.
        limit: Seconds until it is interrupted.
    """
    session = session_of(runtime)
    kernel, note = await asyncio.to_thread(_kernel, session)
    warn_of_sandbox(session, runtime.stream_writer)
    result = await run_blocking(kernel.worker, lambda: kernel.execute(code, limit), kernel.stop)
    if result.outcome == "dead":
        await asyncio.to_thread(session.drop, "python")
    seen = tuple(name for name in result.pictures if name.endswith(_SEEN))
    return Observation(note + _text(result, limit), images=seen, failed=result.outcome != "ok")


def _kernel(session: Session) -> tuple[Kernel, str]:
    """Take the session's kernel; say so if it had to replace one that died between calls."""
    sandbox = sandbox_of(session)
    kernel = session.handle("python", lambda: Kernel(sandbox))
    if kernel.alive:
        return kernel, ""
    note = f"[The Python process was gone. {kernel.why()} This is a new one, without variables.]\n"
    session.drop("python")
    return session.handle("python", lambda: Kernel(sandbox)), note


def _text(result: CellResult, limit: float) -> str:
    """Say what came out, and what became of the variables."""
    shown = result.text.rstrip("\n")
    if result.outcome == "interrupted":
        note = f"[Interrupted after {limit:g} s. Variables are kept. Raise timeout_s if needed.]"
    elif result.outcome == "dead":
        lost = "All variables are lost; the next call starts a new one."
        note = f"[The Python process is gone. {result.reason} {lost}]"
    else:
        return shown or "(no output)"
    return f"{shown}\n{note}" if shown else note
