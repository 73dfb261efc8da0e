"""How long a server asks to wait before the next request."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DAY_S = 24 * 3600.0


def retry_after_s(
    headers: Mapping[str, str], text: str = "", now: datetime | None = None
) -> float | None:
    """Return the seconds to wait, from the headers or else the server's words.

    Args:
        headers: Those of the answer; `retry-after-ms` wins over `retry-after`.
        text: The server's message: "Please try again in 1m2.5s", or Google's `retryDelay`.
        now: This machine's time, against which an HTTP date is read if the answer has no `Date`.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    until = _moment(value)
    if until is not None:
        # By the server's own clock, if it sends one. By this machine's, which may be wrong, a wait
        # of days is no hint at all.
        server_now = _moment(headers.get("date"))
        seconds = (until - (server_now or now or datetime.now(UTC))).total_seconds()
        return None if server_now is None and seconds > DAY_S else max(0.0, seconds)
    return None if value else _seconds_in(text)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "nan")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _moment(http_date: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(http_date) if http_date else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _seconds_in(text: str) -> float | None:
    match = re.search(
        r"(?:(?:try again|retry) in |\bretryDelay\W{1,5})((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)", text
    )
    if match is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", match.group(1))
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
