"""A mailbox on a real IMAP server, dovecot, for one account, with or without encryption."""

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from openmanus_graph.interfaces.cli.doctor import install_commands
from tests.support.cli import until

_CONFIGURATION = """
base_dir = {root}/run
state_dir = {root}/state
log_path = {root}/log
protocols = imap
listen = 127.0.0.1
ssl = {tls}
{version}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
    ssl = {tls}
  }}
}}
service anvil {{
  chroot =
}}
"""
_OLD = """
disable_plaintext_auth = no
mail_location = maildir:{root}/mail
first_valid_uid = 1
passdb {{
  driver = static
  args = password=pass
}}
userdb {{
  driver = static
  args = uid={uid} gid={uid} home={root}/home
}}
"""
_NEW = """
dovecot_config_version = 2.4.0
dovecot_storage_version = 2.4.0
auth_allow_cleartext = yes
mail_driver = maildir
mail_path = {root}/mail
mail_home = {root}/home
mail_uid = {uid}
mail_gid = {uid}
first_valid_uid = 1
passdb static {{
  password = pass
}}
userdb static {{
}}
"""
_OLD_TLS = "ssl_cert = <{root}/cert\nssl_key = <{root}/cert\n"
_NEW_TLS = "ssl_server_cert_file = {root}/cert\nssl_server_key_file = {root}/cert\n"


@dataclass
class Mailbox:
    root: Path
    port: int
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def deliver(
        self, subject: str, text: str, sender: str = "Anna <anna@example.org>", **headers: str
    ) -> None:
        """Put a mail into the mailbox, as a mail server does."""
        more = "".join(f"{name.replace('_', '-')}: {one}\r\n" for name, one in headers.items())
        head = f"From: {sender}\r\nTo: agent@example.org\r\nSubject: {subject}\r\n{more}"
        self.put(f"{head}\r\n{text}\r\n".encode())

    def put(self, raw: bytes) -> None:
        folder = self.root / "mail"
        name = f"{next(self._numbers)}.test"
        (folder / "tmp" / name).write_bytes(raw)
        (folder / "tmp" / name).chmod(0o644)
        (folder / "tmp" / name).rename(folder / "new" / name)

    @classmethod
    @contextlib.contextmanager
    def running(cls, authority: trustme.CA | None = None) -> "Generator[Mailbox]":
        """Run a server; with an authority, it has a certificate for 127.0.0.1."""
        root = Path(tempfile.mkdtemp(prefix="imap"))
        root.chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        uid = os.geteuid() or pwd.getpwnam("mail").pw_uid  # dovecot refuses root's mail
        for name in ("mail", "home", "mail/tmp", "mail/new", "mail/cur"):
            (root / name).mkdir()
            if not os.geteuid():
                os.chown(root / name, uid, uid)
        program = shutil.which("dovecot", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "install dovecot: apt-get install -y dovecot-imapd"
        found = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        version = _NEW if found.stdout.startswith("2.4") else _OLD
        given: dict[str, Any] = {"root": root, "port": port, "uid": uid, "tls": "no"}
        text = version.format(**given)
        if authority is not None:
            certificate = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
            certificate.write_to_path(root / "cert")
            given["tls"] = "yes"
            text += (_NEW_TLS if version is _NEW else _OLD_TLS).format(**given)
        # 2.4 wants its versions first.
        configuration = _CONFIGURATION.format(version="", **given)
        first, rest = (text, configuration) if version is _NEW else (configuration, text)
        (root / "conf").write_text(first + rest)
        with (root / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [program, "-F", "-c", str(root / "conf")],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        try:
            until(lambda: _answers(port, authority) or process.poll() is not None)
            assert process.poll() is None, (root / "errors").read_text()
            yield cls(root, port)
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(root, ignore_errors=True)


def _answers(port: int, authority: trustme.CA | None) -> bool:
    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        found = opened.enter_context(socket.create_connection(("127.0.0.1", port), 5))
        if authority is not None:
            found = opened.enter_context(context.wrap_socket(found, server_hostname="127.0.0.1"))
        return found.recv(100).startswith(b"* OK")
    return False


def install_dovecot() -> None:
    """Install the server by the system's package tools, if it is not there."""
    known = shutil.which("dovecot", path=f"{os.environ['PATH']}:/usr/sbin")
    for command in install_commands("dovecot-imapd") if known is None else ():
        subprocess.run(command, shell=True, check=False, stdin=subprocess.DEVNULL)
