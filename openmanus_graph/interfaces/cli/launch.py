"""Executes the run of a command, and returns its exit code."""

import asyncio
import contextlib
import logging
import shlex
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from openmanus_graph.backends.models.failures import redact
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.streams import is_stdout_closed, stdout_failure
from openmanus_graph.interfaces.service.failures import RunError
from openmanus_graph.interfaces.service.options import OutputOptions

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.runner import Run


def launch(plan: "Callable[[], Run]", output: OutputOptions) -> int:
    """Make a run and execute it.

    Returns:
        The exit code.

    Raises:
        ConfigError: There is no stdout, or the run is wrong.
        RunError: The answer could not be written.
    """
    require_stdout()
    with log_file(output.log):
        from openmanus_graph.backends.models.build import close_models
        from openmanus_graph.interfaces.cli.person import TerminalPerson
        from openmanus_graph.interfaces.cli.views import make_view
        from openmanus_graph.interfaces.service.runner import run_graph
        from openmanus_graph.interfaces.service.signals import exit_on_signal

        run = plan()

        async def once() -> int:
            try:
                code = await run_graph(run, view, TerminalPerson(view))
                exit_on_signal(code)
                return code
            finally:
                await close_models()

        with make_view(output) as view:
            code = asyncio.run(once())
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


class _WithoutSecrets(logging.Formatter):
    """Redacts log records: libraries log addresses with passwords, and servers' error texts."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record without anything that looks like a secret."""
        return redact(super().format(record))


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
    handler.setFormatter(_WithoutSecrets("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
