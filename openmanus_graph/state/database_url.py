"""Addresses of databases: a SQLite file, or a database of a PostgreSQL server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.server_url import is_readable

DATABASE = "openmanus.db"
"""The file of a home folder where no database is named."""
_KINDS: dict[str, Literal["sqlite", "postgresql"]] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}
_FORMS = "sqlite:///FILE.db or postgresql://USER:PASSWORD@HOST:5432/DATABASE"


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
        kind = _KINDS.get(text.partition("://")[0])
        if kind is None:
            raise ConfigError(f"[storage] database_url is no address of one. Write {_FORMS}.")
        if kind == "sqlite":
            if not text.startswith("sqlite:///") or text.endswith("/"):
                raise ConfigError(
                    "[storage] database_url names no file. Write sqlite:///FILE.db, or "
                    "sqlite:////FOLDER/FILE.db for a path from the root."
                )
            return cls.of_file(Path(text.removeprefix("sqlite:///")).expanduser().absolute())
        _check_server(text)
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


def _check_server(text: str) -> None:
    """Raise ConfigError where a part of the password could be taken for something else."""
    if not is_readable(text):
        raise ConfigError(
            "[storage] database_url cannot be read. Write postgresql://USER:PASSWORD@HOST:5432/"
            "DATABASE, and special characters of the password as %XX: @ is %40, / is %2F, # is %23."
        )
    if not unquote(urlsplit(text).path).strip("/"):
        raise ConfigError(
            "[storage] database_url names no database. Write its name at the end: "
            "postgresql://USER:PASSWORD@HOST:5432/DATABASE."
        )
