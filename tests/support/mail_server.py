"""A real SMTP server, which files what it sends in the mailbox `Sent`, as many providers do."""

import email
import email.policy
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.support.mailbox import Mailbox


class MailServer:
    """A server for one account.

    Args:
        box: Where it files what it sends.
        authority: Makes its certificate for 127.0.0.1. It then demands TLS, and a login by the
            password `pass`.
        implicit: Whether TLS begins at once, as on port 465, or with STARTTLS.
    """

    def __init__(
        self, box: Mailbox, authority: trustme.CA | None = None, *, implicit: bool = False
    ) -> None:
        self.logins: list[bytes] = []
        self.mails: list[EmailMessage] = []
        self.answers: list[str] = []
        """What it answers to the next mails, which are not taken."""
        self.before_answer: Callable[[], None] = lambda: None
        self.sent = box.root / "mail" / ".Sent"
        for name in ("", "tmp", "new", "cur"):
            (self.sent / name).mkdir()
            owner = (box.root / "mail").stat()
            os.chown(self.sent / name, owner.st_uid, owner.st_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        given: dict[str, Any] = {}
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("127.0.0.1").configure_cert(context)
            given = {"auth_required": True, "authenticator": self._log_in}
            given |= (
                {"ssl_context": context, "auth_require_tls": False}
                if implicit
                else {"tls_context": context, "require_starttls": True}
            )
        self.controller = Controller(self, hostname="127.0.0.1", port=self.port, **given)

    def __enter__(self) -> "MailServer":
        self.controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.controller.stop()

    def _log_in(self, _server: Any, _session: Any, _envelope: Any, _kind: str, who: Any) -> Any:
        self.logins.append(who.login)
        return AuthResult(success=who.password == b"pass", handled=False)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # its name
        if self.answers:
            return self.answers.pop(0)
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        place = self.sent / "tmp" / f"{len(self.mails)}.sent"
        place.write_bytes(envelope.content)
        place.chmod(0o644)
        shutil.move(place, self.sent / "new" / place.name)
        self.mails.append(message)
        self.before_answer()
        return "250 OK"
