"""How long a server asks to wait before the next request."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def retry_after_s(
    headers: Mapping[str, str], text: str = "", now: datetime | None = None
) -> float | None:
    """Return the seconds to wait, from the headers or else the server's words.

    Args:
        headers: Those of the answer; `retry-after-ms` wins over `retry-after`.
        text: The server's message: "Please try again in 1m2.5s".
        now: Against which an HTTP date is read.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    if value:
        return _until(value, now or datetime.now(UTC))
    return _spoken(text)


def _number(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:
        return None


def _until(http_date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(http_date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _spoken(text: str) -> float | None:
    match = re.search(r"(?:try again|retry) in ((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)", text)
    if match is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", match.group(1))
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
