"""The folder of an evaluation: what it does, its figures, and how two evaluations differ."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.batch import BatchResult, read_records
from openmanus_graph.interfaces.service.evals.suite import RESULTS, VERDICTS, Verdict, attempt_id
from openmanus_graph.interfaces.service.run_setup import MAX_TEXT_BYTES, read_input
from openmanus_graph.runtime.atomic_files import write_own_file

ABOUT, REPORT = "eval.json", "report.html"


class About(BaseModel):
    """What an evaluation does; the same for all its attempts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    suite: str
    tasks: list[str]
    repeat: int
    """Attempts of each task."""
    model: str
    agent: str
    options: dict[str, Any]
    """As they are stored with threads."""


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task. Costs, steps and times are means; None if there are no attempts."""

    id: str
    attempts: Sequence[tuple[BatchResult, Verdict]]
    """Those that are judged, the first attempt first."""
    left: int
    """Attempts without a verdict."""

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(verdict.outcome for _, verdict in self.attempts)

    @property
    def passed(self) -> int:
        return self.outcomes["passed"]

    @property
    def counted(self) -> int:
        """How many attempts are known to have passed or not: an error of a check says nothing."""
        return len(self.attempts) - self.outcomes["error"]

    @property
    def rate(self) -> float | None:
        """Share of the counted attempts that passed; None if there are none."""
        return self.passed / self.counted if self.counted else None

    @property
    def cost_usd(self) -> float | None:
        return _mean(result.cost_usd for result, _ in self.attempts)

    @property
    def steps(self) -> float | None:
        return _mean(verdict.steps for _, verdict in self.attempts)

    @property
    def elapsed_s(self) -> float | None:
        return _mean(verdict.elapsed_s for _, verdict in self.attempts)


@dataclass(frozen=True)
class Evaluation:
    about: About
    tasks: Sequence[TaskFigures]

    @property
    def left(self) -> int:
        return sum(task.left for task in self.tasks)

    @property
    def cost_usd(self) -> float:
        """Of all attempts together."""
        return sum(result.cost_usd for task in self.tasks for result, _ in task.attempts)

    @property
    def has_passed(self) -> bool:
        return all(task.passed == self.about.repeat for task in self.tasks)

    @property
    def where(self) -> Counter[str]:
        verdicts = (verdict for task in self.tasks for _, verdict in task.attempts)
        return Counter(verdict.where for verdict in verdicts if verdict.where)

    def outcomes(self) -> Counter[str]:
        return sum((task.outcomes for task in self.tasks), Counter[str]())

    def pass_at(self, k: int) -> float | None:
        """Return pass@k: how likely one of k attempts at a task passes; None if unknown."""
        tasks = (task for task in self.tasks if task.counted >= k)
        return _mean(pass_at_k(task.counted, task.passed, k) for task in tasks)

    def pass_all(self, k: int) -> float | None:
        """Return pass^k: how likely all of k attempts at a task pass; None if unknown."""
        tasks = (task for task in self.tasks if task.counted >= k)
        return _mean(pass_hat_k(task.counted, task.passed, k) for task in tasks)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate without bias that one of k attempts passes, from c of n that did; k <= n."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Estimate without bias that all of k attempts pass, from c of n that did; k <= n."""
    return math.comb(c, k) / math.comb(n, k)


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def load_evaluation(folder: Path) -> Evaluation:
    """Read an evaluation. Blocks. ConfigError if the folder has none."""
    about = load_about(folder)
    if about is None:
        raise ConfigError(f"{folder} holds no evaluation: there is no {ABOUT} in it.")
    results = {one.id: one for one in read_records(folder / RESULTS, BatchResult)}
    verdicts = {one.attempt: one for one in read_records(folder / VERDICTS, Verdict)}
    tasks: list[TaskFigures] = []
    for task in about.tasks:
        ids = [attempt_id(task, number) for number in range(1, about.repeat + 1)]
        judged = [one for one in ids if one in results and one in verdicts]
        pairs = [(results[one], verdicts[one]) for one in judged]
        tasks.append(TaskFigures(task, pairs, about.repeat - len(pairs)))
    return Evaluation(about, tasks)


def load_about(folder: Path) -> About | None:
    """Return what an evaluation does; None if there is none. ConfigError if it is damaged."""
    path = folder / ABOUT
    if not path.exists():
        return None
    try:
        return About.model_validate_json(read_input(path, MAX_TEXT_BYTES))
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


ChangeKind: TypeAlias = Literal[
    "now fails", "worse", "now passes", "better", "same", "unknown", "new", "gone"
]
REGRESSIONS = frozenset({"now fails", "worse", "unknown"})
"""The changes with which a comparison ends with exit code 1."""


@dataclass(frozen=True)
class Change:
    """How one task differs between two evaluations."""

    id: str
    kind: ChangeKind
    before: TaskFigures | None
    after: TaskFigures | None
    other_checks: bool
    """Whether the task or its checks have changed."""

    def difference(self, figure: Literal["cost_usd", "steps", "elapsed_s"]) -> float | None:
        """Return by how much a mean has grown; None if one of the two is unknown."""
        before = getattr(self.before, figure, None)
        after = getattr(self.after, figure, None)
        return None if before is None or after is None else after - before


def compare(before: Evaluation, after: Evaluation) -> Sequence[Change]:
    """Return the changes, regressions first, then in the order of the suite."""
    earlier = {task.id: task for task in before.tasks}
    later = {task.id: task for task in after.tasks}
    changes: list[Change] = []
    for name in later | earlier:
        figures = earlier.get(name), later.get(name)
        old, new = (
            {verdict.digest for _, verdict in one.attempts} if one else set[str]()
            for one in figures
        )
        changes.append(Change(name, _kind(*figures), *figures, bool(old and new) and old != new))
    return sorted(changes, key=lambda one: one.kind not in REGRESSIONS)


def _kind(before: TaskFigures | None, after: TaskFigures | None) -> ChangeKind:
    if after is None:
        return "gone"
    if before is None or before.rate is None:
        return "new"
    if after.rate is None:
        return "unknown"
    if after.rate == before.rate:
        return "same"
    if after.rate < before.rate:
        return "now fails" if after.rate == 0 else "worse"
    return "now passes" if before.rate == 0 else "better"
