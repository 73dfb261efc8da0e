"""Channels: what each kind implements, and the generic one, a webhook.

An answer is sent once. After a crash the channel is asked what was received.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

import httpx2

from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.state import triggers

_NOT_FOUND, _UNAVAILABLE = 404, 503
MAX_FILE_BYTES = 20 << 20
"""Of a file in a message."""


class NotSentError(Exception):
    """A message was surely not received. The text says why."""

    after_s: float = 0
    """The server takes no message for so many seconds."""


class UncertainError(Exception):
    """Nobody knows whether a message was received."""


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
    to: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`Incoming.where` of the message that it answers. Empty: it goes to the channel's `room`."""
    question: str = ""
    """The id of the question that it asks."""
    decides: bool = False
    """Whether the question is answered by approve or reject, for which there may be buttons."""
    attached: Callable[[], Sequence[Upload]] = tuple
    """Reads the files. Blocks."""


@dataclass(frozen=True)
class Incoming:
    """A message, or a pressed button, that came in."""

    key: str
    """Tells it from all others of its channel, however often it arrives."""
    sender: str
    room: str
    """The chat. It or the sender must be in `allow`, so these are ids that nobody can imitate."""
    conversation: str
    """What shares a thread: a chat, or a topic in it."""
    text: str
    files: Sequence[Mapping[str, Any]] = ()
    """What `BaseChannel.fetch` gets, when the run starts."""
    where: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What an answer must know of it. It is stored as JSON."""
    question: str = ""
    """The id of the question that a button answers."""
    skipped: str = ""
    """Why no run starts, if so."""
    reply: str = ""
    """The text without what it quotes, where a text can quote the question that it answers."""
    is_proven: bool = True
    """Whether the server has checked who the sender is."""


Polled = tuple[list[Incoming], dict[str, Any]]
Received = list[Incoming] | dict[str, Any]
"""Messages, or an object that the server wants to get back."""


@dataclass(frozen=True)
class BaseChannel:
    """What a kind of channel implements: `deliver`, and `poll` or `receive` if people can write."""

    name: str
    settings: triggers.Channel
    polls: ClassVar[bool] = False
    """Whether `poll` is called."""

    async def deliver(self, message: Outgoing) -> None:
        """Send a message. NotSentError: it was not received. Other errors: nobody knows."""
        raise NotImplementedError

    async def reconcile(self, message: Outgoing) -> bool | None:
        """Return whether a message was received; None if the channel can never be asked."""
        return None

    async def poll(self, mark: Mapping[str, Any] | None) -> Polled:
        """Wait for messages after a mark (None: the first look), and return them and their mark.

        NotSentError, UncertainError or ConfigError: the server cannot be reached, or refuses.
        """
        raise NotImplementedError

    def receive(self, headers: Mapping[str, str], body: bytes, now: float) -> Received:
        """Return the messages of a request. Refused: it is not the server's. Blocks."""
        raise Refused(404, "There is no such hook.")

    def fetch(self, file: Mapping[str, Any]) -> Upload | None:
        """Return a file of a message; None if it is gone or too large. Blocks."""
        return None

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        """Show for some seconds that the agent works, if the channel can."""

    def code(self, question: str) -> str:
        """Return what a text must contain to answer a question. Empty: nothing."""
        return ""

    async def identify(self) -> str:
        """Reach the server, and return as whom messages are sent. Errors as `poll`."""
        return "It is used when a message is sent."

    async def post(self, address: str, **given: Any) -> httpx2.Response:
        """Send a request, and return an answer of success. Errors as `deliver`.

        They do not show the address, which may hold a secret.
        """
        try:
            async with httpx2.AsyncClient(timeout=self.settings.timeout_s) as client:
                answer = await client.post(address, **given)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise NotSentError(f"The channel {self.name} cannot be reached.") from None
        except httpx2.HTTPError as error:
            kind = type(error).__name__
            raise UncertainError(f"The channel {self.name} did not answer: {kind}.") from None
        if answer.is_success:
            return answer
        why = f"The channel {self.name} answered {answer.status_code}."
        if answer.is_server_error and answer.status_code != _UNAVAILABLE:
            raise UncertainError(why)  # it may have failed after it took the message
        refused = NotSentError(why)
        said = f'"retry_after":{answer.headers.get("retry-after")} {answer.text}'  # or Telegram's
        if wait := re.search(r'"retry_after":\s*(\d{1,9})', said):
            refused.after_s = float(wait[1])
        raise refused

    def download(self, address: str, name: str, kind: str, **headers: str) -> Upload | None:
        """Return a file of the server; None if it is gone or too large. Blocks."""
        data = bytearray()
        try:
            with (
                httpx2.Client(timeout=self.settings.timeout_s) as client,
                client.stream("GET", address, headers=headers) as answer,
            ):
                for part in answer.iter_bytes():
                    data += part
                    if len(data) > MAX_FILE_BYTES:
                        return None
                return Upload(name, bytes(data), kind) if answer.is_success else None
        except httpx2.HTTPError:
            return None


@dataclass(frozen=True)
class WebhookChannel(BaseChannel):
    """Sends each message as a signed `POST` with JSON."""

    async def deliver(self, message: Outgoing) -> None:
        body = {"key": message.key, "text": message.text, "files": list(message.files)}
        content = json.dumps({**body, **message.details}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.key}
        if secret := self.settings.secret.get_secret_value():
            digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
            headers["X-Hub-Signature-256"] = f"sha256={digest}"
        await self.post(self.settings.url, content=content, headers=headers)

    async def reconcile(self, message: Outgoing) -> bool | None:
        if not self.settings.status_url:
            return None
        url = self.settings.status_url.replace("{key}", quote(message.key, safe=""))
        async with httpx2.AsyncClient(timeout=self.settings.timeout_s) as client:
            answer = await client.get(url)
        if answer.status_code != _NOT_FOUND:
            answer.raise_for_status()
        return answer.is_success
