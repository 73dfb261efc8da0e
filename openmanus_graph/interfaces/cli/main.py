"""The command `openmanus`: from what was typed to an exit code."""

import sys
import warnings
from pathlib import Path

from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.cli.commands import app
from openmanus_graph.interfaces.cli.process import (
    quick_exit,
    secure_standard_streams,
    stdout_failure,
)
from openmanus_graph.interfaces.service import own_process


def main() -> None:
    """Run the command line, then end the process.

    Wrong usage and configuration exit with 2, other failures with 1.
    """
    with quick_exit():
        secure_standard_streams()
        own_process.relax_garbage_collection()
        # langchain-core calls `json()` of whatever answered a request that failed; Google's client
        # answers with aiohttp's, where it is a coroutine.
        warnings.filterwarnings(
            "ignore", r"coroutine 'ClientResponse\.json' was never", RuntimeWarning
        )
        own_process.export_traces()
        try:
            _run()
        except SystemExit as ended:
            failure = stdout_failure()
            if failure and not ended.code:
                _end(f"stdout cannot be written: {failure}. Send the output somewhere else.", 1)
            raise


def _run() -> None:
    try:
        app()
    except ConfigError as error:
        _end(str(error), 2)
    except (RuntimeError, StorageError, OSError) as error:
        from openmanus_graph.config.homes import home_place

        if isinstance(error, own_process.ReportedError):
            sys.exit(1)
        if isinstance(error, own_process.RunError):
            _end(str(error), 1)
        if isinstance(error, RuntimeError):
            raise
        try:
            Path.cwd()
        except OSError:
            _end("The working folder is gone. Change to one that exists: cd FOLDER.", 2)
        if not own_process.is_storage_fault(error):
            raise
        _end(own_process.describe_failure(error, home_place()), 1)


def _end(complaint: str, code: int) -> None:
    if sys.stderr.isatty():
        from openmanus_graph.interfaces.cli.console import say  # wraps it at words

        say(f"openmanus: {complaint}")
    else:
        sys.stderr.write(f"openmanus: {complaint}\n")
    sys.exit(code)
