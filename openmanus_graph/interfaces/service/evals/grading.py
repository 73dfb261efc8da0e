"""Judges the attempts of an evaluation, and keeps the verdicts beside the batch's results."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import regex
from pydantic import BaseModel, ConfigDict, ValidationError

from openmanus_graph.backends.sandbox.read_only import ReadOnlyResult, run_read_only
from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.service.batch_files import BatchResult, load_results
from openmanus_graph.interfaces.service.evals import check_program
from openmanus_graph.interfaces.service.evals.suite import (
    Check,
    Suite,
    find_module,
    parse_check,
    task_id,
)
from openmanus_graph.interfaces.service.failures import RunError
from openmanus_graph.interfaces.service.final_event import final_event
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.run_setup import read_thread_state, to_context
from openmanus_graph.interfaces.service.runs import thread_options
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.interfaces.service.user_files import MAX_TEXT_BYTES, read_input
from openmanus_graph.planning.checks import (
    OUTPUT_CHARS,
    file_problem,
    result_text,
    run_check_command,
)
from openmanus_graph.runtime.atomic_files import open_own_file, write_own_file
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import Settings

CheckOutcome: TypeAlias = Literal["holds", "fails", "error"]


class CheckFinding(BaseModel):
    """What one check found."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    check: str
    """As it stands in the suite."""
    outcome: CheckOutcome
    """`error`: the check did not end or could not be run, so nothing is known of the task."""
    said: str
    """Why it does not hold; empty if it does."""


async def run_checks(
    checks: Sequence[Check], answer: str, folder: Path, settings: Settings
) -> tuple[CheckFinding, ...]:
    """Check a task that is done, one check after the other.

    Args:
        checks: Of the task.
        answer: What the agent answered.
        folder: Of the suite.
        settings: Of the task's run: its workspace, its sandbox, and the limit of a check.
    """
    found: list[CheckFinding] = []
    for check in checks:
        try:
            outcome, said = await _run_check(check, answer, folder, settings)
        except (ToolError, ConfigError, OSError) as error:
            outcome, said = "error", str(error)
        found.append(CheckFinding(check=check.text, outcome=outcome, said=said[-OUTPUT_CHARS:]))
    return tuple(found)


async def _run_check(
    check: Check, answer: str, folder: Path, settings: Settings
) -> tuple[CheckOutcome, str]:
    if check.kind == "answer":
        limit_s = settings.sandbox.timeout_s
        return await asyncio.to_thread(_look_for, check.wanted, answer, limit_s)
    if check.kind == "file":
        problem = await asyncio.to_thread(file_problem, check.wanted, Workspace.of(settings))
        return ("fails", problem) if problem else ("holds", "")
    if check.kind == "command":
        result = await _run_program(check.wanted, settings, {})
        return _outcome(result, result_text(result))
    return await _run_function(check, answer, folder, settings)


async def _run_function(
    check: Check, answer: str, folder: Path, settings: Settings
) -> tuple[CheckOutcome, str]:
    """Call the function of a `python:` check: in the sandbox, as all code that a suite brings."""
    program = Path(check_program.__file__)
    module, _, function = check.wanted.partition(":")
    brought: dict[str, Path | bytes] = {
        program.name: program,
        check_program.ANSWER: answer.encode("utf-8", "replace"),
    }
    if (found := find_module(check, folder)) is not None:
        brought[found.name] = found
    command = f'python "$TMPDIR/{program.name}" {module} {function}'
    result = await _run_program(command, settings, brought)
    if result.code == check_program.FAULTY:
        return "error", result.text.strip()
    is_verdict = not result.reason and result.code in (0, check_program.FAILED)
    return _outcome(result, result.text.strip() if is_verdict else result_text(result))


async def _run_program(
    command: str, settings: Settings, brought: Mapping[str, Path | bytes]
) -> ReadOnlyResult:
    look = partial(
        run_read_only,
        command,
        Workspace.of(settings),
        settings.sandbox,
        limit_s=settings.sandbox.timeout_s,
        max_chars=OUTPUT_CHARS,
        brought=brought,
    )
    return await run_check_command(look)


def _outcome(result: ReadOnlyResult, said: str) -> tuple[CheckOutcome, str]:
    if result.reason:
        return "error", said
    return ("fails", said) if result.code else ("holds", "")


def _look_for(pattern: str, answer: str, limit_s: float) -> tuple[CheckOutcome, str]:
    try:
        found = regex.search(pattern, answer, timeout=limit_s, concurrent=True)
    except TimeoutError:
        return "error", f"The pattern did not end within {limit_s:g} s."
    return ("holds", "") if found else ("fails", f"The answer has nothing like {pattern!r}.")


RESULTS, VERDICTS = "results.jsonl", "verdicts.jsonl"
"""The files of an evaluation that lines are added to."""
Outcome: TypeAlias = Literal["passed", "failed", "not_done", "error"]
"""`not_done`: the run did not finish; `error`: a check could not judge it."""


class Verdict(BaseModel):
    """How one attempt ended."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    attempt: str
    digest: str
    """Of the task and the checks that it was judged by."""
    outcome: Outcome
    where: str
    """What it failed at, the same words for the same place; empty if it passed."""
    steps: int
    elapsed_s: float
    """Of the run, without the time in which no process worked on it."""
    findings: tuple[CheckFinding, ...]
    """None if the run did not finish."""


class Grader:
    """Judges attempts, and writes each verdict to a file at once.

    Args:
        suite: The suite.
        options: Of all its tasks.
        folder: Of the evaluation. Verdicts on other tasks or checks are dropped from it.
    """

    def __init__(self, suite: Suite, options: RunOptions, folder: Path) -> None:
        self._suite, self._options = suite, options
        self._path = path = folder / VERDICTS
        self._tasks = {one.task.id: one for one in suite.tasks}
        self.verdicts = {one.attempt: one for one in load_verdicts(path) if self._is_of_suite(one)}
        """Those that hold, by attempt."""
        lines = (f"{one.model_dump_json()}\n" for one in self.verdicts.values())
        write_own_file(path, "".join(lines))
        results = load_results(folder / RESULTS)
        self._ungraded = [one for one in results if one.id not in self.verdicts]

    def ungraded(self) -> Sequence[BatchResult]:
        """Return the results without a verdict: a kill came between, or checks are others now."""
        return self._ungraded

    async def grade(self, result: BatchResult) -> None:
        """Judge an attempt. RunError: the verdict cannot be written."""
        suite_task = self._tasks[task_id(result.id)]
        values, stop_reason = await _read_end(result.thread)
        findings: tuple[CheckFinding, ...] = ()
        if result.status == "finished":
            options = await asyncio.to_thread(thread_options, self._options, result.thread)
            settings = await asyncio.to_thread(resolve_settings, to_context(options), result.thread)
            findings = await run_checks(
                suite_task.checks, result.answer, self._suite.folder, settings
            )
            outcome, where = judge(findings)
        else:
            outcome, where = "not_done", f"{result.status}: {stop_reason}"
        verdict = Verdict(
            attempt=result.id,
            digest=suite_task.digest,
            outcome=outcome,
            where=where,
            steps=int(values.get("step_count") or 0),
            elapsed_s=float(values.get("elapsed_s") or 0),
            findings=findings,
        )
        self.verdicts[result.id] = verdict
        try:
            descriptor = open_own_file(self._path, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{verdict.model_dump_json()}\n".encode())
        except ConfigError as error:
            raise RunError(str(error)) from error
        except OSError as error:
            raise RunError(f"{self._path} cannot be written: {error.strerror}.") from error

    def _is_of_suite(self, verdict: Verdict) -> bool:
        task = self._tasks.get(task_id(verdict.attempt))
        return task is not None and task.digest == verdict.digest


def judge(findings: Sequence[CheckFinding]) -> tuple[Outcome, str]:
    """Return the outcome of a run that finished, and where it failed.

    A check that fails counts before one that could not be run: the task is not done either way.
    """
    for outcome, wanted in (("failed", "fails"), ("error", "error")):
        for finding in findings:
            if finding.outcome == wanted:
                kind = parse_check(finding.check).kind
                words = f"check {kind}" if wanted == "fails" else f"broken check {kind}"
                return cast("Outcome", outcome), words
    return "passed", ""


def load_verdicts(path: Path) -> list[Verdict]:
    """Return the verdicts in a file, a line that a kill cut off left out. Blocks."""
    found: list[Verdict] = []
    for line in read_input(path, MAX_TEXT_BYTES).splitlines() if path.exists() else ():
        try:
            found.append(Verdict.model_validate_json(line))
        except ValidationError:  # it is judged again
            continue
    return found


async def _read_end(thread: str) -> tuple[Mapping[str, Any], str]:
    """Return a thread's last values, and the reason why its run ended."""
    known = await asyncio.to_thread(find_thread, thread)
    if known is None:
        return {}, "error"
    state = (await read_thread_state(thread, known.agent)).state
    values: Any = state.values  # of a third-party graph it may be anything
    if not isinstance(values, Mapping):
        return {}, "error"
    reason = final_event(state, cancelled=False)["stop_reason"]
    return cast("Mapping[str, Any]", values), str(reason)
