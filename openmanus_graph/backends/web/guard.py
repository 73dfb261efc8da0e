"""The guard: which network addresses web tools may reach.

A name is resolved once, its addresses are checked, and callers connect to those addresses. A name
that resolves to another address a moment later (DNS rebinding) has no effect.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from openmanus_graph.backends.models.endpoint import environment_proxy
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.safety.urls import is_of_domains
from openmanus_graph.state import addresses
from openmanus_graph.state.addresses import IPAddress, WebAddress, bare_domain, normal_host, within
from openmanus_graph.state.settings import Settings

if TYPE_CHECKING:
    from openmanus_graph.backends.web.own_pages import OwnPages

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name to IP addresses as text, best first. OSError when there are none."""

_PUBLIC_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_AZURE_METADATA = IPv4Network("168.63.129.16/32")  # public by its number, never by its use
_PRIVATE_DOMAINS = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa")


async def system_resolver(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class UnnamedHostError(TrustedToolError):
    """A host is refused only because nobody has named it: a person can be asked."""


@dataclass(frozen=True)
class Guard:
    """The rules of what may be reached. A refusal is a `ToolError` with the way to allow it."""

    allow_hosts: tuple[str, ...] = ()
    """`HOST[:PORT]`s that may be reached although they are private or not among the domains."""
    allowed_domains: tuple[str, ...] = ()  # if set, only these are allowed; subdomains are included
    denied_domains: tuple[str, ...] = ()
    """Never allowed, subdomains included; takes precedence over both others."""
    resolver: Resolver = system_resolver
    own: "OwnPages | None" = None
    """For pages that the agent made, and only for them: they reach each other, and otherwise only
    hosts that the person named."""

    @classmethod
    def of(cls, settings: Settings) -> "Guard":
        web = settings.web
        return cls(settings.allow_hosts, web.allowed_domains, web.denied_domains)

    def is_own(self, url: str) -> bool:
        """Return True if a URL is for pages that the agent made. ToolError if it is not valid."""
        address = addresses.parse_address(url)
        return self._is_own_host(address.host, address.port)

    def own_at(self, host: str, port: int) -> "OwnPages | None":
        """Return what connects to a host if it is for pages that the agent made."""
        return self.own if self._is_own_host(host, port) else None

    def _is_own_host(self, host: str, port: int) -> bool:
        return addresses.is_own_host(normal_host(host)) and not self.allows(host, port)

    def refuses(self, url: str) -> bool:
        """Return True if an address is surely refused here: only a page of the agent may be it."""
        try:
            self.check(url)
        except ToolError:
            return True
        return False

    def check(self, url: str) -> WebAddress:
        """Check a URL as far as possible without resolving its host name."""
        address = addresses.parse_address(url)
        self.check_host(address.host, address.port)
        return address

    def check_host(self, host: str, port: int) -> None:
        """Check a host by its name or literal address: the only check if a proxy resolves names."""
        host = normal_host(host)
        if any(within(host, bare_domain(entry)) for entry in self.denied_domains):
            raise TrustedToolError(
                f"{host} was not reached: it is among the denied domains of the configuration. "
                "Find another source."
            )
        if self.own_at(host, port):
            return
        if self.own is not None:
            self._require_named(host, port, self.own)
        if self.allows(host, port):
            return
        if self.allowed_domains and not any(
            within(host, bare_domain(entry)) for entry in self.allowed_domains
        ):
            raise TrustedToolError(
                f"{host} was not reached: the configuration allows only "
                f"{', '.join(self.allowed_domains)}. Find what you need there."
            )
        if _is_private(host):
            raise _private_error(host, port, host)

    def _require_named(self, host: str, port: int, own: "OwnPages") -> None:
        if own.named is None or is_of_domains(WebAddress("", host, port, ""), own.named):
            return
        shown = addresses.authority(host, port, "http" if port == 80 else "https")
        needs_more = _is_private(host) and not self.allows(host, port)
        more = f" and starts the run with --allow-host {shown}" if needs_more else ""
        raise own.unnamed(shown, more)

    def allows(self, host: str, port: int) -> bool:
        """Return whether the person allowed exactly this host, or this port of it."""
        host = normal_host(host)
        for entry in self.allow_hosts:
            name, allowed_port = addresses.parse_allowed(entry)
            same = host == name or (
                host in addresses.LOOPBACK_NAMES and name in addresses.LOOPBACK_NAMES
            )
            if same and allowed_port in (None, port):
                return True
        return False

    async def resolve(self, host: str, port: int) -> list[IPAddress]:
        """Return the addresses to connect to, all of them checked."""
        host = normal_host(host)
        self.check_host(host, port)
        literal = addresses.literal_ip(host)
        if literal is not None:
            return [literal]
        try:
            found = [ip_address(text) for text in await self.resolver(host, port)]
        except (OSError, UnicodeError) as error:
            raise TrustedToolError(
                f"There is no host {host}, or names cannot be resolved here "
                f"({getattr(error, 'strerror', None) or error}). Check the spelling, or look for "
                "another source."
            ) from error
        if not found:
            raise TrustedToolError(f"The host {host} has no address. Check the spelling.")
        if self.allows(host, port):
            return found
        public = [address for address in found if is_public(address)]
        if not public:
            raise _private_error(host, port, str(found[0]))
        return public


def is_public(address: IPAddress) -> bool:
    """Return whether an address is public, including an IPv4 address embedded in it."""
    if isinstance(address, IPv4Address):
        special = address.is_multicast or address.is_reserved or address in _AZURE_METADATA
        return address.is_global and not special
    # Translating and tunnelling addresses lead to the IPv4 address in them.
    embedded = address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        embedded = IPv4Address(int(address) & 0xFFFFFFFF)
    if embedded is not None:
        return is_public(embedded)
    return address in _PUBLIC_V6 and address.is_global and address.scope_id is None


def _is_private(host: str) -> bool:
    """Return True if a host is known as private by its name or number."""
    address = addresses.literal_ip(host)
    if address is not None:
        return not is_public(address)
    return "." not in host or any(within(host, name) for name in _PRIVATE_DOMAINS)


def _private_error(host: str, port: int, address: str) -> TrustedToolError:
    leads = "it is" if host == address else f"it leads to {address},"
    shown = f"[{host}]" if ":" in host else host
    return TrustedToolError(
        f"{shown}:{port} was not reached: {leads} an address of this machine, of a private network "
        "or for special use, which web tools do not open. If the person wants it opened, they can "
        f"start the run with --allow-host {shown}:{port} and name that address in the task."
    )


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
        port or addresses.PORTS[parts.scheme],
        username or unquote(parts.username or ""),
        password or unquote(parts.password or ""),
    )


def environment_upstream(scheme: str, host: str, port: int) -> Upstream | None:
    server = environment_proxy(scheme, host, port)
    return None if server is None else parse_upstream(server)
