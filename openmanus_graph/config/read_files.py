"""Reads configuration files: those of a folder only beneath it, the user's own wherever they lie.

A folder that was cloned may hold a link to a secret of the machine, a pipe that nobody writes to,
or a file that fills the memory: none of them is read.
"""

import errno
from pathlib import Path

from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, read_beneath

MAX_BYTES = 1 << 20
"""Of a configuration file."""


def read_text(path: Path, within: Path | None) -> str | None:
    """Return a file's text; None if there is none. Blocks.

    Args:
        path: The file.
        within: The folder that it must lie in, also if it is a link; None: it is the user's own.

    Raises:
        ConfigError: It is no file, too large, no text, or leads out of its folder.
    """
    root = Path("/") if within is None else within.resolve()
    inside = path.absolute() if within is None else path.relative_to(within)
    try:
        return read_beneath(root, inside, MAX_BYTES).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnsafeFileError as error:
        advice = ""
        if error.errno == errno.EXDEV:
            advice = " Replace the link by the file"
            advice += ", or use --config." if path.suffix == ".toml" else "."
        raise ConfigError(f"{path} is not read: {error}{advice}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8."
        ) from error
