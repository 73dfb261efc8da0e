"""Slack: signed events and buttons come by HTTP, and messages go out by the Web API.

Eight methods of the Web API are used, so plain HTTP is simpler than Slack's SDK. An answer is one
message whose metadata has its key, by which it is found after a crash.
"""

import asyncio
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.interfaces.triggers import channels
from openmanus_graph.interfaces.triggers.sources import webhook_event
from openmanus_graph.state.triggers import Trigger

SERVER = "https://slack.com/api"
MOST_CHARS, MOST_BUTTON_CHARS = 35_000, 2500
"""In a message, and beside buttons; a longer text is a file. Slack's own limits leave room for
links: it cuts after 40,000, and refuses a section of more than 3000."""
TYPING = "is working..."
MOST_PAGES = 20
"""Of a chat that are searched for a message, the newest first."""
_UNCERTAIN = ("internal_error", "fatal_error", "request_timeout", "service_unavailable")


@dataclass(frozen=True)
class SlackChannel(channels.BaseChannel):
    async def deliver(self, message: channels.Outgoing) -> None:
        files = list(await asyncio.to_thread(message.attached))
        most = MOST_BUTTON_CHARS if message.decides else MOST_CHARS
        text = html.escape(message.text or "(no text)", quote=False)
        if len(text) > most:
            files.insert(0, Upload("message.md", message.text.encode(), "text/markdown"))
            text = re.sub(r"&\w*\Z", "", text[:most])
        # Files are uploaded unseen, and the message shows them by links: it is all or nothing.
        links = [f"<{await self._upload(file)}|{html.escape(file.name)}>" for file in files]
        text = "\n".join([text, *links])
        metadata = {"event_type": "openmanus", "event_payload": {"key": message.key}}
        given = {**self._room(message), "text": text, "metadata": metadata}
        if message.decides:
            given["blocks"] = _blocks(text, message.question)
        await self._call("chat.postMessage", json=given)

    async def reconcile(self, message: channels.Outgoing) -> bool | None:
        room, method = self._room(message), "conversations.history"
        given = {"channel": room["channel"], "include_all_metadata": "true", "limit": "200"}
        if "thread_ts" in room:
            method, given["ts"] = "conversations.replies", room["thread_ts"]
        for _ in range(MOST_PAGES):
            page = await self._call(method, data=given)
            found = [one["metadata"] for one in page["messages"] if one.get("metadata")]
            if any(one.get("event_payload", {}).get("key") == message.key for one in found):
                return True
            given["cursor"] = page.get("response_metadata", {}).get("next_cursor", "")
            if not given["cursor"]:
                return False
        return None

    def receive(self, headers: Mapping[str, str], body: bytes, now: float) -> channels.Received:
        signed = Trigger("webhook", "", signature="slack", secret=self.settings.secret)
        fields = webhook_event(signed, headers, body, now).fields
        if fields.get("type") == "url_verification":  # Slack asks once whether we are there
            return {"challenge": str(fields["challenge"])}
        found = _pressed(json.loads(fields["payload"])) if "payload" in fields else _said(fields)
        return [] if found is None else [found]

    def fetch(self, file: Mapping[str, Any]) -> Upload | None:
        address = urlsplit(str(file["url"]))
        is_slack = address.scheme == "https" and (address.hostname or "").endswith(".slack.com")
        if not is_slack and address[:2] != urlsplit(self.settings.url or SERVER)[:2]:
            return None  # the token is for Slack alone
        return self.download(file["url"], str(file["name"]), str(file["type"]), **self._headers())

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        if "thread_ts" in to:  # Slack removes it when the answer comes, or after two minutes
            given = {"channel_id": to["channel"], "thread_ts": to["thread_ts"]}
            await self._call("assistant.threads.setStatus", json={**given, "status": TYPING})

    async def identify(self) -> str:
        me = await self._call("auth.test")
        return f"Slack knows the bot as {me.get('user')} ({me.get('user_id')}) in {me.get('team')}."

    def _room(self, message: channels.Outgoing) -> Mapping[str, Any]:
        return message.to or {"channel": self.settings.room}

    async def _upload(self, file: Upload) -> str:
        """Upload a file that nobody sees yet, and return its link."""
        size = {"filename": file.name, "length": str(len(file.data))}
        try:
            place = await self._call("files.getUploadURLExternal", data=size)
            await self.post(place["upload_url"], content=file.data)
            one = {"id": place["file_id"], "title": file.name}
            await self._call("files.completeUploadExternal", json={"files": [one]})
            info = await self._call("files.info", data={"file": place["file_id"]})
        except channels.UncertainError as error:  # no message shows the file
            raise channels.NotSentError(str(error)) from error
        return str(info["file"]["permalink"])  # the answer before is documented without it

    async def _call(self, method: str, **given: Any) -> Any:  # as Slack answers
        address = f"{(self.settings.url or SERVER).rstrip('/')}/{method}"
        answer = await self.post(address, headers=self._headers(), **given)
        body: Any = answer.json()
        if body.get("ok"):
            return body
        why = f"The channel {self.name} answered {body.get('error')}."
        is_unknown = body.get("error") in _UNCERTAIN
        raise channels.UncertainError(why) if is_unknown else channels.NotSentError(why)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.settings.token.get_secret_value()}"}


def _said(fields: Any) -> channels.Incoming | None:  # as Slack sends it
    """Return the message of an event; None for other events, and for what bots say."""
    event = fields.get("event", {})
    kind, text = event.get("type"), str(event.get("text", ""))
    bots = [f"<@{one['user_id']}>" for one in fields.get("authorizations", ())]
    if (
        kind not in ("message", "app_mention")
        or event.get("subtype") not in (None, "file_share")
        or event.get("bot_id")
        or not event.get("user")
        or (kind == "message" and any(one in text for one in bots))  # comes as app_mention too
    ):
        return None
    room, where = str(event["channel"]), {"channel": str(event["channel"])}
    if "thread_ts" in event or event.get("channel_type") != "im":
        where["thread_ts"] = str(event.get("thread_ts", event["ts"]))
    files = [
        {"url": one["url_private"], "name": one.get("name", "file"), "type": one["mimetype"]}
        for one in event.get("files", ())
        if one.get("url_private") and one.get("mimetype")
    ]
    for one in bots:
        text = text.replace(one, "").strip()
    key, conversation = str(fields["event_id"]), f"{room}/{where.get('thread_ts', '')}"
    text = html.unescape(text)
    return channels.Incoming(key, str(event["user"]), room, conversation, text, files, where)


def _pressed(payload: Any) -> channels.Incoming | None:  # as Slack sends it
    """Return the button of an interaction; None for other interactions."""
    if payload.get("type") != "block_actions":
        return None
    action, room = payload["actions"][0], str(payload["channel"]["id"])
    decision, _, question = str(action.get("value", "")).partition(":")
    key, sender = f"{room}/{action['action_ts']}", str(payload["user"]["id"])
    conversation = f"{room}/{payload.get('message', {}).get('thread_ts', '')}"
    return channels.Incoming(
        key, sender, room, conversation, decision, (), {"channel": room}, question or "none"
    )


def _blocks(text: str, question: str) -> Sequence[Mapping[str, Any]]:
    buttons = [
        {"type": "button", "action_id": one, "text": {"type": "plain_text", "text": one.title()},
         "value": f"{one}:{question}"}
        for one in ("approve", "reject")
    ]  # fmt: skip
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return [section, {"type": "actions", "elements": buttons}]
