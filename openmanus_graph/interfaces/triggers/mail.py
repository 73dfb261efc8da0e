"""Reads new mail of a mailbox by IMAP, without changing it (extra `mail`)."""

import asyncio
import contextlib
import datetime
import email.utils
import re
import ssl
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from typing import Any

from openmanus_graph.backends.files.mail import read_mail
from openmanus_graph.backends.persistence.deliveries import Event, State
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.state.triggers import Automatic, Trigger

MAX_MAIL_BYTES = 25 << 20
MOST_MAILS = 50
"""That one look reads."""
_AUTOMATIC = ("Auto-Submitted", "Precedence", "List-Id")
_FAILED = re.compile(r"\bdmarc\s*=\s*fail", re.IGNORECASE)
_waiting = ThreadPoolExecutor(64, "mail")
"""One thread for each mailbox, which are not those that others need."""
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
        why = f"The mailbox at {trigger.host} cannot be read: {why_failed(error)}."
        raise ConfigError(why) from error


def why_failed(error: Exception) -> str:
    """Return what is wrong with a mail server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message.rstrip('.')})"
    return str(error)


async def poll(account: Automatic, mark: Mapping[str, Any] | None) -> tuple[list[Mail], Any]:
    """Return the mails after a mark, and the mark after them. Waits for one up to `poll_s`."""
    stop, loop = threading.Event(), asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(_waiting, new_mails, account, mark, stop)
    finally:
        stop.set()
    return found or ([], dict(mark or {}))


def new_mails(
    account: Automatic, stored: Mapping[str, Any] | None, stop: threading.Event | None = None
) -> tuple[list[Mail], dict[str, Any]] | None:
    """Return the mails after a mark, and the mark after them; None: there are none. Blocks.

    The first look only notes which was the newest. If the mailbox was made again, all numbers are
    new: then those count that came after the last look. If there are none, it waits until the next
    look is due, unless `stop` is set or left out. ConfigError as `open_mailbox`.
    """
    with open_mailbox(account) as (client, selected):
        validity, began = int(selected[b"UIDVALIDITY"]), time.time()
        uids, new = sorted(client.search(["ALL"])), list[int]()
        if stored is not None and stored["validity"] == validity:
            new = [uid for uid in uids if uid > stored["uid"]]
            if not new:
                if stop is not None:
                    _wait(client, account.poll_s, stop)
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
        return mails, {"validity": validity, "uid": last, "at": began}


def _wait(client: Any, seconds: float, stop: threading.Event) -> None:
    """Wait so long, or until a server that has IDLE (RFC 2177) reports a change."""
    if not client.has_capability("IDLE"):
        stop.wait(seconds)
        return
    end = time.monotonic() + seconds
    client.idle()
    while not stop.is_set() and (left := end - time.monotonic()) > 0:
        if wait([client.socket()], min(left, 1)):
            break
    client.idle_done()


def _raw(client: Any, uid: int) -> bytes | None:
    """Return a mail, only its head if it is too large; None if it is gone."""
    size = client.fetch([uid], ["RFC822.SIZE"]).get(uid, {}).get(b"RFC822.SIZE", 0)
    part = "BODY[]" if size <= MAX_MAIL_BYTES else "BODY[HEADER]"
    found = client.fetch([uid], [part.replace("BODY", "BODY.PEEK")]).get(uid, {})
    raw: bytes | None = found.get(part.encode())
    return raw


def sender_of(headers: Mapping[str, list[str]]) -> str:
    """Return the address of a mail's sender; empty if it has not one."""
    senders = email.utils.getaddresses(headers.get("from", []))
    return senders[0][1].casefold() if len(senders) == 1 else ""


def events_of(trigger: Trigger, mails: Iterable[Mail]) -> Iterator[Event]:
    """Yield the events of the mails whose senders may start a run."""
    allowed = {one.casefold() for one in trigger.senders}
    for validity, uid, raw in mails:
        headers, body, attachments = read_mail(raw)
        if (address := sender_of(headers)) in allowed:
            given = {name: ", ".join(headers.get(name, [])) for name in ("to", "subject", "date")}
            given |= {"from": address, "body": body, "attachments": ", ".join(attachments)}
            fields, why = {**given, "_uid": uid, "_validity": validity}, why_skipped(headers)
            state: State = "skipped" if why else "claimed"
            yield Event(f"{trigger.mailbox};{validity};{uid}", {} if why else fields, state, why)


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
