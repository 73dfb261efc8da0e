"""The mark around text from outside, which the system prompts explain to the model."""

import hashlib


def mark_untrusted(text: str) -> str:
    """Put text from outside between tags that it does not contain, so that it cannot close them.

    The same text gets the same tags, so that repeats are seen to be repeats.
    """
    tag = untrusted_tag(text)
    return f"<{tag}>\n{text}\n</{tag}>"


def untrusted_tag(text: str) -> str:
    """Return the name of the tag for a text: a digest whose digits stand nowhere in it."""
    digits, known = _digits(text), text.lower()
    while digits in known:
        digits = _digits(text + digits)
    return f"untrusted-{digits}"


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
