"""Makes untrusted text safe to print."""

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but line feed and tab, and what turns the direction of text around."""


def printable(text: str) -> str:
    """Make text safe for a terminal: no control sequences, nothing that cannot be encoded."""
    return _CONTROLS.sub("", text).encode("utf-8", "replace").decode()
