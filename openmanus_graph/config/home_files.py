"""Files of ours in the person's own configuration folder: read in any state, replaced whole."""

import json
import os
import secrets
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from openmanus_graph.errors import ConfigError


def config_home() -> Path:
    """Return the person's own configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "openmanus"


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; an empty one where it is missing or damaged. Blocks."""
    try:
        return _read(path)
    except (OSError, ValueError):
        return {}


@contextmanager
def changed_object(path: Path, *, mode: int) -> Generator[dict[str, Any]]:
    """Replace a JSON file by what the block makes of its object, one process at a time. Blocks.

    Raises:
        ConfigError: The file is damaged, so that its other entries would be lost, or it cannot be
            read or written.
    """
    from filelock import FileLock  # only here: every run reads these files, few change them

    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_name(f".{path.name}.lock")))
            found = _read(path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be changed: {error.strerror}.") from error
        except ValueError as error:
            raise ConfigError(
                f"{path} is damaged ({error}) and was left as it is. Mend it, or move it away, and "
                "try again."
            ) from error
        yield found
        write_file(path, json.dumps(found, indent=2) + "\n", mode=mode)


def write_file(path: Path, text: str, *, mode: int) -> None:
    """Replace a file at once; nobody else can read it before its mode is set. Blocks.

    Raises:
        ConfigError: It cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.chmod(mode)
            draft.replace(path.resolve())  # a link to a file of dotfiles stays one
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def _read(path: Path) -> dict[str, Any]:
    """Return a file's object. ValueError: it holds none, by UnicodeDecodeError, too."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    try:
        known: object = json.loads(text) if text.strip() else {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(known, dict):
        raise ValueError("it holds no JSON object")  # as json's own errors
    return cast("dict[str, Any]", known)
