"""A model's endpoint: its key, its address, and the certificates that are trusted."""

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from openmanus_graph.backends.models.spec import ModelSpec
from openmanus_graph.errors import ConfigError
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


def certificate_context() -> ssl.SSLContext | bool:
    """Return what verifies servers: the authorities the environment names, else the client's own.

    httpx knows SSL_CERT_FILE and SSL_CERT_DIR; REQUESTS_CA_BUNDLE is what companies set.
    """
    path = certificate_path()
    if path is None:
        return True
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
