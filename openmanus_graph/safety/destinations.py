"""Parses destinations strictly: a value is verified only if every part of it is.

Taken are a name, an address, `Name <address>`, and lists of these with `,` or `;` between them. An
address has to be one that every reader takes for the same: no comments, quoted or literal parts,
routes, groups, user names in URLs. What does not parse is one part, which nobody can have said.
"""

import re
from typing import NamedTuple

from openmanus_graph.errors import ToolError
from openmanus_graph.safety.urls import canonical_url
from openmanus_graph.safety.values import (
    IBAN_PATTERN,
    URL,
    Tokens,
    addresses_in,
    is_address,
    tokens_of,
)
from openmanus_graph.state.addresses import PORTS, has_scheme, normal_host, with_scheme

UNREAD = "unread:"
"""What the token of a part that does not parse begins with."""
_MOST_CHARS = 2000
"""Of a destination; a longer one is not read, as some patterns take long for long texts."""
_SEPARATORS = re.compile(r"[,;]")
_BESIDE_URLS = re.compile(r"[,;]\s+")
_LIKE_ADDRESS = re.compile(
    r"\S@|@\S*\.|:/|//|\\|www\.|[<>]|[a-z][a-z0-9+.-]{0,30}:\S*[@?%]|%[0-9a-f]{2}|&#|=\?|\bb?cc:|\bto:",
    re.IGNORECASE,
)
_MAILBOX = re.compile(
    r"(?:(?P<quote>\"?)(?P<name>[^\"<>@,;:()\[\]\\|=%&{}]*)(?P=quote)\s*<(?P<in>[^<>\s]+)>|(?P<bare>[^<>\s]+))"
)
_LOCAL = re.compile(r"[\w+%-]+(?:\.[\w+%-]+)*")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_URL_SIGNS = re.compile(r"[^\s<>\"'`\\|^{}]+")
_BARE_HOST = re.compile(r"(?:[\w-]+\.)+[^\W\d_][\w-]*(?::\d+)?(?:[/?#].*)?")


class Part(NamedTuple):
    """One of the parts of a destination."""

    tokens: Tokens
    bare_host: bool
    """It is written as a host without a scheme, as files and names in code are, too."""


def parts_of(value: str) -> tuple[Part, ...]:
    """Return the parts of a destination in canonical form, each of which has to be verified."""
    text = value.strip(" \t\r\n")
    if not text.strip() or len(text) > _MOST_CHARS:
        return (_unread(value),)
    has_address = holds_address(text)
    if has_address and not text.isprintable():
        return (_unread(text),)
    if has_address and (whole := _address(text)):  # `,` and `;` are signs of URLs, too
        return (whole,)
    separators = _BESIDE_URLS if "//" in text else _SEPARATORS
    parts = [one.strip() for one in separators.split(text)]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # "a@b.example;"
    return tuple(map(_part, parts))


def approval_key(value: str) -> str:
    """Return the key by which the approval of a value is kept."""
    return " , ".join(" ".join(part.tokens) for part in parts_of(value))


def holds_address(text: str) -> bool:
    """Say whether an address is in a text, or what may be read as one."""
    if len(text) > _MOST_CHARS:
        return True
    return _LIKE_ADDRESS.search(text) is not None or any(map(is_address, tokens_of(text)))


def _part(text: str) -> Part:
    if text and not holds_address(text):
        return Part(tokens_of(text), _is_bare_host(text))
    return _address(text) or _unread(text)


def _unread(text: str) -> Part:
    return Part((UNREAD + text,), bare_host=False)


def _address(text: str) -> Part | None:
    """Return an address that stands alone, or with its owner's name; None if it is none."""
    if re.fullmatch(IBAN_PATTERN, text, re.IGNORECASE):
        return Part(tokens_of(text), bare_host=False)
    found = _MAILBOX.fullmatch(text)
    if found and "@" in (address := found["in"] or found["bare"]):
        named = found["name"] or ""
        token = None if any(addresses_in(named)) or holds_address(named) else _mailbox(address)
        if token:
            return Part((token,), bare_host=False)
    return _url(text)


def _mailbox(address: str) -> str | None:
    """Return the token of an e-mail address of the plain form; of any other, None."""
    local, _, host = address.rpartition("@")
    tokens = tokens_of(address)
    if not (_LOCAL.fullmatch(local) and _HOST.fullmatch(host) and len(tokens) == 1):
        return None
    try:
        normal_host(host)
    except ToolError:
        return None
    return tokens[0]


def _url(text: str) -> Part | None:
    """Return a URL as it is reached; None of one that programs take for different ones."""
    if not _URL_SIGNS.fullmatch(text):
        return None
    bare = not (has_scheme(text) or text.startswith("//"))
    if bare and ("@" in text or not _BARE_HOST.fullmatch(text)):
        return None
    if has_scheme(text) and text.partition(":")[0].lower() not in PORTS:
        tokens = tokens_of(text)
        return Part(tokens, bare_host=False) if tokens == (URL + text,) else None
    try:
        identity = canonical_url(with_scheme(text))
    except ToolError:
        return None
    is_www = text.casefold().startswith("www.")
    return Part((URL + identity.removeprefix("www."),), bare_host=bare and not is_www)


def _is_bare_host(text: str) -> bool:
    return _BARE_HOST.fullmatch(text) is not None
