"""Addresses of Redis servers."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.server_url import is_readable

_SCHEMES = ("redis", "rediss", "redis+unix")


@dataclass(frozen=True)
class RedisUrl:
    """The address of a Redis server. As text it has no password; `secret` is the whole."""

    secret: SecretStr
    """As it was written, with the password: for the client only."""

    @classmethod
    def parse(cls, given: SecretStr | str) -> "RedisUrl":
        """Read an address. ConfigError, which shows nothing of it: a password may be anywhere."""
        text = (given if isinstance(given, str) else given.get_secret_value()).strip()
        if not is_readable(text) or not _names_a_server(text):
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


def _names_a_server(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in _SCHEMES and bool(
        parts.path if parts.scheme == "redis+unix" else parts.hostname
    )
