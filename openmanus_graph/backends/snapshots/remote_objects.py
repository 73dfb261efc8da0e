"""The store of a thread's files that machines share: objects in a folder or in S3, by fsspec.

The thread's lease is checked before each write: a worker that was paused, and has lost the thread,
adds and deletes nothing. An object is never changed.
"""

import itertools
import os
import secrets
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from typing_extensions import override

from openmanus_graph.backends.persistence.backend import LeaseLostError
from openmanus_graph.backends.persistence.leases import require_lease
from openmanus_graph.backends.snapshots.objects import MissingObjectError, ObjectStore, digest_of
from openmanus_graph.config.resolve import safe_name
from openmanus_graph.errors import ConfigError, StorageError, UnavailableError, install_extra
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.addresses import DatabaseUrl, WorkspaceUrl

CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 5, 20, 3
"""Time limits in seconds for one request to S3, and how often it is made."""
AT_ONCE = 16
"""Requests to S3 at a time: each takes long, however small its object is."""
ASKED_ONE_BY_ONE = 16
"""Objects whose presence in S3 is asked for one by one; after that all are listed once."""
DELETED_AT_ONCE = 500
_ERROR_CHARS = 300


class FilesUnavailableError(UnavailableError):
    """The store of threads' files cannot be used now. Later it may work."""


class RemoteObjects(ObjectStore):
    """The objects of one thread. Methods raise FilesUnavailableError if it cannot be used."""

    def __init__(self, url: WorkspaceUrl, thread: str, database: DatabaseUrl) -> None:
        self.url = url
        self._require_lease = partial(require_lease, database, thread)
        self._folder = f"{url.text.partition('://')[2]}/{safe_name(thread)}"
        self._known = set[str]()
        """Objects that are surely there."""
        self._asked = 0
        self._coming: dict[str, None] = {}
        """Digests that are read next, in this order."""
        self._fetched: dict[str, Any] = {}
        """The results of the newest requests: bytes, or the error."""
        self._files: Any = None
        self._process = 0

    @override
    def read(self, digest: str) -> bytes:
        with self._errors_in_words("read"):
            if digest not in self._fetched:
                self._fetch(digest)
            data = self._fetched.pop(digest)
            if isinstance(data, FileNotFoundError):
                raise MissingObjectError(digest) from data
            if isinstance(data, Exception):
                raise data
        if digest_of(data) != digest:
            raise MissingObjectError(digest)
        self._known.add(digest)
        return bytes(data)

    @override
    def read_ahead(self, digests: Iterable[str]) -> None:
        if not self.url.is_folder:
            new = (digest for digest in digests if digest not in self._fetched)
            self._coming = {**dict.fromkeys(new), **self._coming}

    def _fetch(self, digest: str) -> None:
        several = [digest]
        if digest in self._coming:
            others = (one for one in self._coming if one != digest)
            several += itertools.islice(others, AT_ONCE - 1)
        # `cat` would first ask S3 if there is such a file.
        read = self._file_system.cat_ranges(
            [self._path(one) for one in several], None, None, batch_size=AT_ONCE
        )
        self._fetched.update(zip(several, read, strict=True))
        self._count(one for one in read if isinstance(one, bytes))
        for one in several:
            self._coming.pop(one, None)
        for unwanted in list(self._fetched)[: -2 * AT_ONCE]:  # of earlier rounds
            del self._fetched[unwanted]

    def forget(self) -> None:
        with self._errors_in_words("deleted"):
            objects = self._file_system.find(self._folder)
            for start in range(0, len(objects), DELETED_AT_ONCE):
                self._require_lease()
                self._file_system.rm(objects[start : start + DELETED_AT_ONCE])
            if self.url.is_folder and self._file_system.exists(self._folder):
                self._file_system.rm(self._folder, recursive=True)

    @override
    def write(self, objects: Mapping[str, bytes]) -> None:
        with self._errors_in_words("written"):
            new = {one: data for one, data in objects.items() if not self._is_there(one)}
            with ThreadPoolExecutor(1 if self.url.is_folder else AT_ONCE) as pool:
                for digest in pool.map(self._put, new, new.values()):
                    self._known.add(digest)
                    self._count([new[digest]])

    def _put(self, digest: str, data: bytes) -> str:
        """Write one object, and return its digest. LeaseLostError: the thread was lost."""
        path = self._path(digest)
        self._require_lease()
        if not self.url.is_folder:
            self._file_system.pipe_file(path, data)
            return digest
        part = f"{path}.{secrets.token_hex(8)}"  # a half-written object would count as there
        self._file_system.pipe_file(part, data)
        try:
            self._require_lease()
            self._file_system.mv(part, path)
        except LeaseLostError:
            self._file_system.rm_file(part)
            raise
        return digest

    def _is_there(self, digest: str) -> bool:
        if digest in self._known:
            return True
        if self.url.is_folder or self._asked < ASKED_ONE_BY_ONE:
            found = bool(self._file_system.exists(self._path(digest)))
        elif self._asked == ASKED_ONE_BY_ONE:
            listed = self._file_system.find(self._folder)
            self._known.update(path.rpartition("/")[2] for path in listed)
            found = digest in self._known
        else:
            return False  # else it was listed
        self._asked += 1
        if found:
            self._known.add(digest)
        return found

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
        except Exception as error:  # each file system has other errors
            said = " ".join(f"{type(error).__name__}: {error}".split())[:_ERROR_CHARS].rstrip(".")
            raise FilesUnavailableError(
                f"The thread's files in {self.url} cannot be {doing}: {printable(said)}. "
                "The thread continues where it stopped once they can (openmanus resume)."
            ) from error


def _open(url: WorkspaceUrl) -> Any:
    """Open a file system. ConfigError: its extra is not installed."""
    import fsspec  # not needed if files stay on their machine

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
        raise ConfigError(f"Files in s3:// need the extra `s3`. {install_extra('s3')}") from error
    files.retries = 1  # botocore retries, with a time limit each
    return files
