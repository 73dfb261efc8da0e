"""HTTP connections, pinned to checked addresses or through the environment's proxy."""

from collections.abc import Iterable

from httpcore2 import (
    SOCKET_OPTION,
    AnyIOBackend,
    AsyncConnectionPool,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    Proxy,
)

from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.routes import environment_upstream
from openmanus_graph.state.addresses import WebAddress, authority


class PinnedBackend(AsyncNetworkBackend):
    """Resolves names with the guard and connects to the checked addresses.

    TLS and the Host header go by the name all the same: they are made above this layer.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first of the checked addresses that answers."""
        failure: ConnectError | None = None
        for address in await self._guard.resolve(host, port):
            try:
                return await self._network.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except ConnectError as error:
                failure = failure or error
        raise failure or ConnectError("no address")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)


def open_pool(address: WebAddress, guard: Guard) -> AsyncConnectionPool:
    """Return the connections by which an address is fetched. Blocks: it reads certificates."""
    upstream = environment_upstream(address.scheme, address.host, address.port)
    if upstream is None:
        return AsyncConnectionPool(tls_context(), network_backend=PinnedBackend(guard))
    url = f"{upstream.scheme}://{authority(upstream.host, upstream.port, upstream.scheme)}"
    login = (upstream.username, upstream.password) if upstream.username else None
    return AsyncConnectionPool(tls_context(), proxy=Proxy(url, login))
