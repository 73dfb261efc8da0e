"""Files that the user names on the command line or in a message: read once, if they are files.

They may lie anywhere, and be links, as the user says. In the workspace programs may swap a file for
a link to another one, so there it must lie in the workspace.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath, read_whole

MAX_TEXT_BYTES = 256 << 20
"""Of a file that is read as a whole: tasks, prompts."""


@contextmanager
def opened_input(
    path: str | Path, limit: int, workspace: Workspace | None = None
) -> Generator[BinaryIO]:
    """Open a file that the user named. Blocks.

    Args:
        path: As the user wrote it.
        limit: The largest size in bytes.
        workspace: Of the run.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    with ExitStack() as opened:
        try:
            place = Path(path).expanduser().absolute()
            file = opened.enter_context(
                opened_file(workspace, str(place), limit=limit)
                if workspace is not None and place.is_relative_to(workspace.root)
                else open_beneath(Path("/"), place, limit=limit)
            )
        except (FileNotFoundError, NotADirectoryError, RuntimeError) as error:
            raise ConfigError(f"There is no file {path}.") from error
        except ToolError as error:
            missing = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
            raise ConfigError(f"There is no file {path}." if missing else str(error)) from error
        except UnsafeFileError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        yield file


def read_input(path: str | Path, limit: int, workspace: Workspace | None = None) -> bytes:
    """Return what a file holds that the user named. Blocks. ConfigError as `opened_input`."""
    with opened_input(path, limit, workspace) as file:
        return read_whole(file, str(path), limit)
