"""Search engines: names, keys, settings, and codes of languages and countries."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_web_address
from openmanus_graph.state.setting_declaration import ALWAYS, AlternativeKey, Setting

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

DDGS_BACKENDS = ("duckduckgo", "brave", "mojeek", "startpage", "yahoo", "wikipedia")
"""What ddgs asks, in this order; Grokipedia is left out, because machines write it."""

ENGINES = ("ddgs", "searxng", *KEY_VARIABLES, *(name for name in DDGS_BACKENDS if name != "brave"))
"""Values of `engine` and `fallback_engines`; case does not matter."""

RETIRED = {"bing": "duckduckgo"}
"""Engines that no longer exist, and the ones with the same results."""

ServiceName = Literal["searxng", "tavily", "brave", "google", "baidu", "bing"]
"""Engines whose address can be set; that of a retired one is ignored."""


def known_engine(name: str) -> str:
    """Return an engine's name as in `ENGINES`. ConfigError if there is no such engine."""
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
    """Return the addresses that are not empty, by engine. ConfigError: one is not a web address."""
    found: dict[str, str] = {}
    for engine, given in urls.items():
        url = given.strip()
        if not url or engine in RETIRED:
            continue
        if not is_web_address(url):
            raise ConfigError(
                f"The address of the search engine {engine} is not a web address. Write it like "
                "http://127.0.0.1:8080."
            )
        found[engine] = url.rstrip("/")
    return found


_TAG = re.compile(r"([a-z]{2,3})(?:[-_]([a-z]{4}))?(?:[-_]([a-z]{2}))?", re.IGNORECASE)
_TRADITIONAL = {"tw", "hk", "mo"}


@dataclass(frozen=True)
class SearchLocale:
    """A language and a country, as ISO codes in lower case."""

    lang: str = "en"
    country: str = "us"
    traditional: bool = False
    """Chinese in traditional characters."""

    @property
    def tag(self) -> str:
        return f"{self.lang}-{self.country.upper()}"


def parse_search_locale(lang: str, country: str = "", usual_country: str = "us") -> SearchLocale:
    """Read codes as people write them: `en`, `en-GB`, `zh-Hant`, `UK`. ValueError says what fits.

    An empty `country` is that of the language, or else the usual one.
    """
    match = _TAG.fullmatch(lang.strip())
    if match is None:
        raise ValueError(f"lang is {lang!r}; write a language code such as en, de or zh")
    language, script, region = (part.lower() if part else "" for part in match.groups())
    found = country.strip().lower() or region or usual_country.strip().lower()
    if not re.fullmatch(r"[a-z]{2}", found):
        raise ValueError(f"country is {found!r}; write a two-letter code such as us, de or cn")
    found = "gb" if found == "uk" else found
    traditional = language == "zh" and (
        script == "hant" or (not script and (region or found) in _TRADITIONAL)
    )
    return SearchLocale(language, found, traditional)


def _checked_locale(code: str, lang: str, country: str) -> str:
    try:
        parse_search_locale(lang, country)
    except ValueError as error:
        raise ConfigError(f"[search] {error}.") from error
    return code


@dataclass(frozen=True)
class SearchSettings:
    """Which engines `web_search` asks, and how long it may take."""

    engine: Annotated[
        str | None,
        Setting(shown="one with a key, else one without", accepts=ENGINES, parse=known_engine),
    ] = None
    """Search engine that is tried first."""
    fallback_engines: Annotated[
        tuple[str, ...] | None,
        Setting(
            shown="all other available engines", parse=lambda names: tuple(map(known_engine, names))
        ),
    ] = None
    """Search engines that are tried after `engine`, in this order."""
    lang: Annotated[str, Setting(parse=lambda code: _checked_locale(code, code, ""))] = "en"
    """Language of the search results."""
    country: Annotated[str, Setting(parse=lambda code: _checked_locale(code, "en", code))] = "us"
    """Country of the search results."""
    timeout_s: Annotated[float, Field(gt=0), Setting()] = 10
    """Time limit for one engine, in seconds."""
    total_timeout_s: Annotated[float, Field(gt=0, le=100), Setting()] = 30
    """Time limit for the whole search with its retries, in seconds. At most 100."""
    max_retries: Annotated[int, Field(ge=0), Setting()] = 1
    """Maximum number of retry rounds, if no engine answered and waiting may help. At most 5."""
    retry_delay: Annotated[float, Field(ge=0), Setting()] = 1
    """Time to wait before a retry round, in seconds. At most 5."""
    keys: Annotated[
        Mapping[str, SecretStr],
        Setting(
            key=None,
            alternative_keys=tuple(
                AlternativeKey(f"{engine}_api_key", part=engine, env=variables)
                for engine, variables in KEY_VARIABLES.items()
            ),
            merged=True,
            parse=usable_keys,
        ),
    ] = field(default_factory=dict[str, SecretStr])
    """API keys of the engines. Prefer the environment variables."""
    google_cse_id: Annotated[str | None, Setting(env=(GOOGLE_ID_VARIABLE,))] = None
    """Id of the Google custom search engine. Required with a Google key."""
    urls: Annotated[
        Mapping[str, str],
        Setting(
            written=dict[ServiceName, str],
            alternative_keys=(
                AlternativeKey("searxng_url", part="searxng", env=(SEARXNG_VARIABLE,)),
            ),
            merged=True,
            parse=web_addresses,
            trust=ALWAYS,
        ),
    ] = field(default_factory=dict[str, str])
    """Table with the addresses of engines that differ from the default addresses."""


def codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES = """
ae united arab emirates, af afghanistan, al albania, am armenia, ao angola, ar argentina,
at austria, au australia, az azerbaijan, ba bosnia and herzegovina, bd bangladesh, be belgium,
bg bulgaria, bh bahrain, bo bolivia, br brazil, bw botswana, by belarus, ca canada,
ch switzerland, cl chile, cm cameroon, cn china, co colombia, cr costa rica, cu cuba, cy cyprus,
cz czech republic, de germany, dk denmark, do dominican republic, dz algeria, ec ecuador,
ee estonia, eg egypt, es spain, et ethiopia, fi finland, fr france, gb united kingdom,
ge georgia, gh ghana, gr greece, gt guatemala, hn honduras, hr croatia, hu hungary,
id indonesia, ie ireland, il israel, in india, iq iraq, ir iran, is iceland, it italy,
jm jamaica, jo jordan, jp japan, ke kenya, kh cambodia, kr south korea, kw kuwait,
kz kazakhstan, lb lebanon, lk sri lanka, lt lithuania, lu luxembourg, lv latvia, ma morocco,
md moldova, mn mongolia, mt malta, mx mexico, my malaysia, ng nigeria, ni nicaragua,
nl netherlands, no norway, np nepal, nz new zealand, om oman, pa panama, pe peru,
ph philippines, pk pakistan, pl poland, pt portugal, py paraguay, qa qatar, ro romania,
rs serbia, ru russia, sa saudi arabia, se sweden, sg singapore, si slovenia, sk slovakia,
sn senegal, th thailand, tn tunisia, tr turkey, tw taiwan, tz tanzania, ua ukraine, ug uganda,
us united states, uy uruguay, uz uzbekistan, ve venezuela, vn vietnam, za south africa,
zm zambia, zw zimbabwe
"""
COUNTRY_NAMES = {
    code: name for code, _, name in (entry.strip().partition(" ") for entry in _NAMES.split(","))
}
"""English names in lower case."""
