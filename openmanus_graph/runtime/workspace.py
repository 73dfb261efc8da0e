"""The folder a run works in, and the paths in it that tools must not reach."""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.errors import ConfigError, ToolError

OWN_FOLDER = ".openmanus"


@dataclass(frozen=True)
class Workspace:
    """A run's folder. Paths are resolved; blocking calls belong in a thread."""

    root: Path
    protected: tuple[Path, ...] = ()
    """Files and folders inside the root that tools must not reach: home, configuration, keys."""

    @property
    def own(self) -> Path:
        """Folder of our own files: long outputs, pictures, editor history. Not artifacts."""
        return self.root / OWN_FOLDER / "files"

    def prepare(self) -> None:
        """Create the folders. Raises ConfigError when they cannot be written."""
        try:
            self.own.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.own):
                pass
        except OSError as error:
            raise ConfigError(
                f"The workspace {self.root} cannot be written: {error.strerror}. "
                "Choose another with --workspace."
            ) from error

    def resolve(self, path: str) -> Path:
        """Resolve a path from the model to a real one inside the workspace.

        Relative paths start at the root. Symbolic links are followed first, so that a link out
        of the workspace is refused. Raises ToolError.
        """
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
        if self.hides(real):
            raise ToolError(f"{path} belongs to OpenManus itself and is out of reach.")
        return real

    def hides(self, real: Path) -> bool:
        """Say whether a resolved path is protected from tools."""
        if real.is_relative_to(self.own):
            return False
        return any(real.is_relative_to(place) for place in self.protected)

    def relative(self, path: Path) -> str:
        """Show a path as the model and the person should see it."""
        return (
            path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        )

    def keep(self, content: bytes, suffix: str) -> Path:
        """Store content under a name derived from its hash, so that equal content is one file."""
        from openmanus_graph.runtime.contained import put_file  # which is about workspaces

        path = self.own / (hashlib.sha256(content).hexdigest()[:16] + suffix)
        put_file(self, path, content)
        return path
