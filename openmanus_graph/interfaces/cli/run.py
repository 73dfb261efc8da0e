"""`openmanus run` and `resume`, and how each command executes its run."""

import contextlib
import logging
import shlex
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import FLOW, check_agent
from openmanus_graph.interfaces.cli.quick_exit import is_own_process
from openmanus_graph.interfaces.cli.streams import is_stdout_closed, stdout_failure
from openmanus_graph.interfaces.service.failures import RunError
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.interfaces.service.run_setup import (
    ResumeAnswer,
    new_run,
    resuming_run,
    take_thread,
)

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.runner import Run


def run_task(task: str, given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Do one task and return the exit code."""
    # UTF-8 whatever the locale: what that could not decode of an argument are lone surrogates.
    data = sys.stdin.buffer.read() if task == "-" else task.encode("utf-8", "surrogateescape")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise ConfigError(
            "The task is empty. Say what to do, or pipe it in: openmanus run - < FILE."
        )

    check_agent(given.agent)
    if options.model is not None:
        parse_spec(options.model)  # here, before a second of imports
    from openmanus_graph.interfaces.cli.trust import ask_for_trust

    ask_for_trust(options.config)

    return execute_run(lambda: new_run(text, given, take_thread(given, options)), output)


def planned(given: InputOptions) -> InputOptions:
    """Return the options of a run by a plan. ConfigError when they name an agent."""
    if given.agent is not None:
        raise ConfigError(
            f"--plan auto and --agent {given.agent} do not go together: the plan says who does "
            "each step. Leave one of them away."
        )
    return replace(given, agent=FLOW)


def resume_thread(
    thread: str, reply: ResumeAnswer, options: RunOptions, output: OutputOptions
) -> int:
    """Go on with a thread and return the exit code."""
    reply.value()  # wrong usage is reported before anything is opened
    from openmanus_graph.interfaces.cli.trust import ask_for_trust

    ask_for_trust(options.config)
    return execute_run(lambda: resuming_run(thread, reply, options), output)


def execute_run(make_run: "Callable[[], Run]", output: OutputOptions) -> int:
    """Make a run and execute it.

    Returns:
        The exit code.

    Raises:
        ConfigError: There is no stdout, or the run is wrong.
        RunError: The answer could not be written.
    """
    require_stdout()
    with log_file(output.log):
        from openmanus_graph.backends.models.build import run_and_close_models
        from openmanus_graph.interfaces.cli.choose_sink import make_sink
        from openmanus_graph.interfaces.cli.user_input import TerminalInput
        from openmanus_graph.interfaces.service.runner import run_graph

        run = make_run()

        with make_sink(output) as sink:
            running = run_graph(run, sink, TerminalInput(sink), ends_process=is_own_process())
            code = run_and_close_models(running)
    if failure := stdout_failure():
        raise RunError(
            f"stdout cannot be written: {failure}. Nothing is lost: the thread keeps the answer "
            f"(openmanus show {shlex.quote(run.thread)})."
        )
    return code


def require_stdout() -> None:
    """Raise ConfigError if stdout is closed: the answer could not be written."""
    if is_stdout_closed():
        raise ConfigError(
            "stdout is closed, and the answer goes there. Send it to a file (> answer.md), or to "
            "/dev/null if nobody reads it."
        )


class _RedactingFormatter(logging.Formatter):
    """Redacts log records: libraries log addresses with passwords, and servers' error texts."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record without anything that looks like a secret."""
        return redact_secrets(super().format(record))


@contextlib.contextmanager
def log_file(path: str | None) -> Generator[None]:
    """Write the log to a file meanwhile. ConfigError when it cannot be written."""
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
