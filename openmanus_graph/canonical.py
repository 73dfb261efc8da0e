"""Arguments of calls as text."""

import json
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def canonical(args: Mapping[str, Any]) -> str:
    """Write arguments so that equal ones are equal text."""
    return _ENCODER.encode(args)
