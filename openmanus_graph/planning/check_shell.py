"""Runs the command of a step's check, which looks at the workspace and changes nothing in it."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.sandbox.confinement import sandbox_of, warn_of_sandbox
from openmanus_graph.backends.sandbox.read_only import ReadOnlyResult, run_read_only
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.flight_recorder import awaited_fact
from openmanus_graph.planning.flow import is_judged
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session, run_blocking
from openmanus_graph.runtime.tool_runtime import call_runtime, time_limit_of
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.shell_commands import read_shell_text
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.planning import PlanningState, StepRun
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.context import open_unrecorded_context
from openmanus_graph.tool_calls.declaration import manus_tool, traits_of
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset

OUTPUT_CHARS = 1500
_REMOVING = frozenset({"rm", "rmdir", "unlink", "shred", "truncate", "mv"})
_SCRATCH = ("-", "/tmp/", "$TMPDIR/")
"""What the words behind such a program may begin with."""
_REFUSED_WRITES = ("Read-only file system", "Permission denied")
_ADVICE = "A check looks and changes nothing; temporary files go to $TMPDIR."


@manus_tool(effect="workspace", timeout_s=None, stops_itself=True, shell="command")
async def bash(  # noqa: D417  # no model sees `runtime`
    command: str, runtime: ToolRuntime[Any, Any], in_empty_folder: bool = False
) -> Observation:
    """Run a command that changes nothing.

    By this name, so that the policy's rules for the tool bash hold for checks too.

    Args:
        command: The command.
        in_empty_folder: Whether it runs in an empty folder instead of the workspace.
    """
    session = call_runtime(runtime).session
    if removal := removal_in(command):
        raise ToolError(f"It was not run, because it would run `{removal}`. {_ADVICE}")
    await asyncio.to_thread(sandbox_of, session)
    warn_of_sandbox(session, runtime.stream_writer)
    result = await run_check_command(
        command,
        session.workspace,
        session.settings.sandbox,
        limit_s=time_limit_of(runtime, traits_of(bash)).remaining_s(),
        max_chars=session.max_observation_chars,
        in_empty_folder=in_empty_folder,
    )
    failed = bool(result.code or result.reason)
    return Observation(result_text(result), failed=failed, bounded=True)


async def run_check_command(
    command: str,
    workspace: Workspace,
    sandbox: SandboxSettings,
    *,
    limit_s: float,
    max_chars: int,
    in_empty_folder: bool = False,
    brought: Mapping[str, Path | bytes] | None = None,
) -> ReadOnlyResult:
    """Run a check's command off the event loop; the arguments are those of `run_read_only`."""
    stop = threading.Event()
    look = partial(
        run_read_only,
        command,
        workspace,
        sandbox,
        limit_s=limit_s,
        stop=stop,
        max_chars=max_chars,
        in_empty_folder=in_empty_folder,
        brought=brought,
    )
    pool = ThreadPoolExecutor(1, thread_name_prefix="openmanus-check")
    try:
        return await run_blocking(pool, look, stop)
    finally:
        pool.shutdown(wait=False)


def result_text(result: ReadOnlyResult) -> str:
    """Return what a check's command printed, and how it ended."""
    lines = [result.text.rstrip("\n")] if result.text.strip() else []
    if result.reason:
        lines.append(f"[{result.reason}]")
    elif result.code:
        lines.append(f"[exit code {result.code}]")
    failed = result.code or result.reason
    if failed and any(words in result.text for words in _REFUSED_WRITES):
        lines.append(f"[{_ADVICE}]")
    return "\n".join(lines) or "(no output)"


def removal_in(command: str) -> str | None:
    """Return a command in a shell text that removes files of the workspace, if one does."""
    for one in read_shell_text(command).found:
        program, *words = one.split()
        if program in _REMOVING and not all(map(_is_scratch, words)):
            return one
    return None


def _is_scratch(word: str) -> bool:
    return word.startswith(_SCRATCH) and ".." not in word


async def command_problem(
    command: str,
    step_run: StepRun,
    state: PlanningState,
    session: Session,
    emit: Emit,
    *,
    in_empty_folder: bool = False,
) -> str | None:
    """Run a check's command; return what it said if it fails.

    Args:
        command: For bash.
        step_run: The step that is checked.
        state: Of the plan.
        session: Of the run.
        emit: Takes the events.
        in_empty_folder: Whether it runs in an empty folder, where no check should hold.
    """
    which = "-empty" if in_empty_folder else "-corrected" if is_judged(step_run) else ""
    call = PendingCall(
        id=f"check-{step_run['id']}-{step_run['attempt']}{which}",
        name=bash.name,
        args={"command": command} | ({"in_empty_folder": True} if in_empty_folder else {}),
        occurrence=step_run["attempt"],
        problem=None,
    )

    async def run() -> str | None:
        progress = Progress(0, state["usage"], state["elapsed_s"])
        tools = Toolset({bash.name: bash}, None)
        context = await open_unrecorded_context(session, tools, emit, progress)
        result = await run_call(call, context)
        if result.status != "error":
            return None
        return f"`{command}` failed: {result.text[-OUTPUT_CHARS:]}"

    return await awaited_fact(session, call["id"], run)
