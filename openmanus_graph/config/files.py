"""Reads and validates configuration files, with clear errors for invalid content."""

import errno
import json
import os
import re
import secrets
import tomllib
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from openmanus_graph.config.declared import Reading, declared, read
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, read_beneath
from openmanus_graph.state.model_settings import LlmKeys

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


OLD_CONFIG = "config/config.toml"
_LLM_TABLE = re.compile(r"^[ \t]*(?:\[\s*llm\b|llm\s*[.=])", re.MULTILINE)
"""Which OpenManus's own file has."""


@dataclass(frozen=True)
class Layer:
    """The settings of one source: a file, the environment, or a run's `Context`."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By the names of `declared`, checked."""
    path: Path | None = None
    """The file; None for another source."""
    unknown: tuple[str, ...] = ()
    """Unknown keys."""

    @property
    def llm(self) -> LlmKeys | None:
        """The keys of `[llm]`; None if there are none."""
        return self._llm_keys("llm")

    @property
    def vision(self) -> LlmKeys | None:
        """The keys of `[llm.vision]`, with those of `[llm]` as defaults."""
        return self._llm_keys("llm.vision")

    def _llm_keys(self, table: str) -> LlmKeys | None:
        named = {each.name: f"{table}.{each.name}" for each in fields(LlmKeys)}
        given = {key: self.values[name] for key, name in named.items() if name in self.values}
        return LlmKeys(**given) if given else None


def is_untrusted(folder: Path) -> bool:
    """Say whether a folder's `config/config.toml` is another program's. ConfigError: unreadable."""
    text = read_text(folder / OLD_CONFIG, folder)
    return text is not None and not _LLM_TABLE.search(text)


def read_layer(path: Path, within: Path | None) -> Layer | None:
    """Read a TOML file, or an `mcp.json`.

    Args:
        path: The file.
        within: As for `read_text`.

    Returns:
        None if there is no such file, or if a `config/config.toml` is another program's.

    Raises:
        ConfigError: Names the file and the line, or the key.
    """
    text = read_text(path, within)
    if text is None or (path.match(OLD_CONFIG) and not _LLM_TABLE.search(text)):
        return None
    reading = _read_mcp_file(path, text) if path.suffix == ".json" else _read_toml(path, text)
    if reading.problems:
        raise ConfigError(f"{path}: {'; '.join(reading.problems)}.")
    return Layer(reading.values, path, tuple(reading.unknown))


def _read_toml(path: Path, text: str) -> Reading:
    try:
        reading = read(tomllib.loads(text))
    except RecursionError:  # its traceback is as deep as the text
        raise ConfigError(
            f"{path} is nested too deeply. Write fewer tables in one another."
        ) from None
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    if any(name.startswith("llm.vision.") for name in reading.values):
        for each in fields(LlmKeys):
            if f"llm.{each.name}" in reading.values:
                plain = reading.values[f"llm.{each.name}"]
                reading.values.setdefault(f"llm.vision.{each.name}", plain)
    return reading


def _read_mcp_file(path: Path, text: str) -> Reading:
    """Read the form that most programs share, `mcpServers`, or `servers`."""
    try:
        raw: Any = json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ConfigError(
            f"{path} is nested too deeply. Write fewer objects in one another."
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: the file: Input should be a valid dictionary.")
    reading, servers = Reading(), dict[str, Any]()
    table = cast("dict[str, Any]", raw)
    for key in ("servers", "mcpServers"):
        if key in table:
            reading.values.clear()
            reading.add(declared()["mcp.servers"], table[key], key)
            servers |= reading.values.get("mcp.servers", {})
    reading.unknown += [key for key in table if key not in ("servers", "mcpServers")]
    reading.values["mcp.servers"] = servers
    return reading


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
