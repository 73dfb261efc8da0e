"""The open databases of this process: each is opened once and shared by all its threads."""

import atexit
import os
import threading
from collections.abc import Callable
from pathlib import Path

from openmanus_graph.backends.persistence.backend import Database, Versions
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase
from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.runtime.process import register_closer
from openmanus_graph.state.addresses import NO_DATABASE, DatabaseUrl

_open: dict[DatabaseUrl, Database] = {}
_opening = threading.Lock()


def open_database(url: DatabaseUrl) -> Database:
    """Return this process's connections to a database with up-to-date tables. Blocks.

    ConfigError: as for `backend_of`. StorageError: the database cannot be reached, is damaged, or
    is of another version.
    """
    return _opened(url, lambda: backend_of(url)(url))


def open_file(path: Path, versions: Versions) -> Database:
    """Return this process's connection to a file of this machine with other tables. Blocks.

    StorageError: it cannot be read, is damaged, or is of another version.
    """
    url = DatabaseUrl.of_file(path)
    return _opened(url, lambda: SqliteDatabase(path, versions))


def _opened(url: DatabaseUrl, connect: Callable[[], Database]) -> Database:
    with _opening:
        if url not in _open:
            _open[url] = connect()
        return _open[url]


def backend_of(url: DatabaseUrl) -> Callable[[DatabaseUrl], Database]:
    """Return what opens a database at an address, which also brings its tables up to date.

    Raises:
        ConfigError: There is none, its package is broken, or the extra `postgres` is missing.
    """
    if url.is_local:
        return lambda url: SqliteDatabase(url.file)
    if url.kind != "postgresql":
        added = installed("databases")
        if url.kind not in added.names:
            raise ConfigError(NO_DATABASE)
        return load(added[url.kind], "storage backend")  # type: ignore[no-any-return]  # a package's
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
    """Close this process's connections, which also merges SQLite's logs into the files."""
    with _opening:
        for database in _open.values():
            database.close()
        _open.clear()


register_closer(close_databases, last=True)
# No database is opened while the process forks. The hook runs before those of SQLite's files,
# because that module was imported earlier.
os.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release
)
