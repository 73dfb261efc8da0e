"""The store of a thread's files that machines share: objects in a folder or in S3, by fsspec.

An object is never changed, so whoever has lost the thread can only add some that nobody names.
"""

import os
import secrets
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from openmanus_graph.backends.persistence.rows import StorageError, UnavailableError
from openmanus_graph.backends.snapshots.objects import (
    MissingObjectError,
    NewObjects,
    ObjectStore,
    digest_of,
)
from openmanus_graph.config.resolve import safe_name
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.workspace_url import WorkspaceUrl

CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 5, 20, 3
"""How long one request to S3 may take, and how often it is made."""
_ERROR_CHARS = 300


class FilesUnavailableError(UnavailableError):
    """The place of threads' files cannot be used: for now, it may be."""


class RemoteObjects(ObjectStore):
    """The objects of one thread. FilesUnavailableError where the place cannot be used."""

    def __init__(self, url: WorkspaceUrl, thread: str) -> None:
        self.url = url
        self._folder = f"{url.text.partition('://')[2]}/{safe_name(thread)}"
        self._known = set[str]()
        self._files: Any = None
        self._process = 0

    @override
    @contextmanager
    def adding(self) -> Generator[NewObjects]:
        new = NewObjects(self._write)
        yield new
        new.save()

    @override
    def read(self, digest: str) -> bytes:
        with self._errors_in_words("read"):
            try:
                data: bytes = self._file_system.cat_file(self._path(digest))
            except FileNotFoundError as error:
                raise MissingObjectError(digest) from error
        if digest_of(data) != digest:
            raise MissingObjectError(digest)
        self._known.add(digest)
        return data

    @override
    def require_room(self, sizes: Iterable[int]) -> None:
        """Do nothing: nobody knows a bucket's room before it refuses."""

    @override
    def name_snapshot(self, thread: str, snapshot: str, root: Path) -> None:
        """Do nothing: the database names what the thread has."""

    def forget(self) -> None:
        """Delete all objects of the thread."""
        with self._errors_in_words("deleted"):
            if self._file_system.exists(self._folder):
                self._file_system.rm(self._folder, recursive=True)

    def _write(self, objects: Mapping[str, bytes]) -> None:
        with self._errors_in_words("written"):
            for digest, data in objects.items():
                path = self._path(digest)
                if digest in self._known or self._file_system.exists(path):
                    self._known.add(digest)
                    continue
                if self.url.is_folder:  # a half-written object would count as there
                    part = f"{path}.{secrets.token_hex(8)}"
                    self._file_system.pipe_file(part, data)
                    self._file_system.mv(part, path)
                else:
                    self._file_system.pipe_file(path, data)
                self._known.add(digest)

    def _path(self, digest: str) -> str:
        return f"{self._folder}/{digest[:2]}/{digest}"

    @property
    def _file_system(self) -> Any:  # fsspec has no types
        if self._process != os.getpid():  # connections are not for a forked child
            self._files, self._process = _open(self.url), os.getpid()
        return self._files

    @contextmanager
    def _errors_in_words(self, doing: str) -> Generator[None]:
        try:
            yield
        except (ConfigError, StorageError, MissingObjectError):
            raise
        except Exception as error:  # each file system raises errors of its own
            said = " ".join(f"{type(error).__name__}: {error}".split())[:_ERROR_CHARS].rstrip(".")
            raise FilesUnavailableError(
                f"The thread's files in {self.url} cannot be {doing}: {printable(said)}. "
                "The thread goes on where it stopped once they can (openmanus resume)."
            ) from error


def _open(url: WorkspaceUrl) -> Any:
    """Open a file system. ConfigError: its extra is not installed."""
    # Not loaded where files stay on their machine.
    import fsspec

    if url.is_folder:
        return fsspec.filesystem("file", auto_mkdir=True, skip_instance_cache=True)
    limits = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retries": {"max_attempts": ATTEMPTS, "mode": "standard"},
    }
    try:
        files = fsspec.filesystem(
            "s3", config_kwargs=limits, use_listings_cache=False, skip_instance_cache=True
        )
    except ImportError as error:
        raise ConfigError(
            'Files in s3:// need the extra `s3`. Install it with: pip install "openmanus-graph[s3]"'
        ) from error
    files.retries = 1  # they are made below, with a time limit each
    return files
