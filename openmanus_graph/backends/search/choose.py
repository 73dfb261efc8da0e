"""Which engines a run may ask, in which order, and which of those it names are unavailable."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from openmanus_graph.backends.search.baidu import Baidu
from openmanus_graph.backends.search.brave import Brave
from openmanus_graph.backends.search.google import Google
from openmanus_graph.backends.search.metasearch import Metasearch
from openmanus_graph.backends.search.search_engine import SearchEngine
from openmanus_graph.backends.search.searxng import Searxng
from openmanus_graph.backends.search.tavily import Tavily
from openmanus_graph.state.search_engines import (
    DDGS_BACKENDS,
    GOOGLE_ID_VARIABLE,
    KEY_VARIABLES,
    SEARXNG_VARIABLE,
)
from openmanus_graph.state.settings import SearchSettings

_ENGINES_WITH_KEY: Mapping[str, Callable[..., SearchEngine]] = {
    "tavily": Tavily,
    "brave": Brave,
    "baidu": Baidu,
}
_PREFERRED = ("searxng", "tavily", "brave", "google", "baidu")
"""What the person has set up, before what needs nothing."""
# Startpage shows Google's results.
_BACKENDS_WITHOUT_KEY = {"google": "startpage", "brave": "brave"}


@dataclass
class EngineChoice:
    """Engines in the order of asking, and what the person should know about it."""

    engines: list[SearchEngine] = field(default_factory=list[SearchEngine])
    notices: list[str] = field(default_factory=list[str])


def choose_engines(settings: SearchSettings) -> EngineChoice:
    """Choose by the settings: the engine named, its fallbacks, or else all there are."""
    choice = EngineChoice()
    for name in _order(settings):
        for engine in _engines(name, settings):
            if all(engine.name != known.name for known in choice.engines):
                choice.engines.append(engine)
        if not is_configured(name, settings):
            choice.notices.append(_notice(name))
    return choice


def _order(settings: SearchSettings) -> Iterator[str]:
    set_up = [name for name in _PREFERRED if is_configured(name, settings)]
    if settings.engine is not None:
        yield settings.engine
    elif settings.fallback_engines is not None:
        yield from set_up or ["ddgs"]
    if settings.fallback_engines is not None:
        yield from settings.fallback_engines
    else:
        yield from (*set_up, "ddgs")


def is_configured(name: str, settings: SearchSettings) -> bool:
    """Say whether the key, or the address, that an engine needs is set."""
    if name == "searxng":
        return name in settings.urls
    if name == "google":
        return name in settings.keys and settings.google_cse_id is not None
    return name not in KEY_VARIABLES or name in settings.keys


def _engines(name: str, settings: SearchSettings) -> Iterator[SearchEngine]:
    if name == "ddgs":
        yield from map(Metasearch, DDGS_BACKENDS)
    elif not is_configured(name, settings):
        if name in _BACKENDS_WITHOUT_KEY:
            yield Metasearch(_BACKENDS_WITHOUT_KEY[name])
    elif name in KEY_VARIABLES or name == "searxng":
        yield _configured_engine(name, settings)
    else:
        yield Metasearch(name)


def _configured_engine(name: str, settings: SearchSettings) -> SearchEngine:
    if name == "searxng":
        return Searxng(settings.urls[name])
    key = settings.keys[name]
    address = {"url": settings.urls[name]} if name in settings.urls else {}
    if name == "google":
        return Google(key, settings.google_cse_id or "", **address)
    return _ENGINES_WITH_KEY[name](key, **address)


def _notice(name: str) -> str:
    if name == "searxng":
        return f"Search: searxng is not asked; set searxng_url in [search], or {SEARXNG_VARIABLE}."
    needs = KEY_VARIABLES[name][0] + (f" and {GOOGLE_ID_VARIABLE}" if name == "google" else "")
    instead = _BACKENDS_WITHOUT_KEY.get(name)
    served = f"is asked through ddgs:{instead}, without a key" if instead else "is not asked"
    return f"Search: {name} {served}; set {needs} to ask its own service."
