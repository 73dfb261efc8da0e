"""A canonical text form of a call's arguments."""

import json
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def canonical_args(args: Mapping[str, Any]) -> str:
    """Serialise arguments so that equal arguments give equal text."""
    return _ENCODER.encode(args)
