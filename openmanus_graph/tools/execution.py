"""`python_execute` and `bash`: programs in a kernel and a shell that stay open."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.sandbox import confinement
from openmanus_graph.backends.sandbox.cell_channel import NoAnswerError, cell_channel
from openmanus_graph.backends.sandbox.git import with_advice
from openmanus_graph.backends.sandbox.kernel import CellResult, Kernel
from openmanus_graph.backends.sandbox.shell import CommandResult, Shell
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.limits import TimeLimit
from openmanus_graph.runtime.session import Session, run_blocking
from openmanus_graph.runtime.tool_runtime import CallRuntime, CellCalls, call_runtime, time_limit_of
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.tool_traits import Effects, Observation
from openmanus_graph.tool_calls.cell import MOST_RESULT_CHARS
from openmanus_graph.tool_calls.declaration import MaybeNumber, manus_tool, traits_of

Process = TypeVar("Process", Kernel, Shell)
_SHOWN_SUFFIXES = (".png", ".jpg", ".jpeg")
"""Of pictures that are shown to the model."""
_NOTHING_NEW = "(nothing new; nothing runs in the background)"
_MOST_HOSTS = 10
"""That one call asks about."""


@manus_tool(
    effect="workspace",
    resource="python",
    timeout_s=None,
    effects=Effects(sandboxed=True, calls_tools=True),
)
async def python_execute(  # the model never sees `runtime`
    code: str, runtime: ToolRuntime[Any, Any], timeout_s: MaybeNumber = None
) -> Observation:
    """Run Python as in a notebook: variables stay, plots become files. No input().

    Args:
        code: Python.
        timeout_s: Default 120, at most 3600.
    """
    return await run_code(
        code, runtime, time_limit_of(runtime, traits_of(python_execute), timeout_s)
    )


async def run_code(code: str, runtime: ToolRuntime[Any, Any], limit: TimeLimit) -> Observation:
    session = call_runtime(runtime).session
    await asyncio.to_thread(confinement.refuse_install, session, confinement.install_in_cell, code)
    lost = "[The Python process was gone. {why} This is a new one, without variables.]\n"
    kernel, note = await asyncio.to_thread(_open, call_runtime(runtime), "python", Kernel, lost)
    confinement.warn_of_sandbox(session, runtime.stream_writer)
    limit_s = limit.remaining_s()
    work = partial(kernel.execute, code, limit_s, session.max_observation_chars)
    began, call = time.monotonic(), call_runtime(runtime)

    def observed(result: CellResult) -> Observation:
        pictures = tuple(name for name in result.pictures if name.endswith(_SHOWN_SUFFIXES))
        after_s = min(limit_s, time.monotonic() - began)
        text = note + with_advice(_cell_text(result, after_s))
        return Observation(text, images=pictures, failed=result.outcome != "ok", bounded=True)

    def keep(cut: CellResult) -> None:
        call.keep_cut_off(observed(cut))

    program = partial(run_blocking, kernel.pool, work, kernel.stop, keep)
    if (cell := call.cell) is None:
        result = await program()
    else:
        result = await _run_calling(kernel, program, cell, session, limit)
    if result.outcome == "dead":
        await asyncio.to_thread(session.drop, "python")
    found = observed(result)
    if cell is not None:
        found = await cell.observed(found, complete=result.outcome == "ok")
    return ask_about_hosts(found, runtime)


async def _run_calling(
    kernel: Kernel,
    program: Callable[[], Awaitable[CellResult]],
    cell: CellCalls,
    session: Session,
    limit: TimeLimit,
) -> CellResult:
    """Run a cell that may call tools. Their results may be longer than what the model is shown."""
    shown, session.max_observation_chars = session.max_observation_chars, MOST_RESULT_CHARS
    try:
        async with cell_channel(kernel.tools, cell, kernel.stop) as channel:
            result = await program()
            await channel.finish(limit.remaining_s())
            return result
    except NoAnswerError as error:
        await asyncio.to_thread(session.drop, "python")
        raise TrustedToolError(
            "The code was not run: the Python process did not answer. Call again: a new one starts."
        ) from error
    finally:
        session.max_observation_chars = shown


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
    """Run a command in a lasting bash. No input.

    Args:
        command: Empty shows new output of jobs, `wait` waits, ctrl+c ends them.
        restart: New shell.
        timeout_s: Default 120, at most 3600; then in the background.
    """
    call = call_runtime(runtime)
    session = call.session
    await asyncio.to_thread(
        confinement.refuse_install, session, confinement.install_in_shell, command
    )
    if restart:
        await asyncio.to_thread(session.drop, "bash")
    lost = "[{why} This is a new one, in the workspace.]\n"
    shell, note = await asyncio.to_thread(_open, call, "bash", Shell, lost)
    if restart and not command.strip():
        return Observation("A new shell was started.")
    confinement.warn_of_sandbox(session, runtime.stream_writer)
    allowed = time_limit_of(runtime, traits_of(bash), timeout_s)
    limit = allowed.remaining_s()
    max_chars = session.max_observation_chars
    if not command.strip():
        work = partial(shell.more, max_chars)
    elif command.strip().lower() in ("ctrl+c", "ctrl-c", "^c"):
        work = partial(shell.interrupt_jobs, max_chars)
    else:
        # If the run ends here, not only the call, nobody is left to wait for the command.
        ends = limit < allowed.seconds
        work = partial(shell.run, command, limit, max_chars, ends_at_limit=ends)
    began = time.monotonic()

    def observed(result: CommandResult) -> Observation:
        failed = result.ending.outcome in ("interrupted", "ended") or bool(result.ending.code)
        text = _command_text(result, min(limit, time.monotonic() - began))
        text = text or ("(no output)" if command.strip() else _NOTHING_NEW)
        return Observation(note + with_advice(text), failed=failed, bounded=True)

    keep = call.keep_cut_off
    result = await run_blocking(shell.pool, work, shell.stop, lambda cut: keep(observed(cut)))
    return ask_about_hosts(observed(result), runtime)


@manus_tool(effect="read_only", approval=True, sends_to=("address",))
def reach_host(address: str, why: str = "") -> str:
    """Have the person allow programs another host. A refused one is asked about by itself.

    Args:
        address: https://HOST, or http://HOST:PORT.
        why: For the person.
    """
    return f"Programs may reach {address} now. What was refused before has to be run again."


def sandbox_for(call: CallRuntime) -> confinement.Sandbox:
    """Return the session's sandbox, whose programs reach what the call's may reach. Blocks."""
    if call.session.settings.sandbox.network == "ask":
        from openmanus_graph.backends.web.program_proxy import use_program_proxy

        use_program_proxy(call.session, call.hosts)
    return confinement.sandbox_of(call.session)


def ask_about_hosts(found: Observation, runtime: ToolRuntime[Any, Any]) -> Observation:
    """Add what was refused to a program, and a question for each host that nobody has named."""
    session, call = call_runtime(runtime).session, str(runtime.tool_call_id)
    if session.settings.sandbox.network != "ask":
        return found
    from openmanus_graph.backends.web.program_proxy import take_refusals

    refused = take_refusals(session)[-_MOST_HOSTS:]
    hidden = [one for one in refused if one.reason not in found.text]  # the body of its response
    lines = "".join(f"\n[{one.method} {one.url}: {one.reason}]" for one in hidden)
    asked = [
        PendingCall(
            id=f"{call}.host{number}",
            name=reach_host.name,
            args={"address": one.origin, "why": f"{one.method} {one.url}"},
            occurrence=0,
            problem=None,
            cell=call,
            parent=call,
        )
        for number, one in enumerate(refused)
        if one.unnamed
    ]
    return replace(found, text=f"{found.text}{lines}", calls=[*found.calls, *asked])


def _open(
    call: CallRuntime, name: str, process: Callable[..., Process], lost: str
) -> tuple[Process, str]:
    """Return a session's kernel or shell, and a note if it replaces one that has ended. Blocks."""
    session, sandbox = call.session, sandbox_for(call)
    found = session.handle(name, lambda: process(sandbox))
    if found.alive:
        return found, ""
    note = lost.format(why=found.why())
    session.drop(name)
    return session.handle(name, lambda: process(sandbox)), note


def _cell_text(result: CellResult, after_s: float) -> str:
    """Return the output of a cell, and whether its variables are kept."""
    shown = result.text.rstrip("\n")
    if result.outcome == "interrupted":
        after = f"Interrupted after {round(after_s, 2):g} s"
        note = f"[{after}. Variables are kept. Raise timeout_s if needed.]"
    elif result.outcome == "dead":
        lost = "All variables are lost; the next call starts a new one."
        note = f"[The Python process is gone. {result.reason} {lost}]"
    else:
        return shown or "(no output)"
    return f"{shown}\n{note}" if shown else note


def _command_text(result: CommandResult, limit: float) -> str:
    """Return the output of a command, how it ended, and what still runs."""
    lines = [result.text.rstrip("\n")] if result.text.strip("\n") else []
    outcome, code, restored = result.ending
    before = " Folder and variables are as before the command." if restored else ""
    if outcome == "ended":
        lost = "Its variables and jobs are lost; the next call opens a new one."
        lines.append(f"[{result.reason} {lost}]")
    elif outcome == "done":
        how = f"; the shell was restored.{before}" if restored else ""
        lines += [f"[exit code {code}{how}]"] if code or restored else []
    else:
        how = "Still running" if outcome == "limit" else "Interrupted"
        lines.append(f"[{how} after {round(limit, 2):g} s.{before}]")
    if result.jobs:
        names = [job if len(job) <= 80 else f"{job[:79]}…" for job in result.jobs[-8:]]
        more = [f"{len(result.jobs) - 8} more"] if len(result.jobs) > 8 else []
        where = f" Further output goes to {result.later}." if result.later else ""
        kill = f"`kill {names[-1].split()[0]}` ends it"
        how = f"`wait {result.newest}` waits for it, at most timeout_s; {kill}"
        lines.append(f"[Running in the background: {'; '.join(more + names)}. {how}.{where}]")
    return "\n".join(lines)
