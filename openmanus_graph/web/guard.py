"""Which addresses of the network web tools may reach.

Everything here is about hosts as they are connected to. A name is resolved once, its addresses
are checked, and callers connect to those addresses: a name that leads elsewhere a moment later
(DNS rebinding) leads nowhere.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from openmanus_graph.errors import ConfigError, OwnWordsError, ToolError
from openmanus_graph.settings import Settings
from openmanus_graph.web.addresses import (
    IPAddress,
    WebAddress,
    literal_ip,
    normal_host,
    parse_address,
    within,
)

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks a host name up: IP addresses as text, best first. OSError when there are none."""

_PUBLIC_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_AZURE_METADATA = IPv4Network("168.63.129.16/32")  # public by its number, never by its use
_INSIDE = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ENTRY = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]/]+))(?::(?P<port>\d{1,5}))?")


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Ask the operating system."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Guard:
    """What may be reached. Refusals are a `ToolError` that says why and how to allow it."""

    allow_hosts: tuple[str, ...] = ()
    """`HOST[:PORT]`s that may be reached although they are private or not among the domains."""
    allowed_domains: tuple[str, ...] = ()
    """If there are any, nothing else is reached; subdomains are included."""
    denied_domains: tuple[str, ...] = ()
    """Never reached, subdomains included; stronger than both others."""
    resolver: Resolver = system_resolver

    @classmethod
    def of(cls, settings: Settings) -> "Guard":
        """Make the guard of a run."""
        web = settings.web
        return cls(settings.allow_hosts, web.allowed_domains, web.denied_domains)

    def check(self, url: str) -> WebAddress:
        """Check all of an address that can be checked without looking its name up."""
        address = parse_address(url)
        self.check_host(address.host, address.port)
        return address

    def check_host(self, host: str, port: int) -> None:
        """Check a host by its name, or its number if that is how it is written.

        It is all there is where a proxy looks the names up.
        """
        host = normal_host(host)
        if any(within(host, _domain(entry)) for entry in self.denied_domains):
            raise OwnWordsError(
                f"{host} was not reached: it is among the denied domains of the configuration. "
                "Find another source."
            )
        if self.allows(host, port):
            return
        if self.allowed_domains and not any(
            within(host, _domain(entry)) for entry in self.allowed_domains
        ):
            raise OwnWordsError(
                f"{host} was not reached: the configuration allows only "
                f"{', '.join(self.allowed_domains)}. Find what you need there."
            )
        address = literal_ip(host)
        inside = "." not in host or any(within(host, name) for name in _INSIDE)
        if inside if address is None else not is_public(address):
            raise _private(host, port, host)

    def allows(self, host: str, port: int) -> bool:
        """Say whether the person allowed this very host, or port of it."""
        host = normal_host(host)
        for entry in self.allow_hosts:
            name, allowed_port = parse_allowed(entry)
            same = host == name or (host in _LOOPBACK and name in _LOOPBACK)
            if same and allowed_port in (None, port):
                return True
        return False

    async def resolve(self, host: str, port: int) -> list[IPAddress]:
        """Return the addresses to connect to, all of them checked.

        Raises:
            ToolError: The host may not be reached, or there is no such host.
        """
        host = normal_host(host)
        self.check_host(host, port)
        literal = literal_ip(host)
        if literal is not None:
            return [literal]
        found = await self._look_up(host, port)
        if self.allows(host, port):
            return found
        public = [address for address in found if is_public(address)]
        if not public:
            raise _private(host, port, str(found[0]))
        return public

    async def _look_up(self, host: str, port: int) -> list[IPAddress]:
        try:
            found = [ip_address(text) for text in await self.resolver(host, port)]
        except (OSError, UnicodeError) as error:
            raise OwnWordsError(
                f"There is no host {host}, or names cannot be resolved here "
                f"({getattr(error, 'strerror', None) or error}). Check the spelling, or look for "
                "another source."
            ) from error
        if not found:
            raise OwnWordsError(f"The host {host} has no address. Check the spelling.")
        return found


def is_public(address: IPAddress) -> bool:
    """Say whether an address belongs to the open internet, also one that wraps another."""
    if isinstance(address, IPv4Address):
        special = address.is_multicast or address.is_reserved or address in _AZURE_METADATA
        return address.is_global and not special
    wrapped = _wrapped(address)
    if wrapped is not None:
        return is_public(wrapped)
    return address in _PUBLIC_V6 and address.is_global and address.scope_id is None


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a translating or tunnelling IPv6 address leads to."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def parse_allowed(entry: str) -> tuple[str, int | None]:
    """Read `HOST[:PORT]`. ConfigError says how it is written."""
    text = entry.strip()
    match = _ENTRY.fullmatch(f"[{text}]" if text.count(":") > 1 and "[" not in text else text)
    try:
        if match is None:
            raise ToolError(entry)
        port = int(match["port"]) if match["port"] else None
        if port is not None and not 0 < port < 65536:
            raise ToolError(entry)
        return normal_host(match["v6"] or match["host"]), port
    except ToolError as error:
        raise ConfigError(
            f"--allow-host {entry!r} is not understood. Write HOST or HOST:PORT, for example "
            "localhost:8000, 192.168.1.5 or [::1]:8000."
        ) from error


def parse_domain(entry: str) -> str:
    """Read an entry of the domain lists. ConfigError says how it is written."""
    try:
        return normal_host(_domain(entry))
    except ToolError as error:
        raise ConfigError(
            f"[web] {entry!r} is no domain. Write it like example.com; subdomains are included."
        ) from error


def _domain(entry: str) -> str:
    return entry.strip().lower().removeprefix("*").removeprefix(".").rstrip(".")


def _private(host: str, port: int, address: str) -> OwnWordsError:
    leads = "it is" if host == address else f"it leads to {address},"
    shown = f"[{host}]" if ":" in host else host
    return OwnWordsError(
        f"{shown}:{port} was not reached: {leads} an address of this machine, of a private network "
        "or for special use, which web tools do not open. If the person wants it opened, they can "
        f"start the run with --allow-host {shown}:{port}."
    )
