"""What a call may do: policy, shell commands, URLs in texts, where values come from.

Pure decisions over settings and conversation; everything from `config` upwards may import it.
"""


def word_set(text: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(text.split())
