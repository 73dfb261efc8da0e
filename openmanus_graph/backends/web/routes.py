"""Routes to hosts: direct, or through the proxy from the environment."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from openmanus_graph.backends.models.endpoint import environment_proxy
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.state.addresses import PORTS


@dataclass(frozen=True)
class Upstream:
    """An upstream proxy for connections, which also resolves the names."""

    scheme: str
    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)


def parse_upstream(server: str, username: str = "", password: str = "") -> Upstream:
    """Read a proxy's address, `[http://][USER:PASSWORD@]HOST:PORT`. ToolError if it is none."""
    try:
        parts = urlsplit(server if "://" in server else f"http://{server}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if not host or parts.scheme not in ("http", "https"):
        kind = f"{parts.scheme}://" if host else "that"
        raise TrustedToolError(
            f"The proxy that is configured cannot be used: {kind} is not understood here. The "
            "person can set http://HOST:PORT or https://HOST:PORT ([browser.proxy] server, or "
            "HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment)."
        )
    return Upstream(
        parts.scheme,
        host,
        port or PORTS[parts.scheme],
        username or unquote(parts.username or ""),
        password or unquote(parts.password or ""),
    )


def environment_upstream(scheme: str, host: str, port: int) -> Upstream | None:
    """Return the environment's proxy for a host, if there is one and it is not exempt."""
    server = environment_proxy(scheme, host, port)
    return None if server is None else parse_upstream(server)
