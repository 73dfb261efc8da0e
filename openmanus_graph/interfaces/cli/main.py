"""The command `openmanus`: from what was typed to an exit code."""

import sys
import warnings
from pathlib import Path

from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.cli.commands import app
from openmanus_graph.interfaces.cli.quick_exit import quick_exit
from openmanus_graph.interfaces.cli.streams import secure_standard_streams, stdout_failure
from openmanus_graph.interfaces.service.failures import (
    ReportedError,
    RunError,
    describe_storage_failure,
    is_storage_fault,
)
from openmanus_graph.interfaces.service.garbage_collection import relax_garbage_collection
from openmanus_graph.interfaces.service.trace_export import export_traces


def main() -> None:
    """Run the command line; wrong usage and configuration exit with 2, other failures with 1.

    The process ends with it: for its start alone.
    """
    with quick_exit():
        _main()


def _main() -> None:
    secure_standard_streams()
    relax_garbage_collection()
    # langchain-core calls `json()` of whatever answered a request that failed; Google's client
    # answers with aiohttp's, where it is a coroutine.
    warnings.filterwarnings("ignore", r"coroutine 'ClientResponse\.json' was never", RuntimeWarning)
    export_traces()
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
    except ReportedError:
        sys.exit(1)
    except RunError as error:
        _end(str(error), 1)
    except (StorageError, OSError) as error:
        from openmanus_graph.config.homes import home_place

        if _is_working_folder_gone():
            _end("The working folder is gone. Change to one that exists: cd FOLDER.", 2)
        if not is_storage_fault(error):
            raise
        _end(describe_storage_failure(error, home_place()), 1)


def _end(complaint: str, code: int) -> None:
    if sys.stderr.isatty():
        from openmanus_graph.interfaces.cli.safe_console import say  # wraps it at words

        say(f"openmanus: {complaint}")
    else:
        sys.stderr.write(f"openmanus: {complaint}\n")
    sys.exit(code)


def _is_working_folder_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False
