"""What the ledger keeps of an outcome that is no plain data: state updates and exceptions."""

import base64
import json
import sys
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

MAX_TEXT = 4000
"""Characters kept of an exception's text."""


def serialised(update: dict[str, Any]) -> str:
    """Return a state update as text, in the way in which checkpoints keep it."""
    kind, content = JsonPlusSerializer().dumps_typed(update)
    return json.dumps([kind, base64.b64encode(content).decode()])


def deserialised(text: str) -> dict[str, Any]:
    """Return the state update that `serialised` was given."""
    kind, content = json.loads(text)
    update: dict[str, Any] = JsonPlusSerializer().loads_typed((kind, base64.b64decode(content)))
    return update


def exception_record(error: Exception) -> tuple[str, str]:
    """Return an exception's type and text."""
    cls = type(error)
    return f"{cls.__module__}:{cls.__qualname__}", str(error)[:MAX_TEXT]


def exception_of(record: tuple[str, str]) -> Exception:
    """Return an exception like the recorded one.

    Of the same type if this process has loaded it, since retries go by the type; else a
    `RuntimeError`.
    """
    address, text = record
    module, _, name = address.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Exception):
        error = found.__new__(found)  # its constructor may want more than a text
        error.args = (text,)
        return error
    return RuntimeError(f"{name}: {text}")
