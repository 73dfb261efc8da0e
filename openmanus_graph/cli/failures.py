"""What ends a command with one line on stderr instead of a traceback."""

import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from openmanus_graph.errors import ConfigError


class RunError(Exception):
    """The run cannot be done now; exit code 1."""


def prepare_home(home: Path) -> None:
    """Create the home folder. ConfigError when it cannot be written."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise ConfigError(
            f"{home} cannot be written ({error.strerror}). Set OPENMANUS_HOME to another folder."
        ) from error


def database_complaint(error: sqlite3.Error, home: Path) -> str:
    """Say what is wrong with the databases of a home folder, and what to do."""
    if isinstance(error, sqlite3.OperationalError):
        return (
            f"The database in {home} cannot be used: {error}. Check that the disk is not full and "
            "that no other program holds it."
        )
    return (
        f"The database in {home} is damaged: {error}. Move {home} away to start afresh; "
        "`sqlite3 FILE .recover` may save its threads."
    )


def silence(stream: TextIO) -> None:
    """Let go of a pipe whose reader went away, so that nothing fails when it is flushed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_out(text: str) -> None:
    """Write to stdout at once; a reader that went away does not end the run."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
