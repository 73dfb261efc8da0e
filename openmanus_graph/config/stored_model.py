"""What `openmanus init` and the page keep in the person's own folder: model and providers' keys.

The model stands in `config.toml`. Keys lie in `credentials.json`, which only the person can read,
or in the system's keyring where the package `keyring` is installed and works. A key goes only to
the server that it was given for.
"""

import contextlib
import json
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from openmanus_graph.config.declared import LEFT_OUT, Layer, moved_keys
from openmanus_graph.config.files import (
    OLD_CONFIG,
    changed_object,
    config_home,
    read_layer,
    read_object,
    read_text,
    write_file,
)
from openmanus_graph.config.homes import is_trusted, risky_settings
from openmanus_graph.errors import ConfigError

KEYS_FILE, CONFIG_FILE = "credentials.json", "config.toml"
SERVICE = "openmanus"
"""Of our entries in the keyring."""
_TABLE = re.compile(r"^\s*\[", re.MULTILINE)
_LLM = re.compile(r"^[ \t]*\[llm\][^\n]*\n?", re.MULTILINE)


def stored_key(provider: str, base_url: str | None) -> SecretStr | None:
    """Return the key that was stored for a provider at this address. Blocks."""
    place = _place(provider, base_url)
    entry = _entries().get(place, {})
    key = _from_keyring(place) if entry.get("keyring") else entry.get("key")
    return SecretStr(key) if key else None


def stored_keys() -> list[str]:
    """Return all keys that were stored, for whatever server. Blocks."""
    found = (
        _from_keyring(place) if entry.get("keyring") else entry.get("key")
        for place, entry in _entries().items()
    )
    return [key for key in found if isinstance(key, str)]


def store_key(provider: str, base_url: str | None, key: str) -> str:
    """Store a key, and say where it is. Blocks. ConfigError if it cannot be stored."""
    place = _place(provider, base_url)
    in_keyring = _put_into_keyring(place, key)
    entry = {"keyring": True} if in_keyring else {"key": key}
    _from_keyring.cache_clear()
    path = config_home() / KEYS_FILE
    with changed_object(path, mode=0o600) as entries:
        entries[place] = entry
    return "the system's keyring" if in_keyring else f"{path} (only you can read it)"


def store_model(spec: str, base_url: str | None, window: int | None = None) -> Path:
    """Write the model into the person's configuration, and leave the rest of it. Blocks.

    Args:
        spec: `PROVIDER:NAME`.
        base_url: Of its server.
        window: Tokens of one request, where its server tells; else what was set for another model
            is removed.

    Raises:
        ConfigError: The file is no TOML, or cannot be written.
    """
    path = config_home() / CONFIG_FILE
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        changed = with_top_keys(text, {"model": spec, "base_url": base_url})
        changed = with_window(changed, window)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    except (
        OSError,
        ValueError,
        RecursionError,
    ) as error:  # UnicodeDecodeError and TOMLDecodeError among them
        raise ConfigError(
            f"{path} cannot be changed: {error}. Write model = {json.dumps(spec)} into it."
        ) from error
    write_file(path, changed, mode=mode)
    return path


def with_top_keys(text: str, values: Mapping[str, str | None]) -> str:
    """Return a TOML text in which keys of the top level have these values; None removes one.

    All else in it, comments too, stays as it is.

    Raises:
        ValueError: It is no TOML, or not understood, with a key over several lines say.
    """
    wanted = {**tomllib.loads(text), **values}
    table = match.start() if (match := _TABLE.search(text)) else len(text)
    top, rest = text[:table], text[table:]
    for key in values:
        top = re.sub(rf"^[ \t]*(?:{key}|\"{key}\")[ \t]*=.*\n?", "", top, flags=re.MULTILINE)
    lines = [f"{key} = {json.dumps(v, ensure_ascii=False)}\n" for key, v in values.items() if v]
    changed = "".join(lines) + top + rest
    if tomllib.loads(changed) != {key: value for key, value in wanted.items() if value is not None}:
        raise ValueError("its beginning is not understood")
    return changed


def with_window(text: str, window: int | None) -> str:
    """Return a TOML text in which `[llm] context_window` has this value; None removes it.

    Raises:
        ValueError: As `with_top_keys`.
    """
    wanted = tomllib.loads(text)
    if window is None and "context_window" not in wanted.get("llm", {}):
        return text
    begins = _LLM.search(text)
    head = text[: begins.end()] if begins else f"{text.rstrip()}\n\n[llm]\n"
    rest = text[begins.end() :] if begins else ""
    after = match.start() if (match := _TABLE.search(rest)) else len(rest)
    table = re.sub(r"^[ \t]*context_window[ \t]*=.*\n?", "", rest[:after], flags=re.MULTILINE)
    line = f"context_window = {window}\n" if window else ""
    changed = f"{head}{line}{table}{rest[after:]}"
    llm = {**wanted.get("llm", {}), "context_window": window}
    wanted["llm"] = {key: value for key, value in llm.items() if value is not None}
    if tomllib.loads(changed) != wanted:
        raise ValueError("its table [llm] is not understood")
    return changed


def _place(provider: str, base_url: str | None) -> str:
    """Name the place of a key: it goes to the server that it was given for, never to another."""
    return f"{provider} {base_url}" if base_url else provider


def _entries() -> dict[str, dict[str, Any]]:
    entries = read_object(config_home() / KEYS_FILE)
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _put_into_keyring(place: str, key: str) -> bool:
    """Put a key into the system's keyring; False where there is none that works."""
    if find_spec("keyring") is None:
        return False
    keyring: Any = import_module("keyring")
    with contextlib.suppress(keyring.errors.KeyringError):
        keyring.set_password(SERVICE, place, key)
        return bool(keyring.get_password(SERVICE, place) == key)
    return False


@lru_cache
def _from_keyring(place: str) -> str | None:
    if find_spec("keyring") is None:
        return None
    keyring: Any = import_module("keyring")
    with contextlib.suppress(keyring.errors.KeyringError):
        return cast("str | None", keyring.get_password(SERVICE, place))
    return None


OLD_FILES = (OLD_CONFIG, "config/mcp.json")
"""OpenManus's configuration files, relative to its folder."""


@dataclass(frozen=True)
class OldFile:
    """How the keys of one file are used. Keys are `section.key`; it contains no values."""

    path: str
    used: tuple[str, ...]
    """Keys with the same meaning here."""
    renamed: Mapping[str, str]
    """Keys that are used, with their names here."""
    left_out: Mapping[str, str]
    """Keys that are ignored, and what to do instead."""
    untrusted: tuple[str, ...]
    """Keys that are used only after `openmanus trust`."""


def old_files(folder: Path) -> Iterator[OldFile]:
    """Read OpenManus's files of a folder, those that exist. ConfigError as `read_layer`."""
    for name in OLD_FILES:
        path = folder / name
        if (layer := read_layer(path, folder)) is not None:
            yield _report(name, layer, _keys(path, folder), folder)


def _report(name: str, layer: Layer, keys: list[str], folder: Path) -> OldFile:
    left_out = {key: LEFT_OUT[key] for key in keys if key in LEFT_OUT}
    for key in layer.unknown:
        if key.strip("[]") not in LEFT_OUT:
            left_out[key] = _advice(key)
    moved = moved_keys()
    unchanged = (key for key in keys if key not in moved and key not in left_out)
    untrusted = () if is_trusted(folder, layer) else tuple(risky_settings(layer))
    return OldFile(
        path=name,
        used=tuple(unchanged),
        renamed={key: moved[key] for key in keys if key in moved},
        left_out=left_out,
        untrusted=untrusted,
    )


def _advice(key: str) -> str:
    if key.startswith("llm.") and key.count(".") == 1:
        return "not known here. If it is a model of its own, choose it by --model, or vision_model"
    return "not known here; remove it"


def _keys(path: Path, folder: Path) -> list[str]:
    """List a file's keys as `section.key`; ignored sections count as one key."""
    text = (read_text(path, folder) or "").removeprefix("\ufeff")
    raw: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    found: list[str] = []
    for section, value in raw.items():
        if isinstance(value, dict) and section not in LEFT_OUT:
            found += [f"{section}.{key}" for key in cast("dict[str, Any]", value)]
        else:
            found.append(section)
    return found
