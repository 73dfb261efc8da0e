"""Addresses of web pages, databases and folders, in one normal form."""

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError, ToolError, TrustedToolError

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SHOWN_CHARS = 200
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d+(/|$))")
_ODD_IPV4 = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+)){0,3}")
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:0x[0-9a-f]*|\d+)$")
_ENTRY = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]/]+))(?::(?P<port>\d{1,5}))?")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_BEHIND_IPV6 = re.compile(r"\](?!:|$)")
_STRIPPED = re.compile(r"[\t\r\n]")
_SENT_AS_THEY_ARE = "!#$%&'()*+,-./:;=?@[\\]^_|~"
"""With letters and digits, the characters that HTTP carries in an address."""

IPAddress = IPv4Address | IPv6Address

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""The usual names of this machine, which are equivalent."""
WORKSPACE_HOST = "workspace.localhost"
"""Where the browser finds the files of the workspace. No name server knows it."""
OWN_SITE = "pages of the agent"
"""Instead of an origin, for pages of the sandbox and the workspace. No URL is like it."""


@dataclass(frozen=True)
class WebAddress:
    scheme: str
    host: str
    """Lower case, IDNA; an IP address in its usual form, without brackets."""
    port: int
    url: str
    """The whole address in this form, without a fragment, as it is requested."""

    @property
    def ip(self) -> IPAddress | None:
        """The host's IP address, if it is written as one."""
        return literal_ip(self.host)

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{authority(self.host, self.port, self.scheme)}"


def parse_address(url: str) -> WebAddress:
    """Parse an address. ToolError says what is wrong with it."""
    text = _STRIPPED.sub("", url).strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        _refuse(url, f"it is not a valid address ({error})", "Check its spelling.")
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        said = f"only http and https are reached, not {scheme!r}" if scheme else "it has no scheme"
        _refuse(url, said, "Write the whole address, beginning with https:// or http://.")
    if "@" in parts.netloc:
        _refuse(url.replace(parts.netloc, "***"), "it holds a user name or a password",
                "Leave out the part before the @.")  # fmt: skip
    if port == 0 or "\\" in parts.netloc or not parts.hostname or _BEHIND_IPV6.search(parts.netloc):
        _refuse(url, "it has no valid host and port", "Check its spelling.")
    host = normal_host(parts.hostname)
    port = port or PORTS[scheme]
    path = _quoted(parts.path) or "/"
    whole = urlunsplit((scheme, authority(host, port, scheme), path, _quoted(parts.query), ""))
    return WebAddress(scheme, host, port, whole)


def is_web_address(url: str) -> bool:
    """Return True if a configured address is http or https, with a host and a usable port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        return False


def without_secrets(url: str) -> str:
    """Return an address without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def has_scheme(url: str) -> bool:
    """Return True if an address begins with a scheme; `localhost:80` is a host and a port."""
    return _SCHEME.match(url) is not None


def is_path(url: str) -> bool:
    """Return True if an address is a path within a site."""
    text = url.strip()
    return text.startswith("/") and not text.startswith(("//", "/\\"))


def with_scheme(url: str) -> str:
    """Return an address with `https://` if it has no scheme."""
    text = url.strip()
    return url if has_scheme(text) else f"https://{text.lstrip('/')}"


def normal_host(host: str) -> str:
    """Return a host in normal form, as it is looked up. ToolError if it is not a host."""
    text = unquote(host).lower()
    if ":" in text:
        return _ipv6(host, text)
    if not text.isascii():
        text = _idna(host, text)
    text = text.removesuffix(".")
    if _ENDS_IN_NUMBER.search(text):  # every browser takes such a name for an IPv4 address
        if not _ODD_IPV4.fullmatch(text):
            _refuse(host, "it is not a valid IPv4 address", "Check its spelling.")
        try:
            return socket.inet_ntoa(socket.inet_aton(text))
        except OSError:
            _refuse(host, "it is not a valid IPv4 address", "Check its spelling.")
    if not _HOST.fullmatch(text) or len(text) > 253 or ".." in text:
        _refuse(host, "it is not a valid host name", "Check its spelling.")
    return text


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
        return normal_host(bare_domain(entry))
    except ToolError as error:
        raise ConfigError(
            f"[web] {entry!r} is not a domain. Write it like example.com; subdomains are included."
        ) from error


def bare_domain(entry: str) -> str:
    """Return an entry of the domain lists without a mark of subdomains."""
    return entry.strip().lower().removeprefix("*").removeprefix(".").rstrip(".")


def literal_ip(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine, by its name or any loopback address."""
    address = literal_ip(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def is_safe_transport(url: str) -> bool:
    """Return True if nobody can read what is sent to an address: https, or of this machine."""
    parts = urlsplit(url) if is_web_address(url) else None
    return parts is not None and (parts.scheme == "https" or is_loopback(parts.hostname or ""))


def is_own_host(host: str) -> bool:
    """Return True if a host means the machine that a program itself is on."""
    address = literal_ip(host)
    return (
        is_loopback(host) or within(host, "localhost") or bool(address and address.is_unspecified)
    )


def authority(host: str, port: int, scheme: str) -> str:
    """Return host and port in the form of an address."""
    name = f"[{host}]" if ":" in host else host
    return name if PORTS.get(scheme) == port else f"{name}:{port}"


def within(host: str, domain: str) -> bool:
    """Return True if a host is a domain or below it; an IP address has nothing below it."""
    return host == domain or (literal_ip(host) is None and host.endswith("." + domain))


def _ipv6(host: str, text: str) -> str:
    try:
        address = IPv6Address(text.strip("[]"))
        return str(address.ipv4_mapped or address)
    except ValueError:
        _refuse(host, "it is not a valid IPv6 address", "Check its spelling.")


def _idna(host: str, text: str) -> str:
    import idna

    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except idna.IDNAError:
        pass
    try:  # digits of other scripts, which IDNA refuses and browsers read as an IPv4 address
        return idna.uts46_remap(text).encode("ascii").decode("ascii")
    except (idna.IDNAError, UnicodeError):
        _refuse(host, "it is not a valid host name", "Check its spelling.")


def _quoted(part: str) -> str:
    return quote(part, safe=_SENT_AS_THEY_ARE, errors="replace")


def _refuse(what: str, why: str, advice: str) -> NoReturn:
    shown = what if len(what) <= _SHOWN_CHARS else what[:_SHOWN_CHARS] + "..."
    raise TrustedToolError(f"{shown!r} was not opened: {why}. {advice}")


DATABASE = "openmanus.db"
"""The file of a home folder where no database is named."""
NO_DATABASE = (
    "[storage] database_url is not an address of one. Write sqlite:///FILE.db or "
    "postgresql://USER:PASSWORD@HOST:5432/DATABASE."
)
_KIND = re.compile(r"([a-z][a-z0-9+.-]*)://")
_REDIS_SCHEMES = ("redis", "rediss", "redis+unix")


@dataclass(frozen=True)
class DatabaseUrl:
    """The address of a database. As text it has no password; `secret` is the whole."""

    kind: str
    """`sqlite`, `postgresql`, or the scheme of a backend that a package adds."""
    secret: SecretStr
    """As it was written, with the password: for the driver only."""

    @classmethod
    def of_file(cls, path: Path) -> "DatabaseUrl":
        return cls("sqlite", SecretStr(f"sqlite:///{path}"))

    @classmethod
    def in_folder(cls, home: Path) -> "DatabaseUrl":
        return cls.of_file(home / DATABASE)

    @classmethod
    def parse(cls, given: SecretStr | str) -> "DatabaseUrl":
        """Read an address. ConfigError, which shows nothing of it: a password may be anywhere."""
        text = (given if isinstance(given, str) else given.get_secret_value()).strip()
        match = _KIND.match(text)
        if match is None:
            raise ConfigError(NO_DATABASE)
        kind = "postgresql" if match[1] == "postgres" else match[1]
        if kind == "sqlite":
            if not text.startswith("sqlite:///") or text.endswith("/"):
                raise ConfigError(
                    "[storage] database_url names no file. Write sqlite:///FILE.db, or "
                    "sqlite:////FOLDER/FILE.db for a path from the root."
                )
            return cls.of_file(Path(text.removeprefix("sqlite:///")).expanduser().absolute())
        if not _is_readable(text):
            raise ConfigError(
                "[storage] database_url cannot be read. Write postgresql://USER:PASSWORD@HOST:5432/"
                "DATABASE, and special characters of the password as %XX: @ is %40, / is %2F, # is "
                "%23."
            )
        if kind == "postgresql" and not unquote(urlsplit(text).path).strip("/"):
            raise ConfigError(
                "[storage] database_url names no database. Write its name at the end: "
                "postgresql://USER:PASSWORD@HOST:5432/DATABASE."
            )
        return cls(kind, SecretStr(text))

    @property
    def file(self) -> Path:
        return Path(self.secret.get_secret_value().removeprefix("sqlite:///"))

    @property
    def is_local(self) -> bool:
        """Whether it is a file of this machine."""
        return self.kind == "sqlite"

    @property
    def identity(self) -> str:
        """A unique name of the database: the address with its options, without the password."""
        query = parse_qsl(urlsplit(self.secret.get_secret_value()).query)
        options = sorted(one for one in query if "password" not in one[0])
        return f"{self}?{urlencode(options)}"

    def __str__(self) -> str:
        if self.is_local:
            return str(self.file)
        parts = urlsplit(self.secret.get_secret_value())
        user, at, place = parts.netloc.rpartition("@")
        place = place or ",".join(parse_qs(parts.query).get("host", []))
        return f"{self.kind}://{user.partition(':')[0]}{at}{place}{parts.path}"


@dataclass(frozen=True)
class RedisUrl:
    """The address of a Redis server. As text it has no password; `secret` is the whole."""

    secret: SecretStr
    """As it was written, with the password: for the client only."""

    @classmethod
    def parse(cls, given: SecretStr | str) -> "RedisUrl":
        """Read an address. ConfigError, which shows nothing of it: a password may be anywhere."""
        text = (given if isinstance(given, str) else given.get_secret_value()).strip()
        parts = urlsplit(text) if _is_readable(text) else urlsplit("")
        named = parts.path if parts.scheme == "redis+unix" else parts.hostname
        if parts.scheme not in _REDIS_SCHEMES or not named:
            raise ConfigError(
                "[storage] rate_limit_url is not an address of Redis. Write "
                "redis://USER:PASSWORD@HOST:6379/0, rediss:// for TLS, or redis+unix:///SOCKET; "
                "special characters of the password as %XX: @ is %40, / is %2F, # is %23."
            )
        return cls(SecretStr(text))

    def __str__(self) -> str:
        parts = urlsplit(self.secret.get_secret_value())
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True)
class WorkspaceUrl:
    """The address of a place for threads' files, without any key."""

    text: str
    """`file:///...` or `s3://...`, without a slash at its end."""

    @classmethod
    def parse(cls, given: str) -> "WorkspaceUrl":
        """Read an address. ConfigError, which does not show it: a key may be in it."""
        text = given.strip()
        if "://" not in text and text:
            return cls(f"file://{Path(text).expanduser().absolute()}")
        parts = urlsplit(text)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "[storage] workspace_url holds more than an address. Keys and options come from "
                "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL)."
            )
        is_folder = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
        if not is_folder and not (parts.scheme == "s3" and parts.netloc):
            raise ConfigError(
                "[storage] workspace_url is not an address of one. Write a folder, file:///FOLDER "
                "or s3://BUCKET/FOLDER."
            )
        return cls(text.rstrip("/"))

    @property
    def is_folder(self) -> bool:
        return self.text.startswith("file:")

    def __str__(self) -> str:
        return self.text


def _is_readable(url: str) -> bool:
    """Return True if no part of a password can be read as another part of the address."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        for host in hosts:
            host.encode("idna")  # as the client will do
    except ValueError:
        return False
    ports = [host.rpartition(":")[2] for host in hosts if ":" in host.rpartition("]")[2]]
    return (
        url.count("@") <= 1
        and ("@" in parts.netloc or "@" not in url)
        and not parts.fragment
        and all(port.isdigit() and int(port) < 65536 for port in ports)
    )
