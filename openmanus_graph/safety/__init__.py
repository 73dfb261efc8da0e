"""What a call may do: policy, shell commands, URLs in texts, where values come from.

`open_beneath` opens files below a folder, by descriptor. Everything from `config` upwards may
import this room.
"""


def word_set(text: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(text.split())
