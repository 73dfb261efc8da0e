"""Collects the secret values of this machine, so that exported files hold none of them.

They come from environment variables, configuration files, stored keys, logins at MCP servers and
the server's token, whether or not a run uses them.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from openmanus_graph.config.files import (
    changed_object,
    config_home,
    parse_json,
    read_object,
    read_text,
)
from openmanus_graph.config.homes import home_place, is_own
from openmanus_graph.config.model import stored_keys
from openmanus_graph.config.resolve import KEY_FILES
from openmanus_graph.errors import ConfigError

REMOVED = "[secret removed]"
SERVER_TOKEN_FILE = "server-token"
MCP_LOGINS = "mcp-logins"
MIN_SECRET_CHARS = 8
"""Shorter values would be found in texts that have nothing to do with them."""
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTHORIZATION|COOKIE", re.IGNORECASE
)
_NO_SECRET = re.compile(r"_(endpoint|method|type|url|uri|file|path|env|name)", re.IGNORECASE)
_SECRET_TABLES = ("headers", "env")
"""Tables whose values are secret if they look like keys, whatever their names."""
_LOOKS_LIKE_KEY = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])[\w+=.~-]{20,}")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-[^}]*)?\}")
_MAX_DEPTH = 100


class SecretValues:
    """Removes known values from texts."""

    def __init__(self, values: Iterable[str]) -> None:
        known = {form for value in values for form in _forms(value)}
        longest_first = sorted(known, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def remove_from(self, text: str) -> str:
        """Return a text, or a line of JSON, without them."""
        return text if self._any is None else self._any.sub(REMOVED, text)


def known_secrets(config: str | None = None) -> SecretValues:
    """Return what is secret on this machine, and in the file `config`. Blocks."""
    folder = config_home()
    files = [Path(name).absolute() for name in (*KEY_FILES, *([config] if config else ()))]
    files += [folder / "config.toml", folder / "mcp.json"]
    files += sorted((folder / MCP_LOGINS).glob("*.json"))
    values = [*_in_table(os.environ), *stored_keys()]
    for file in files:
        values += _in_table(_read(file))
    if is_own(home := home_place()):
        values.append(_text(home / SERVER_TOKEN_FILE).strip())
    return SecretValues(values)


def _in_table(table: Mapping[str, Any]) -> Iterator[str]:
    left: list[tuple[Any, tuple[str, ...]]] = [(table, ())]
    while left:  # a hostile file may be nested too deeply for calls
        value, names = left.pop()
        if isinstance(value, Mapping) and len(names) < _MAX_DEPTH:
            inner = cast("Mapping[str, Any]", value)
            left += [(one, (*names, name)) for name, one in inner.items()]
        elif isinstance(value, list):
            left += [(one, names) for one in cast("list[Any]", value)]
        elif isinstance(value, str):
            for text in {value, _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), value)}:
                yield from _in_text(text, names)


def _in_text(text: str, names: Sequence[str]) -> Iterator[str]:
    """Yield what is secret in a text: all of it by its name or look, or the password of a URL."""
    scheme, _, rest = text.partition(" ")
    looks = any(table in _SECRET_TABLES for table in names[:-1])
    named = any(map(_SECRET_NAME.search, names)) and not _NO_SECRET.search(names[-1])
    if named or (looks and _LOOKS_LIKE_KEY.fullmatch(rest or text)):
        yield from (text, rest if scheme.isalpha() else "")  # `Bearer KEY`
        given, _, site = text.rpartition("@")
        if given and "/" not in site:  # `NAME=VALUE@DOMAIN`, of the browser
            yield from (given, given.partition("=")[2])
    try:
        yield urlsplit(text).password or ""
    except ValueError:  # no URL
        return


def _forms(value: str) -> Iterator[str]:
    """Yield how a value may be written: plainly, in JSON, in an address."""
    if len(value) >= MIN_SECRET_CHARS:
        yield value
        yield json.dumps(value, ensure_ascii=False)[1:-1]
        yield json.dumps(value)[1:-1]
        yield quote(value, safe="")


def _read(file: Path) -> Mapping[str, Any]:
    """Return a file's values; none if it cannot be read, because no run reads it either."""
    text = _text(file)
    try:
        if file.suffix == ".json":
            found: Any = parse_json(text)
            return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if file.suffix == ".toml":
            return tomllib.loads(text)
    except (ValueError, RecursionError):  # what JSON and TOML raise
        return {}
    pairs = (line.removeprefix("export ").partition("=") for line in text.splitlines())
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _text(file: Path) -> str:
    try:
        return read_text(file, None) or ""
    except ConfigError:
        return ""


KEY_VARIABLE = "OPENMANUS_OPTIONS_KEY"
MIN_KEY_CHARS = 32
"""Readers of signed options could guess a shorter one."""
_KEY_BYTES = 32
_known: dict[Path, bytes] = {}


def options_key(*, make: bool) -> bytes | None:
    """Return the environment's key, else the one in the configuration folder. Blocks.

    If there is none, `make` makes one. Returns None if there is none, or none can be written.
    Raises ConfigError if the environment's key is too short.
    """
    if given := os.environ.get(KEY_VARIABLE):
        if len(given) < MIN_KEY_CHARS:
            raise ConfigError(
                f"{KEY_VARIABLE} has {len(given)} characters, and could be guessed. Set one of at "
                f"least {MIN_KEY_CHARS} random characters, for example from: openssl rand -hex 32"
            )
        return given.encode("utf-8", "surrogateescape")
    path = key_file()
    if path in _known:
        return _known[path]
    found = _key(read_object(path))
    if found is None and make:
        with contextlib.suppress(ConfigError), changed_object(path, mode=0o600) as entries:
            if _key(entries) is None:  # no other process was faster
                entries["key"] = secrets.token_hex(_KEY_BYTES)
        found = _key(read_object(path))
    if found is not None:
        _known[path] = found
    return found


def hmac_of(key: bytes, content: Any) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def key_file() -> Path:
    return config_home() / "options-key.json"


def _key(entries: dict[str, object]) -> bytes | None:
    found = entries.get("key")
    return found.encode() if isinstance(found, str) and len(found) >= MIN_KEY_CHARS else None


CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = ("true", "1", "span_only", "span_and_event")


def captures_content() -> bool:
    """Return True if spans may hold the texts of messages, tool calls and results."""
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURING
