"""The suite of an evaluation: tasks as those of a batch, each with checks."""

import hashlib
import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import regex
from pydantic import Field, field_validator

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.batch_files import BatchTask, TaskLine, read_lines
from openmanus_graph.planning.checks import read_check, removal_in

CheckKind: TypeAlias = Literal["file", "command", "answer", "python"]
_KINDS = "`file: NAME`, `command: SHELL`, `answer: PATTERN` and `python: MODULE:FUNCTION`"
_PYTHON = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*)")
_PREFIX = re.compile(r"(?P<kind>\w+)\s*:\s*(?P<wanted>.*)", re.DOTALL)


class _EvalLine(TaskLine):
    checks: tuple[str, ...] = Field(min_length=1)

    @field_validator("checks", mode="before")
    @classmethod
    def _texts(cls, checks: Any) -> Any:
        if not isinstance(checks, list):
            return checks
        for check in cast("list[Any]", checks):
            if not isinstance(check, str):
                raise ValueError(f"{json.dumps(check)[:200]} is no text. There are {_KINDS}")
        return tuple(cast("list[Any]", checks))  # as which only JSON itself counts otherwise

    @field_validator("checks")
    @classmethod
    def _known(cls, checks: tuple[str, ...]) -> tuple[str, ...]:
        for text in checks:
            parse_check(text)
        return checks


@dataclass(frozen=True)
class Check:
    """What must hold after a task."""

    text: str
    """As it stands in the suite."""
    kind: CheckKind
    wanted: str
    """The file's name, the command, the pattern, or `module:function`."""


@dataclass(frozen=True)
class EvalTask:
    """A task of a suite."""

    task: BatchTask
    checks: tuple[Check, ...]
    digest: str
    """Of the task and its checks: a verdict on another one is not valid."""


@dataclass(frozen=True)
class Suite:
    """A suite that was read."""

    name: str
    folder: Path
    """Where the modules of its checks are."""
    tasks: tuple[EvalTask, ...]

    def attempts(self, repeat: int) -> list[BatchTask]:
        """Return the tasks as many times, round by round, each attempt by an id of its own."""
        return [
            replace(one.task, id=attempt_id(one.task.id, number))
            for number in range(1, repeat + 1)
            for one in self.tasks
        ]


def attempt_id(task: str, number: int) -> str:
    """Return the id of a task's attempt, counted from 1."""
    return f"{task}#{number}"


def task_id(attempt: str) -> str:
    """Return the id of an attempt's task."""
    return attempt.rpartition("#")[0]


def read_suite(path: Path, agents: Sequence[str], name: str | None = None) -> Suite:
    """Read a suite. Blocks.

    Args:
        path: JSON lines: those of a batch, with `checks`.
        agents: Those that there are.
        name: Of the suite; default its file's.

    Raises:
        ConfigError: A line is wrong, which it names.
    """
    folder = path.parent.absolute()
    tasks: list[EvalTask] = []
    for task, line in read_lines(path, agents, _EvalLine):
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
            raise ValueError(f"{text!r} names no function: write `python: MODULE:FUNCTION`")
        return Check(text, "python", wanted)
    known, wanted = read_check(text)
    if known == "question" or kind not in ("", "file", "command", "shell"):
        raise ValueError(f"{text!r} is no check. There are {_KINDS}")
    if not wanted:
        raise ValueError(f"{text!r} names no {known}")
    if known == "command" and (removal := removal_in(wanted)):
        raise ValueError(f"{text!r} would run `{removal}`, and a check changes nothing")
    return Check(text, known, wanted)


def find_module(check: Check, folder: Path, place: str = "") -> Path | None:
    """Return the file or folder of a `python:` check's module; None if it is installed.

    Args:
        check: The check.
        folder: Of the suite.
        place: Where the check stands, for the error.

    Raises:
        ConfigError: There is no such module.
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


def _checked_pattern(pattern: str) -> str:
    if not pattern:
        raise ValueError("an `answer:` names no pattern")
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern
