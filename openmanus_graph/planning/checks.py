"""Checks whether a step of a plan is done: by a file, a command, or a question to the model."""

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.files.file_content import content_problem
from openmanus_graph.backends.sandbox import confinement
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.recorder import awaited_fact, recorded_fact
from openmanus_graph.model_calls.summaries import cut_middle
from openmanus_graph.planning.drafting import attempt_name, evidence_text
from openmanus_graph.planning.flow import is_judged
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session, run_blocking
from openmanus_graph.runtime.tool_runtime import call_runtime, time_limit_of
from openmanus_graph.runtime.workspace import Workspace, find, names_in, opened_file, opened_folder
from openmanus_graph.safety.shell_commands import read_shell_text
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.manus import PendingCall, Usage, no_usage
from openmanus_graph.state.planning import PlanningState, StepRun
from openmanus_graph.state.tool_traits import Effects, Limits, Observation
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.declaration import manus_tool, traits_of
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset

OUTPUT_CHARS = 1500
_REMOVING = frozenset({"rm", "rmdir", "unlink", "shred", "truncate", "mv"})
_SCRATCH = ("-", "/tmp/", "$TMPDIR/")
"""Prefixes of words after such a program that are allowed."""
_REFUSED_WRITES = ("Read-only file system", "Permission denied")
_ADVICE = "A check looks and changes nothing; temporary files go to $TMPDIR."


@manus_tool(
    effect="workspace",
    timeout_s=None,
    effects=Effects(shell="command"),
    limits=Limits(stops_itself=True),
)
async def bash(  # no model sees `runtime`
    command: str, runtime: ToolRuntime[Any, Any], in_empty_folder: bool = False
) -> Observation:
    """Run a command that changes nothing.

    It has this name so that the policy's rules for the tool bash hold for checks too.

    Args:
        command: The command.
        in_empty_folder: Whether it runs in an empty folder instead of the workspace.
    """
    session = call_runtime(runtime).session
    if removal := removal_in(command):
        raise ToolError(f"It was not run, because it would run `{removal}`. {_ADVICE}")
    await asyncio.to_thread(confinement.sandbox_of, session)
    confinement.warn_of_sandbox(session, runtime.stream_writer)
    look = partial(
        confinement.run_read_only,
        command,
        session.workspace,
        session.settings.sandbox,
        limit_s=time_limit_of(runtime, traits_of(bash)).remaining_s(),
        max_chars=session.max_observation_chars,
        in_empty_folder=in_empty_folder,
    )
    result = await run_check_command(look)
    failed = bool(result.code or result.reason)
    return Observation(result_text(result), failed=failed, bounded=True)


async def run_check_command(
    look: Callable[..., confinement.ReadOnlyResult],
) -> confinement.ReadOnlyResult:
    """Run `run_read_only` off the event loop; `look` has all its arguments except `stop`."""
    stop = threading.Event()
    pool = ThreadPoolExecutor(1, thread_name_prefix="openmanus-check")
    try:
        return await run_blocking(pool, partial(look, stop=stop), stop)
    finally:
        pool.shutdown(wait=False)


def result_text(result: confinement.ReadOnlyResult) -> str:
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
    """Return the first command in a shell text that removes files of the workspace."""
    for one in read_shell_text(command).found:
        program, *words = one.split()
        scratch = (word.startswith(_SCRATCH) and ".." not in word for word in words)
        if program in _REMOVING and not all(scratch):
            return one
    return None


async def command_problem(
    command: str,
    step_run: StepRun,
    state: PlanningState,
    session: Session,
    emit: Emit,
    *,
    in_empty_folder: bool = False,
) -> str | None:
    """Run a check's command; return its output if it fails. None should hold in an empty folder."""
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
        context = await open_call_context(session, tools, emit, progress, recorded=False)
        result = await run_call(call, context)
        if result.status != "error":
            return None
        return f"`{command}` failed: {result.text[-OUTPUT_CHARS:]}"

    return await awaited_fact(session, call["id"], run)


FILE, COMMAND = "file:", "command:"
_COMMAND = re.compile(rf"{COMMAND}|shell:|\$ ", re.IGNORECASE)
_SHELL = re.compile(r"(test -[a-z] |\[\[? |! ).+|.+ (&&|\|\|) .+", re.DOTALL)
_PATH = re.compile(
    r"((the )?file )?[\"'`]?(?P<path>[\w./-]*(\w/|\.)[\w-]+)[\"'`]?( (must )?exists?)?\.?",
    re.IGNORECASE,
)
_QUOTES = " `\"'"


@manus_tool(effect="read_only")
def verdict(done: bool, reason: str) -> Observation:
    """Say whether the step is done.

    Args:
        done: Whether the evidence shows it.
        reason: What shows it, or what is missing, in one sentence.
    """
    return Observation("" if done else reason, failed=not done)


async def check_step_run(
    step_run: StepRun, state: PlanningState, session: Session, emit: Emit
) -> tuple[str | None, Usage]:
    """Return why a step is not done (None if it is), and the usage. Raises as `call_model`."""
    if step_run["outcome"] != "succeeded":
        return step_run["result"], no_usage()
    kind, wanted = read_check(step_run["done_when"])
    if kind == "file":
        look = partial(file_problem, wanted, session.workspace)
        problem = await recorded_fact(session, f"check of {attempt_name(step_run)}", look)
        return problem, no_usage()
    if kind == "command":
        if not wanted:
            return f"Its check `{COMMAND}` names no command.", no_usage()
        problem = await command_problem(wanted, step_run, state, session, emit)
        return problem, no_usage()
    if not wanted:
        return None, no_usage()
    evidence = await evidence_text(step_run, session)
    text, done_when = step_run["text"], step_run["done_when"]
    request = render("plan_check_request", text=text, done_when=done_when, evidence=evidence)
    reply, usage = await ask_judge("plan_check", request, verdict, state, session, emit)
    return read_verdict(reply), usage


def read_check(done_when: str) -> tuple[Literal["file", "command", "question"], str]:
    """Parse a `done_when` text into the kind of its check and the file, command or question.

    Planners are asked to write `file:` and `command:`. A bare path, and a text that can only be a
    shell command, are recognised without a prefix.
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
    """Return True if a judge has to review a step's failed check.

    That is the case if the executor knew of the failure and reports success again: either its work
    or the check is wrong. A step that made no file has no work that a check could wrongly refuse.
    A model has judged a question already.
    """
    handed_over_again = step_run["failures"] > 0 and step_run["outcome"] == "succeeded"
    has_made = bool(step_run["written_files"] or step_run["files"])
    is_question = read_check(step_run["done_when"])[0] == "question"
    return handed_over_again and has_made and not is_question and not is_judged(step_run)


def _unquoted(text: str) -> str:
    """Remove the backticks around a text, because a shell would run its content."""
    text = text.strip()
    whole = len(text) > 1 and text[0] == text[-1] == "`" and text.count("`") == 2
    return text[1:-1].strip() if whole else text


def file_problem(name: str, workspace: Workspace) -> str | None:
    """Return why a file is not what its name says; a folder must not be empty. Blocks."""
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
    """Ask the model to judge a step, and return its reply and its usage."""
    call = ModelCall(
        system=render(system, outside=render("text_from_outside").replace("\n", " ")),
        history=[HumanMessage(request)],
        reminder="",
        tools=Toolset({tool.name: tool}, None).definitions,
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        step=state["step_count"] + 1,
        role="check",
    )
    return await call_model(call, session, emit)


def read_verdict(reply: AIMessage) -> str | None:
    """Return why a step is not done, None if it is. Without a verdict only a plain yes counts."""
    for call in reply.tool_calls:
        if call["name"] == verdict.name and isinstance(call["args"].get("done"), bool):
            reason = str(call["args"].get("reason") or "The check says that it is not done.")
            return None if call["args"]["done"] else reason
    text = reply.text.strip()
    if re.fullmatch(r"(yes|done|true)[.!]?", text, re.IGNORECASE):
        return None
    return text or "The check gave no verdict."


_REASON_CHARS = 500


@manus_tool(effect="read_only")
def judgement(check_is_wrong: bool, reason: str, corrected_check: str = "") -> Observation:
    """Say whether the check of a step is wrong, and correct it.

    Args:
        check_is_wrong: Whether it refuses work that is right.
        reason: What shows that, in one sentence.
        corrected_check: `file: PATH` or `command: SHELL COMMAND`, as strict as the step asks.
    """
    return Observation(reason)


async def judge_disputed_check(
    step_run: StepRun, state: PlanningState, session: Session, emit: Emit
) -> tuple[str | None, str, Usage]:
    """Have a judge review a step's failed check. Raises as `check_step_run`.

    Returns the corrected check, or None to keep it; the judge's reason, or why its correction does
    not count; and the usage of the call.
    """
    request = render(
        "plan_judge_request",
        text=step_run["text"],
        done_when=step_run["done_when"],
        failure=mark_untrusted(step_run.get("disputed", "")),
        evidence=await evidence_text(step_run, session),
    )
    reply, usage = await ask_judge("plan_judge", request, judgement, state, session, emit)
    corrected, reason = read_judgement(reply, step_run["done_when"])
    kind, wanted = read_check(corrected or "")
    if kind == "command" and corrected is not None:
        problem = await command_problem(
            wanted, step_run, state, session, emit, in_empty_folder=True
        )
        if problem is None:
            why = "holds in an empty folder too, so it would show nothing"
            return None, f"Its correction, `{corrected}`, {why}.", usage
    return corrected, reason, usage


def read_judgement(reply: AIMessage, done_when: str) -> tuple[str | None, str]:
    """Return the corrected check, None if there is none that counts, and the reason. Pure.

    A command may only become another command, and a file another file or a command. A question is
    not run, and the existence of a file shows less than a command does.
    """
    for call in reply.tool_calls:
        if call["name"] != judgement.name:
            continue
        args = call["args"]
        reason = cut_middle(str(args.get("reason") or "It gave no reason."), _REASON_CHARS)
        if args.get("check_is_wrong") is not True:
            return None, reason
        corrected = str(args.get("corrected_check") or "").strip()
        kind, wanted = read_check(corrected)
        was, was_wanted = read_check(done_when)
        if kind == "question" or not wanted or (was, kind) == ("command", "file"):
            return None, f"{reason} But its correction is not a valid check: `{corrected}`."
        if (kind, wanted) == (was, was_wanted):
            return None, f"{reason} But it changed nothing."
        return f"{kind}: {wanted}", reason
    return None, "It gave no judgement."
