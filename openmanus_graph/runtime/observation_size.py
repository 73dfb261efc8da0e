"""How long one observation may be. Light: child processes import it."""

MIN_OBSERVATION_CHARS = 7000
"""Characters, whatever the model's window."""
_WINDOW_SHARE, _CHARS_PER_TOKEN = 0.02, 4
_OVERRUN_PERCENT = 15


def max_observation_chars(window_tokens: int) -> int:
    """Return how many characters one observation may have: a fixed share of the model's window."""
    return max(MIN_OBSERVATION_CHARS, int(window_tokens * _WINDOW_SHARE * _CHARS_PER_TOKEN))


def with_overrun(max_chars: int) -> int:
    """Return up to how many characters a text is shown whole: a little more is worth no cut."""
    return max_chars * (100 + _OVERRUN_PERCENT) // 100
