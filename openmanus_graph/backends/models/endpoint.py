"""A model's endpoint: its key, its address, the way to it, and which certificates are trusted."""

import os
import ssl
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from openmanus_graph.backends.models.spec import ModelSpec
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_loopback
from openmanus_graph.state.model_settings import ModelSettings


def api_key(spec: ModelSpec, settings: ModelSettings) -> str | None:
    """Return the key: of the settings, the provider's variable, what is stored, else a dummy.

    Raises:
        ConfigError: There is none and the provider wants one, or it cannot be a key.
    """
    provider = spec.provider
    given = settings.api_key.get_secret_value() if settings.api_key is not None else ""
    stored = settings.stored_key.get_secret_value() if settings.stored_key is not None else ""
    named = (os.environ.get(variable, "") for variable in provider.key_variables)
    values = (given, *named, stored)
    key = next((value.strip() for value in values if value.strip()), None)
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"The key of the model {spec} holds characters that no key has (a dash or quote "
                "of a word processor, or a line break). Copy it again."
            )
        return key
    if not provider.takes_key:
        return None
    if is_other_server(spec, settings):
        return "none"  # local servers want none, but the SDK insists on one
    names = " or ".join(provider.key_variables)
    raise ConfigError(
        f"No key for the model {spec}. Run openmanus init, or set the environment variable "
        f"{names}, or api_key in the configuration file. A server of your own needs no key: give "
        "its address as base URL."
    )


def base_url(spec: ModelSpec, settings: ModelSettings) -> str | None:
    """Return the address: the settings', else the provider's own.

    Raises:
        ConfigError: It is no web address.
    """
    given = settings.base_url
    if not given:
        return spec.provider.base_url
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise ConfigError(
            f"The base URL {given!r} of the model {spec} is no web address. Write it like "
            "http://127.0.0.1:8000/v1."
        )
    # People copy the whole address from documentation; the client adds this part itself.
    return given.strip().rstrip("/").removesuffix("/chat/completions")


def is_other_server(spec: ModelSpec, settings: ModelSettings) -> bool:
    """Say whether an OpenAI-compatible model is asked at another server than its provider's."""
    usual = spec.provider.base_url
    if usual is None or not settings.base_url:
        return False
    return urlsplit(settings.base_url).hostname != urlsplit(usual).hostname


def environment_proxy(scheme: str, host: str, port: int) -> str | None:
    """Return the address of the environment's proxy for a host, if it is not exempt.

    This machine is never reached through a proxy elsewhere.
    """
    if is_loopback(host):
        return None
    proxies = getproxies_environment()
    server = proxies.get(scheme) or proxies.get("all")
    if not server or proxy_bypass(f"{host}:{port}") or proxy_bypass(host):
        return None
    return server


def tls_context() -> ssl.SSLContext:
    """Return what certificates are checked by: the environment's authorities, or the system's.

    REQUESTS_CA_BUNDLE is what companies set. ConfigError as `certificate_path`. Reads files.
    """
    return _tls_context(certificate_path())


@lru_cache
def _tls_context(path: Path | None) -> ssl.SSLContext:
    if path is None:
        from httpcore2 import default_ssl_context  # knows the stores of macOS and Windows

        return default_ssl_context()
    if path.is_dir():
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def certificate_path() -> Path | None:
    """Return the file or folder of authorities that the environment names.

    Raises:
        ConfigError: It does not exist.
    """
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"):
        path = os.environ.get(variable)
        if not path:
            continue
        if not Path(path).exists():
            raise ConfigError(f"{variable} names {path!r}, which does not exist.")
        return Path(path)
    return None
