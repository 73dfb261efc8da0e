"""`openmanus run`, `plan`, `resume` and `demo`, and how each command executes its run."""

import contextlib
import logging
import shlex
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli import process
from openmanus_graph.interfaces.cli.threads import LatestThread
from openmanus_graph.interfaces.service.options import (
    InputOptions,
    OutputOptions,
    PlanName,
    RunOptions,
    StorageOptions,
    takes,
)

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.runner import EventSink, Run

TaskArgument = Annotated[str, typer.Argument(help="What to do; - reads it from stdin.")]


@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def run(
    given: InputOptions,
    options: RunOptions,
    output: OutputOptions,
    task: TaskArgument,
    plan: Annotated[
        PlanName,
        typer.Option(help="auto: with a plan, if the task has independent parts. Default never."),
    ] = "never",
) -> int:
    """Do one task."""
    return run_task(task, _planned(given) if plan == "auto" else given, options, output)


@takes(InputOptions, RunOptions, OutputOptions, StorageOptions, without=("agent",))
def plan(
    given: InputOptions, options: RunOptions, output: OutputOptions, task: TaskArgument
) -> int:
    """Do one task with a plan, whose steps run in parallel."""
    return run_task(task, _planned(given), options, output)


def _planned(given: InputOptions) -> InputOptions:
    from openmanus_graph.graphs.catalog import FLOW

    if given.agent is not None:
        raise ConfigError(
            f"--plan auto and --agent {given.agent} cannot be used together: the plan names the "
            "agent of each step. Remove one of them."
        )
    return replace(given, agent=FLOW)


def run_task(task: str, given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    from openmanus_graph.backends.models.spec import parse_spec
    from openmanus_graph.config.claude_files import with_command
    from openmanus_graph.graphs.catalog import check_agent
    from openmanus_graph.interfaces.cli.skills import ask_before_run
    from openmanus_graph.interfaces.service.run_setup import new_run, take_thread

    # UTF-8 whatever the locale: bytes of an argument that it could not decode are lone surrogates.
    data = task.encode("utf-8", "surrogateescape")
    text = process.read_stdin() if task == "-" else data.decode("utf-8", "replace")
    if not text.strip():
        raise ConfigError(
            "The task is empty. Say what to do, or pipe it in: openmanus run - < FILE."
        )
    if options.model is not None:
        parse_spec(options.model)  # here, before a second of imports
    ask_before_run(options.config)
    check_agent(given.agent)
    text, model = with_command(text)
    options = replace(options, model=options.model or model or None)
    return execute_run(lambda: new_run(text, given, take_thread(given, options)), output)


@takes(RunOptions, OutputOptions, StorageOptions, without=("policy",))
def resume(
    options: RunOptions,
    output: OutputOptions,
    thread: LatestThread = None,
    answer: Annotated[
        str | None, typer.Option(help="The answer to its question, or `= RESULT` of a call.")
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Allow the call.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Do not allow the call.")] = False,
    reason: Annotated[str, typer.Option(help="Why not, for the model.")] = "",
    interrupt: Annotated[
        str | None, typer.Option("--id", help="Which question, if several.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All open questions.")] = False,
) -> int:
    """Continue a thread that stopped, waits for an answer, or crashed."""
    from openmanus_graph.interfaces.cli.skills import ask_before_run
    from openmanus_graph.interfaces.service.run_setup import ResumeAnswer, resuming_run
    from openmanus_graph.interfaces.service.threads import thread_id

    known = thread_id(thread)
    reply = ResumeAnswer(answer, approve, reject, reason, interrupt, every)
    reply.value()  # wrong usage is reported before anything is opened
    ask_before_run(options.config)
    return execute_run(lambda: resuming_run(known, reply, options), output)


@takes(OutputOptions)
def demo(
    output: OutputOptions,
    plan: Annotated[
        bool, typer.Option("--plan", help="With a plan, whose steps run in parallel.")
    ] = False,
    workspace: Annotated[str | None, typer.Option(help="Folder of the demo's files.")] = None,
) -> int:
    """Do a task with real tools and a recorded model: no key, no network."""
    from openmanus_graph import demo as recorded
    from openmanus_graph.interfaces.cli.console import say

    name, agent, task = recorded.MODEL, "manus", recorded.TASK
    if plan:
        name, agent, task = recorded.PLAN_MODEL, "planning", recorded.PLAN_TASK
    recorded.require_packages(name)
    if not output.json and not output.quiet:
        say(
            "DEMO: the model's replies come from a recording. Graph, tools, sandbox, limits and "
            "files are real."
        )

    def make_run() -> "Run":
        from openmanus_graph.interfaces.service.run_setup import new_thread, prepare_input
        from openmanus_graph.interfaces.service.runner import Run
        from openmanus_graph.interfaces.service.threads import SHORT_ID_CHARS
        from openmanus_graph.state.context import Context

        thread = f"demo-{new_thread()[:SHORT_ID_CHARS]}"
        context = Context(model=recorded.recorded_model(name), workspace=workspace)

        def make_input() -> dict[str, object]:
            with recorded.demo_folder() as folder:
                given = InputOptions(file=[str(folder / recorded.DATA)])
                return prepare_input(task, given, context, thread)

        return Run(thread, agent, task, context, {}, make_input, trigger="demo")

    code = execute_run(make_run, output)
    if code == 0 and not output.json and not output.quiet:
        say("Next, with a model of yours: openmanus init, then openmanus run TASK")
    return code


def execute_run(make_run: "Callable[[], Run]", output: OutputOptions) -> int:
    """Make a run and execute it; return the exit code.

    Raises:
        ConfigError: There is no stdout, or the run is wrong.
        RunError: The answer could not be written.
    """
    require_stdout()
    with log_file(output.log):
        from openmanus_graph.backends.models.build import run_and_close_models
        from openmanus_graph.interfaces.cli.terminal import TerminalInput
        from openmanus_graph.interfaces.service.own_process import RunError
        from openmanus_graph.interfaces.service.runner import run_graph

        run = make_run()
        with make_sink(output) as sink:
            running = run_graph(
                run, sink, TerminalInput(sink), ends_process=process.is_own_process()
            )
            code = run_and_close_models(running)
    show_worktree(run.context.workspace, code, output)
    if failure := process.stdout_failure():
        raise RunError(
            f"stdout cannot be written: {failure}. Nothing is lost: the thread keeps the answer "
            f"(openmanus show {shlex.quote(run.thread)})."
        )
    return code


def show_worktree(workspace: str | None, code: int, output: OutputOptions) -> None:
    """Finish the worktree that a run worked in, if any, and show its diff."""
    from openmanus_graph.backends.sandbox.worktree import finish, worktree_at
    from openmanus_graph.interfaces.cli.console import say

    tree = worktree_at(Path(workspace or "."))
    if tree is not None:
        shown = finish(tree, finished=code == 0)
        if not output.quiet:
            say(shown)


@contextlib.contextmanager
def make_sink(output: OutputOptions) -> "Generator[EventSink]":
    """Open the sink that the options ask for: for a program, for a terminal, or lines of text."""
    from openmanus_graph.interfaces.cli.terminal import JsonSink, TerminalSink

    if output.json:
        yield JsonSink(sources=output.sources)
        return
    sink = TerminalSink(quiet=output.quiet, sources=output.sources)
    if output.quiet or not sink.console.is_terminal or sink.console.is_dumb_terminal:
        yield sink
        return
    from openmanus_graph.interfaces.cli.screen import ScreenSink  # loads what renders Markdown

    screen = ScreenSink(sources=output.sources)
    with process.silent_keys(), contextlib.closing(screen):
        yield screen


def require_stdout() -> None:
    if process.is_stdout_closed():
        raise ConfigError(
            "stdout is closed, and the answer goes there. Send it to a file (> answer.md), or to "
            "/dev/null if you do not need it."
        )


class _RedactingFormatter(logging.Formatter):
    """Redacts log records: libraries log addresses with passwords, and servers' error texts."""

    def format(self, record: logging.LogRecord) -> str:
        from openmanus_graph.backends.models.failures import redact_secrets

        return redact_secrets(super().format(record))


@contextlib.contextmanager
def log_file(path: str | None) -> Generator[None]:
    """Write the log to a file during a block. ConfigError if it cannot be written."""
    if path is None:
        yield
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The log file {path} cannot be written: {error.strerror}.") from error
    handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
