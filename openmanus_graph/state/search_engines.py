"""The names of the engines, the variables that set them up, and how much may be asked for."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError

MAX_RESULTS = 50

KEY_VARIABLES = {
    "tavily": ("TAVILY_API_KEY",),
    "brave": ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"),
    "google": ("GOOGLE_API_KEY",),
    "baidu": ("BAIDU_API_KEY", "QIANFAN_API_KEY"),
}
"""Engines that want a key: the first variable is the one to name."""
GOOGLE_ID_VARIABLE = "GOOGLE_CSE_ID"
SEARXNG_VARIABLE = "SEARXNG_URL"

BACKENDS = ("duckduckgo", "brave", "mojeek", "startpage", "yahoo", "wikipedia")
"""What ddgs asks, in this order; Grokipedia is left out, because machines write it."""

ENGINES = ("ddgs", "searxng", *KEY_VARIABLES, *(name for name in BACKENDS if name != "brave"))
"""What may stand as `engine` and in `fallback_engines`; case does not matter."""

RETIRED = {"bing": "duckduckgo"}
"""Engines that old files name although they are gone, and what shows the same results."""

ServiceName = Literal["searxng", "tavily", "brave", "google", "baidu", "bing"]
"""Engines whose address may be another one; that of a retired one is left out."""


def known_engine(name: str) -> str:
    """Return an engine's name as it stands in `ENGINES`. ConfigError if there is no such engine."""
    known = name.strip().lower()
    known = RETIRED.get(known, known)
    if known not in ENGINES:
        raise ConfigError(
            f"There is no search engine {name!r}. [search] takes: {', '.join(ENGINES)}."
        )
    return known


def usable_keys(keys: Mapping[str, SecretStr]) -> dict[str, SecretStr]:
    """Return the keys that are not empty, by engine. ConfigError if one cannot be a key."""
    found: dict[str, SecretStr] = {}
    for engine, key in keys.items():
        value = key.get_secret_value().strip()
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(
                f"The key of the search engine {engine} holds characters that no key has (a dash "
                "or quote of a word processor, or a line break). Copy it again."
            )
        if value:
            found[engine] = SecretStr(value)
    return found


def web_addresses(urls: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses that are not empty, by engine. ConfigError if one is no web address."""
    return {
        engine: _web_address(engine, url)
        for engine, url in urls.items()
        if url.strip() and engine not in RETIRED
    }


def _web_address(engine: str, url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise ConfigError(
            f"The address of the search engine {engine} is no web address. Write it like "
            "http://127.0.0.1:8080."
        )
    return url.strip().rstrip("/")
