"""The suite of an evaluation: tasks as those of a batch, each with checks, and their verdicts.

The folder of an evaluation also says what it does, so that it can continue there.
"""

import asyncio
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import regex
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from openmanus_graph.backends.sandbox.confinement import ReadOnlyResult, run_read_only
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.service import batch, check_program, run_setup, threads
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.run_view import final_event
from openmanus_graph.interfaces.service.runs import thread_options
from openmanus_graph.planning import checks as plan_checks
from openmanus_graph.runtime.atomic_files import open_own_file, write_own_file
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import Settings

CheckKind: TypeAlias = Literal["file", "command", "answer", "python"]
CheckOutcome: TypeAlias = Literal["holds", "fails", "error"]
Outcome: TypeAlias = Literal["passed", "failed", "not_done", "error"]
"""`not_done`: the run did not finish; `error`: a check could not judge it."""
ABOUT, RESULTS, VERDICTS = "eval.json", "results.jsonl", "verdicts.jsonl"
"""The files of an evaluation. Lines are added to the results and the verdicts."""
_KINDS = "`file: NAME`, `command: SHELL`, `answer: PATTERN` and `python: MODULE:FUNCTION`"
_PYTHON = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*)")
_PREFIX = re.compile(r"(?P<kind>\w+)\s*:\s*(?P<wanted>.*)", re.DOTALL)
_RECORD = ConfigDict(extra="forbid", strict=True, frozen=True)


class _EvalLine(batch.TaskLine):
    checks: tuple[str, ...] = Field(min_length=1)

    @field_validator("checks", mode="before")
    @classmethod
    def _known(cls, checks: Any) -> Any:
        if not isinstance(checks, list):
            return checks
        for check in cast("list[Any]", checks):
            if not isinstance(check, str):
                raise ValueError(f"{json.dumps(check)[:200]} is not text. There are {_KINDS}")
            parse_check(check)
        return tuple(cast("list[Any]", checks))  # strict mode takes a list only from JSON itself


@dataclass(frozen=True)
class Check:
    text: str
    """As the suite has it."""
    kind: CheckKind
    wanted: str
    """The file's name, the command, the pattern, or `module:function`."""


@dataclass(frozen=True)
class EvalTask:
    task: batch.BatchTask
    checks: tuple[Check, ...]
    digest: str
    """Of the task and its checks: a verdict on another digest is not valid."""


@dataclass(frozen=True)
class Suite:
    name: str
    folder: Path
    """Where the modules of its checks are."""
    tasks: tuple[EvalTask, ...]

    def attempts(self, repeat: int) -> list[batch.BatchTask]:
        """Return the tasks this many times, round by round, each attempt with its own id."""
        return [
            replace(one.task, id=attempt_id(one.task.id, number))
            for number in range(1, repeat + 1)
            for one in self.tasks
        ]


def attempt_id(task: str, number: int) -> str:
    return f"{task}#{number}"


def task_id(attempt: str) -> str:
    return attempt.rpartition("#")[0]


def read_suite(path: Path, agents: Sequence[str], name: str | None = None) -> Suite:
    """Read lines as of a batch, with `checks`. Blocks. ConfigError names a wrong line."""
    folder = path.parent.absolute()
    tasks: list[EvalTask] = []
    for task, line in batch.read_lines(path, agents, _EvalLine):
        checks = tuple(map(parse_check, line.checks))
        for check in checks:
            if check.kind == "python":
                find_module(check, folder, f"The task {task.id!r} of {path}")
        words = json.dumps([task.digest, line.checks])
        tasks.append(EvalTask(task, checks, hashlib.sha256(words.encode()).hexdigest()))
    return Suite(name or path.name, folder, tuple(tasks))


def parse_check(text: str) -> Check:
    """Parse a check. ValueError says what is wrong with it.

    `file:` and `command:` are those of plans, which `read_check` knows.
    """
    prefixed = _PREFIX.fullmatch(text.strip())
    kind = prefixed["kind"].lower() if prefixed else ""
    wanted = prefixed["wanted"].strip() if prefixed else ""
    if kind == "answer":
        return Check(text, "answer", _checked_pattern(wanted))
    if kind == "python":
        if not _PYTHON.fullmatch(wanted):
            raise ValueError(f"{text!r} does not name a function: write `python: MODULE:FUNCTION`")
        return Check(text, "python", wanted)
    known, wanted = plan_checks.read_check(text)
    if known == "question" or kind not in ("", "file", "command", "shell"):
        raise ValueError(f"{text!r} is not a check. There are {_KINDS}")
    if not wanted:
        raise ValueError(f"{text!r} does not name a {known}")
    if known == "command" and (removal := plan_checks.removal_in(wanted)):
        raise ValueError(f"{text!r} would run `{removal}`, and a check changes nothing")
    return Check(text, known, wanted)


def _checked_pattern(pattern: str) -> str:
    if not pattern:
        raise ValueError("an `answer:` needs a pattern")
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


def find_module(check: Check, folder: Path, place: str = "") -> Path | None:
    """Return the file or folder of a `python:` check's module; None if it is installed.

    ConfigError, which names the check's `place`, if there is no such module.
    """
    module = check.wanted.partition(":")[0]
    top, *inner = module.split(".")
    file, package = folder / f"{top}.py", folder / top
    if file.is_file() and not inner:
        return file
    inside = package.joinpath(*inner)
    if package.is_dir() and (inside.is_dir() or inside.with_suffix(".py").is_file()):
        return package
    if importlib.util.find_spec(top) is not None:
        return None
    raise ConfigError(
        f"{place} has a check whose module {module} is neither in {folder} nor installed."
    )


class About(BaseModel):
    model_config = _RECORD

    suite: str
    tasks: list[str]
    repeat: int
    """Attempts of each task."""
    model: str
    agent: str
    options: dict[str, Any]
    """As they are stored with threads."""


def load_about(folder: Path) -> About | None:
    """Return what an evaluation does; None if there is none. ConfigError if it is damaged."""
    path = folder / ABOUT
    if not path.exists():
        return None
    try:
        return About.model_validate_json(run_setup.read_input(path, run_setup.MAX_TEXT_BYTES))
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}.") from error


def prepare_folder(folder: Path, about: About) -> None:
    """Make the folder of a new evaluation, or check that this one can continue there. Blocks.

    ConfigError if the folder holds another evaluation, or something else.
    """
    known = load_about(folder)
    try:
        if known is not None:
            _require_same(folder, known, about)
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} already contains something else. Give another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        store_about(folder, about)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from error


def store_about(folder: Path, about: About) -> None:
    """Write what an evaluation does; tasks and attempts may have been added. Blocks."""
    write_own_file(folder / ABOUT, about.model_dump_json(indent=1) + "\n")


def _require_same(folder: Path, known: About, about: About) -> None:
    before, now = (
        {"suite": one.suite, "model": one.model, "agent": one.agent, **one.options}
        for one in (known, about)
    )
    for name in before | now:
        if before.get(name) != now.get(name):
            raise ConfigError(
                f"{folder} holds an evaluation with {name} {before.get(name)!r}, not "
                f"{now.get(name)!r}. Give the command as before, or another --out."
            )
    if about.repeat < known.repeat:
        raise ConfigError(
            f"{folder} holds {known.repeat} attempts at each task. Give --repeat {known.repeat} "
            "or more, or another --out."
        )


class CheckFinding(BaseModel):
    model_config = _RECORD

    check: str
    """As the suite has it."""
    outcome: CheckOutcome
    """`error`: the check did not end or could not be run, so nothing is known of the task."""
    said: str
    """Why it does not hold; empty if it does."""


async def run_checks(
    checks: Sequence[Check], answer: str, folder: Path, settings: Settings
) -> tuple[CheckFinding, ...]:
    found: list[CheckFinding] = []
    for check in checks:
        try:
            outcome, said = await _run_check(check, answer, folder, settings)
        except (ToolError, ConfigError, OSError) as error:
            outcome, said = "error", str(error)
        found.append(
            CheckFinding(check=check.text, outcome=outcome, said=said[-plan_checks.OUTPUT_CHARS :])
        )
    return tuple(found)


async def _run_check(
    check: Check, answer: str, folder: Path, settings: Settings
) -> tuple[CheckOutcome, str]:
    if check.kind == "answer":
        limit_s, pattern = settings.sandbox.timeout_s, check.wanted
        search = partial(regex.search, pattern, answer, timeout=limit_s, concurrent=True)
        try:
            found = await asyncio.to_thread(search)
        except TimeoutError:
            return "error", f"The pattern did not end within {limit_s:g} s."
        return ("holds", "") if found else ("fails", f"The answer has nothing like {pattern!r}.")
    if check.kind == "file":
        problem = await asyncio.to_thread(
            plan_checks.file_problem, check.wanted, Workspace.of(settings)
        )
        return ("fails", problem) if problem else ("holds", "")
    if check.kind == "command":
        result = await _run_program(check.wanted, settings, {})
        return _outcome(result, plan_checks.result_text(result))
    return await _run_function(check, answer, folder, settings)


async def _run_function(
    check: Check, answer: str, folder: Path, settings: Settings
) -> tuple[CheckOutcome, str]:
    """Call the function of a `python:` check: in the sandbox, as all code of a suite."""
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
    return _outcome(result, result.text.strip() if is_verdict else plan_checks.result_text(result))


async def _run_program(
    command: str, settings: Settings, brought: Mapping[str, Path | bytes]
) -> ReadOnlyResult:
    look = partial(
        run_read_only,
        command,
        Workspace.of(settings),
        settings.sandbox,
        limit_s=settings.sandbox.timeout_s,
        max_chars=plan_checks.OUTPUT_CHARS,
        brought=brought,
    )
    return await plan_checks.run_check_command(look)


def _outcome(result: ReadOnlyResult, said: str) -> tuple[CheckOutcome, str]:
    if result.reason:
        return "error", said
    return ("fails", said) if result.code else ("holds", "")


class Verdict(BaseModel):
    model_config = _RECORD

    attempt: str
    digest: str
    """Of the task and the checks that it was judged by."""
    outcome: Outcome
    where: str
    """What it failed at, in the same words for the same place; empty if it passed."""
    steps: int
    elapsed_s: float
    """Of the run, without the time in which no process worked on it."""
    findings: tuple[CheckFinding, ...]
    """Empty if the run did not finish."""


class Grader:
    """Judges attempts, and writes each verdict to a file of the evaluation's folder at once.

    Verdicts on other tasks or checks are dropped from the file.
    """

    def __init__(self, suite: Suite, options: RunOptions, folder: Path) -> None:
        self._suite, self._options = suite, options
        self._path = folder / VERDICTS
        self._tasks = {one.task.id: one for one in suite.tasks}
        self.verdicts: dict[str, Verdict] = {}
        """The valid ones, by attempt."""
        for verdict in batch.read_records(self._path, Verdict):
            task = self._tasks.get(task_id(verdict.attempt))
            if task is not None and task.digest == verdict.digest:
                self.verdicts[verdict.attempt] = verdict
        lines = (f"{one.model_dump_json()}\n" for one in self.verdicts.values())
        write_own_file(self._path, "".join(lines))
        results = batch.read_records(folder / RESULTS, batch.BatchResult)
        self._ungraded = [one for one in results if one.id not in self.verdicts]

    def ungraded(self) -> Sequence[batch.BatchResult]:
        """Return the results without a verdict: after a kill, or if the checks have changed."""
        return self._ungraded

    async def grade(self, result: batch.BatchResult) -> None:
        """Judge an attempt. RunError if the verdict cannot be written."""
        suite_task = self._tasks[task_id(result.id)]
        values, stop_reason = await _read_end(result.thread)
        findings: tuple[CheckFinding, ...] = ()
        if result.status == "finished":
            options = await asyncio.to_thread(thread_options, self._options, result.thread)
            context = run_setup.to_context(options)
            settings = await asyncio.to_thread(resolve_settings, context, result.thread)
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


async def _read_end(thread: str) -> tuple[Mapping[str, Any], str]:
    """Return a thread's last values, and the reason why its run ended."""
    known = await asyncio.to_thread(threads.find_thread, thread)
    if known is None:
        return {}, "error"
    state = (await run_setup.read_thread_state(thread, known.agent)).state
    values: Any = state.values  # a third-party graph may have anything there
    if not isinstance(values, Mapping):
        return {}, "error"
    reason = final_event(state, cancelled=False)["stop_reason"]
    return cast("Mapping[str, Any]", values), str(reason)
