"""What models are told of a plan: the request of a step, the list of steps, and their results."""

from collections.abc import Mapping, Sequence

from openmanus_graph.model_calls.condensed import cut_middle
from openmanus_graph.planning.evidence import attempt_text
from openmanus_graph.planning.flow import is_whole_plan, step_runs_of, task_of
from openmanus_graph.planning.plan import MARKS, ancestors_of
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import DRAFTS_FOLDER
from openmanus_graph.state.planning import PlanningState, StepRun

RESULT_CHARS = 6000
"""Limit of a step's result in the requests of other steps and of the summary."""
RESULTS_CHARS = 60_000
"""Limit of all results in one such request."""
STEPS_AROUND = 12
"""Steps before and after one that its request shows of a long plan, and so many ancestors."""
LINE_CHARS = 200
"""Of the result of a step on which another one depends only by way of others."""
FILES_IN_LINE = 8


def step_prompt(step_run: StepRun, state: PlanningState) -> str:
    """Return what an executor is asked: a step of the plan, or the task if that is one step."""
    text, given = step_run["text"], step_context_text(step_run, state["steps"])
    if is_whole_plan(state):
        return render("plan_only_step", task=task_of(state), text=text, given=given)
    return render(
        "plan_step",
        task=task_of(state),
        plan=steps_text(step_runs_of(state), step_run),
        step=step_run["id"],
        text=text,
        given=given,
        drafts=DRAFTS_FOLDER,
    )


def steps_text(step_runs: Sequence[StepRun], current: StepRun | None = None) -> str:
    """List the steps of a plan, a line each, by their ids.

    Args:
        step_runs: The plan.
        current: The step that the list is for: its own text, and the results of the steps that it
            depends on, stand elsewhere. Of a long plan it gets what is near, and its ancestors.
    """
    direct = current["depends_on"] if current else []
    ancestors = ancestors_of(step_runs, current["id"]) if current else []
    far = [name for name in ancestors if name not in direct]
    ids = [step_run["id"] for step_run in step_runs]
    shown: Sequence[int] = range(len(ids))
    own = current["id"] if current else None
    if own is not None:
        here, needed = ids.index(own), {*direct, *far[-STEPS_AROUND:]}
        shown = [n for n in shown if abs(n - here) <= STEPS_AROUND or ids[n] in needed]
    lines: list[str] = []
    before = -1
    for n in shown:
        if n > before + 1:
            lines.append(f"... ({n - before - 1} more)")
        before, step_run = n, step_runs[n]
        text = "your step" if ids[n] == own else step_run["text"]
        outcome = _outcome_line(step_run) if ids[n] in far else ""
        lines.append(f"- {ids[n]} {MARKS[step_run['status']]} {text}{outcome}")
    if left := len(step_runs) - 1 - before:
        lines.append(f"... ({left} more)")
    return "\n".join(lines)


def _outcome_line(step_run: StepRun) -> str:
    """Say in a line what a step came to: the beginning of its result, and its files."""
    words = " ".join(step_run["result"].split())
    cut = words if len(words) <= LINE_CHARS else f"{words[:LINE_CHARS]} …"
    files = ", ".join(step_run["files"][:FILES_IN_LINE])
    more = ", …" if len(step_run["files"]) > FILES_IN_LINE else ""
    said = f" -> {cut}" if cut else ""
    return f"{said} [files: {files}{more}]" if files else said


def step_context_text(step_run: StepRun, steps: Mapping[str, StepRun]) -> str:
    """Return the context of a step: results it depends on, its last failure, and its check."""
    needed = [steps[name] for name in step_run["depends_on"]]
    chars = _chars_per_result(len(needed))
    parts = [f"Result of step {one['id']}:\n{cut_middle(one['result'], chars)}" for one in needed]
    if step_run["failures"]:
        parts.append(render("plan_retry", failure=attempt_text(step_run)))
    if step_run["done_when"]:
        parts.append(f"It counts as done when: {step_run['done_when']}")
    return "\n\n".join(parts)


def results_text(step_runs: Sequence[StepRun], *, with_errors: bool) -> str:
    """Return all steps with their results.

    Args:
        step_runs: The plan.
        with_errors: Whether to say how steps failed, in the words of tools and checks: for a model
            that writes about it, not for an answer.
    """
    chars = _chars_per_result(len(step_runs))
    parts: list[str] = []
    for step_run in step_runs:
        failed = step_run["failures"] and not with_errors
        outcome = "It was not done." if failed else step_run["notes"]
        if step_run["status"] == "completed":
            outcome = step_run["result"]
        if step_run["paused_run"] is not None:
            outcome = "Not done yet; it goes on where it stopped when the run is resumed."
        head = f"Step {step_run['id']} ({step_run['status'].replace('_', ' ')}): {step_run['text']}"
        parts.append(f"{head}\n{cut_middle(outcome, chars)}".strip())
    return "\n\n".join(parts)


def _chars_per_result(results: int) -> int:
    return min(RESULT_CHARS, RESULTS_CHARS // max(1, results))
