"""The folder a run works in, its thread's private folder, and safe access to the files in both.

Entries are opened, replaced and rewritten by descriptors of their folders. No program in the
sandbox can use a link to lead these functions out of the workspace.
"""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections import defaultdict
from collections.abc import Generator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from openmanus_graph.config.homes import make_folder
from openmanus_graph.errors import ConfigError, ToolError, TrustedToolError
from openmanus_graph.runtime.atomic_files import (
    OPEN_NEW,
    move_into_place,
    part_name,
    replace_file,
    status,
)
from openmanus_graph.safety import open_beneath as opening

if TYPE_CHECKING:
    from openmanus_graph.state.settings import Settings

HOME_FOLDER = ".openmanus"
"""Name of the default home folder."""
_FORMER_OUTPUTS = "former_outputs"
"""File in the private folder: paths, one per line, of `outputs` in conversations before a fork."""

OWN_WORKSPACE = "own_workspace"
"""File in the private folder: the path of the workspace that was made for the thread."""
_NOTES_BYTES = 1 << 20
_hidden_folders = defaultdict[Path, set[opening.Identity]](set)
"""Protected folders that this process has seen, by workspace: programs may move them."""
_OUTSIDE = (
    "{} is outside the workspace. Only files of the workspace can be reached; use a path relative "
    "to it."
)
_LINK = (
    "{} is a symbolic link. Programs in the sandbox could read what it leads to, so nothing was "
    "run. Remove the link, or move what it leads to there."
)
_ADVICE = {
    errno.ENOSPC: "The disk is full. Delete what is no longer needed and try again.",
    errno.EDQUOT: "The disk quota is used up. Delete what is no longer needed and try again.",
    errno.EFBIG: "The file would exceed the allowed size. Write less, or split it.",
    errno.EACCES: "Permission denied. Change the permissions with bash (chmod u+rwx) if you may.",
    errno.EPERM: "The operation is not permitted here. Use another place in the workspace.",
    errno.EROFS: "The file system is read-only. Use another place in the workspace.",
    errno.ENOTDIR: "A part of the path is not a folder. View the folder above it.",
    errno.ELOOP: "It became a symbolic link meanwhile. View the folder and try again.",
    errno.ENOENT: "It does not exist. View the folder to see what there is.",
    errno.EEXIST: "It already exists.",
    errno.ESTALE: "It was replaced meanwhile. View it and try again.",
    errno.ENAMETOOLONG: "The name is too long. Use a shorter one.",
}
"""By error number: what the model can do about it."""


@dataclass(frozen=True)
class Workspace:
    """A run's folder, and its thread's private one. Paths are resolved; its methods block."""

    root: Path
    private: Path
    """Our own files of the thread, outside of the root. Tools are shown `outputs` and `python`."""
    protected: tuple[Path, ...] = ()
    """Files and folders inside the root that tools must not reach: home, configuration, keys."""
    is_own: bool = False
    """Whether the root is the thread's default folder, which nobody has named."""

    @classmethod
    def of(cls, settings: "Settings") -> "Workspace":
        return cls(settings.workspace, settings.private, settings.protected, settings.own_workspace)

    @property
    def outputs(self) -> Path:
        """Long outputs, fetched pages and pictures, which tools may read and not change."""
        return self.private / "outputs"

    @property
    def python(self) -> Path:
        """What the sandbox's Python has installed: the only private folder that tools may change.

        Its content is untrusted: nothing in it is opened by its path.
        """
        return self.private / "python"

    @property
    def incoming(self) -> Path:
        """Files that are being written, until they are complete and moved to their targets."""
        return self.private / "incoming"

    def prepare(self) -> None:
        """Create the folders.

        Raises:
            ConfigError: They cannot be written, or a link is in the place of one of our folders. A
                copied home may contain one, which would show its target to the sandbox.
        """
        what, folder = "workspace", self.root
        advice = "Choose another with --workspace."
        is_new = self.is_own and not folder.exists()
        try:
            make_folder(folder)
            tempfile.TemporaryFile(dir=folder).close()
            what, folder = "folder of our own files", self.outputs
            advice = "Set OPENMANUS_HOME to another folder."
            self._make_private()
            tempfile.TemporaryFile(dir=folder).close()
            if is_new:
                put_file(self, self.private / OWN_WORKSPACE, os.fsencode(self.root))
        except OSError as error:
            raise ConfigError(
                f"The {what} {folder} cannot be written: {error.strerror}. {advice}"
            ) from error

    def _make_private(self) -> None:
        """Create our folders in the home, which may itself be reached by links."""
        home, name = self.private.parents[1], self.private.relative_to(self.private.parents[1])
        make_folder(home)
        try:
            with opening.located(home.resolve(), name / "outputs" / "x", create=True, follow=False):
                pass
            with opening.located(home.resolve(), name / "x", follow=False) as place:
                for entry in names_in(place.folder):
                    if (known := status(place.folder, entry)) and stat.S_ISLNK(known.st_mode):
                        raise ConfigError(_LINK.format(self.private / entry))
        except NotADirectoryError as error:
            for path in (self.outputs, *self.outputs.parents[:2]):
                if path.is_symlink():
                    raise ConfigError(_LINK.format(path)) from error
            raise

    def output_named(self, path: str) -> str | None:
        """Return the name in `outputs` of a path in a conversation; None if it is not an output."""
        if path.startswith("/") and "\0" not in path:
            named = Path(os.path.normpath(path))
            for outputs in (self.outputs, *self.former_outputs()):
                if named.is_relative_to(outputs):
                    return os.fspath(named.relative_to(outputs))
        return None

    def resolve(self, path: str) -> Path:
        """Return where a path leads, without links. The functions below open its files.

        ToolError: It is outside of the workspace, or protected.
        """
        try:
            with opened_place(self, path, "read") as place:
                return self.root / place.path
        except ToolError as error:
            real = Path(os.path.normpath(self.root / path))
            if not isinstance(error.__cause__, FileNotFoundError) or self.hides(real):
                raise
        return real  # in a folder that does not exist yet

    def former_outputs(self) -> list[Path]:
        """Return the folders whose files are in `outputs`, because the thread was forked.

        The note may come from a copied home: only folders of outputs are accepted.
        """
        try:
            data = opening.read_beneath(self.private, _FORMER_OUTPUTS, _NOTES_BYTES, follow=False)
        except OSError:
            return []
        noted = map(Path, data.decode("utf-8", "surrogateescape").splitlines())
        return [
            place
            for place in noted
            if place.is_absolute()
            and ".." not in place.parts
            and place.name == "outputs"
            and place.parts[-3:-2] in (("threads",), ("runs",))
        ]

    def readable_outputs(self) -> list[Path]:
        """Return the folders of outputs of this home whose paths contain no links.

        For a sandbox that shows folders of this machine by their own paths.
        """
        own = self.private.parent.resolve()
        return [
            place
            for place in (self.outputs, *self.former_outputs())
            if place.resolve().is_relative_to(own)
            and place.resolve() == own.joinpath(*place.parts[-2:])
        ]

    def inherit_outputs(self, older: "Workspace") -> None:
        """Take over the outputs of the thread that this one is forked from, by their old paths."""
        for one in (self, older):
            one._make_private()
        for kept in older.outputs.iterdir():
            target = self.outputs / kept.name
            if kept.is_file() and not kept.is_symlink() and not target.exists():
                try:
                    os.link(kept, target)
                except OSError:  # another disk, or no hard links
                    shutil.copyfile(kept, target)
        self.add_former_outputs(older.outputs, *older.former_outputs())

    def add_former_outputs(self, *places: Path) -> None:
        """Save folders, by their paths in the conversation, whose files are in `outputs` now."""
        known = dict.fromkeys((*places, *self.former_outputs()))
        data = "".join(f"{place}\n" for place in known).encode("utf-8", "surrogateescape")
        put_file(self, self.private / _FORMER_OUTPUTS, data)

    def protected_inside(self) -> Set[str]:
        """Return the protected paths inside the root, relative to it."""
        return {
            os.fspath(place.relative_to(self.root))
            for place in self.protected
            if place.is_relative_to(self.root)
        }

    def hides(self, real: Path) -> bool:
        """Return True if a path without links is protected from tools."""
        return any(real.is_relative_to(place) for place in self.protected)

    def hidden(self) -> Set[opening.Identity]:
        """Return the identities of protected files and folders: their paths may have changed."""
        found = set(_hidden_folders.get(self.root, ()))
        for place in self.protected:
            with suppress(OSError):
                known = place.stat()
                found.add((known.st_dev, known.st_ino))
                if stat.S_ISDIR(known.st_mode):
                    _hidden_folders[self.root].add((known.st_dev, known.st_ino))
        return found

    def relative(self, path: Path) -> str:
        """Return a path as it is shown to the model and the person."""
        is_inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if is_inside else str(path)

    def keep(self, content: bytes, suffix: str) -> Path:
        """Store content under a name derived from its hash, so that equal content is one file."""
        path = self.outputs / (hashlib.sha256(content).hexdigest()[:16] + suffix)
        put_file(self, path, content)
        return path


@contextmanager
def as_tool_error(doing: str, path: str) -> Generator[None]:
    """Turn an error of the operating system into one that the model can act on."""
    try:
        yield
    except OSError as error:
        unchanged = "" if doing in {"read", "view"} else "; no file was changed"
        advice = _ADVICE.get(error.errno or 0, f"{error.strerror or error}.")
        text = f"Cannot {doing} {opening.shown(path)}{unchanged}. {advice}"
        if isinstance(error, opening.UnsafeFileError):
            is_outside = error.errno == errno.EXDEV
            text = _OUTSIDE.format(opening.shown(path)) if is_outside else str(error)
        elif error.errno in _ADVICE:
            raise TrustedToolError(text) from error
        raise ToolError(text) from error


@contextmanager
def opened_place(
    workspace: Workspace, path: str, doing: str, *, create: bool = False
) -> Generator[opening.Place]:
    """Open the folder of an entry that the model named; everything else is done by its descriptor.

    Links are followed as long as they stay in the workspace. The entry may not exist yet. `doing`
    is what is done, for errors; with `create`, missing folders are created.

    Raises:
        ToolError: The path leads out of the workspace or to what is protected, or the block
            raised an OSError.
    """
    hidden = workspace.hidden()
    with (
        as_tool_error(doing, path),
        opening.located(workspace.root, opening.named(path), create=create, hidden=hidden) as place,
    ):
        found = status(place.folder, place.name)
        is_hidden = found is not None and (found.st_dev, found.st_ino) in hidden
        if is_hidden or workspace.hides(workspace.root / place.path):
            what = opening.shown(path)
            raise ToolError(f"{what} belongs to OpenManus itself and is out of reach.")
        yield place


class Found(NamedTuple):
    """What is at a path that the model named, after links."""

    path: str
    """From the root, without links; of an output it is absolute."""
    status: os.stat_result

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


def find(workspace: Workspace, path: str, *, outputs: bool = False) -> Found | None:
    """Look for what the model named; None if it does not exist. ToolError as for `opened_place`.

    With `outputs`, the thread's outputs are searched as well.
    """
    output = workspace.output_named(path) if outputs else None
    try:
        if output is None:
            with opened_place(workspace, path, "read") as place:
                found = status(place.folder, place.name)
                return None if found is None else Found(place.path, found)
        outputs_folder = opening.located(workspace.outputs, output, follow=False)
        with as_tool_error("read", path), outputs_folder as place:
            found = status(place.folder, place.name)
            return found and Found(os.fspath(workspace.outputs / place.path), found)
    except ToolError as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            return None
        raise


@contextmanager
def opened_file(
    workspace: Workspace, path: str, *, limit: int | None = None
) -> Generator[BinaryIO]:
    """Open a regular file that the model named, of the workspace or the outputs, for reading.

    Later additions to it are not read. `limit` is the largest size in bytes; None if only a part
    is read.

    ToolError: It cannot be read.
    """
    output = workspace.output_named(path)
    with ExitStack() as opened:
        if output is not None:
            opened.enter_context(as_tool_error("read", path))
            file = opening.open_beneath(workspace.outputs, output, limit=limit, follow=False)
        else:
            place = opened.enter_context(opened_place(workspace, path, "read"))
            hidden = workspace.hidden()  # after the walk: files may be replaced meanwhile
            file = opening.open_to_read(place.folder, place.name, path, limit=limit, hidden=hidden)
        yield opened.enter_context(file)


def read_file(workspace: Workspace, path: str, limit: int) -> bytes:
    """Return a whole file that the model named. ToolError: it cannot be read, or is too large."""
    with opened_file(workspace, path, limit=limit) as file:
        return file.read()


@contextmanager
def opened_folder(
    workspace: Workspace, real: Path | str, *, create: bool = False
) -> Generator[int]:
    """Open a folder and yield its descriptor, for use as `dir_fd`; OSError if that fails.

    The folder is in the root or the private folder, which are opened by their paths; no link below
    them is followed.
    """
    is_ours = not f"{real}/".startswith(f"{workspace.root}/")
    base = workspace.private if is_ours else workspace.root
    if create and is_ours:
        base.mkdir(parents=True, exist_ok=True)
    with opening.located(base, f"{real}/entry", create=create, follow=False) as place:
        yield place.folder


def names_in(folder: int) -> list[str]:
    return os.listdir(folder)


def require_writable(folder: int, name: str, path: str) -> None:
    """Refuse read-only files and folders: replacing a file would ignore its permissions."""
    here = os.fstat(folder)
    entry = status(folder, name)
    what = f"The folder of {opening.shown(path)}" if not here.st_mode & 0o222 else None
    if entry and not (entry.st_mode & 0o222 and os.access(name, os.W_OK, dir_fd=folder)):
        what = opening.shown(path)
    if what:
        raise ToolError(
            f"{what} is read-only; no file was changed. If you may change it, use bash: chmod u+w."
        )


def put_file(
    workspace: Workspace, real: Path, data: bytes, *, mode: int = 0o666, synced: bool = True
) -> None:
    """Write a file atomically, creating its folders. Raises OSError.

    No link on the way is followed. Another kind of entry at that path, such as a link made in the
    sandbox, is replaced. `mode` and `synced` are as for `replace_file`.
    """
    with opened_folder(workspace, real.parent, create=True) as folder:
        existing = status(folder, real.name)
        if existing is not None and not stat.S_ISREG(existing.st_mode):
            os.unlink(real.name, dir_fd=folder)
            existing = None
        replace_file(folder, real.name, data, existing, mode=mode, synced=synced)


@contextmanager
def incoming_file(workspace: Workspace, path: str, *, replace: bool) -> Generator[BinaryIO]:
    """Open a file for writing; it replaces its target when the block ends without error.

    ToolError: It cannot be written, or it exists and `replace` is false.
    """
    temporary = part_name()
    with (
        opened_place(workspace, path, "write", create=True) as place,
        opened_folder(workspace, workspace.incoming, create=True) as scratch,
    ):
        if not place.path:
            raise ToolError(f"{path!r} is not the name of a file. Add a name.")
        existing = status(place.folder, place.name)
        if existing is not None:
            opening.require_regular(path, existing)
            if not replace:
                raise FileExistsError(errno.EEXIST, "File exists", path)
        try:
            with os.fdopen(os.open(temporary, OPEN_NEW, 0o666, dir_fd=scratch), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            move_into_place(scratch, temporary, place.folder, place.name, replace=replace)
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=scratch)
