"""Extracts addresses from text, and puts them into a canonical form."""

import contextlib
import html
import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from openmanus_graph.errors import ToolError
from openmanus_graph.state.addresses import authority, literal_ip, normal_host, parse_address

_LINK = re.compile(r"https?://[^\s<>\"`\\|^{}]+", re.IGNORECASE)
_ESCAPED = re.compile(r"\\u0026|\\/|\\([_*\[\]()#+.!~-])")
_ENDINGS = ".,;:!?)]*_~'"
_PATH = re.compile(r"(?<!\S)/\S*(?<!…)(?!\S)")
_CUTS = re.compile(r"[)\]']")
_MOST_CUTS = 4
_DOMAIN = re.compile(
    r"(?:(?<!\w)(?P<scheme>\w+://)|(?<![@\w.-]))"
    r"(?P<host>(?:[\w-]+\.)+[^\W\d_][\w-]+|localhost|(?:\d{1,3}\.){3}\d{1,3}|\[[\da-f:]+\])"
    r"(?::(?P<port>\d{1,5}))?",
    re.IGNORECASE,
)
_COUNTRY_CHARS = 2
_SECOND_LEVEL = frozenset({"ac", "co", "com", "edu", "go", "gob", "gov", "net", "ne", "or", "org"})
"""Below the domains of countries, names that anybody's domains are registered under."""
_FILE_ENDINGS = frozenset({"py", "md", "sh", "zip", "rs", "pl", "so", "cc", "mov", "ps", "cab"})
"""Top-level domains that are more likely file extensions in names without a scheme."""


def site_of(host: str) -> str:
    """Return the registrable domain of a host, which one owner has: `shop.co.uk`.

    Without the list of public suffixes: all hosts of a hoster (`github.io`) are one site.
    """
    if literal_ip(host) is not None:
        return host
    labels = host.rstrip(".").split(".")
    is_country = len(labels[-1]) == _COUNTRY_CHARS and labels[-2:-1] and labels[-2] in _SECOND_LEVEL
    return ".".join(labels[-3 if is_country else -2 :])


def urls_in(text: str) -> Iterator[str]:
    """Yield every address in a text, with and without trailing punctuation."""
    unescaped = {"\\u0026": "&", "\\/": "/"}
    plain = html.unescape(_ESCAPED.sub(lambda found: unescaped.get(found[0]) or found[1], text))
    for variant in (text, plain) if plain != text else (text,):
        for found in _LINK.finditer(variant):
            link = found[0]
            cuts = [cut.start() for cut in _CUTS.finditer(link)][:_MOST_CUTS]
            yield from (link, link.rstrip(_ENDINGS), *(link[:cut] for cut in cuts))


def domains_in(text: str) -> Iterator[tuple[str, int | None]]:
    """Yield the hosts that a text names, with the port if it names one."""
    for found in _DOMAIN.finditer(text):
        host = found["host"]
        if not found["scheme"] and host.rpartition(".")[2].lower() in _FILE_ENDINGS:
            continue
        try:
            name = normal_host(host.strip("[]") if host.startswith("[") else host)
        except ToolError:
            continue
        yield name.removeprefix("www."), int(found["port"]) if found["port"] else None


def canonical_url(url: str) -> str:
    """Return the canonical form of an address. ToolError if it is invalid.

    Neither scheme nor a last slash can carry data, so they do not count; a fragment can, because
    scripts of the page read it.
    """
    address = parse_address(url)
    fragment = urlsplit(url).fragment
    path = address.url[len(address.origin) :].rstrip("/")
    host = authority(address.host, address.port, address.scheme)
    return f"{host}{path}" + (f"#{fragment}" if fragment else "")


def canonical_urls(addresses: Iterable[str]) -> frozenset[str]:
    """Return the canonical forms of addresses, without the invalid ones."""
    found: set[str] = set()
    for address in set(addresses):
        with contextlib.suppress(ToolError):
            found.add(canonical_url(address))
    return frozenset(found)


def paths_in(text: str) -> frozenset[str]:
    """Return what may be addresses without their site in a text, but none that was cut."""
    return frozenset(found[0] for found in _PATH.finditer(text))


def canonical_urls_in(text: str) -> frozenset[str]:
    """Return the canonical addresses of a text, each also without its fragment."""
    found = canonical_urls(urls_in(text))
    return found | {identity.partition("#")[0].rstrip("/") for identity in found}
