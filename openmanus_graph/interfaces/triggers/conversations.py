"""Conversations by channels: who may talk, which messages answer a question, and what a run gets.

A chat is a thread, and each message in it one turn. The messages of a chat wait for each other. A
message that answers a question does not wait, so it is a delivery beside the thread's own ones.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from openmanus_graph.backends.files.file_content import media_type_of
from openmanus_graph.backends.persistence.deliveries import Deliveries, Delivery, Event, thread_of
from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.config.triggers import CHANNEL_PREFIX
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service import runs
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.triggers import tasks
from openmanus_graph.interfaces.triggers.channels import MAX_FILE_BYTES, BaseChannel, Incoming
from openmanus_graph.runtime.workspace import read_file
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.triggers import Channel, Trigger

_OURS = {
    "webhook": "channels:WebhookChannel",
    "telegram": "telegram:TelegramChannel",
    "slack": "slack:SlackChannel",
    "mail": "mail_channel:MailChannel",
}
MOST_FILES = 10
"""Of an answer. Further, larger and empty files, which servers refuse, stay in the workspace."""
_TURNS = uuid.UUID("0d1f8a53-9f2c-5f6e-8e0b-1f0c1d7f3a52")
log = logging.getLogger(__name__)


def open_channel(settings: Channel) -> BaseChannel:
    """Return the channel of its kind. ConfigError: a package that it needs is missing."""
    if settings.kind in _OURS:
        module, _, name = _OURS[settings.kind].partition(":")
        kind = getattr(import_module(f"openmanus_graph.interfaces.triggers.{module}"), name)
    else:
        kind = load(installed("channels")[settings.kind], "channel")
    channel: BaseChannel = kind(settings.name, settings)
    return channel


def events_of(
    channel: BaseChannel, trigger: str, incoming: Sequence[Incoming], table: Deliveries
) -> list[Event]:
    """Return the events of messages from whom the channel allows. Blocks.

    Nothing is stored of the others, and nothing is sent to them.
    """
    allowed, found = {one.casefold() for one in channel.settings.allow}, list[Event]()
    for one in incoming:
        question = one.question
        if not allowed & {one.sender.casefold(), one.room.casefold()}:
            whom = f"{one.sender[:80]!r} in {one.room[:80]!r}"
            log.warning("The channel %s refused a message of %s.", channel.name, whom)
        elif not (one.text or one.files):
            continue  # a sticker, or somebody joined
        elif question and not (question.isalnum() and table.asking(question=question)):
            log.warning("The channel %s got an answer to an unknown question.", channel.name)
        else:
            found.append(_event(channel, trigger, one, table))
    return found


def _event(channel: BaseChannel, trigger: str, one: Incoming, table: Deliveries) -> Event:
    thread = thread_of(trigger, one.conversation)
    if one.skipped:
        return Event(one.key, {}, "skipped", one.skipped, thread)
    asking = table.asking(question=one.question) if one.question else table.asking(thread=thread)
    codes = {each: channel.code(each) for each in asking.asked} if asking else {}
    answered = [each for each, code in codes.items() if code in one.text and not one.files]
    question = one.question or "".join(answered[-1:])
    text = (one.reply or one.text) if question else one.text
    if (code := codes.get(question, "")) and question:
        text = " ".join(text.replace(code, "").split())
    fields: dict[str, Any] = {"from": one.sender, "text": tasks.cut(text), "_where": {**one.where}}
    fields |= {"_files": [dict(file) for file in one.files], "_proven": one.is_proven}
    if asking is None or not question:
        return Event(one.key, fields, thread=thread)
    fields |= {"_question": question, "_button": bool(one.question)}
    # On a thread of its own, so that it waits for no other message.
    return Event(one.key, {**fields, "_thread": asking.thread, "_own": thread})


def turn_id(one: Delivery) -> str:
    """Return the id of the message in the thread that a delivery is, in whichever process."""
    return str(uuid.uuid5(_TURNS, one.full_key))


def message_of(trigger: Trigger, channel: BaseChannel, one: Delivery) -> runs.Message:
    """Return what the run gets of a message, with its files. Blocks."""
    files = tuple(filter(None, map(channel.fetch, one.event.get("_files", ()))))
    if channel.settings.trust and one.event.get("_proven"):
        return runs.Message(str(one.event["text"]), files)
    message = tasks.task_of(trigger, one.event, files)
    return runs.Message(message.text, files, "")


def may_answer(settings: Channel, kind: str) -> bool:
    """Return whether a question of a kind can be answered by the channel that it is sent to."""
    return bool(settings.allow) and (settings.trust or kind == "question")


def answer_text(channel: BaseChannel, kind: str, text: str) -> str | None:
    """Return the text that answers a question of a kind; None: the sender may not answer it."""
    if channel.settings.trust:
        return text
    return mark_untrusted(text) if kind == "question" else None


def where(channel: BaseChannel, one: Delivery) -> Mapping[str, Any]:
    """Return where messages about a delivery go. Empty: to the channel's room."""
    is_here = one.trigger.removeprefix(CHANNEL_PREFIX) == channel.name
    found: Mapping[str, Any] = one.event.get("_where", {}) if is_here else {}
    return found


def read_artifacts(one: Delivery, options: RunOptions) -> list[runs.Upload]:
    """Return the files of a run's answer. Blocks."""
    workspace = runs.resolve_workspace(runs.thread_options(options, one.thread), one.thread)
    found = list[runs.Upload]()
    for path in [str(file["path"]) for file in one.result.get("artifacts", ())][:MOST_FILES]:
        try:
            data = read_file(workspace, path, MAX_FILE_BYTES)
        except (ToolError, OSError) as error:
            log.warning("A file is not sent: %s", error)
            continue
        kind = media_type_of(path) or "application/octet-stream"
        found += [runs.Upload(path.rpartition("/")[2], data, kind)] if data else []
    return found
