"""Checks a task that is done: what its checks find, and whether they work at all."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import regex
from pydantic import BaseModel, ConfigDict

from openmanus_graph.backends.sandbox.read_only import ReadOnlyResult
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.service.evals import check_program
from openmanus_graph.interfaces.service.evals.suite import Check, find_module
from openmanus_graph.planning.check_shell import OUTPUT_CHARS, result_text, run_check_command
from openmanus_graph.planning.checks import file_problem
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
    return await run_check_command(
        command,
        Workspace.of(settings),
        settings.sandbox,
        limit_s=settings.sandbox.timeout_s,
        max_chars=OUTPUT_CHARS,
        brought=brought,
    )


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
