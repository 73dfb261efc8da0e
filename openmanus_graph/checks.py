"""Whether a step of a plan is done: a file, a command, or a question put to the model."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage

from openmanus_graph.errors import ToolError
from openmanus_graph.events import Emit
from openmanus_graph.limits import Progress
from openmanus_graph.models.call_model import ModelCall, call_model
from openmanus_graph.prompts import plan_check, plan_evidence
from openmanus_graph.sessions import Session
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import no_plans
from openmanus_graph.state.planning import Job, PlanningState
from openmanus_graph.state.reducers import Usage, no_usage
from openmanus_graph.tools.bash import bash
from openmanus_graph.tools.questions import Questions
from openmanus_graph.tools.run_call import run_call
from openmanus_graph.tools.scope import open_scope
from openmanus_graph.tools.toolset import Toolset
from openmanus_graph.tools.verdict import verdict
from openmanus_graph.workspace import Workspace

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
"""Of the files that a step changed, together."""


@dataclass(frozen=True)
class Finding:
    """What a check came to."""

    problem: str | None
    """Why the step is not done; None if it is."""
    usage: Usage


async def check_job(job: Job, state: PlanningState, session: Session, emit: Emit) -> Finding:
    """Check a step that ran.

    Raises:
        LimitReached: The run's limits forbid the model call of the check.
        ModelError: That call failed for good.
    """
    if job["outcome"] != "succeeded":
        return Finding(job["result"], no_usage())
    kind, wanted = read_check(job["done_when"])
    if kind == "file":
        return Finding(await asyncio.to_thread(_file_problem, wanted, session), no_usage())
    if kind == "command":
        return Finding(await _command_problem(wanted, job, state, session, emit), no_usage())
    if wanted:
        return await _asked(job, state, session, emit)
    return Finding(None, no_usage())


def read_check(done_when: str) -> tuple[Literal["file", "command", "question"], str]:
    """Say what kind of check a text is, and what it looks at.

    `file:` and `command:` are what planners are asked to write; a bare path, and what can only be
    a shell command, are taken for what they are.
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
    """Take a text out of the backticks that a model put around it: a shell would run them."""
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
    command: str, job: Job, state: PlanningState, session: Session, emit: Emit
) -> str | None:
    if not command:
        return f"Its check `{COMMAND}` names no command."
    opened = await open_scope(
        session,
        Toolset({bash.name: bash}, None),
        emit,
        branch=state["branch"],
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        plans=no_plans(),
        held={},
    )
    # A check only looks: it runs again after a crash, and never has another one's outcome.
    scope = replace(opened, ledger=None, questions=Questions(None))
    # A new shell each: what one check did must not change the next.
    call = PlannedCall(
        id=f"check-{job['id']}-{job['attempt']}",
        name=bash.name,
        args={"command": command, "restart": True},
        occurrence=job["attempt"],
        problem=None,
    )
    result = await run_call(call, scope)
    if result.status != "error":
        return None
    return f"`{command}` failed: {result.text[-OUTPUT_CHARS:]}"


async def _asked(job: Job, state: PlanningState, session: Session, emit: Emit) -> Finding:
    evidence = plan_evidence(
        text=job["text"],
        done_when=job["done_when"],
        result=job["result"],
        files=await asyncio.to_thread(evidence_of, job["files"], session.workspace),
    )
    call = ModelCall(
        system=plan_check(),
        history=[HumanMessage(evidence)],
        steering="",
        tools=Toolset({verdict.name: verdict}, None),
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        step=state["step_count"] + 1,
    )
    reply, usage = await call_model(call, session, emit)
    return Finding(read_verdict(reply), usage)


def evidence_of(paths: Sequence[str], workspace: Workspace) -> str:
    """Show what files hold, as far as they are text. Blocks."""
    share = EVIDENCE_CHARS // max(1, len(paths))
    return "\n\n".join(_shown(path, workspace, share) for path in paths) or "none that are known"


def _shown(path: str, workspace: Workspace, chars: int) -> str:
    try:
        with workspace.resolve(path).open("rb") as file:
            size, start = os.fstat(file.fileno()).st_size, file.read(4 * chars)
    except (OSError, ToolError):
        return f"{path} (gone)"
    head = f"{path} ({size:,} bytes)"
    return head if b"\0" in start else f"{head}\n{start.decode('utf-8', 'replace')[:chars]}"


def read_verdict(reply: AIMessage) -> str | None:
    """Return why a step is not done; without a verdict only a plain yes counts."""
    for call in reply.tool_calls:
        if call["name"] == verdict.name and isinstance(call["args"].get("done"), bool):
            reason = str(call["args"].get("reason") or "The check says that it is not done.")
            return None if call["args"]["done"] else reason
    text = reply.text.strip()
    if re.fullmatch(r"(yes|done|true)[.!]?", text, re.IGNORECASE):
        return None
    return text or "The check gave no verdict."
