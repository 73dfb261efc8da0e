"""Mail as a channel: IMAP in, SMTP out (extra `mail`).

`From` proves nothing by itself. With `trusted_server`, that server's check must have passed. If it
is not set, mails are data, whatever `trust` says. A question has a code, by which an answer proves
that its sender has read the question.
"""

import asyncio
import contextlib
import email.utils
import hashlib
import hmac
import re
import smtplib
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from functools import partial
from typing import Any, ClassVar

from openmanus_graph.backends.files.mail import read_mail
from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.interfaces.triggers import channels, mail

CODE_CHARS = 12
SUBMISSION, SMTPS = 587, 465
_QUOTED = re.compile(r"^(?:>|On .+ wrote:\s*$|Am .+ schrieb .*:\s*$|-+ ?Original Message)", re.M)
_PASSED = re.compile(r"\bdmarc\s*=\s*pass\b", re.IGNORECASE)
_ID = re.compile(r"<[!-;=?-~]{1,250}>")
MOST_IDS = 20


@dataclass(frozen=True)
class MailChannel(channels.BaseChannel):
    polls: ClassVar[bool] = True

    @property
    def address(self) -> str:
        return (self.settings.address or self.settings.login).casefold()

    async def deliver(self, message: channels.Outgoing) -> None:
        await asyncio.to_thread(lambda: self._send(self._mail(message)))

    async def reconcile(self, message: channels.Outgoing) -> bool | None:
        if not self.settings.sent_mailbox:
            return None

        def was_filed() -> bool:
            with mail.open_mailbox(self.settings, self.settings.sent_mailbox) as (client, _):
                return bool(client.search(["HEADER", "Message-ID", self._message_id(message.key)]))

        return await asyncio.to_thread(was_filed)

    async def poll(self, mark: Mapping[str, Any] | None) -> channels.Polled:
        mails, after = await mail.poll(self.settings, mark)
        return [one for each in mails if (one := self._incoming(*each)) is not None], after

    def fetch(self, file: Mapping[str, Any]) -> Upload | None:
        return mail.file_of(self.settings, file)

    def code(self, question: str) -> str:
        return self._digest(question)[:CODE_CHARS]

    async def identify(self) -> str:
        if self.settings.allow:
            await asyncio.to_thread(mail.new_mails, self.settings, None)

        def log_in() -> None:
            with self._server():
                pass

        await asyncio.to_thread(log_in)
        return f"Mail is sent as {self.address}."

    def _incoming(self, validity: int, uid: int, raw: bytes) -> channels.Incoming | None:
        """Return a mail; None if it is the agent's own, or has not one sender."""
        headers, body, attachments = read_mail(raw)
        if not (sender := mail.sender_of(headers)) or sender == self.address:
            return None
        is_checked, skipped = self._is_checked(headers), mail.why_skipped(headers)
        if self.settings.trusted_server and not is_checked:
            skipped = "The mail server did not confirm its sender."
        subject, identity = " ".join(headers.get("subject", [])), _ids(headers, "message-id")
        before = _ids(headers, "references") or _ids(headers, "in-reply-to")
        references = " ".join([*before, *identity][-MOST_IDS:])
        answered = {"In-Reply-To": "".join(identity[:1]), "References": references}
        conversation = f"{sender}/{[*before, *identity, str(uid)][0]}"
        return channels.Incoming(
            f"{self.settings.mailbox};{validity};{uid}",
            sender,
            sender,
            conversation,
            f"{subject}\n\n{body}",
            [{"_uid": uid, "_validity": validity}] if attachments else (),
            {"to": sender, "subject": subject, "headers": answered},
            skipped=skipped,
            reply=_QUOTED.split(body, maxsplit=1)[0].strip(),
            is_proven=is_checked,
        )

    def _is_checked(self, headers: Mapping[str, list[str]]) -> bool:
        """Return whether the trusted server found that the sender's domain sent a mail.

        Only its topmost result counts: those below may be the sender's own.
        """
        server, _, results = headers.get("authentication-results", [""])[0].partition(";")
        is_trusted = server.split()[:1] == [self.settings.trusted_server]
        return is_trusted and _PASSED.search(results) is not None

    def _mail(self, message: channels.Outgoing) -> EmailMessage:
        new, text = EmailMessage(), message.text
        first = next(iter(text.splitlines()), "")[:80] or "Answer"
        subject = str(message.to.get("subject") or first)
        if message.to.get("subject") and subject[:3].casefold() != "re:":
            subject = f"Re: {subject}"
        new["From"], new["To"] = self.address, message.to.get("to") or self.settings.room
        new["Subject"], new["Date"] = subject, email.utils.localtime()
        new["Message-ID"] = self._message_id(message.key)
        new["Auto-Submitted"] = "auto-replied"  # so that no other program answers
        for name, value in message.to.get("headers", {}).items():
            if value:
                new[name] = value
        if message.question:
            code = self.code(message.question)
            how = f"approve {code}` or `reject {code}" if message.decides else f"{code} YOUR ANSWER"
            text = f"{text}\n\nTo answer, reply with: `{how}`"
        new.set_content(text)
        for file in message.attached():
            kind, _, subtype = file.media_type.partition("/")
            new.add_attachment(file.data, kind, subtype, filename=file.name)
        return new

    def _message_id(self, key: str) -> str:
        return f"<{self._digest(key)[:40]}@{self.address.rpartition('@')[2]}>"

    def _digest(self, text: str) -> str:
        key = self.settings.password.get_secret_value() or self.settings.smtp
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()

    @contextlib.contextmanager
    def _server(self) -> Generator[smtplib.SMTP]:
        """Connect and log in. NotSentError: that is not possible."""
        host, _, port = self.settings.smtp.partition(":")
        number, context = int(port or SUBMISSION), ssl.create_default_context()
        password, wait = self.settings.password.get_secret_value(), self.settings.timeout_s
        with contextlib.ExitStack() as opened:
            try:
                kind: Callable[..., smtplib.SMTP] = smtplib.SMTP
                if self.settings.tls and number == SMTPS:
                    kind = partial(smtplib.SMTP_SSL, context=context)
                client = kind(host, number, timeout=wait)
                opened.callback(client.close)
                if self.settings.tls and number != SMTPS:
                    client.starttls(context=context)
                client.ehlo()
                if password and client.has_extn("auth"):
                    client.login(self.settings.login, password)
            except (OSError, ValueError, smtplib.SMTPException) as error:
                why = f"The server {self.settings.smtp} cannot be used: {mail.why_failed(error)}."
                raise channels.NotSentError(why) from error
            yield client
            with contextlib.suppress(OSError, smtplib.SMTPException):
                client.quit()

    def _send(self, message: EmailMessage) -> None:
        why = f"The server {self.settings.smtp}"
        with self._server() as client:
            try:
                client.send_message(message)
            except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
                raise channels.NotSentError(f"{why} refused the mail: {error}.") from error
            except (OSError, smtplib.SMTPException) as error:
                raise channels.UncertainError(f"{why} was lost: {error}.") from error


def _ids(headers: Mapping[str, list[str]], name: str) -> list[str]:
    return _ID.findall(" ".join(headers.get(name, [])))
