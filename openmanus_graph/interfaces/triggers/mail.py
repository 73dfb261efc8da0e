"""Reads new mail of a mailbox by IMAP, without changing it (extra `mail`)."""

import contextlib
import datetime
import email.utils
import re
from collections.abc import Generator, Mapping
from typing import Any

from openmanus_graph.backends.files.mail import read_mail
from openmanus_graph.backends.persistence.backend import read_object
from openmanus_graph.backends.persistence.deliveries import Deliveries, Event
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.state.triggers import Automatic, Trigger

MAX_MAIL_BYTES = 25 << 20
MOST_MAILS = 50
"""That one look reads."""
_AUTOMATIC = ("Auto-Submitted", "Precedence", "List-Id")
_FAILED = re.compile(r"\bdmarc\s*=\s*fail", re.IGNORECASE)


Mail = tuple[int, int, bytes]
"""UIDVALIDITY, UID, and the mail."""


@contextlib.contextmanager
def open_mailbox(
    trigger: Automatic, mailbox: str = ""
) -> Generator[tuple[Any, Mapping[bytes, Any]]]:
    """Open the (other) mailbox for reading. ConfigError: that is not possible."""
    try:
        from imapclient import IMAPClient
        from imapclient.exceptions import IMAPClientError
    except ImportError as error:
        raise ConfigError(f"Mail needs the extra `mail`. {install_extra('mail')}") from error
    host, _, port = trigger.host.partition(":")
    try:
        number: Any = int(port) if port else None  # typed as a number
        with IMAPClient(host, number, ssl=trigger.tls, timeout=30) as client:
            client.login(trigger.login, trigger.password.get_secret_value())
            yield client, client.select_folder(mailbox or trigger.mailbox, readonly=True)
    except (OSError, ValueError, IMAPClientError) as error:
        raise ConfigError(f"The mailbox at {trigger.host} cannot be read: {error}.") from error


def look(trigger: Trigger, table: Deliveries, now: float) -> None:
    """Store the mails that came since the last look. Blocks. ConfigError as `open_mailbox`."""
    mark = table.mark(trigger.name)
    if (new := new_mails(trigger, read_object(mark), now)) is not None:
        after, mails = new
        found = (_event(trigger, *one) for one in mails)
        events = [event for event in found if event is not None]
        table.advance(trigger.name, mark, after, events, now)


def new_mails(
    account: Automatic, stored: Mapping[str, Any] | None, now: float
) -> tuple[dict[str, Any], list[Mail]] | None:
    """Return the mails after a mark, and the mark after them; None: there are none. Blocks.

    The first look only notes which was the newest. If the mailbox was made again, all numbers are
    new: then those count that came after the last look. ConfigError as `open_mailbox`.
    """
    with open_mailbox(account) as (client, selected):
        validity = int(selected[b"UIDVALIDITY"])
        uids, new = sorted(client.search(["ALL"])), list[int]()
        if stored is not None and stored["validity"] == validity:
            new = [uid for uid in uids if uid > stored["uid"]]
            if not new:
                return None
        elif stored is not None:
            since = datetime.datetime.fromtimestamp(stored["at"], datetime.UTC)
            dates = client.fetch(client.search(["SINCE", since.date()]), ["INTERNALDATE"])
            arrived = {
                uid: one[b"INTERNALDATE"].astimezone(datetime.UTC) for uid, one in dates.items()
            }
            new = sorted(uid for uid, at in arrived.items() if at >= since)
        read = ((uid, _raw(client, uid)) for uid in new[:MOST_MAILS])
        mails = [(validity, uid, raw) for uid, raw in read if raw is not None]
        last = new[MOST_MAILS - 1] if len(new) > MOST_MAILS else max(uids, default=0)
        return {"validity": validity, "uid": last, "at": now}, mails


def _raw(client: Any, uid: int) -> bytes | None:
    """Return a mail, only its head if it is too large; None if it is gone."""
    size = client.fetch([uid], ["RFC822.SIZE"]).get(uid, {}).get(b"RFC822.SIZE", 0)
    part = "BODY[]" if size <= MAX_MAIL_BYTES else "BODY[HEADER]"
    found = client.fetch([uid], [part.replace("BODY", "BODY.PEEK")]).get(uid, {})
    raw: bytes | None = found.get(part.encode())
    return raw


def _event(trigger: Trigger, validity: int, uid: int, raw: bytes) -> Event | None:
    """Return the event of a mail; None if its sender may not start a run."""
    headers, body, attachments = read_mail(raw)
    senders = email.utils.getaddresses(headers.get("from", []))
    address = senders[0][1].casefold() if len(senders) == 1 else ""
    if address not in {one.casefold() for one in trigger.senders}:
        return None
    key = f"{trigger.mailbox};{validity};{uid}"
    if why := why_skipped(headers):
        return Event(key, {}, "skipped", why)
    fields = {name: ", ".join(headers.get(name, [])) for name in ("to", "subject", "date")}
    fields |= {"from": address, "body": body, "attachments": ", ".join(attachments)}
    return Event(key, {**fields, "_uid": uid, "_validity": validity})


def why_skipped(headers: Mapping[str, list[str]]) -> str:
    """Return why a mail starts no run. Empty: it may start one."""
    if _FAILED.search(" ".join(headers.get("authentication-results", [])[:1])):
        return "The mail server found that the sender is forged."
    for name in _AUTOMATIC:
        given = headers.get(name.lower(), [""])[0].strip().lower()
        if given and given != "no":
            return f"It is automatic mail, by its {name}."
    return ""


def file_of(trigger: Automatic, event: Mapping[str, Any]) -> Upload | None:
    """Return the whole mail of an event, with its attachments; None if it is gone. Blocks."""
    with open_mailbox(trigger) as (client, selected):
        if int(selected[b"UIDVALIDITY"]) != event["_validity"]:
            return None
        raw = _raw(client, int(event["_uid"]))
    return None if raw is None else Upload("mail.eml", raw, "message/rfc822")
