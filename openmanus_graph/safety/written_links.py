"""Finds out whether a link that a result shows is what the model wrote itself.

A tool may repeat what it was asked for, or join pieces of it. Such a link was not seen: it can hold
whatever the model has read.
"""

import base64
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

from openmanus_graph.safety.urls import canonical_urls_in
from openmanus_graph.safety.values import spellings, squeezed

_LINK_END = r"/?(?![\w/?&=%+~@:-]|\.\w)"
"""Regex for the end of an address, behind which a fragment may stand."""
_LEAST_PIECE = 4
"""Letters and digits of a part of a text that tells that a link was made of it."""
_MOST_ENCODINGS = 3


class Words(NamedTuple):
    """A text of the model, as links are looked for in it."""

    texts: Collection[str]
    """Its spellings, in small letters."""
    urls: Collection[str]
    """Its addresses, in canonical form."""


def words_of(text: str) -> Words:
    """Read a text of the model: its links are found as in results, and in any spelling."""
    variants = [text, *spellings(text)]
    urls = frozenset[str]().union(*map(canonical_urls_in, variants))
    return Words(frozenset(one.casefold() for one in variants), urls)


def is_written(link: str, words: Iterable[Words]) -> bool:
    """Say whether a link, or a path of one, stands in texts of the model as a whole.

    Args:
        link: In canonical form.
        words: The texts.
    """
    identity = link.partition("#")[0].rstrip("/")
    plain = identity.casefold()
    for _ in range(_MOST_ENCODINGS):
        plain = unquote(plain)
    whole = re.compile(re.escape(plain) + _LINK_END)
    return any(
        identity in one.urls or any(plain in text and whole.search(text) for text in one.texts)
        for one in words
    )


def is_joined(link: str, given: Iterable[str]) -> bool:
    """Say whether a link can be joined of what tools were given: whole values, or parts of them.

    Signs do not count, as tools put them between the pieces.

    Args:
        link: In canonical form.
        given: The values.
    """
    wanted = squeezed(link.partition("#")[0])
    pieces = {squeezed(form) for value in given for form in _forms(value)} - {""}
    within = "\0".join(pieces)
    reached = {0}
    for start in range(len(wanted)):
        if start not in reached:
            continue
        reached.update(start + len(one) for one in pieces if wanted.startswith(one, start))
        longest = _longest(wanted, start, within)
        reached.update(range(start + _LEAST_PIECE, start + longest + 1))
    return bool(wanted) and len(wanted) in reached


def _longest(wanted: str, start: int, within: str) -> int:
    """Return how many characters from a place on stand in a text one behind the other."""
    least, most = 0, len(wanted) - start
    while least < most:
        middle = (least + most + 1) // 2
        if wanted[start : start + middle] in within:
            least = middle
        else:
            most = middle - 1
    return least


def _forms(value: str) -> Iterator[str]:
    """Yield a value, and what it is in base64 or in hexadecimal digits."""
    yield from spellings(value)
    with suppress(ValueError):
        yield base64.b64decode(value.translate(_TO_BASE64) + "==").decode()
    with suppress(ValueError):
        yield bytes.fromhex(value).decode()


_TO_BASE64 = str.maketrans("-_", "+/")
"""From the alphabet for URLs."""
