"""How a run searches: `[search]`, its keys and addresses."""

import os
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from openmanus_graph.config.files import Layer
from openmanus_graph.config.model import first
from openmanus_graph.config.sections import SearchSection, section_of
from openmanus_graph.errors import ConfigError
from openmanus_graph.search.names import (
    ENGINES,
    GOOGLE_ID_VARIABLE,
    KEY_VARIABLES,
    SEARXNG_VARIABLE,
)
from openmanus_graph.search.places import parse_place
from openmanus_graph.settings import SearchSettings
from openmanus_graph.state.context import Context

_PLAIN = (
    "retry_delay", "max_retries", "lang", "country", "timeout_s", "total_timeout_s",
    "google_cse_id",
)  # fmt: skip


def search_settings(context: Context, layers: list[Layer]) -> tuple[SearchSettings, list[str]]:
    """Merge what the caller, the environment and the files say; warn of the caller's odd keys.

    Raises:
        ConfigError: A value is wrong, and which.
    """
    own = section_of(SearchSection, "search", context.search)
    sections = [own, _environment(), *(layer.config.search for layer in layers)]
    chosen: dict[str, Any] = {
        name: value
        for name in _PLAIN
        if (value := first(getattr(section, name) for section in sections)) is not None
    }
    engine = first(section.engine for section in sections)
    fallbacks = first(section.fallback_engines for section in sections)
    settings = SearchSettings(
        engine=None if engine is None else _known(engine),
        fallback_engines=None if fallbacks is None else tuple(map(_known, fallbacks)),
        keys=_keys(sections),
        urls=_urls(sections),
        **chosen,
    )
    try:
        parse_place(settings.lang, settings.country)
    except ValueError as error:
        raise ConfigError(f"[search] {error}.") from error
    unknown = [f"search.{key} is not known here and was left out." for key in own.model_extra or {}]
    return settings, unknown


def _environment() -> SearchSection:
    """Read the environment as if it were a file's section."""
    values = {
        f"{engine}_api_key": first(os.environ.get(name) or None for name in variables)
        for engine, variables in KEY_VARIABLES.items()
    }
    values["searxng_url"] = os.environ.get(SEARXNG_VARIABLE) or None
    values["google_cse_id"] = os.environ.get(GOOGLE_ID_VARIABLE) or None
    return SearchSection.model_validate(values)


def _known(engine: str) -> str:
    name = engine.strip().lower()
    if name not in ENGINES:
        raise ConfigError(
            f"There is no search engine {engine!r}. [search] takes: {', '.join(ENGINES)}."
        )
    return name


def _keys(sections: list[SearchSection]) -> dict[str, SecretStr]:
    found: dict[str, SecretStr] = {}
    for engine in KEY_VARIABLES:
        key = first(getattr(section, f"{engine}_api_key") for section in sections)
        value = key.get_secret_value().strip() if key else ""
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(
                f"The key of the search engine {engine} holds characters that no key has (a dash "
                "or quote of a word processor, or a line break). Copy it again."
            )
        if value:
            found[engine] = SecretStr(value)
    return found


def _urls(sections: list[SearchSection]) -> dict[str, str]:
    found: dict[str, str] = {}
    for section in reversed(sections):
        for engine, url in (section.urls or {}).items():
            found[engine] = url
        if section.searxng_url:
            found["searxng"] = section.searxng_url
    return {engine: _address(engine, url) for engine, url in found.items() if url.strip()}


def _address(engine: str, url: str) -> str:
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
