"""The mark around text from outside, which the system prompts explain to the model."""

import hashlib
import re

_MARKED = re.compile(r"<(untrusted-[0-9a-f]{8,})>\n(.*)\n</\1>", re.DOTALL)


def mark_untrusted(text: str) -> str:
    """Put text from outside between tags that it does not contain, so that it cannot close them.

    The same text gets the same tags, so that repeats are seen to be repeats.
    """
    tag = untrusted_tag(text)
    return f"<{tag}>\n{text}\n</{tag}>"


def without_mark(text: str) -> str:
    """Return the text that `mark_untrusted` marked; any other as it is."""
    marked = _MARKED.fullmatch(text)
    return str(marked[2]) if marked else text


def untrusted_tag(text: str) -> str:
    """Return the name of the tag for a text: a digest whose digits stand nowhere in it."""
    digits, known = _digits(text), text.lower()
    while digits in known:
        digits = _digits(text + digits)
    return f"untrusted-{digits}"


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
