"""Telegram: the Bot API over plain HTTP, by long polling or a webhook with a secret token."""

import asyncio
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.interfaces.triggers import channels

SERVER = "https://api.telegram.org"
POLL_S = 25
MOST_UNITS = 4096
"""Of UTF-16, in one message."""
LONGEST_WAIT_S = 60.0
"""That one sending waits when the server answers 429. A longer wait is left to the next attempt."""
_MEDIA = ("document", "audio", "voice", "video", "video_note", "animation")


@dataclass(frozen=True)
class TelegramChannel(channels.BaseChannel):
    polls: ClassVar[bool] = True

    async def deliver(self, message: channels.Outgoing) -> None:
        where = message.to or {"chat_id": self.settings.room}
        to = {name: value for name, value in where.items() if name != "pressed"}
        parts: list[dict[str, Any]] = [
            {"json": {**to, "text": text}} for text in split(message.text or "(no text)")
        ]
        if message.decides:
            parts[-1]["json"]["reply_markup"] = _buttons(message.question)
        for file in await asyncio.to_thread(message.attached):
            parts.append({"data": to, "files": {"document": (file.name, file.data)}})
        for number, part in enumerate(parts):
            await self._send("sendDocument" if "files" in part else "sendMessage", part, number)

    async def _send(self, method: str, part: Mapping[str, Any], number: int) -> None:
        """Send a part of a message. If the first part was sent, nobody knows what came."""
        waited = 0.0
        while True:
            try:
                await self._call(method, **part)
                return
            except channels.NotSentError as error:
                waited += error.after_s
                if error.after_s and waited <= LONGEST_WAIT_S:
                    await asyncio.sleep(error.after_s)
                elif number:
                    why = f"Only the first {number} parts were sent."
                    raise channels.UncertainError(why) from error
                else:
                    raise

    async def poll(self, mark: Mapping[str, Any] | None) -> channels.Polled:
        newest = int(mark["update"]) if mark else -1
        if self.settings.secret.get_secret_value():  # the messages come to the webhook
            await asyncio.sleep(POLL_S)
            return [], {"update": newest}
        wait = min(POLL_S, int(self.settings.timeout_s / 2))
        asked = {"timeout": wait, "offset": newest + 1, "allowed_updates": _UPDATES}
        updates = await self._call("getUpdates", json=asked)
        found = [one for update in updates if (one := self._incoming(update)) is not None]
        return found, {"update": max((int(one["update_id"]) for one in updates), default=newest)}

    def receive(self, headers: Mapping[str, str], body: bytes, now: float) -> channels.Received:
        secret = self.settings.secret.get_secret_value().encode()
        given = headers.get("x-telegram-bot-api-secret-token", "").encode("utf-8", "replace")
        if not secret or not hmac.compare_digest(secret, given):
            raise Refused(401, "The secret token of the request is missing or wrong.")
        found = self._incoming(json.loads(body))
        return [] if found is None else [found]

    def _incoming(self, update: Any) -> channels.Incoming | None:  # as Telegram sends it
        """Return the message or button of an update; None for other kinds, and for bots."""
        pressed = update.get("callback_query")
        message = (pressed or update).get("message")
        sender = message and (pressed or message).get("from")
        if not sender or sender.get("is_bot"):
            return None
        chat, number = str(message["chat"]["id"]), message["message_id"]
        where: dict[str, Any] = {"chat_id": message["chat"]["id"]}
        if message.get("is_topic_message"):
            where["message_thread_id"] = message["message_thread_id"]
        media = [(f"{kind}-{number}", message[kind]) for kind in _MEDIA if kind in message]
        if pictures := message.get("photo"):  # in several sizes, the largest one last
            media = [(f"photo-{number}.jpg", {"mime_type": "image/jpeg", **pictures[-1]})]
        files = [
            {"id": one["file_id"], "name": one.get("file_name", name), "type": one.get("mime_type")}
            for name, one in media
        ]
        text, question = str(message.get("text", message.get("caption", ""))), ""
        if pressed:
            text, _, question = str(pressed.get("data", "")).partition(":")
            files, where["pressed"] = [], pressed["id"]
        if not text and not files:
            return None
        bot = self.settings.token.get_secret_value().partition(":")[0]
        key, topic = f"{bot}/{update['update_id']}", where.get("message_thread_id", "")
        room, user = f"{chat}/{topic}", str(sender["id"])
        return channels.Incoming(key, user, chat, room, text, files, where, question)

    def fetch(self, file: Mapping[str, Any]) -> Upload | None:
        try:
            found = asyncio.run(self._call("getFile", json={"file_id": file["id"]}))
        except (channels.NotSentError, channels.UncertainError):
            return None
        kind = file["type"] or "application/octet-stream"
        return self.download(self._address(found["file_path"], "/file"), str(file["name"]), kind)

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        chat = {name: value for name, value in to.items() if name != "pressed"}
        await self._call("sendChatAction", json={**chat, "action": "typing"})
        if "pressed" in to:  # the button shows until then that it waits
            await self._call("answerCallbackQuery", json={"callback_query_id": to["pressed"]})

    async def identify(self) -> str:
        me = await self._call("getMe")
        return f"Telegram knows the bot as @{me.get('username')} ({me.get('id')})."

    async def _call(self, method: str, **given: Any) -> Any:  # as Telegram answers
        return (await self.post(self._address(method), **given)).json()["result"]

    def _address(self, method: str, kind: str = "") -> str:
        server = (self.settings.url or SERVER).rstrip("/")
        return f"{server}{kind}/bot{self.settings.token.get_secret_value()}/{method}"


_UPDATES = ("message", "callback_query")


def split(text: str, most: int = MOST_UNITS) -> Sequence[str]:
    """Return a text in parts of so many units of UTF-16, ended at lines where possible."""
    parts, rest = list[str](), text
    while len(rest.encode("utf-16-le")) > 2 * most:
        part = rest.encode("utf-16-le")[: 2 * most].decode("utf-16-le", "ignore")
        end = part.rfind("\n") + 1 or len(part)
        parts.append(rest[:end])
        rest = rest[end:]
    return [one for one in (*parts, rest) if one.strip()]


def _buttons(question: str) -> Mapping[str, Any]:
    names = ("approve", "reject")
    row = [{"text": name.title(), "callback_data": f"{name}:{question}"} for name in names]
    return {"inline_keyboard": [row]}
