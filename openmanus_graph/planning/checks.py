"""Checks whether a step of a plan is done: by a file, a command, or a question to the model."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool

from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.plan import no_plans
from openmanus_graph.state.planning import PlanningState, StepRun
from openmanus_graph.state.reducers import Usage, no_usage
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.declaration import manus_tool
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset

FILE, COMMAND = "file:", "command:"
_COMMAND = re.compile(rf"{COMMAND}|shell:|\$ ", re.IGNORECASE)
_SHELL = re.compile(r"(test -[a-z] |\[\[? |! ).+|.+ (&&|\|\|) .+", re.DOTALL)
_PATH = re.compile(
    r"((the )?file )?[\"'`]?(?P<path>[\w./-]*(\w/|\.)[\w-]+)[\"'`]?( (must )?exists?)?\.?",
    re.IGNORECASE,
)
_QUOTES = " `\"'"
OUTPUT_CHARS = 1500
EVIDENCE_CHARS = 12_000
"""Total for the files that a step changed."""


@manus_tool(effect="pure")
def verdict(done: bool, reason: str) -> Observation:
    """Say whether the step is done.

    Args:
        done: Whether the evidence shows it.
        reason: What shows it, or what is missing, in one sentence.
    """
    return Observation("" if done else reason, failed=not done)


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    problem: str | None
    """Why the step is not done; None if it is."""
    usage: Usage


async def check_step_run(
    step_run: StepRun, state: PlanningState, shell: BaseTool, session: Session, emit: Emit
) -> Finding:
    """Check a step whose run has ended.

    Args:
        step_run: The step.
        state: The planning graph's state.
        shell: The tool that runs a check's command, named `command` among its arguments.
        session: The run's session.
        emit: Sends the events.

    Raises:
        LimitReached: The run's limits forbid the model call of the check.
        ModelError: That call failed after all retries.
    """
    if step_run["outcome"] != "succeeded":
        return Finding(step_run["result"], no_usage())
    kind, wanted = read_check(step_run["done_when"])
    if kind == "file":
        return Finding(await asyncio.to_thread(_file_problem, wanted, session), no_usage())
    if kind == "command":
        return Finding(
            await _command_problem(wanted, step_run, state, shell, session, emit), no_usage()
        )
    if wanted:
        return await _ask_model(step_run, state, session, emit)
    return Finding(None, no_usage())


def read_check(done_when: str) -> tuple[Literal["file", "command", "question"], str]:
    """Parse a `done_when` text into the kind of its check and the file, command or question.

    Planners are asked to write `file:` and `command:`; a bare path, and a text that can only be a
    shell command, are recognised without.
    """
    text = _unquoted(done_when)
    if text.lower().startswith(FILE):
        return "file", text[len(FILE) :].strip(_QUOTES)
    if named := _COMMAND.match(text):
        return "command", _unquoted(text[named.end() :].strip())
    if path := _PATH.fullmatch(text):
        return "file", path["path"]
    quoted = text != done_when.strip()
    return ("command" if quoted or _SHELL.fullmatch(text) else "question"), text


def _unquoted(text: str) -> str:
    """Remove the backticks that a model put around a text: a shell would run them."""
    text = text.strip()
    whole = len(text) > 1 and text[0] == text[-1] == "`" and text.count("`") == 2
    return text[1:-1].strip() if whole else text


def _file_problem(name: str, session: Session) -> str | None:
    if not name:
        return f"Its check `{FILE}` names no file."
    try:
        path = session.workspace.resolve(name)
    except ToolError as error:
        return str(error)
    if not path.exists():
        return f"The file {name} does not exist."
    return f"The file {name} is empty." if path.is_file() and not path.stat().st_size else None


async def _command_problem(
    command: str,
    step_run: StepRun,
    state: PlanningState,
    shell: BaseTool,
    session: Session,
    emit: Emit,
) -> str | None:
    if not command:
        return f"Its check `{COMMAND}` names no command."
    context = await open_call_context(
        session,
        Toolset({shell.name: shell}, None),
        emit,
        branch=state["branch"],
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        plans=no_plans(),
        handle_state={},
    )
    # A check has no effects to record: it runs again after a crash, without the ledger.
    context.ledger, context.questions = None, Questions(None)
    # Each check gets a new shell, so that it cannot change the next one.
    call = PendingCall(
        id=f"check-{step_run['id']}-{step_run['attempt']}",
        name=shell.name,
        args={"command": command, "restart": True},
        occurrence=step_run["attempt"],
        problem=None,
    )
    result = await run_call(call, context)
    if result.status != "error":
        return None
    return f"`{command}` failed: {result.text[-OUTPUT_CHARS:]}"


async def _ask_model(
    step_run: StepRun, state: PlanningState, session: Session, emit: Emit
) -> Finding:
    evidence = render(
        "plan_check_request",
        text=step_run["text"],
        done_when=step_run["done_when"],
        result=step_run["result"],
        files=await asyncio.to_thread(file_evidence, step_run["files"], session.workspace),
    )
    call = ModelCall(
        system=render("plan_check"),
        history=[HumanMessage(evidence)],
        request_suffix="",
        tools=Toolset({verdict.name: verdict}, None).definitions,
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        step=state["step_count"] + 1,
    )
    reply, usage = await call_model(call, session, emit)
    return Finding(read_verdict(reply), usage)


def file_evidence(paths: Sequence[str], workspace: Workspace) -> str:
    """Return the contents of files, as far as they are text. Blocks."""
    chars = EVIDENCE_CHARS // max(1, len(paths))
    excerpts: list[str] = []
    for path in paths:
        try:
            with workspace.resolve(path).open("rb") as file:
                size, start = os.fstat(file.fileno()).st_size, file.read(4 * chars)
        except (OSError, ToolError):
            excerpts.append(f"{path} (gone)")
            continue
        head = f"{path} ({size:,} bytes)"
        text = start.decode("utf-8", "replace")[:chars]
        excerpts.append(head if b"\0" in start else f"{head}\n{text}")
    return "\n\n".join(excerpts) or "none that are known"


def read_verdict(reply: AIMessage) -> str | None:
    """Return why a step is not done, None if it is; without a verdict only a plain yes counts."""
    for call in reply.tool_calls:
        if call["name"] == verdict.name and isinstance(call["args"].get("done"), bool):
            reason = str(call["args"].get("reason") or "The check says that it is not done.")
            return None if call["args"]["done"] else reason
    text = reply.text.strip()
    if re.fullmatch(r"(yes|done|true)[.!]?", text, re.IGNORECASE):
        return None
    return text or "The check gave no verdict."
