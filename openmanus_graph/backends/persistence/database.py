"""The database of threads, ledger, steering messages and events: a SQLite file, or PostgreSQL.

The tables' modules write statements that both understand, with `?` for each value.
"""

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from openmanus_graph.backends.persistence.database_thread import OnEnd
from openmanus_graph.backends.persistence.sqlite import Migration, SqliteDatabase
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.runtime.system_exit import register_closer
from openmanus_graph.state.addresses import DatabaseUrl


class Database(Protocol):
    """Statements from any thread of the process. All methods raise `sqlite3.Error`."""

    def run(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute one statement, which is one transaction, and return its rows. Blocks.

        Args:
            statement: With a `?` for each value.
            values: For those.
            worker_of: The thread whose worker writes. LeaseLostError if another process has
                become that.
        """
        ...

    def run_many(
        self, statement: str, rows: Iterable[Sequence[Any]], *, worker_of: str | None = None
    ) -> None:
        """Execute one statement with each row of values, all or none. Blocks."""
        ...

    async def arun(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Do as `run`, off the event loop. It is done even if the caller is cancelled."""
        ...

    def run_later(
        self,
        statement: str,
        values: Sequence[Any],
        on_end: OnEnd,
        *,
        worker_of: str | None = None,
    ) -> None:
        """Do as `arun` right before what is written next, or in a few milliseconds.

        What is written next may be a checkpoint: this is there before it.

        Args:
            statement: With a `?` for each value.
            values: For those.
            on_end: Is given the rows or the error, before the caller of what was written next goes
                on. It must not raise.
            worker_of: As of `run`.
        """
        ...

    def close(self) -> None:
        """Close its connections. Blocks."""
        ...


_open: dict[DatabaseUrl, Database] = {}
_opening = threading.Lock()


def open_database(url: DatabaseUrl) -> Database:
    """Return this process's connections to a database, whose tables are up to date. Blocks.

    Raises:
        ConfigError: The extra `postgres` is not installed.
        sqlite3.Error: It cannot be reached, is damaged, or is of a later version.
    """
    if url.is_local:
        return _opened(url, lambda: SqliteDatabase(url.file))
    return _opened(url, lambda: load_postgres()(url))


def open_file(path: Path, migrate: Migration) -> Database:
    """Return this process's connection to a SQLite file with tables of its own. Blocks.

    Args:
        path: The file.
        migrate: Brings its tables up to date.

    Raises:
        sqlite3.Error: It cannot be read, is damaged, or is of a later version.
    """
    return _opened(DatabaseUrl.of_file(path), lambda: SqliteDatabase(path, migrate))


def _opened(url: DatabaseUrl, connect: Callable[[], Database]) -> Database:
    with _opening:
        if url not in _open:
            _open[url] = connect()
        return _open[url]


def load_postgres() -> Callable[[DatabaseUrl], Database]:
    """Load and return what opens a database of PostgreSQL. ConfigError without its extra."""
    try:
        from openmanus_graph.backends.persistence.postgres import PostgresDatabase
    except ImportError as error:
        raise ConfigError(
            f"A postgresql:// database needs the extra `postgres` ({error.name} is missing). "
            f"{install_extra('postgres')}"
        ) from error
    return PostgresDatabase


@atexit.register
def close_databases() -> None:
    """Close this process's connections, which also folds SQLite's logs into the files."""
    with _opening:
        for database in _open.values():
            database.close()
        _open.clear()


register_closer(close_databases, last=True)
# Nobody opens a database while the process forks. Called before the hooks of SQLite's files.
os.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release
)
