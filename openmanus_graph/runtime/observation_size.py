"""Limits the length of one observation. Light: child processes import it."""

MIN_OBSERVATION_CHARS = 7000
_WINDOW_SHARE, _CHARS_PER_TOKEN = 0.02, 4
_OVERRUN_PERCENT = 15


def max_observation_chars(window_tokens: int) -> int:
    """Return the most characters of one observation: a fixed share of the model's window."""
    return max(MIN_OBSERVATION_CHARS, int(window_tokens * _WINDOW_SHARE * _CHARS_PER_TOKEN))


def with_overrun(max_chars: int) -> int:
    """Return the length up to which a text is shown whole: a little more is not worth a cut."""
    return max_chars * (100 + _OVERRUN_PERCENT) // 100
