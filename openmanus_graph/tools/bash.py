"""`bash`: a persistent shell."""

import asyncio
from functools import partial
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.sandbox import confinement
from openmanus_graph.backends.sandbox.shell import CommandResult, Shell
from openmanus_graph.runtime.session import Session, run_blocking
from openmanus_graph.runtime.tool_runtime import call_runtime, time_limit_of
from openmanus_graph.state.tool_traits import Effects, Observation
from openmanus_graph.tool_calls.declaration import MaybeNumber, manus_tool, traits_of

_BACKGROUND = "Run long commands in the background with `&`."


@manus_tool(
    effect="workspace",
    resource="bash",
    timeout_s=None,
    effects=Effects(shell="command", sandboxed=True),
)
async def bash(  # the model never sees `runtime`
    runtime: ToolRuntime[Any, Any],
    command: str = "",
    restart: bool = False,
    timeout_s: MaybeNumber = None,
) -> Observation:
    """Run a command in a lasting bash.

    `cmd &`: in the background. No input.

    Args:
        command: Empty shows new output of background commands, ctrl+c ends them.
    """
    session = call_runtime(runtime).session
    await asyncio.to_thread(
        confinement.refuse_install, session, confinement.install_in_shell, command
    )
    shell, note = await asyncio.to_thread(_open_shell, session, restart)
    if restart and not command.strip():
        return Observation("A new shell was started.")
    confinement.warn_of_sandbox(session, runtime.stream_writer)
    limit = time_limit_of(runtime, traits_of(bash), timeout_s).remaining_s()
    max_chars = session.max_observation_chars
    if not command.strip():
        work = partial(shell.more, max_chars)
    elif command.strip().lower() in ("ctrl+c", "ctrl-c", "^c"):
        work = partial(shell.interrupt_jobs, max_chars)
    else:
        work = partial(shell.run, command, limit, max_chars)
    result = await run_blocking(shell.pool, work, shell.stop)
    failed = result.outcome != "done" or bool(result.code)
    silent = "(no output)" if command.strip() else "(nothing new; nothing runs in the background)"
    text = note + (_result_text(result, limit) or silent)
    return Observation(text, failed=failed, bounded=True)


def _open_shell(session: Session, restart: bool) -> tuple[Shell, str]:
    """Return the session's shell, and a note if it replaces one that has ended. Blocks."""
    if restart:
        session.drop("bash")
    sandbox = confinement.sandbox_of(session)
    shell = session.handle("bash", lambda: Shell(sandbox))
    if shell.alive:
        return shell, ""
    note = f"[{shell.why()} This is a new one, in the workspace.]\n"
    session.drop("bash")
    return session.handle("bash", lambda: Shell(sandbox)), note


def _result_text(result: CommandResult, limit: float) -> str:
    """Return the output of a command, how it ended, and what still runs."""
    lines = [result.text.rstrip("\n")] if result.text.strip("\n") else []
    if result.outcome == "interrupted":
        lines.append(f"[Interrupted after {round(limit, 2):g} s; the shell goes on. {_BACKGROUND}]")
    elif result.outcome == "ended":
        lost = "Its variables and jobs are lost; the next call opens a new one."
        lines.append(f"[{result.reason} {lost}]")
    elif result.code:
        lines.append(f"[exit code {result.code}]")
    if result.jobs:
        names = [job if len(job) <= 80 else f"{job[:79]}…" for job in result.jobs[:8]]
        more = f" and {len(result.jobs) - 8} more" if len(result.jobs) > 8 else ""
        where = f" Further output goes to {result.later}." if result.later else ""
        lines.append(f"[Running in the background: {'; '.join(names)}{more}.{where}]")
    return "\n".join(lines)
