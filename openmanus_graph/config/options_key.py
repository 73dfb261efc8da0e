"""The key by which this user's processes know what they stored with threads: options, approvals."""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from openmanus_graph.config.home_files import changed_object, config_home, read_object
from openmanus_graph.errors import ConfigError

KEY_VARIABLE = "OPENMANUS_OPTIONS_KEY"
MIN_KEY_CHARS = 32
"""A shorter one could be guessed by whoever reads signed options."""
_KEY_BYTES = 32
_known: dict[Path, bytes] = {}


def options_key(*, make: bool) -> bytes | None:
    """Return the environment's key, else the one in the configuration folder. Blocks.

    Args:
        make: Make one if there is none.

    Returns:
        None if there is none, or none can be written.

    Raises:
        ConfigError: The environment's is too short.
    """
    if given := os.environ.get(KEY_VARIABLE):
        if len(given) < MIN_KEY_CHARS:
            raise ConfigError(
                f"{KEY_VARIABLE} has {len(given)} characters, and could be guessed. Set one of at "
                f"least {MIN_KEY_CHARS} random characters, for example from: openssl rand -hex 32"
            )
        return given.encode("utf-8", "surrogateescape")
    path = key_file()
    if path not in _known:
        found = _key(read_object(path))
        if found is None and make:
            with contextlib.suppress(ConfigError), changed_object(path, mode=0o600) as entries:
                if _key(entries) is None:  # no other process was faster
                    entries["key"] = secrets.token_hex(_KEY_BYTES)
            found = _key(read_object(path))
        if found is None:
            return None
        _known[path] = found
    return _known[path]


def hmac_of(key: bytes, content: Any) -> str:
    """Return the HMAC of what can be written as JSON."""
    text = json.dumps(content, sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def key_file() -> Path:
    """Return where the key is kept when the environment names none."""
    return config_home() / "options-key.json"


def _key(entries: dict[str, object]) -> bytes | None:
    found = entries.get("key")
    return found.encode() if isinstance(found, str) and len(found) >= MIN_KEY_CHARS else None
