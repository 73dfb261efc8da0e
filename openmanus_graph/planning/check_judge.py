"""Judges a check that its executor disputes: the model may correct it, and cannot wave it through.

What it writes counts only if it is a check that is run, and one that can fail: in an empty folder,
without any of the work, it has to.
"""

from dataclasses import dataclass

from langchain_core.messages import AIMessage

from openmanus_graph.model_calls.condensed import cut_middle
from openmanus_graph.planning.check_shell import command_problem
from openmanus_graph.planning.checks import ask_judge, read_check
from openmanus_graph.planning.evidence import evidence_text
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.untrusted_text import mark_untrusted
from openmanus_graph.state.manus import Usage
from openmanus_graph.state.planning import PlanningState, StepRun
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool

_REASON_CHARS = 500


@manus_tool(effect="pure")
def judgement(check_is_wrong: bool, reason: str, corrected_check: str = "") -> Observation:
    """Say whether the check of a step is wrong, and correct it.

    Args:
        check_is_wrong: Whether it refuses work that is right.
        reason: What shows that, in one sentence.
        corrected_check: `file: PATH` or `command: SHELL COMMAND`, as strict as the step asks.
    """
    return Observation(reason)


@dataclass(frozen=True)
class Judgement:
    """What a judge says of a check."""

    done_when: str | None
    """The corrected check; None where it stays as it is."""
    reason: str
    """Of the judge, or why its correction does not count."""
    usage: Usage


async def judge_disputed_check(
    step_run: StepRun, state: PlanningState, session: Session, emit: Emit
) -> Judgement:
    """Have a judge look at a step's check that failed.

    Args:
        step_run: The step.
        state: Of the plan.
        session: Of the run.
        emit: Takes the events.

    Raises:
        LimitReached: The run's limits forbid the model call.
        ModelError: That call failed after all retries.
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
            return Judgement(None, f"Its correction, `{corrected}`, {why}.", usage)
    return Judgement(corrected, reason, usage)


def read_judgement(reply: AIMessage, done_when: str) -> tuple[str | None, str]:
    """Return the corrected check, None if there is none that counts, and the reason. Pure.

    A command may only become another command, and a file another file or a command: a question
    is not run, and that a file is there shows less than a command does.
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
            return None, f"{reason} But its correction is no such check: `{corrected}`."
        if (kind, wanted) == (was, was_wanted):
            return None, f"{reason} But it changed nothing."
        return f"{kind}: {wanted}", reason
    return None, "It gave no judgement."
