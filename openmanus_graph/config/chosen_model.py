"""The model and the keys that a person gave by `openmanus init` or on the page.

The model's name stands in the person's `config.toml`, for all to see and change. Keys stand apart
from it in a file that only the person can read, each for one provider at one address.
"""

import json
import os
import re
import secrets
import tomllib
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from openmanus_graph.config.trust import config_home
from openmanus_graph.errors import ConfigError

CONFIG_FILE, KEYS_FILE = "config.toml", "keys.json"
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def store_model(model: str, base_url: str | None, key: str | None) -> None:
    """Make a model the default of all runs, and keep its key. Blocks.

    Args:
        model: `PROVIDER:NAME`, the provider by its own name.
        base_url: Address of an OpenAI-compatible server; None: the provider's own.
        key: None keeps the key that is stored.

    Raises:
        ConfigError: The configuration cannot be written, or not be changed safely.
    """
    home = config_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        if key is not None:
            keys = {**_keys(), _name(model.partition(":")[0], base_url): key}
            _write(home / KEYS_FILE, json.dumps(keys, indent=2) + "\n", mode=0o600)
        file = home / CONFIG_FILE
        text = file.read_text("utf-8") if file.exists() else ""
        changed = with_top_keys(text, {"model": model, "base_url": base_url})
        if changed != text:
            _write(file, changed, mode=file.stat().st_mode & 0o777 if file.exists() else 0o644)
    except OSError as error:
        raise ConfigError(f"{home} cannot be written: {error.strerror}.") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise ConfigError(f"{home / CONFIG_FILE} cannot be changed: {error}.") from error


def stored_key(provider: str, base_url: str | None) -> SecretStr | None:
    """Return the key that is stored for a provider at an address. Blocks."""
    key = _keys().get(_name(provider, base_url))
    return SecretStr(key) if key else None


def with_top_keys(text: str, values: dict[str, str | None]) -> str:
    """Return a TOML text in which keys of the top level have these values; None removes one.

    All else in it, comments too, stays as it is.

    Raises:
        ValueError: It is no TOML, or one of the keys is written over several lines.
    """
    tomllib.loads(text)
    table = _TABLE.search(text)
    end = table.start() if table else len(text)
    head, rest = text[:end], text[end:]
    for name in values:
        head = re.sub(rf"^[ \t]*(?:{name}|\"{name}\")[ \t]*=.*\n?", "", head, flags=re.MULTILINE)
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value]
    changed = "".join(lines) + head + rest
    written = tomllib.loads(changed)
    if any(written.get(name) != value for name, value in values.items()):
        raise ValueError(f"{' and '.join(values)} are not written in one line each")
    return changed


def _keys() -> dict[str, str]:
    try:
        found: Any = json.loads((config_home() / KEYS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # an unreadable file holds no key; storing one writes it anew
    entries = cast("dict[str, Any]", found).items() if isinstance(found, dict) else ()
    return {name: key for name, key in entries if isinstance(key, str)}


def _name(provider: str, base_url: str | None) -> str:
    """Name the place of a key: it goes to the server that it was given for, never to another."""
    return f"{provider} {base_url}" if base_url else provider


def _write(path: Path, text: str, *, mode: int) -> None:
    """Replace a file at once; nobody else can read it before its mode is set."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        draft.chmod(mode)
        draft.replace(path.resolve())  # a link to a file of dotfiles stays one
    finally:
        draft.unlink(missing_ok=True)
