"""The way out of the sandbox's network with `network = "ask"`: a proxy that knows each host.

bubblewrap's programs share a network without a way out. A socket in it is answered by our proxy,
which tells host and method of each request (of an encrypted one only the host) and refuses hosts
that nobody has named. Programs find it by the usual variables, such as HTTPS_PROXY.
"""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Collection, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from openmanus_graph.backends.sandbox import scratch
from openmanus_graph.backends.sandbox.choose import Bwrap
from openmanus_graph.backends.sandbox.confinement import Sandbox, sandbox_of
from openmanus_graph.backends.web.guard import Guard, UnnamedHostError
from openmanus_graph.backends.web.own_pages import CONNECT_S, OwnPages
from openmanus_graph.backends.web.proxy import GuardedProxy, Refusal
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.urls import Domain, domains_in, is_of_domains
from openmanus_graph.state.addresses import (
    LOOPBACK_NAMES,
    WORKSPACE_HOST,
    WebAddress,
    authority,
)
from openmanus_graph.state.settings import Settings

HANDLE = "program proxy"


class _Hosts(OwnPages):
    """The hosts that programs reach: those that are named, and servers of their own network."""

    def unnamed(self, host: str, more: str) -> TrustedToolError:
        if more:
            return TrustedToolError(
                f"{host} was not reached: it is in a private network. The person can name it in "
                f"the task{more}, or allow every host with --network=any."
            )
        return UnnamedHostError(
            f"{host} was not reached: nobody has named it. The person is asked after this call."
        )

    async def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a port of the programs' network, or one of this machine that is named.

        ToolError: Nothing listens there, or nobody has named it.
        """
        try:
            return await super().connect(host, port)
        except ToolError:
            if host == WORKSPACE_HOST or not await asyncio.to_thread(_is_listened_to, port):
                raise
        found = [WebAddress("", one, port, "") for one in (host, *LOOPBACK_NAMES)]
        if self.named is None or any(is_of_domains(one, self.named) for one in found):
            return await _connected(host, port)
        raise self.unnamed(authority(host, port, ""), "")


def _is_listened_to(port: int) -> bool:
    """Return True if a program listens on a port of this machine."""
    found = (one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
    return any(one.laddr.port == port for one in found if one.laddr)


async def _connected(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setblocking(False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


class ProgramProxy:
    """A handle of the session. It runs in a thread of its own; methods block for a moment."""

    def __init__(self, session: Session, sandbox: Sandbox, backend: Bwrap) -> None:
        self.holder = backend.network.holder()
        self.hosts = _Hosts(session)
        guard = replace(Guard.of(session.settings), own=self.hosts)
        self._proxy = GuardedProxy(guard, login=False)
        listening = backend.new_socket(socket.AF_INET)
        listening.bind(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._proxy.start(listening))
        sandbox.proxy = self._proxy.server

    def take_refusals(self) -> Sequence[Refusal]:
        return list({one.origin: one for one in self._proxy.take_refusals()}.values())

    def handle_state(self) -> str:
        """Return an empty text: programs find it again."""
        return ""

    def close(self) -> None:
        self._run(self._proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def use_program_proxy(session: Session, named: Collection[Domain] | None) -> None:
    """Let programs that are started from now on out by the proxy, to these hosts. Blocks.

    None: to every host that the guard allows. With other sandboxes than bubblewrap they need none.
    """
    sandbox = sandbox_of(session)
    backend = sandbox.backend
    if not isinstance(backend, Bwrap):
        return
    known = session.find(HANDLE)
    if isinstance(known, ProgramProxy) and known.holder != backend.network.holder():
        session.drop(HANDLE)  # its network has ended
    proxy = session.handle(HANDLE, lambda: ProgramProxy(session, sandbox, backend))
    configured = session.cached(HANDLE, lambda: set(_configured_hosts(session.settings)))
    proxy.hosts.named = None if named is None else {*named, *configured}


def take_refusals(session: Session) -> Sequence[Refusal]:
    """Return what was not reached since the last time, one for each host."""
    proxy = session.find(HANDLE)
    return proxy.take_refusals() if isinstance(proxy, ProgramProxy) else ()


def _configured_hosts(settings: Settings) -> Iterator[Domain]:
    """Yield the hosts that the user's configuration names, that of pip and uv included. Blocks."""
    host = {name: text for name, text in os.environ.items() if not name.lower().endswith("_proxy")}
    packages = scratch.pip_configuration(host, Path(sys.prefix), Path.home())
    yield from domains_in("\n".join((packages, *scratch.network_settings(host).values())))
    named = (*settings.allow_hosts, *settings.web.allowed_domains)
    yield from domains_in(" ".join(f"http://{one}" for one in named))
