"""Stores the model and the providers' keys that `openmanus init` and the page ask for.

The model is set in `config.toml`. Keys are in `credentials.json`, which only the user can read, or
in the system's keyring if the package `keyring` is installed and works. A key goes only to the
server that it was given for.
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

from openmanus_graph.config.declared import LEFT_OUT, moved_keys
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


def stored_key(provider: str, base_url: str | None) -> SecretStr | None:
    """Return the key that was stored for a provider at this address. Blocks."""
    name = _server_name(provider, base_url)
    entry = _entries().get(name, {})
    key = _key_of(name, entry)
    return SecretStr(key) if key else None


def stored_keys() -> list[str]:
    found = (_key_of(name, entry) for name, entry in _entries().items())
    return [key for key in found if isinstance(key, str)]


def store_key(provider: str, base_url: str | None, key: str) -> str:
    """Store a key, and return where, in words. Blocks. ConfigError if it cannot be stored."""
    name = _server_name(provider, base_url)
    in_keyring = _put_into_keyring(name, key)
    _from_keyring.cache_clear()
    path = config_home() / KEYS_FILE
    with changed_object(path, mode=0o600) as entries:
        entries[name] = {"keyring": True} if in_keyring else {"key": key}
    return "the system's keyring" if in_keyring else f"{path} (only you can read it)"


def store_model(spec: str, base_url: str | None, window: int | None = None) -> Path:
    """Write the model into the user's configuration, and keep the rest of it. Blocks.

    Args:
        spec: `PROVIDER:NAME`.
        base_url: Of its server.
        window: Tokens of one request. None: the value that was set for another model is removed.

    Raises:
        ConfigError: The file is not TOML, or cannot be written.
    """
    path = config_home() / CONFIG_FILE
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        changed = with_values(text, {"model": spec, "base_url": base_url})
        changed = with_values(changed, {"context_window": window}, "llm")
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no TOML, no UTF-8
        raise ConfigError(
            f"{path} cannot be changed: {error}. Write model = {json.dumps(spec)} into it."
        ) from error
    write_file(path, changed, mode=mode)
    return path


def with_values(text: str, values: Mapping[str, str | int | None], table: str = "") -> str:
    """Return a TOML text with these values at its top level, or in a table; None removes one.

    Everything else in it is kept, comments too.

    Raises:
        ValueError: It is not TOML, or not understood: a key over several lines, for example.
    """
    wanted = tomllib.loads(text)
    known: dict[str, Any] = wanted.get(table, {}) if table else wanted
    if not any(values.values()) and not known.keys() & values.keys():
        return text
    head, rest = "", text
    if table:
        begins = re.search(rf"^[ \t]*\[{table}\][^\n]*\n?", text, re.MULTILINE)
        head = text[: begins.end()] if begins else f"{text.rstrip()}\n\n[{table}]\n"
        rest = text[begins.end() :] if begins else ""
    end = match.start() if (match := _TABLE.search(rest)) else len(rest)
    keys = rest[:end]
    for key in values:
        keys = re.sub(rf"^[ \t]*(?:{key}|\"{key}\")[ \t]*=.*\n?", "", keys, flags=re.MULTILINE)
    lines = [f"{key} = {json.dumps(v, ensure_ascii=False)}\n" for key, v in values.items() if v]
    changed = f"{head}{''.join(lines)}{keys}{rest[end:]}"
    kept = {key: value for key, value in known.items() if key not in values}
    kept |= {key: value for key, value in values.items() if value}
    wanted = {**wanted, table: kept} if table else kept
    if tomllib.loads(changed) != wanted:
        where = f"its table [{table}]" if table else "its beginning"
        raise ValueError(f"{where} is not understood")
    return changed


def _server_name(provider: str, base_url: str | None) -> str:
    """Name the server that a key was given for: it is never sent to another one."""
    return f"{provider} {base_url}" if base_url else provider


def _entries() -> dict[str, dict[str, Any]]:
    entries = read_object(config_home() / KEYS_FILE)
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _key_of(name: str, entry: Mapping[str, Any]) -> Any:
    return _from_keyring(name) if entry.get("keyring") else entry.get("key")


def _put_into_keyring(name: str, key: str) -> bool:
    """Put a key into the system's keyring; False if there is none that works."""
    if find_spec("keyring") is not None:
        keyring: Any = import_module("keyring")
        with contextlib.suppress(keyring.errors.KeyringError):
            keyring.set_password(SERVICE, name, key)
            return bool(keyring.get_password(SERVICE, name) == key)
    return False


@lru_cache
def _from_keyring(name: str) -> str | None:
    if find_spec("keyring") is not None:
        keyring: Any = import_module("keyring")
        with contextlib.suppress(keyring.errors.KeyringError):
            return cast("str | None", keyring.get_password(SERVICE, name))
    return None


OLD_FILES = (OLD_CONFIG, "config/mcp.json")
"""OpenManus's configuration files, relative to its folder."""


@dataclass(frozen=True)
class OldFile:
    """How the keys of one file are used. Keys are `section.key`; their values are left out."""

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
    moved = moved_keys()
    for name in OLD_FILES:
        layer = read_layer(folder / name, folder)
        if layer is None:
            continue
        keys = _keys(folder / name, folder)
        left_out = {key: LEFT_OUT[key] for key in keys if key in LEFT_OUT}
        left_out |= {key: _advice(key) for key in layer.unknown if key.strip("[]") not in LEFT_OUT}
        yield OldFile(
            path=name,
            used=tuple(key for key in keys if key not in moved and key not in left_out),
            renamed={key: moved[key] for key in keys if key in moved},
            left_out=left_out,
            untrusted=() if is_trusted(folder, layer) else tuple(risky_settings(layer)),
        )


def _advice(key: str) -> str:
    if key.startswith("llm.") and key.count(".") == 1:
        return "not known here. If it configures another model, use --model or vision_model"
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
