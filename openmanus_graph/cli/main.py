"""The command `openmanus`: from what was typed to an exit code."""

import gc
import io
import sqlite3
import sys

from openmanus_graph.cli.commands import app
from openmanus_graph.cli.failures import (
    RunError,
    ToldError,
    is_storage_fault,
    storage_complaint,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.imports import calm


def main() -> None:
    """Run the command line; wrong usage and configuration exit with 2, other failures with 1."""
    _write_any_text()
    # httpx would load a command of its own, which costs 3 MB and a twentieth of a second.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # makes importing it fail
    calm(gc.get_threshold())
    try:
        app()
    except ConfigError as error:
        _end(str(error), 2)
    except ToldError:
        sys.exit(1)
    except RunError as error:
        _end(str(error), 1)
    except (sqlite3.Error, OSError) as error:
        from openmanus_graph.config.resolve import openmanus_home

        if not is_storage_fault(error):
            raise
        _end(storage_complaint(error, openmanus_home()), 1)


def _end(complaint: str, code: int) -> None:
    sys.stderr.write(f"openmanus: {complaint}\n")
    sys.exit(code)


def _write_any_text() -> None:
    """Write UTF-8 to pipes and files whatever the locale; a terminal gets what it can show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")
