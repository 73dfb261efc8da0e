"""`python_execute`: Python code in a kernel that keeps its variables."""

import asyncio
from functools import partial
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.sandbox import confinement
from openmanus_graph.backends.sandbox.kernel import CellResult, Kernel
from openmanus_graph.runtime.limits import TimeLimit
from openmanus_graph.runtime.session import Session, run_blocking
from openmanus_graph.runtime.tool_runtime import call_runtime, time_limit_of
from openmanus_graph.state.tool_traits import Effects, Observation
from openmanus_graph.tool_calls.declaration import MaybeNumber, manus_tool, traits_of

_SHOWN_SUFFIXES = (".png", ".jpg", ".jpeg")
"""Of pictures that are shown to the model."""


@manus_tool(effect="workspace", resource="python", timeout_s=None, effects=Effects(sandboxed=True))
async def python_execute(  # the model never sees `runtime`
    code: str, runtime: ToolRuntime[Any, Any], timeout_s: MaybeNumber = None
) -> Observation:
    """Run Python as in a notebook: variables stay, plots become files. No input()."""
    return await run_code(
        code, runtime, time_limit_of(runtime, traits_of(python_execute), timeout_s)
    )


async def run_code(code: str, runtime: ToolRuntime[Any, Any], limit: TimeLimit) -> Observation:
    """Run code in the thread's kernel."""
    session = call_runtime(runtime).session
    await asyncio.to_thread(confinement.refuse_install, session, confinement.install_in_cell, code)
    kernel, note = await asyncio.to_thread(_open_kernel, session)
    confinement.warn_of_sandbox(session, runtime.stream_writer)
    limit_s = limit.remaining_s()
    work = partial(kernel.execute, code, limit_s, session.max_observation_chars)
    result = await run_blocking(kernel.pool, work, kernel.stop)
    if result.outcome == "dead":
        await asyncio.to_thread(session.drop, "python")
    pictures = tuple(name for name in result.pictures if name.endswith(_SHOWN_SUFFIXES))
    text = note + _result_text(result, limit_s)
    return Observation(text, images=pictures, failed=result.outcome != "ok", bounded=True)


def _open_kernel(session: Session) -> tuple[Kernel, str]:
    """Return the session's kernel, and a note if it replaces one that has ended. Blocks."""
    sandbox = confinement.sandbox_of(session)
    kernel = session.handle("python", lambda: Kernel(sandbox))
    if kernel.alive:
        return kernel, ""
    note = f"[The Python process was gone. {kernel.why()} This is a new one, without variables.]\n"
    session.drop("python")
    return session.handle("python", lambda: Kernel(sandbox)), note


def _result_text(result: CellResult, limit_s: float) -> str:
    """Return the output of a cell, and whether its variables are kept."""
    shown = result.text.rstrip("\n")
    if result.outcome == "interrupted":
        after = f"Interrupted after {round(limit_s, 2):g} s"
        note = f"[{after}. Variables are kept. Raise timeout_s if needed.]"
    elif result.outcome == "dead":
        lost = "All variables are lost; the next call starts a new one."
        note = f"[The Python process is gone. {result.reason} {lost}]"
    else:
        return shown or "(no output)"
    return f"{shown}\n{note}" if shown else note
