"""Addresses of what keeps data: a database, a Redis server, a place for threads' files.

Each may hold a password: as text it has none, and no error shows what was written.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError

DATABASE = "openmanus.db"
"""The file of a home folder where no database is named."""
_DATABASE_KINDS: dict[str, Literal["sqlite", "postgresql"]] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}
_DATABASE_FORMS = "sqlite:///FILE.db or postgresql://USER:PASSWORD@HOST:5432/DATABASE"
_REDIS_SCHEMES = ("redis", "rediss", "redis+unix")
_FOLDER_FORMS = "a folder, file:///FOLDER or s3://BUCKET/FOLDER"
_HIGHEST_PORT = 65535


@dataclass(frozen=True)
class DatabaseUrl:
    """The address of a database. As text it has no password; `secret` is the whole."""

    kind: Literal["sqlite", "postgresql"]
    secret: SecretStr
    """As it was written, with the password: for the driver only."""

    @classmethod
    def of_file(cls, path: Path) -> "DatabaseUrl":
        """Return the address of a SQLite file."""
        return cls("sqlite", SecretStr(f"sqlite:///{path}"))

    @classmethod
    def in_folder(cls, home: Path) -> "DatabaseUrl":
        """Return the address of a home folder's own database."""
        return cls.of_file(home / DATABASE)

    @classmethod
    def parse(cls, given: SecretStr | str) -> "DatabaseUrl":
        """Read an address. ConfigError, which shows nothing of it: a password may be anywhere."""
        text = (given if isinstance(given, str) else given.get_secret_value()).strip()
        kind = _DATABASE_KINDS.get(text.partition("://")[0])
        if kind is None:
            raise ConfigError(
                f"[storage] database_url is no address of one. Write {_DATABASE_FORMS}."
            )
        if kind == "sqlite":
            if not text.startswith("sqlite:///") or text.endswith("/"):
                raise ConfigError(
                    "[storage] database_url names no file. Write sqlite:///FILE.db, or "
                    "sqlite:////FOLDER/FILE.db for a path from the root."
                )
            return cls.of_file(Path(text.removeprefix("sqlite:///")).expanduser().absolute())
        _check_database_server(text)
        return cls(kind, SecretStr(text))

    @property
    def file(self) -> Path:
        """The file of a SQLite database."""
        return Path(self.secret.get_secret_value().removeprefix("sqlite:///"))

    @property
    def is_local(self) -> bool:
        """Whether it is a file, which other machines do not share."""
        return self.kind == "sqlite"

    @property
    def identity(self) -> str:
        """What tells it apart from other databases: the address with its options, no password."""
        query = parse_qsl(urlsplit(self.secret.get_secret_value()).query)
        options = sorted(one for one in query if "password" not in one[0])
        return f"{self}?{urlencode(options)}"

    def __str__(self) -> str:
        """Write the address without its password and options."""
        if self.is_local:
            return str(self.file)
        parts = urlsplit(self.secret.get_secret_value())
        user, at, place = parts.netloc.rpartition("@")
        place = place or ",".join(parse_qs(parts.query).get("host", []))
        return f"postgresql://{user.partition(':')[0]}{at}{place}{parts.path}"


def _check_database_server(text: str) -> None:
    """Raise ConfigError where a part of the password could be taken for something else."""
    if not _is_readable(text):
        raise ConfigError(
            "[storage] database_url cannot be read. Write postgresql://USER:PASSWORD@HOST:5432/"
            "DATABASE, and special characters of the password as %XX: @ is %40, / is %2F, # is %23."
        )
    if not unquote(urlsplit(text).path).strip("/"):
        raise ConfigError(
            "[storage] database_url names no database. Write its name at the end: "
            "postgresql://USER:PASSWORD@HOST:5432/DATABASE."
        )


@dataclass(frozen=True)
class RedisUrl:
    """The address of a Redis server. As text it has no password; `secret` is the whole."""

    secret: SecretStr
    """As it was written, with the password: for the client only."""

    @classmethod
    def parse(cls, given: SecretStr | str) -> "RedisUrl":
        """Read an address. ConfigError, which shows nothing of it: a password may be anywhere."""
        text = (given if isinstance(given, str) else given.get_secret_value()).strip()
        if not _is_readable(text) or not _names_redis(text):
            raise ConfigError(
                "[storage] rate_limit_url is no address of Redis. Write "
                "redis://USER:PASSWORD@HOST:6379/0, rediss:// for TLS, or redis+unix:///SOCKET; "
                "special characters of the password as %XX: @ is %40, / is %2F, # is %23."
            )
        return cls(SecretStr(text))

    def __str__(self) -> str:
        """Write the address without its user, password and options."""
        parts = urlsplit(self.secret.get_secret_value())
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _names_redis(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in _REDIS_SCHEMES and bool(
        parts.path if parts.scheme == "redis+unix" else parts.hostname
    )


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
                f"[storage] workspace_url is no address of one. Write {_FOLDER_FORMS}."
            )
        return cls(text.rstrip("/"))

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of this machine's file system."""
        return self.text.startswith("file:")

    def __str__(self) -> str:
        """Return the address."""
        return self.text


def _is_readable(url: str) -> bool:
    """Return whether no part of a password could be taken for another part of an address."""
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
        and all(port.isdigit() and int(port) <= _HIGHEST_PORT for port in ports)
    )
