"""Checks whether a step of a plan is done: by a file, a command, or a question to the model."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool

from openmanus_graph.backends.files.file_content import content_problem
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.flight_recorder import recorded_fact
from openmanus_graph.planning.check_shell import command_problem
from openmanus_graph.planning.evidence import attempt_name, evidence_text
from openmanus_graph.planning.flow import is_judged
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import (
    Workspace,
    find,
    names_in,
    opened_file,
    opened_folder,
)
from openmanus_graph.state.manus import Usage, no_usage
from openmanus_graph.state.planning import PlanningState, StepRun
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool
from openmanus_graph.tool_calls.toolset import Toolset

FILE, COMMAND = "file:", "command:"
_COMMAND = re.compile(rf"{COMMAND}|shell:|\$ ", re.IGNORECASE)
_SHELL = re.compile(r"(test -[a-z] |\[\[? |! ).+|.+ (&&|\|\|) .+", re.DOTALL)
_PATH = re.compile(
    r"((the )?file )?[\"'`]?(?P<path>[\w./-]*(\w/|\.)[\w-]+)[\"'`]?( (must )?exists?)?\.?",
    re.IGNORECASE,
)
_QUOTES = " `\"'"


@manus_tool(effect="pure")
def verdict(done: bool, reason: str) -> Observation:
    """Say whether the step is done.

    Args:
        done: Whether the evidence shows it.
        reason: What shows it, or what is missing, in one sentence.
    """
    return Observation("" if done else reason, failed=not done)


@dataclass(frozen=True)
class CheckResult:
    """The result of a check."""

    problem: str | None
    """Why the step is not done; None if it is."""
    usage: Usage


async def check_step_run(
    step_run: StepRun, state: PlanningState, session: Session, emit: Emit
) -> CheckResult:
    """Check a step whose run has ended.

    Args:
        step_run: The step.
        state: The planning graph's state.
        session: The run's session.
        emit: Sends the events.

    Raises:
        LimitReached: The run's limits forbid the model call of the check.
        ModelError: That call failed after all retries.
    """
    if step_run["outcome"] != "succeeded":
        return CheckResult(step_run["result"], no_usage())
    kind, wanted = read_check(step_run["done_when"])
    if kind == "file":
        look = partial(file_problem, wanted, session.workspace)
        problem = await recorded_fact(session, f"check of {attempt_name(step_run)}", look)
        return CheckResult(problem, no_usage())
    if kind == "command":
        if not wanted:
            return CheckResult(f"Its check `{COMMAND}` names no command.", no_usage())
        problem = await command_problem(wanted, step_run, state, session, emit)
        return CheckResult(problem, no_usage())
    if not wanted:
        return CheckResult(None, no_usage())
    evidence = await evidence_text(step_run, session)
    request = render(
        "plan_check_request",
        text=step_run["text"],
        done_when=step_run["done_when"],
        evidence=evidence,
    )
    reply, usage = await ask_judge("plan_check", request, verdict, state, session, emit)
    return CheckResult(read_verdict(reply), usage)


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


def is_disputed(step_run: StepRun) -> bool:
    """Say whether a judge is to look at a step's check that failed.

    That is when its executor, told of a failure, hands the step over again: then either its work
    or the check is wrong. No words are looked for, in which it might say so. Where it has made no
    file there is nothing that a check could refuse wrongly. A question was put to a judge already.
    """
    handed_over_again = step_run["failures"] > 0 and step_run["outcome"] == "succeeded"
    has_made = bool(step_run["written_files"] or step_run["files"])
    is_question = read_check(step_run["done_when"])[0] == "question"
    return handed_over_again and has_made and not is_question and not is_judged(step_run)


def _unquoted(text: str) -> str:
    """Remove the backticks that a model put around a text: a shell would run them."""
    text = text.strip()
    whole = len(text) > 1 and text[0] == text[-1] == "`" and text.count("`") == 2
    return text[1:-1].strip() if whole else text


def file_problem(name: str, workspace: Workspace) -> str | None:
    """Say why a file is not what its name says; a folder must not be empty. Blocks."""
    try:
        found = find(workspace, name)
        if not name or found is not None and not found.path:
            return f"Its check `{FILE}` names no file."
        if found is None:
            return f"The file {name} does not exist."
        if found.is_folder:
            with opened_folder(workspace, workspace.root / found.path) as folder:
                return None if names_in(folder) else f"The folder {name} is empty."
        with opened_file(workspace, name) as file:
            problem = content_problem(file, found.path)
    except (OSError, ToolError) as error:
        return str(error)
    return f"The file {name} {problem.rstrip('.')}." if problem else None


async def ask_judge(
    system: Literal["plan_check", "plan_judge"],
    request: str,
    tool: BaseTool,
    state: PlanningState,
    session: Session,
    emit: Emit,
) -> tuple[AIMessage, Usage]:
    """Ask the model to judge a step, and return its reply and what it cost.

    Args:
        system: The prompt that says what is to be judged.
        request: The step, and what there is to judge it by.
        tool: What it answers with.
        state: Of the plan.
        session: Of the run.
        emit: Takes the events.

    Raises:
        LimitReached: The run's limits forbid the call.
        ModelError: It failed after all retries.
    """
    call = ModelCall(
        system=render(system, outside=render("text_from_outside").replace("\n", " ")),
        history=[HumanMessage(request)],
        request_suffix="",
        tools=Toolset({tool.name: tool}, None).definitions,
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        step=state["step_count"] + 1,
        role="check",
    )
    return await call_model(call, session, emit)


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
