"""Arguments of calls as text."""

import json
from collections.abc import Mapping
from typing import Any


def canonical(args: Mapping[str, Any]) -> str:
    """Write arguments so that equal ones are equal text."""
    return json.dumps(args, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
