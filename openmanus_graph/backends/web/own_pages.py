"""Pages that the agent made: servers of its programs, and files of the workspace.

Such a page can send away what the agent has read, so it reaches other hosts only if the person
named them: see `Guard.own`.
"""

import asyncio
import mimetypes
import socket
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import psutil

from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.process_tree import Tree
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, find, opened_file
from openmanus_graph.safety.urls import Domain
from openmanus_graph.state.addresses import WORKSPACE_HOST, authority, literal_ip

CONNECT_S = 10.0
MOST_BYTES = 64 << 20
"""Of a file that is shown."""
_PROGRAMS = frozenset({"text/html", "text/css", "text/javascript", "text/xml"})
"""Types of text that a browser does more with than showing it."""


@dataclass(frozen=True)
class Answer:
    status: int
    media_type: str
    body: bytes
    location: str = ""


class OwnPages:
    """The pages of one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.named: Collection[Domain] | None = ()
        """The domains that the person named so far; each web tool sets it first. None: any."""

    @classmethod
    def of(cls, session: Session) -> "OwnPages":
        return session.cached_across_runs(cls, lambda: cls(session))

    def unnamed(self, host: str, more: str) -> TrustedToolError:
        """Return why a host that nobody named is not reached. `more`: what else it needs."""
        return TrustedToolError(
            f"{host} was not reached: a page that you made reaches other hosts only if the person "
            f"names them in the task{more}. Open it with go_to_url, or do without it."
        )

    async def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a port that a program of the thread's sandbox has opened.

        ToolError: No program of it listens there, or it cannot be reached.
        """
        sandbox = self._session.find("sandbox")
        if host == WORKSPACE_HOST:
            raise TrustedToolError(
                f"It was not reached: files of the workspace are at http://{host}/PATH only."
            )
        if not isinstance(sandbox, Sandbox):
            raise _not_listening(host, port)
        backend = sandbox.backend
        if backend.hides_ports:
            raise TrustedToolError(
                f"{authority(host, port, '')} was not reached: the browser cannot reach ports in "
                f"the sandbox {backend.name!r}. Write the page into the workspace and open the "
                "file, or a person can choose --sandbox bwrap."
            )
        shared = backend.shares_network
        for family, number in _numbers(host):
            if shared and not await asyncio.to_thread(_is_own, sandbox.trees, port):
                break
            with ExitStack() as on_failure:
                made = await asyncio.to_thread(backend.new_socket, family)
                on_failure.enter_context(made)
                made.setblocking(False)
                with suppress(OSError):  # refused, or no answer in time
                    async with asyncio.timeout(CONNECT_S):
                        await asyncio.get_running_loop().sock_connect(made, (number, port))
                    # Another program of this machine may have taken the port meanwhile.
                    if not shared or await asyncio.to_thread(_is_own, sandbox.trees, port):
                        on_failure.pop_all()
                        return made
        raise _not_listening(host, port)

    def read(self, path: str) -> Answer:
        """Return the file of the workspace that an address leads to. Blocks.

        ToolError: It is out of reach, or too large.
        """
        workspace, name = self._session.workspace, unquote(path).lstrip("/")
        found = find(workspace, name or ".")
        if found is not None and found.is_folder and not path.endswith("/"):
            return Answer(301, "text/plain", b"", location=f"{path}/")
        if found is not None and found.is_folder:
            name = f"{name}index.html"
            found = find(workspace, name)
        if found is None:
            text = f"There is no file {name} in the workspace.\n"
            return Answer(404, "text/plain; charset=utf-8", text.encode(errors="replace"))
        with opened_file(workspace, found.path, limit=MOST_BYTES) as file:
            data = file.read()
        return Answer(200, _media_type(found.path, data), data)


def _numbers(host: str) -> Sequence[tuple[int, str]]:
    """Return the addresses by which a host's programs are reached in their own network."""
    address = literal_ip(host)
    if address is None or address.is_unspecified:
        return (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")
    return ((socket.AF_INET if address.version == 4 else socket.AF_INET6, host),)


def _is_own(trees: Sequence[Tree], port: int) -> bool:
    """Return True if only programs of the sandbox listen on a port of this machine. Blocks."""
    own = {process.pid for tree in list(trees) for process in tree.members()}
    try:
        found = psutil.net_connections("tcp")
    except psutil.Error:  # the system tells only root
        return False
    listening = (one for one in found if one.status == psutil.CONN_LISTEN)
    owners = {one.pid for one in listening if one.laddr and one.laddr.port == port}
    return bool(owners) and owners <= own


def _not_listening(host: str, port: int) -> TrustedToolError:
    shown = authority(host, port, "")
    return TrustedToolError(
        f"{shown} was not reached: no program of your sandbox listens there. Start the server with "
        "bash, in the background; a server outside of your sandbox is opened only if the person "
        f"starts the run with --allow-host {shown} and names that address in the task."
    )


def workspace_url(workspace: Workspace, text: str) -> str | None:
    """Return the address of a file that is written as its path or with `file:`. Blocks.

    None: The workspace has no such file. ToolError: It is out of reach.
    """
    parts = urlsplit(text)
    path = unquote(parts.path)
    if parts.scheme == "file" and not Path(path).is_relative_to(workspace.root):
        raise TrustedToolError(
            "It was not opened: file: leads to files of the workspace only. Copy the page there, "
            "and open it by its path in the workspace."
        )
    if path.startswith("/") and not Path(path).is_relative_to(workspace.root):
        return None
    found = find(workspace, path) if path else None
    if found is None and not parts.scheme and (found := find(workspace, text)):
        parts = urlsplit("")  # `#`, `?` or `%` belongs to the name
    if found is None:
        return None
    whole = parts._replace(scheme="http", netloc=WORKSPACE_HOST, path=f"/{quote(found.path)}")
    return whole.geturl()


def _media_type(path: str, data: bytes) -> str:
    known = mimetypes.guess_type(path)[0] or "text/plain"
    if known.startswith("text/") and known not in _PROGRAMS:
        known = "text/plain"
    if not (known.startswith("text/") or known.endswith(("json", "xml", "javascript"))):
        return known
    try:
        data.decode()
    except UnicodeDecodeError:
        return known if known != "text/plain" else "application/octet-stream"
    return f"{known}; charset=utf-8"
