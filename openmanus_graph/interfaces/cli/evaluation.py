"""`openmanus eval`: does a suite, shows how it went, and writes the report."""

import asyncio
import contextlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.batch import BatchProgress
from openmanus_graph.interfaces.cli.quick_exit import is_own_process
from openmanus_graph.interfaces.cli.run import log_file, require_stdout
from openmanus_graph.interfaces.cli.safe_console import say
from openmanus_graph.interfaces.cli.trust import ask_for_trust
from openmanus_graph.interfaces.service.options import OutputOptions, RunOptions

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.batch_files import BatchResult
    from openmanus_graph.interfaces.service.evals.evaluation import About, Evaluation
    from openmanus_graph.interfaces.service.evals.suite import Suite

NOT_PASSED_EXIT, LEFT_EXIT = 1, 3
SUFFIX = ".eval"


@dataclass(frozen=True)
class EvalOptions:
    """What `openmanus eval` is to do."""

    suite: str | None
    shipped: bool
    out: str | None
    against: str | None
    repeat: int
    agent: str | None
    jobs: int
    budget_usd: float | None


def evaluate_suite(wanted: EvalOptions, options: RunOptions, output: OutputOptions) -> int:
    """Do what of an evaluation is not done yet, show and write its report; return the exit code."""
    require_stdout()
    ask_for_trust(options.config)
    from openmanus_graph.graphs.catalog import check_agent
    from openmanus_graph.interfaces.service.evals.evaluation import load_evaluation

    check_agent(wanted.agent)
    before = load_evaluation(Path(wanted.against)) if wanted.against is not None else None
    with log_file(output.log), _opened_suite(wanted) as (suite, out):
        if wanted.against is not None and out.exists() and out.samefile(wanted.against):
            raise ConfigError("--against is the folder of this evaluation. Give another one.")
        if wanted.shipped and options.model is None:
            options = _recorded(options, quiet=output.quiet)
        code = _do(suite, wanted, options, out, quiet=output.quiet)
    return _report(load_evaluation(out), before, out, code, quiet=output.quiet)


@contextlib.contextmanager
def _opened_suite(wanted: EvalOptions) -> "Generator[tuple[Suite, Path]]":
    """Read the suite that was named; also return the folder of the evaluation."""
    from openmanus_graph.demo.recorded import SUITE, demo_folder
    from openmanus_graph.graphs.catalog import agent_names
    from openmanus_graph.interfaces.service.evals.suite import read_suite

    if (wanted.suite is None) != wanted.shipped:
        raise ConfigError("Name a suite, or give --shipped for the ten tasks that come with it.")
    if wanted.suite is not None:
        path = Path(wanted.suite)
        yield read_suite(path, agent_names()), Path(wanted.out or path.with_suffix(SUFFIX))
        return
    with demo_folder() as folder:
        suite = read_suite(folder / SUITE, agent_names(), "shipped")
        yield suite, Path(wanted.out or f"shipped{SUFFIX}")


def _recorded(options: RunOptions, *, quiet: bool) -> RunOptions:
    from openmanus_graph.demo.recorded import EVALS_MODEL

    if not quiet:
        say(
            "The model's replies come from a recording; graph, tools, sandbox, files and checks "
            "are real. --model PROVIDER:NAME has yours do the tasks."
        )
    return replace(options, model=f"demo:{EVALS_MODEL}")


def _do(suite: "Suite", wanted: EvalOptions, options: RunOptions, out: Path, *, quiet: bool) -> int:
    """Make the attempts that are left, and judge them; return the batch's exit code."""
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.interfaces.service.batch import Batch, Budget, LocalTaskRunner
    from openmanus_graph.interfaces.service.batch_files import open_results
    from openmanus_graph.interfaces.service.evals.evaluation import prepare_folder, store_about
    from openmanus_graph.interfaces.service.evals.suite import RESULTS, Grader

    about = _about(suite, wanted, options)
    prepare_folder(out, about)
    attempts = suite.attempts(wanted.repeat)
    with open_results(out / RESULTS, attempts, str(database_url())) as results:
        store_about(out, about)  # now that the results are known to be of this suite
        budget = Budget(wanted.budget_usd, results.cost_usd)
        grader = Grader(suite, options, out)

        def word(result: "BatchResult") -> str:
            return grader.verdicts[result.id].where or "passed"

        with BatchProgress(len(attempts), results, budget, quiet=quiet, word=word) as sink:
            runner = LocalTaskRunner(options, wanted.agent, budget, sink.notice)
            batch = Batch(attempts, results, runner, budget, sink, wanted.jobs, judge=grader)
            return asyncio.run(batch.run(ends_process=is_own_process()))


def _about(suite: "Suite", wanted: EvalOptions, options: RunOptions) -> "About":
    from openmanus_graph.config import resolve_settings
    from openmanus_graph.graphs.catalog import DEFAULT_AGENT
    from openmanus_graph.interfaces.service.evals.evaluation import About
    from openmanus_graph.interfaces.service.final_event import model_label
    from openmanus_graph.interfaces.service.run_setup import to_context
    from openmanus_graph.interfaces.service.runner import options_to_keep

    settings = resolve_settings(to_context(options), "eval")
    kept = options_to_keep(options.stored(), settings)
    return About(
        suite=suite.name,
        tasks=[one.task.id for one in suite.tasks],
        repeat=wanted.repeat,
        model=model_label(settings),
        agent=wanted.agent or DEFAULT_AGENT,
        options={name: kept[name] for name in kept if name not in ("model", "workspace")},
    )


def _report(
    now: "Evaluation",
    before: "Evaluation | None",
    out: Path,
    code: int,
    *,
    quiet: bool,
) -> int:
    """Show an evaluation, write its page, and return the exit code.

    Args:
        now: The evaluation.
        before: The one to compare with, if any.
        out: Its folder.
        code: What its batch ended with.
        quiet: Whether only the figures of the whole are shown.
    """
    from openmanus_graph.interfaces.cli.evaluation_tables import show_evaluation
    from openmanus_graph.interfaces.service.evals.evaluation import REGRESSIONS, REPORT, compare
    from openmanus_graph.interfaces.service.evals.page import report_page
    from openmanus_graph.interfaces.service.signals import SIGNAL_EXIT
    from openmanus_graph.runtime.atomic_files import write_own_file

    changes = compare(before, now) if before is not None else None
    page = out / REPORT
    write_own_file(page, report_page(now, changes))
    is_interrupted = code > SIGNAL_EXIT
    show_evaluation(now, changes, page, quiet=quiet, needs_money=not is_interrupted)
    if is_interrupted:
        return code
    if now.left:
        return LEFT_EXIT
    if changes is not None:
        return NOT_PASSED_EXIT if any(one.kind in REGRESSIONS for one in changes) else 0
    return 0 if now.has_passed else NOT_PASSED_EXIT
