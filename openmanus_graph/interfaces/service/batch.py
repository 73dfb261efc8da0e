"""A batch: its tasks, its results, which are written one by one, and its work in parallel.

A mark next to the results names the batch and the place of its threads. A task's thread is derived
from the batch's id, the task's id and its words, so that it is found again after a crash.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import own_process
from openmanus_graph.interfaces.service.run_setup import MAX_TEXT_BYTES, read_input
from openmanus_graph.runtime.atomic_files import open_own_file, write_own_file

MARK_SUFFIX = ".batch"
EXITS = (("failed", 1), ("waiting", 4), ("stopped", 3))
"""The exit codes of a batch whose tasks did not all finish, worst first; as for single runs."""
OUT_OF_BUDGET_EXIT = 3
_RECORD = ConfigDict(extra="forbid", strict=True, frozen=True)
_Positive = Field(gt=0)
_LIMITS = {"max_steps", "max_cost_usd", "max_tokens", "timeout"}


class TaskLine(BaseModel):
    """A line of the tasks' file, as the user writes it."""

    model_config = _RECORD

    id: str = ""
    task: str = Field(pattern=r"\S")
    files: tuple[str, ...] = ()
    agent: str | None = None
    max_steps: Annotated[int, _Positive] | None = None
    max_cost_usd: Annotated[float, _Positive] | None = None
    max_tokens: Annotated[int, _Positive] | None = None
    timeout: Annotated[float, _Positive] | None = None


LineT = TypeVar("LineT", bound=TaskLine)
RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True)
class BatchTask:
    id: str
    """Unique; the line's number if the line has no id."""
    text: str
    files: tuple[str, ...]
    """Absolute paths of files to copy into the task's workspace."""
    agent: str | None
    limits: Mapping[str, Any]
    """Those that the line sets, by the names of `RunOptions`."""
    digest: str
    """Distinguishes the task from another one of the same id."""


class BatchResult(BaseModel):
    model_config = _RECORD

    id: str
    status: str
    """`finished`, `failed`, `stopped` (by a limit) or `waiting` (for an answer)."""
    answer: str
    usage: dict[str, int | float]
    artifacts: list[dict[str, Any]]
    thread: str

    @property
    def cost_usd(self) -> float:
        return self.usage.get("cost_usd", 0.0)


class _Mark(BaseModel):
    model_config = _RECORD

    batch: str
    place: str
    """Where the threads are: a database, or a server's address."""


def read_tasks(path: Path, agents: Sequence[str] | None) -> list[BatchTask]:
    return [task for task, _ in read_lines(path, agents, TaskLine)]


def read_lines(
    path: Path, agents: Sequence[str] | None, line_type: type[LineT]
) -> list[tuple[BatchTask, LineT]]:
    """Read tasks, each with its line. Blocks. ConfigError names the line that is wrong.

    `agents` are the existing ones; None if a server checks the names.
    """
    lines = read_input(path, MAX_TEXT_BYTES).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    tasks: dict[str, tuple[BatchTask, LineT]] = {}
    line_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        task, as_written = _read_task(line, number, path, agents, line_type)
        if task.id in tasks:
            raise ConfigError(
                f"Lines {line_of[task.id]} and {number} of {path} have the same id {task.id!r}. "
                "Give each task its own id."
            )
        tasks[task.id], line_of[task.id] = (task, as_written), number
    if not tasks:
        raise ConfigError(
            f'There is no task in {path}. Write one per line: {{"task": "What to do."}}'
        )
    return list(tasks.values())


def _read_task(
    data: bytes, number: int, path: Path, agents: Sequence[str] | None, line_type: type[LineT]
) -> tuple[BatchTask, LineT]:
    place = f"Line {number} of {path}"
    try:
        line = line_type.model_validate_json(data)
    except ValidationError as error:
        raise ConfigError(f"{place} is not a task: {_complaint(error)}.") from error
    if line.agent is not None and agents is not None and line.agent not in agents:
        raise ConfigError(
            f"{place} names an agent that does not exist, {line.agent!r}. Available: "
            f"{', '.join(agents)}."
        )
    files = tuple(str(path.parent.absolute() / Path(name).expanduser()) for name in line.files)
    if missing := [name for name in files if not Path(name).is_file()]:
        raise ConfigError(f"{place} names a file that does not exist: {missing[0]}.")
    names = Counter(Path(name).name for name in files)
    if doubled := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"{place} names several files {doubled[0]}, which go into one folder.")
    # Not of absolute paths: the files may be moved together.
    words = json.dumps([line.task, line.files, line.agent])
    task = BatchTask(
        id=line.id or str(number),
        text=line.task,
        files=files,
        agent=line.agent,
        limits=line.model_dump(include=_LIMITS, exclude_none=True),
        digest=hashlib.sha256(words.encode()).hexdigest(),
    )
    return task, line


def _complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{field}: {said}" if field else said


class Results:
    """The results of a batch, for one process at a time. Blocks."""

    def __init__(self, path: Path, descriptor: int, batch: uuid.UUID) -> None:
        self._path, self._descriptor, self._batch = path, descriptor, batch
        self.statuses: dict[str, str] = {}
        """Of the tasks that have a result, by their ids."""
        self.cost_usd = 0.0
        """Of all results together."""

    def thread(self, task: BatchTask) -> str:
        return str(uuid.uuid5(self._batch, f"{task.id}\n{task.digest}"))

    def add(self, result: BatchResult) -> None:
        """Write a result. RunError if it cannot be written; its thread keeps it."""
        self._write(f"{result.model_dump_json()}\n".encode())
        self._count(result)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise own_process.RunError(
                f"{self._path} cannot be written: {error.strerror}. Nothing is lost: give the "
                "command again when it can."
            ) from error

    def read(self, tasks: Sequence[BatchTask], still_waits: Callable[[str], bool]) -> None:
        """Read what earlier processes wrote, and cut off a line that a crash left unfinished.

        A waiting task whose thread no longer waits has no result: its line is removed. ConfigError
        if the results are of other tasks, or a line is damaged.
        """
        threads = {task.id: self.thread(task) for task in tasks}
        whole, removed, moved = 0, False, list[bytes]()
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                result = self._read_result(line, number, threads)
                if result.status == "waiting" and not still_waits(result.thread):
                    removed = True
                    continue
                self._count(result)
                whole += 0 if removed else len(line)
                moved += [line] if removed else []
        os.ftruncate(self._descriptor, whole)
        self._write(b"".join(moved))

    def _read_result(self, line: bytes, number: int, threads: Mapping[str, str]) -> BatchResult:
        place = f"Line {number} of {self._path}"
        try:
            result = BatchResult.model_validate_json(line)
        except ValidationError as error:
            raise ConfigError(
                f"{place} is not a result: {_complaint(error)}. Delete the line: its task's thread "
                "still has the result."
            ) from error
        if threads.get(result.id) != result.thread:
            raise ConfigError(
                f"{place} is the result of a task {result.id!r} that is not in the tasks' file, or "
                "that has other words there. Give another --out, or delete the line."
            )
        if result.id in self.statuses:
            raise ConfigError(f"{place} is a second result of {result.id!r}. Delete one of them.")
        return result

    def _count(self, result: BatchResult) -> None:
        self.statuses[result.id] = result.status
        self.cost_usd += result.cost_usd


def read_records(path: Path, kind: type[RecordT]) -> list[RecordT]:
    """Return the records of a file of JSON lines, damaged lines left out. Blocks."""
    found: list[RecordT] = []
    for line in read_input(path, MAX_TEXT_BYTES).splitlines() if path.exists() else ():
        with contextlib.suppress(ValidationError):
            found.append(kind.model_validate_json(line))
    return found


@contextlib.contextmanager
def open_results(
    path: Path,
    tasks: Sequence[BatchTask],
    place: str,
    still_waits: Callable[[str], bool] = lambda thread: True,
) -> Generator[Results]:
    """Open the results of a batch, new ones or those of an earlier process.

    `place` is where its threads are, `still_waits` tells if one waits for a
    person. ConfigError if the file cannot be written, or is of another batch. RunError if another
    process works on the batch.
    """
    mark = path.with_name(path.name + MARK_SUFFIX)
    begins_again = not path.exists()
    descriptor = open_own_file(path, os.O_RDWR | os.O_APPEND)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise own_process.RunError(
                f"{path} is in use by another batch. Wait for it."
            ) from error
        if begins_again and not os.fstat(descriptor).st_size:
            mark.unlink(missing_ok=True)
        results = Results(path, descriptor, _identify(path, mark, descriptor, place))
        results.read(tasks, still_waits)
        yield results
    finally:
        os.close(descriptor)


def _identify(path: Path, mark: Path, descriptor: int, place: str) -> uuid.UUID:
    try:
        known = (
            _Mark.model_validate_json(read_input(mark, MAX_TEXT_BYTES)) if mark.exists() else None
        )
        if known is not None and known.place == place:
            return uuid.UUID(known.batch)
    except (OSError, ValueError, ConfigError) as error:
        raise ConfigError(
            f"{mark}, which says to which batch {path} belongs, cannot be read. Give another --out."
        ) from error
    if known is not None:
        raise ConfigError(
            f"{path} belongs to a batch whose threads are in {known.place}, not in {place}. Give "
            "the command as before, or another --out."
        )
    if os.fstat(descriptor).st_size:
        raise ConfigError(f"{path} already contains something else. Give another --out.")
    batch = uuid.uuid4()
    write_own_file(mark, _Mark(batch=str(batch), place=place).model_dump_json() + "\n")
    return batch


class Budget:
    """The dollars of a batch: what its tasks have cost, running ones included."""

    def __init__(self, most_usd: float | None, spent_usd: float) -> None:
        self.most_usd, self._ended = most_usd, spent_usd
        self.exhausted = False
        """What is left was too little for a task's next step."""
        self._running: dict[str, float] = {}
        """Dollars by thread."""

    @property
    def spent_usd(self) -> float:
        return self._ended + sum(self._running.values())

    @property
    def is_spent(self) -> bool:
        return self.exhausted or (self.most_usd is not None and self.spent_usd >= self.most_usd)

    def limit_usd(self, thread: str, own_usd: float) -> float:
        """Return what a task may cost: its own limit, or what it has cost and what is left."""
        if self.most_usd is None:
            return own_usd
        return min(own_usd, self._running.get(thread, 0.0) + self.most_usd - self.spent_usd)

    def record(self, thread: str, cost_usd: float) -> None:
        """Record what a running task has cost so far, in all its runs."""
        self._running[thread] = cost_usd

    def add(self, thread: str, cost_usd: float) -> None:
        """Record what a running task has cost since the last record."""
        self._running[thread] = self._running.get(thread, 0.0) + cost_usd

    def end(self, thread: str, cost_usd: float) -> None:
        """Record the whole cost of a task that has a result."""
        self._running.pop(thread, None)
        self._ended += cost_usd


class TaskRunner(Protocol):
    """Does single tasks: in this process, or on a server."""

    async def begun(self, threads: Sequence[str]) -> set[str]:
        """Return those of these threads that exist."""
        ...

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do a task, or continue it; None if it was cut off before its end.

        ConfigError or RunError if no task can be done, now or without a change.
        """
        ...

    def request_drain(self, reason: str) -> None:
        """Let the running steps finish, and start no others."""

    async def close(self) -> None: ...


class Judge(Protocol):
    def ungraded(self) -> Sequence[BatchResult]:
        """Return the results of earlier processes that are not judged."""
        ...

    async def grade(self, result: BatchResult) -> None:
        """Judge a result. RunError: no result can be judged."""


class BatchSink(Protocol):
    def ended(self, result: BatchResult) -> None: ...
    def notice(self, text: str) -> None: ...


@dataclass
class Batch:
    tasks: Sequence[BatchTask]
    results: Results
    runner: TaskRunner
    budget: Budget
    sink: BatchSink
    jobs: int
    """How many tasks run in parallel."""
    judge: Judge | None = None
    """Judges each result once it is written."""
    draining: bool = field(default=False, init=False)

    async def run(self, *, ends_process: bool = False) -> int:
        """Do all tasks that have no result yet, and return the exit code.

        Raises as `TaskRunner.do`; the running tasks can be resumed.
        """

        def show(**event: Any) -> None:
            self.sink.notice("Finishing the running steps; once more stops them at once.")

        signals = own_process.Signals(self, show, ends_process=ends_process)
        with signals.handled():
            try:
                async with contextlib.AsyncExitStack() as closing:
                    closing.push_async_callback(self.runner.close)
                    await self._work()
            except asyncio.CancelledError:
                if signals.first is None:
                    raise
                own_process.continue_after_cancellation()
            signals.over = True
            statuses = self.results.statuses
            if signals.first is not None:
                code = own_process.SIGNAL_EXIT + signals.first
            elif len(statuses) < len(self.tasks):
                code = OUT_OF_BUDGET_EXIT
            else:
                code = next((code for status, code in EXITS if status in statuses.values()), 0)
            signals.exit_code = code
        return code

    def request_drain(self, reason: str) -> None:
        """Start no further task, and let the running steps finish. `reason`: the signal's name."""
        self.draining = True
        self.runner.request_drain(reason)

    async def _work(self) -> None:
        left = [task for task in self.tasks if task.id not in self.results.statuses]
        begun = await self.runner.begun([self.results.thread(task) for task in left])
        # Those first that were started: then their costs are known.
        queue = iter(sorted(left, key=lambda task: self.results.thread(task) not in begun))
        ungraded = iter(self.judge.ungraded() if self.judge is not None else ())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.jobs):
                    group.create_task(self._take(ungraded, queue))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _take(self, ungraded: Iterator[BatchResult], queue: Iterator[BatchTask]) -> None:
        for known in ungraded:
            if self.draining or self.judge is None:
                return
            await self.judge.grade(known)
        for task in queue:
            if self.draining or self.budget.is_spent:
                return
            thread = self.results.thread(task)
            result = await self.runner.do(task, thread)
            if result is not None:
                self.results.add(result)
                self.budget.end(thread, result.cost_usd)
                if self.judge is not None:
                    await self.judge.grade(result)
                self.sink.ended(result)
