"""Whether a step of a plan is done: a file, a command, or a question put to the model."""

import asyncio
import re
from dataclasses import dataclass, replace

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

FILE, COMMAND = "file:", "command:"
OUTPUT_CHARS = 1500


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
    wanted = job["done_when"]
    if wanted.lower().startswith(FILE):
        problem = await asyncio.to_thread(_file_problem, wanted[len(FILE) :].strip(), session)
        return Finding(problem, no_usage())
    if wanted.lower().startswith(COMMAND):
        command = wanted[len(COMMAND) :].strip()
        return Finding(await _command_problem(command, job, state, session, emit), no_usage())
    if wanted:
        return await _asked(job, state, session, emit)
    return Finding(None, no_usage())


def _file_problem(name: str, session: Session) -> str | None:
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
        files="\n".join(job["files"]) or "none that are known",
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
