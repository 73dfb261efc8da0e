"""The folder a run works in, its thread's private folder, and safe access to the files in both.

`Workspace` resolves the paths that a model names, and refuses those that tools must not reach. The
functions open, replace and rewrite entries by descriptors of their folders, so that nothing that
runs in the sandbox can lead them out of the workspace by a link.
"""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from openmanus_graph.config.homes import make_folder
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.atomic_files import (
    OPEN_NEW,
    OPEN_TO_READ,
    move_into_place,
    part_name,
    replace_file,
    status,
)

if TYPE_CHECKING:
    from openmanus_graph.state.settings import Settings

HOME_FOLDER = ".openmanus"
"""Name of the default home folder; earlier versions had one of that name in each workspace, too."""
_FORMER_OUTPUTS = "former_outputs"
"""File in the private folder: the paths by which conversations from before a fork name `outputs`,
a line each."""

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
    errno.EEXIST: "It exists already.",
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

    @classmethod
    def of(cls, settings: "Settings") -> "Workspace":
        """Return the workspace of a run's settings."""
        return cls(settings.workspace, settings.private, settings.protected)

    @property
    def outputs(self) -> Path:
        """Long outputs, fetched pages and pictures, which tools may read and not change."""
        return self.private / "outputs"

    @property
    def python(self) -> Path:
        """What the sandbox's Python has installed: the only private folder that tools may change.

        Whatever lies there may be a trap: nothing in it is opened by its path.
        """
        return self.private / "python"

    @property
    def incoming(self) -> Path:
        """Files that are being written, until they are whole and moved to their places."""
        return self.private / "incoming"

    @property
    def earlier_outputs(self) -> Path:
        """Where earlier versions kept outputs, as old conversations name them.

        Only our own tools read there. Programs are not shown it: they may have made it themselves,
        as a link to any place of the machine.
        """
        return self.root / HOME_FOLDER / "files"

    def prepare(self) -> None:
        """Create the folders. Raises ConfigError when they cannot be written."""
        advice = {
            self.root: "Choose another with --workspace.",
            self.outputs: "Set OPENMANUS_HOME to another folder.",
        }
        for folder, what_to_do in advice.items():
            try:
                make_folder(folder)
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                name = "workspace" if folder == self.root else "folder of our own files"
                raise ConfigError(
                    f"The {name} {folder} cannot be written: {error.strerror}. {what_to_do}"
                ) from error

    def resolve(self, path: str) -> Path:
        """Resolve a path from the model to a real one inside the workspace.

        Relative paths start at the root. Symbolic links are followed first, so that a link out
        of the workspace is refused. Raises ToolError.
        """
        real = self._resolve_in_root(path)
        if self._protects(real):
            raise ToolError(f"{path} belongs to OpenManus itself and is out of reach.")
        return real

    def _resolve_in_root(self, path: str) -> Path:
        if "\0" in path:
            raise ToolError(f"The path {path!r} holds a NUL byte. Give a plain file name.")
        try:
            real = (self.root / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"The path {path!r} cannot be read: {error}.") from error
        if not real.is_relative_to(self.root):
            raise ToolError(
                f"{path} is outside the workspace. Only files below {self.root} can be reached; "
                "use a path relative to it."
            )
        return real

    def resolve_to_read(self, path: str) -> Path:
        """Resolve a path like `resolve`, or one of an output, as observations name or named it."""
        named = Path(os.path.normpath(path)) if path.startswith("/") else None
        if named is not None and "\0" not in path:
            for outputs in (self.outputs, *self.former_outputs()):
                if named.is_relative_to(outputs):
                    return self.outputs / named.relative_to(outputs)
        real = self._resolve_in_root(path)
        return real if real.is_relative_to(self.earlier_outputs) else self.resolve(path)

    def former_outputs(self) -> list[Path]:
        """Return the folders whose files are in `outputs`, because the thread was forked."""
        try:
            text = (self.private / _FORMER_OUTPUTS).read_text("utf-8", "surrogateescape")
        except OSError:
            return []
        return list(map(Path, text.splitlines()))

    def inherit_outputs(self, older: "Workspace") -> None:
        """Take over what a forked thread's conversation names, by the paths that it names.

        Args:
            older: Of the thread that this one is forked from.
        """
        self.outputs.mkdir(parents=True, exist_ok=True)
        for kept in older.outputs.iterdir() if older.outputs.is_dir() else ():
            target = self.outputs / kept.name
            if kept.is_file() and not kept.is_symlink() and not target.exists():
                try:
                    os.link(kept, target)
                except OSError:  # another disk, or no hard links
                    shutil.copyfile(kept, target)
        self.add_former_outputs(older.outputs, *older.former_outputs())

    def add_former_outputs(self, *places: Path) -> None:
        """Note folders whose files are in `outputs` now, as the conversation names them."""
        known = dict.fromkeys((*places, *self.former_outputs()))
        data = "".join(f"{place}\n" for place in known).encode("utf-8", "surrogateescape")
        put_file(self, self.private / _FORMER_OUTPUTS, data)

    def protected_inside(self) -> Set[str]:
        """Return what is protected from tools inside the root, relative to it."""
        return {
            os.fspath(place.relative_to(self.root))
            for place in self.protected
            if place.is_relative_to(self.root)
        }

    def hides(self, real: Path) -> bool:
        """Say whether a resolved path is protected from tools, even from reading."""
        return self._protects(real) and not real.is_relative_to(self.earlier_outputs)

    def _protects(self, real: Path) -> bool:
        return any(real.is_relative_to(place) for place in self.protected)

    def relative(self, path: Path) -> str:
        """Show a path as the model and the person should see it."""
        return (
            path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        )

    def keep(self, content: bytes, suffix: str) -> Path:
        """Store content under a name derived from its hash, so that equal content is one file."""
        path = self.outputs / (hashlib.sha256(content).hexdigest()[:16] + suffix)
        put_file(self, path, content)
        return path


def shown(name: str) -> str:
    """Make a name safe to print: control characters and broken UTF-8 as bash would quote them."""
    if name.isprintable():
        return name
    plain = (char if char.isprintable() and char not in "\\'" else _escaped(char) for char in name)
    return f"$'{''.join(plain)}'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(
        char, "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    )


@contextmanager
def as_tool_error(doing: str, path: str) -> Generator[None]:
    """Turn an error of the operating system into one the model can act on."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, f"{error.strerror or error}.")
        unchanged = "" if doing in {"read", "view"} else "; no file was changed"
        raise ToolError(f"Cannot {doing} {shown(path)}{unchanged}. {advice}") from error


@contextmanager
def opened_folder(workspace: Workspace, real: Path, *, create: bool = False) -> Generator[int]:
    """Open a folder and give its descriptor, for use as `dir_fd`; OSError if that fails.

    Args:
        workspace: Its root and its private folder are opened by their paths.
        real: The folder to open, by descriptors from one of them on.
        create: Whether to create it.
    """
    base = workspace.root if real.is_relative_to(workspace.root) else workspace.private
    if create and base == workspace.private:
        base.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(base, _OPEN_FOLDER)
    try:
        for name in real.relative_to(base).parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            below = os.open(name, _OPEN_FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def kind(mode: int) -> str:
    """Return the name of the file type of a mode."""
    tests = (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in tests if test(mode)), "device")


def require_file(path: str, mode: int) -> None:
    """Raise ToolError unless the mode is that of a regular file."""
    if not stat.S_ISREG(mode):
        raise ToolError(f"{shown(path)} is a {kind(mode)}, not a file; it cannot be used here.")


@contextmanager
def opened_file(workspace: Workspace, path: str) -> Generator[BinaryIO]:
    """Open a regular file that the model named, of the workspace or the outputs, for reading."""
    real = workspace.resolve_to_read(path)
    with (
        as_tool_error("read", path),
        opened_folder(workspace, real.parent) as folder,
        opened_entry(folder, real.name, path) as file,
    ):
        yield file


def names_in(folder: int) -> list[str]:
    """List an opened folder."""
    return os.listdir(folder)


@contextmanager
def opened_entry(folder: int, name: str, path: str) -> Generator[BinaryIO]:
    """Open a regular file of an opened folder; `path` is what it is called in errors."""
    # Checked before: opening a device can have effects, and opening a socket fails oddly.
    require_file(path, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    with os.fdopen(os.open(name, OPEN_TO_READ, dir_fd=folder), "rb") as file:
        require_file(path, os.fstat(file.fileno()).st_mode)
        yield file


def require_writable(folder: int, name: str, path: str) -> None:
    """Refuse read-only files and folders: replacing a file would ignore its permissions."""
    here = os.fstat(folder)
    entry = status(folder, name)
    what = f"The folder of {shown(path)}" if not here.st_mode & 0o222 else None
    if entry and not (entry.st_mode & 0o222 and os.access(name, os.W_OK, dir_fd=folder)):
        what = shown(path)
    if what:
        raise ToolError(
            f"{what} is read-only; no file was changed. If you may change it, use bash: chmod u+w."
        )


def put_file(
    workspace: Workspace, real: Path, data: bytes, *, mode: int = 0o666, synced: bool = True
) -> None:
    """Write a file atomically, creating its folders. Raises OSError.

    Another kind of entry at that path, such as a link made in the sandbox, is replaced.

    Args:
        workspace: Its folder.
        real: The file's path.
        data: The whole content.
        mode: Of a new file, less the umask.
        synced: Whether to call fsync, so that the file survives a power failure.
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

    Raises:
        ToolError: It cannot be written, or it exists and `replace` is false.
    """
    real, temporary = workspace.resolve(path), part_name()
    if real == workspace.root:
        raise ToolError(f"{path!r} names no file. Give it a name.")
    with (
        as_tool_error("write", path),
        opened_folder(workspace, real.parent, create=True) as folder,
        opened_folder(workspace, workspace.incoming, create=True) as scratch,
    ):
        existing = status(folder, real.name)
        if existing is not None:
            require_file(path, existing.st_mode)
            if not replace:
                raise FileExistsError(errno.EEXIST, "File exists", path)
        try:
            with os.fdopen(os.open(temporary, OPEN_NEW, 0o666, dir_fd=scratch), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            move_into_place(scratch, temporary, folder, real.name, replace=replace)
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=scratch)
