"""One file with all threads of a home folder: written while runs go on, restored elsewhere.

A zip of SQLite's files, all as they were at one moment, and of the threads' private folders.
"""

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from openmanus_graph.backends.persistence.backend import VERSIONS, check_version
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase, copy_databases
from openmanus_graph.backends.persistence.sqlite_checkpointer import CHECKPOINTS, checkpoints_file
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots import objects
from openmanus_graph.config import homes
from openmanus_graph.config.resolve import database_url, private_places
from openmanus_graph.config.secret_values import SERVER_TOKEN_FILE, key_file
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath
from openmanus_graph.state.addresses import DATABASE

FORMAT = 1
_TABLES = {CHECKPOINTS: (), DATABASE: VERSIONS, objects.SNAPSHOTS: objects.VERSIONS}
"""SQLite's files, and their versions. A checkpoint refers to the rows of the others."""
_MANIFEST, _PRIVATE, _KEYS = "openmanus-backup.json", "private", "keys"
_MADE_AGAIN, _LOGINS = ("python", "python.lock", "incoming"), "browser"
"""Parts of private folders that are not copied, and those that hold cookies."""


def write_backup(file: Path, *, with_keys: bool) -> int:
    """Write a backup of the home's threads and return its bytes. Blocks.

    ConfigError: the file exists, or the threads are in PostgreSQL. StorageError, OSError: something
    cannot be read or written.
    """
    home, url = homes.openmanus_home(), database_url()
    if not url.is_local:
        raise ConfigError(
            f"The threads are in {url}: back them up with pg_dump, and restore them with "
            "pg_restore (docs/storage.md)."
        )
    if file.exists() or not url.file.exists():
        why = f"{file} exists: choose another name" if file.exists() else f"{url.file} is missing"
        raise ConfigError(f"Nothing was written. {why}.")
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as scratch:
        folder, places = Path(scratch), private_places(home)
        files = (checkpoints_file(url), url.file, home / objects.SNAPSHOTS)
        pairs = zip(_TABLES.items(), files, strict=True)
        copies = {name: (path, tables) for (name, tables), path in pairs if path.exists()}
        copy_databases(copies, folder)
        with zipfile.ZipFile(folder / "zip", "w", zipfile.ZIP_DEFLATED) as archive:
            manifest = {"format": FORMAT, "places": list(map(str, places))}
            archive.writestr(_MANIFEST, json.dumps(manifest))
            for name in copies:
                archive.write(folder / name, name)
            for number, place in enumerate(places):
                for path in _private_files(place, with_keys=with_keys):
                    _add(archive, place, path, f"{_PRIVATE}/{number}/{path}")
            for key in (home / SERVER_TOKEN_FILE, key_file()) if with_keys else ():
                _add(archive, key.parent, key.name, f"{_KEYS}/{key.name}")
        (folder / "zip").chmod(0o600)
        os.link(folder / "zip", file)  # unlike a rename, it replaces nothing
    return file.stat().st_size


def _private_files(place: Path, *, with_keys: bool) -> Iterator[str]:
    left_out = {*_MADE_AGAIN, *(() if with_keys else (_LOGINS,))}
    for top in (*place.glob("threads/*"), *place.glob("runs/*")):
        for folder, below, names in os.walk(top):
            if folder == str(top):
                below[:], names[:] = ({*each} - left_out for each in (below, names))
            yield from (os.path.relpath(Path(folder, name), place) for name in names)


def _add(archive: zipfile.ZipFile, place: Path, path: str, name: str) -> None:
    """Add a file, if it is still there and no link, which a program may have made."""
    with (
        contextlib.suppress(FileNotFoundError, UnsafeFileError),
        open_beneath(place, path, follow=False) as file,
        archive.open(name, "w") as target,
    ):
        shutil.copyfileobj(file, target)


def restore_backup(file: Path, home: Path) -> None:
    """Restore a backup into a new or empty home folder, all or nothing. Blocks.

    ConfigError: the folder is not empty, or the file is no backup, or of a later version.
    StorageError: the tables in it are of a later version, or damaged.
    """
    if not homes.is_new(home):
        raise ConfigError(
            f"{home} is not empty: {homes.describe_home(home)}. Choose another folder with --to, "
            "or move it away."
        )
    part = home.with_name(f".{home.name}.restoring")
    remove_folder(part)
    part.mkdir(mode=0o700, parents=True)
    places = [part, *private_places(home)[1:]]
    try:
        with zipfile.ZipFile(file) as archive:
            manifest: Any = json.loads(archive.read(_MANIFEST))
            check_version(str(file), manifest["format"], FORMAT, has_tables=True)
            for name in archive.namelist():
                _extract(archive, name, places)
        for path in filter(Path.exists, (part / name for name in _TABLES)):
            SqliteDatabase(path, _TABLES[path.name]).close()
        for place, old in zip(places, manifest["places"], strict=True):
            for folder in (*place.glob("threads/*"), *place.glob("runs/*")):
                outputs = Path(old, *folder.parts[-2:], "outputs")
                Workspace(folder, folder).add_former_outputs(outputs)
        part.replace(home)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"{file} is no backup of openmanus, or damaged: {error}.") from error
    finally:
        remove_folder(part)
    if home.name == homes.HOME:
        homes.trust_home(home)


def _extract(archive: zipfile.ZipFile, name: str, places: list[Path]) -> None:
    """Write a file to its place. ValueError: it would be outside of our folders."""
    top, *parts = PurePosixPath(name).parts
    target = places[0] / name
    if top == _PRIVATE and ".." not in parts:
        target = places[int(parts[0])].joinpath(*parts[1:])
    elif top == _KEYS:
        target = key_file() if parts[-1] == key_file().name else places[0] / SERVER_TOKEN_FILE
    elif name not in (_MANIFEST, *_TABLES):
        raise ValueError(f"it holds {name!r}")
    if name == _MANIFEST or target.exists():  # this machine's own key
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as data, target.open("xb") as copy:
        os.fchmod(copy.fileno(), 0o600)
        shutil.copyfileobj(data, copy)
