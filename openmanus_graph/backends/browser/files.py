"""Files between pages and the workspace: downloads, saved files, and files to upload."""

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePath
from typing import Any

from playwright.async_api import Download, Error

from openmanus_graph.backends.browser.secrets import Secrets
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, opened_file, opened_place
from openmanus_graph.safety.open_beneath import size_text

FOLDER = "downloads"
MAX_UPLOAD_BYTES = 500 << 20
"""Of a file that is given to a page, and copied for that."""
WAIT_S = 10.0
"""How long an observation waits for a download that has just begun."""
_POLL_S = 0.2
_NAME_BYTES = 120
_MAX_AT_ONCE = 10
_UNSAFE_CHARS = re.compile(r"[^\w.,()+@=~ -]+")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class _RunningDownload:
    name: str
    limit: int
    size: int = 0


class Downloads:
    def __init__(
        self, session: Session, notify: Callable[[str], None], secrets: Callable[[], Secrets]
    ) -> None:
        self._session = session
        self._notify = notify
        self._secrets = secrets
        self._running: dict[asyncio.Task[None], _RunningDownload] = {}

    def begin(self, download: Download) -> None:
        limit = self._session.settings.browser.max_download_mb << 20
        running = _RunningDownload(file_name(download.suggested_filename, self._secrets()), limit)
        if len(self._running) >= _MAX_AT_ONCE:
            self._notify(f"The download {running.name} was refused: too many run already.")
            task = asyncio.ensure_future(download.cancel())
        else:
            task = asyncio.ensure_future(self._save(download, running))
        self._running[task] = running
        task.add_done_callback(self._running.pop)

    async def wait(self) -> None:
        """Wait for running downloads, for a bounded time, and report those that still run."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=WAIT_S)
        for running in self._running.values():
            so_far = f", {size_text(running.size)} so far" if running.size else ""
            self._notify(f"Still downloading {running.name}{so_far}; `wait` to see it end.")

    async def pause(self, limit_s: float) -> None:
        """Wait that long, or until the downloads that run have ended."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=limit_s)
        else:
            await asyncio.sleep(limit_s)

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _save(self, download: Download, running: _RunningDownload) -> None:
        async def stop_if_too_large() -> None:
            while running.size <= running.limit:
                await asyncio.sleep(_POLL_S)
                running.size = max(running.size, _size_so_far(download))
            await download.cancel()

        watcher = asyncio.ensure_future(stop_if_too_large())
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="openmanus-download-"))
        path, said = folder / "file", ""
        try:
            await download.save_as(path)
            running.size = path.stat().st_size
            if running.size <= running.limit:
                saved = await asyncio.to_thread(
                    keep_file, self._session.workspace, path, running.name
                )
                said = f"Downloaded {saved} ({size_text(running.size)})."
        except (Error, OSError, ToolError) as error:
            said = f"The download of {running.name} failed: {str(error).splitlines()[0]}"
        finally:
            watcher.cancel()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            with contextlib.suppress(Error):
                await download.delete()
        if running.size > running.limit:
            limit = size_text(running.limit)
            said = (
                f"The download {running.name} was stopped: it is larger than {limit}. "
                "A person can raise [browser] max_download_mb."
            )
        self._notify(said)


def _size_so_far(download: Any) -> int:
    """Return how many bytes have arrived.

    Playwright has no public API for the path that they are written to.
    """
    artifact = getattr(getattr(download, "_impl_obj", None), "_artifact", None)
    target = getattr(artifact, "_initializer", {}).get("absolutePath")
    sizes = [0]
    for path in (target, f"{target}.crdownload") if target else ():
        with contextlib.suppress(OSError):
            sizes.append(Path(path).stat().st_size)
    return max(sizes)


def file_name(suggested: str, secrets: Secrets) -> str:
    """Turn the name that a page suggests into a safe file name without secrets."""
    name = _UNSAFE_CHARS.sub("_", suggested.replace("\\", "/").rpartition("/")[2]).strip(" ._")
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) > 12:
        stem, dot, suffix = name, "", ""
    room = _NAME_BYTES - len(suffix.encode()) - 1
    stem = stem.encode()[:room].decode(errors="ignore").strip(" ._")
    name = f"{stem or 'download'}{dot}{suffix}"
    return f"file{Path(name).suffix}" if secrets.in_file_name(suggested) else name


def keep_file(workspace: Workspace, source: Path, name: str) -> str:
    """Copy a file into the downloads, under a free name; return its path there. Blocks."""
    with opened_place(workspace, f"{FOLDER}/{name}", "save", create=True) as place:
        unused, target = _new_file(place.folder, name)
        with source.open("rb") as content, os.fdopen(target, "wb") as saved:
            shutil.copyfileobj(content, saved)
    return str(PurePath(place.path).with_name(unused))


def _new_file(folder: int, name: str) -> tuple[str, int]:
    """Create a file under the name, or that name and a number; return name and descriptor."""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    for number in count(1):
        unused = name if number == 1 else f"{stem} ({number}){dot}{suffix}"
        with contextlib.suppress(FileExistsError):
            return unused, os.open(unused, _NEW_FILE, 0o666, dir_fd=folder)
    raise AssertionError  # counting has no end


def copy_files(workspace: Workspace, names: Sequence[str], scratch: Path) -> list[Path]:
    """Copy files out of the workspace, so that no command can replace them meanwhile. Blocks."""
    if not names:
        raise TrustedToolError("upload_file needs text: paths in the workspace, one per line.")
    copies: list[Path] = []
    for number, name in enumerate(names):
        folder = scratch / str(number)  # two may have one name
        folder.mkdir()
        copy = folder / os.path.basename(name)  # noqa: PTH119  # a name from the model, not a local path
        opened = opened_file(workspace, name, limit=MAX_UPLOAD_BYTES)
        with opened as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        copies.append(copy)
    return copies
