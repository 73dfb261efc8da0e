"""What is believed of a thread's stored options.

Whoever writes to a database, a home folder or a bundle writes options, too. So a row carries an
HMAC made with this user's key. Without a valid one only options count that can do no harm.
"""

import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from openmanus_graph.config.options_key import KEY_VARIABLE, hmac_of, key_file, options_key
from openmanus_graph.state.settings import MAX_COST_USD, Settings

SIGNATURE = "_hmac"
"""The key of the HMAC among the options."""
_MAX_TOKENS = 1_000_000
_MAX_TIMEOUT_S = 3600.0
"""Most that others may choose of the limits that have no default."""
_MAX_NAME_CHARS = 200
_SHOWN = 12


def signed(thread: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are stored with a thread: with their HMAC, if there is a key. Blocks.

    Raises:
        ConfigError: The environment's key is too short.
    """
    plain = {name: value for name, value in options.items() if name != SIGNATURE}
    key = options_key(make=True)
    return plain if key is None else {**plain, SIGNATURE: hmac_of(key, [thread, plain])}


def believed(thread: str, stored: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options of a row that count, and the names of those that do not. Blocks.

    Raises:
        ConfigError: The environment's key is too short.
    """
    plain = {name: value for name, value in stored.items() if name != SIGNATURE}
    given, key = stored.get(SIGNATURE), options_key(make=False)
    if isinstance(given, str) and key is not None:
        with suppress(RecursionError):  # of what somebody nested deeply
            right = hmac_of(key, [thread, plain]).encode()
            if hmac.compare_digest(given.encode("utf-8", "replace"), right):
                return plain, ()
    kept = harmless(plain)
    return kept, tuple(name for name in plain if name not in kept)


def harmless(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that anybody may choose: they start, open and reach nothing. Blocks."""
    return {name: value for name, value in options.items() if _is_harmless(name, value)}


def describe_unused(thread: str, names: Sequence[str], given: Collection[str] = ()) -> str:
    """Say which stored options do not count, and what to do; empty if all do.

    Args:
        thread: Its id.
        names: Of the options that do not count.
        given: Names of those that were given again.
    """
    left = [name[:_MAX_NAME_CHARS] for name in names if name not in given]
    if not left:
        return ""
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    why = "they carry no valid signature of yours"
    if options_key(make=False) is None:
        why = f"nothing shows that you chose them ({key_file()} holds no key, or is not writable)"
    return (
        f"These stored options of thread {thread} are not used, as {why}: "
        f"{', '.join(left[:_SHOWN])}{more}. Give those again that you want; for a database that "
        f"machines share, set the same {KEY_VARIABLE} on each."
    )


def _is_harmless(name: str, value: Any) -> bool:
    test = _HARMLESS.get(name)
    return test is not None and test(value)


def _up_to(most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and 0 < value <= most


def _up_to_whole(most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and 0 < value <= most


def _is_model(value: Any) -> bool:
    """Return True for `PROVIDER:NAME`; an address is none."""
    return isinstance(value, str) and "://" not in value


def _is_inside(value: Any) -> bool:
    """Return True for a folder within the working folder, none of its hidden ones."""
    if not isinstance(value, str):
        return False
    try:
        inside = Path(value).resolve().relative_to(Path.cwd().resolve())
    except (OSError, ValueError, RuntimeError):  # elsewhere, or no path at all
        return False
    return bool(inside.parts) and not any(part.startswith(".") for part in inside.parts)


_HARMLESS: Mapping[str, Callable[[Any], bool]] = {
    "model": _is_model,
    "workspace": _is_inside,
    "max_steps": _up_to_whole(Settings.max_steps),
    "max_cost_usd": _up_to(MAX_COST_USD),
    "max_tokens": _up_to_whole(_MAX_TOKENS),
    "timeout": _up_to(_MAX_TIMEOUT_S),
    # only what is stricter than any setting of the user's own
    "network": lambda value: value is False,
    "policy": lambda value: value == "never",
    "review_plan": lambda value: value is True,
}
