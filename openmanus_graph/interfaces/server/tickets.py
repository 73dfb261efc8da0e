"""Signed links to single files: an image or a frame cannot send a token along."""

import base64
import hashlib
import hmac
import json
import time

from openmanus_graph.interfaces.server.token import signing_key

VALID_S = 12 * 3600
_SIGNATURE_BYTES = 32


def write_ticket(thread: str, path: str, now: float | None = None) -> str:
    """Return a ticket for one file of one thread."""
    until = int((time.time() if now is None else now) + VALID_S)
    claim = json.dumps([thread, until]).encode()
    return base64.urlsafe_b64encode(_signature(claim, path) + claim).decode().rstrip("=")


def read_ticket(ticket: str, path: str, now: float | None = None) -> str | None:
    """Return the thread that a ticket is for, None if it does not hold for this path or time."""
    try:
        raw = base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
        signature, claim = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
    except ValueError:
        return None
    if not hmac.compare_digest(signature, _signature(claim, path)):
        return None
    thread, until = json.loads(claim)
    return str(thread) if until > (time.time() if now is None else now) else None


def _signature(claim: bytes, path: str) -> bytes:
    given = claim + b"\0" + path.encode("utf-8", "surrogatepass")
    return hmac.new(signing_key(), given, hashlib.sha256).digest()
