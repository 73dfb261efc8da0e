"""Sends answers and questions of runs to channels, and asks after a crash what was received."""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import httpx2

from openmanus_graph.state import triggers

_NOT_FOUND, _UNAVAILABLE = 404, 503


class NotSentError(Exception):
    """A message was surely not received. The text says why."""


@dataclass(frozen=True)
class Outgoing:
    """A message for a channel."""

    key: str
    """The same for the same message, however often it is sent."""
    text: str
    files: Sequence[str] = ()
    """Names of files in the run's workspace."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What programs want to know: the thread, the status, an open question."""


class Channel(Protocol):
    """What a kind of channel implements."""

    @property
    def name(self) -> str: ...

    async def deliver(self, message: Outgoing) -> None:
        """Send a message. NotSentError: it was not received. Other errors: nobody knows."""
        ...

    async def reconcile(self, key: str) -> bool | None:
        """Return whether a message was received; None if the channel can never be asked."""
        ...


@dataclass(frozen=True)
class WebhookChannel:
    """Sends each message as a signed `POST` with JSON."""

    name: str
    settings: triggers.Channel

    async def deliver(self, message: Outgoing) -> None:
        body = {"key": message.key, "text": message.text, "files": list(message.files)}
        content = json.dumps({**body, **message.details}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.key}
        if secret := self.settings.secret.get_secret_value():
            digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
            headers["X-Hub-Signature-256"] = f"sha256={digest}"
        async with httpx2.AsyncClient(timeout=self.settings.timeout_s) as client:
            try:
                answer = await client.post(self.settings.url, content=content, headers=headers)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                raise NotSentError(f"The channel {self.name} cannot be reached.") from error
        if answer.is_server_error and answer.status_code != _UNAVAILABLE:
            answer.raise_for_status()  # it may have failed after it took the message
        if not answer.is_success:
            raise NotSentError(f"The channel {self.name} answered {answer.status_code}.")

    async def reconcile(self, key: str) -> bool | None:
        if not self.settings.status_url:
            return None
        url = self.settings.status_url.replace("{key}", quote(key, safe=""))
        async with httpx2.AsyncClient(timeout=self.settings.timeout_s) as client:
            answer = await client.get(url)
        if answer.status_code != _NOT_FOUND:
            answer.raise_for_status()
        return answer.is_success
