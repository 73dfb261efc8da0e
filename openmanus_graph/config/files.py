"""Reads configuration files with clear errors, and replaces them safely."""

import errno
import json
import os
import re
import secrets
import tomllib
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from openmanus_graph.config.declared import Layer, declared
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, read_beneath
from openmanus_graph.state.model_settings import LlmKeys

MAX_BYTES = 1 << 20
"""Of a configuration file."""
OLD_CONFIG = "config/config.toml"
"""OpenManus's own file. One without a table `[llm]` belongs to another program."""
_LLM_TABLE = re.compile(r"^[ \t]*(?:\[\s*llm\b|llm\s*[.=])", re.MULTILINE)


def config_home() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "openmanus"


def read_text(path: Path, within: Path | None) -> str | None:
    """Return a file's text; None if there is none. Blocks.

    Args:
        within: The folder that the file must be in, even if it is a link; None: it is the user's.

    Raises:
        ConfigError: It is not a file, too large, no text, or leads out of its folder.
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
            other = ", or use --config" if path.suffix == ".toml" else ""
            advice = f" Replace the link by the file{other}."
        raise ConfigError(f"{path} is not read: {error}{advice}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8."
        ) from error


def is_untrusted(folder: Path) -> bool:
    """Return True if a folder's `config/config.toml` is another program's. ConfigError as above."""
    text = read_text(folder / OLD_CONFIG, folder)
    return text is not None and not _LLM_TABLE.search(text)


def read_layer(path: Path, within: Path | None) -> Layer | None:
    """Read a TOML file, or an `mcp.json`; `within` is that of `read_text`.

    Returns:
        None if there is no such file, or if a `config/config.toml` is another program's.

    Raises:
        ConfigError: Names the file and the line, or the key.
    """
    text = read_text(path, within)
    if text is None or (path.match(OLD_CONFIG) and not _LLM_TABLE.search(text)):
        return None
    layer = Layer(path=path)
    try:
        if path.suffix == ".json":
            _read_mcp_file(layer, json.loads(text.removeprefix("\ufeff")))
        else:
            _read_toml(layer, tomllib.loads(text))
    except RecursionError:  # its traceback is as deep as the text
        parts = "objects" if path.suffix == ".json" else "tables"
        raise ConfigError(
            f"{path} is nested too deeply. Write fewer {parts} in one another."
        ) from None
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with thousands of digits
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"{path} is not valid {kind}: {error}.") from error
    if layer.problems:
        raise ConfigError(f"{path}: {'; '.join(layer.problems)}.")
    return layer


def _read_toml(layer: Layer, table: dict[str, Any]) -> None:
    layer.read(table)
    if any(name.startswith("llm.vision.") for name in layer.values):
        for key in (each.name for each in fields(LlmKeys) if f"llm.{each.name}" in layer.values):
            layer.values.setdefault(f"llm.vision.{key}", layer.values[f"llm.{key}"])


def _read_mcp_file(layer: Layer, table: Any) -> None:
    """Read the form that most programs share, `mcpServers`, or `servers`."""
    if not isinstance(table, dict):
        layer.problems.append("the file: Input should be a valid dictionary")
        return
    servers: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", table).items():
        if key not in ("servers", "mcpServers"):
            layer.unknown.append(key)
            continue
        layer.values.clear()
        layer.add(declared()["mcp.servers"], value, key)
        found = layer.values.get("mcp.servers", {})
        # Of a name in both, the one in `mcpServers` counts.
        servers = {**found, **servers} if key == "servers" else {**servers, **found}
    layer.values["mcp.servers"] = servers


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; an empty one if it is missing or damaged. Blocks."""
    try:
        return _read(path)
    except (OSError, ValueError):
        return {}


@contextmanager
def changed_object(path: Path, *, mode: int) -> Generator[dict[str, Any]]:
    """Let the block change a JSON file's object, one process at a time. Blocks.

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
                f"{path} is damaged ({error}) and was not changed. Fix it, or move it away, and "
                "try again."
            ) from error
        yield found
        write_file(path, json.dumps(found, indent=2) + "\n", mode=mode)


def write_file(path: Path, text: str, *, mode: int) -> None:
    """Replace a file at once; no other user can read it before its mode is set. Blocks.

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
