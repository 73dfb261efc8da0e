"""What `openmanus init` keeps in the person's own folder: the model, and the providers' keys.

The model stands in `config.toml`. Keys lie in `credentials.json`, which only the person can read,
or in the system's keyring where the package `keyring` is installed and works. A key goes only to
the server that it was given for.
"""

import contextlib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from openmanus_graph.config.trust import config_home
from openmanus_graph.errors import ConfigError

KEYS_FILE, CONFIG_FILE = "credentials.json", "config.toml"
SERVICE = "openmanus"
"""Of our entries in the keyring."""
_TABLE = re.compile(r"^\s*\[", re.MULTILINE)


def stored_key(provider: str, base_url: str | None) -> SecretStr | None:
    """Return the key that was stored for a provider at this address. Blocks."""
    entry = _entries().get(provider)
    if entry is None or entry.get("base_url") != base_url:
        return None
    key = _from_keyring(provider) if entry.get("keyring") else entry.get("key")
    return SecretStr(key) if key else None


def store_key(provider: str, base_url: str | None, key: str) -> str:
    """Store a key, and say where it is. Blocks. ConfigError if it cannot be stored."""
    entry: dict[str, Any] = {"base_url": base_url}
    in_keyring = _put_into_keyring(provider, key)
    entry |= {"keyring": True} if in_keyring else {"key": key}
    _from_keyring.cache_clear()
    path = config_home() / KEYS_FILE
    _write_private(path, json.dumps({**_entries(), provider: entry}, indent=2) + "\n")
    return "the system's keyring" if in_keyring else f"{path} (only you can read it)"


def store_model(spec: str, base_url: str | None) -> Path:
    """Write the model into the person's configuration, and leave the rest of it. Blocks.

    Raises:
        ConfigError: The file is no TOML, or cannot be written.
    """
    path = config_home() / CONFIG_FILE
    chosen = {"model": spec, "base_url": base_url}
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        known = tomllib.loads(text)
        changed = _with_keys(text, chosen)
        wanted = {key: value for key, value in {**known, **chosen}.items() if value is not None}
        if tomllib.loads(changed) != wanted:
            raise ValueError("its beginning is not understood")
        _write_private(path, changed)
    except (OSError, ValueError) as error:  # UnicodeDecodeError and TOMLDecodeError among them
        raise ConfigError(
            f"{path} cannot be changed: {error}. Write model = {json.dumps(spec)} into it."
        ) from error
    return path


def _with_keys(text: str, values: Mapping[str, str | None]) -> str:
    """Set keys before the first table; None removes one."""
    table = match.start() if (match := _TABLE.search(text)) else len(text)
    top, rest = text[:table], text[table:]
    for key in values:
        top = re.sub(rf"^[ \t]*{key}[ \t]*=.*\n?", "", top, flags=re.MULTILINE)
    lines = [f"{key} = {json.dumps(v, ensure_ascii=False)}\n" for key, v in values.items() if v]
    return "".join(lines) + top + rest


def _entries() -> dict[str, dict[str, Any]]:
    try:
        known = json.loads((config_home() / KEYS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    entries = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _write_private(path: Path, text: str) -> None:
    """Replace a file by one that only the person can read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def _put_into_keyring(provider: str, key: str) -> bool:
    """Put a key into the system's keyring; False where there is none that works."""
    if find_spec("keyring") is None:
        return False
    keyring: Any = import_module("keyring")
    with contextlib.suppress(keyring.errors.KeyringError):
        keyring.set_password(SERVICE, provider, key)
        return bool(keyring.get_password(SERVICE, provider) == key)
    return False


@lru_cache
def _from_keyring(provider: str) -> str | None:
    if find_spec("keyring") is None:
        return None
    keyring: Any = import_module("keyring")
    with contextlib.suppress(keyring.errors.KeyringError):
        return cast("str | None", keyring.get_password(SERVICE, provider))
    return None
