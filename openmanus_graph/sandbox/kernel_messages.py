"""Jupyter's messages: four frames of JSON and their signature.

`jupyter_client` has them, too, along with event loops and a system of configuration: five
megabytes and a twentieth of a second for what is needed here.
"""

import datetime
import hmac
import json
import uuid
from typing import Any

_DELIMITER = b"<IDS|MSG>"
_PROTOCOL_VERSION = "5.3"
_PARTS = ("header", "parent_header", "metadata", "content")


class Messages:
    """Writes and reads the messages of one connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._session = uuid.uuid4().hex

    def write(self, kind: str, content: dict[str, Any]) -> tuple[str, list[bytes]]:
        """Return a new message's id and its frames."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "username": "openmanus",
            "session": self._session,
            "date": datetime.datetime.now(tz=datetime.UTC).isoformat(),
            "version": _PROTOCOL_VERSION,
        }
        parts: list[dict[str, Any]] = [header, {}, {}, content]
        frames = [json.dumps(part).encode() for part in parts]
        return header["msg_id"], [_DELIMITER, self._signature(frames), *frames]

    def read(self, frames: list[bytes]) -> dict[str, Any] | None:
        """Return a message by its parts' names; None for what is none, or was not signed."""
        try:
            start = frames.index(_DELIMITER)
            signature, *packed = frames[start + 1 : start + 2 + len(_PARTS)]
            if not hmac.compare_digest(signature, self._signature(packed)):
                return None
            parts: list[Any] = [json.loads(frame) for frame in packed]
        except ValueError:
            return None
        if len(parts) < len(_PARTS) or not all(isinstance(part, dict) for part in parts):
            return None
        return dict(zip(_PARTS, parts, strict=True))

    def _signature(self, frames: list[bytes]) -> bytes:
        signing = hmac.new(self._key, digestmod="sha256")
        for frame in frames:
            signing.update(frame)
        return signing.hexdigest().encode()
