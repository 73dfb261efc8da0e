"""From settings to the client for OpenAI, Azure, and every server that speaks their protocol.

Chat completions are asked for by a client of our own, the Responses API by LangChain's.
"""

import base64
import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from langchain_core.language_models import BaseChatModel

from openmanus_graph.backends.models.dialects import is_openai
from openmanus_graph.backends.models.endpoint import (
    base_url,
    environment_proxy,
    is_other_server,
    tls_context,
)
from openmanus_graph.backends.models.spec import ModelSpec
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import PORTS
from openmanus_graph.state.model_settings import ModelSettings

CONNECT_TIMEOUT_S = 10.0
_SETTLED = frozenset({
    "api_key", "openai_api_key", "openai_api_base", "max_retries", "timeout", "openai_proxy",
    "use_responses_api", "http_client", "http_async_client", "http_socket_options",
    "stream_chunk_timeout", "tiktoken_model_name", "include_response_headers", "disabled_params",
})  # fmt: skip
"""Options of LangChain's client that are settled here, or mean nothing to our own."""
_OWN = ("default_headers", "default_query")
_RESPONSES_OPTIONS = frozenset({
    "reasoning", "include", "truncation", "context_management", "use_previous_response_id",
})  # fmt: skip
_RESPONSES_MODELS = re.compile(r"gpt-5(\.\d)?-pro|gpt-5\.6-sol|gpt-6|.*codex", re.IGNORECASE)


def build_openai_client(
    spec: ModelSpec, settings: ModelSettings, key: str | None, idle_timeout_s: float
) -> BaseChatModel:
    """Build a client; nothing is connected yet. Loads libraries and certificates.

    Args:
        spec: A model of a provider that needs no package of its own.
        settings: Those of the model.
        key: What the server is sent as its key.
        idle_timeout_s: How long the server may stay silent, if the settings do not say.

    Raises:
        ConfigError: The address, the proxy or the certificates are wrong.
        ValueError: An option is (pydantic's ValidationError among them).
    """
    timeout = settings.options.get("timeout", idle_timeout_s)
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise ValueError(f"timeout = {timeout!r} is no number of seconds")
    if _uses_responses_api(spec, settings):
        return _responses_client(spec, settings, key, timeout)
    from openmanus_graph.backends.models.connections import Connections
    from openmanus_graph.backends.models.openai_compatible import OpenAICompatibleModel

    options = {name: value for name, value in settings.options.items() if name not in _SETTLED}
    own_headers, own_query = (_texts(options.pop(name, None)) for name in _OWN)
    address, headers, query = _endpoint(spec, settings, key, options)
    parts = urlsplit(address)
    if parts.username is not None:  # a login at the address goes before the key, as in a browser
        headers["Authorization"] = _basic_login(parts.username, parts.password or "")
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    fields: dict[str, Any] = {
        **options,
        "model": spec.name,
        "ls_provider": "azure" if spec.provider.name == "azure" else "openai",
        "base_url": parts.geturl(),
        "url": parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions").geturl(),
        "headers": headers | own_headers,
        "default_query": query | own_query,
        "connections": Connections(
            tls_context() if parts.scheme == "https" else True,
            _proxy(settings, parts.scheme, parts.hostname or "", parts.port),
            min(timeout, CONNECT_TIMEOUT_S),
            timeout,
        ),
    }
    return OpenAICompatibleModel(**fields)


def _endpoint(
    spec: ModelSpec, settings: ModelSettings, key: str | None, options: dict[str, Any]
) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return address, headers and query of a model's server; takes its own out of the options."""
    # Gateways may refuse the names of HTTP libraries.
    headers = {"Content-Type": "application/json", "User-Agent": "openmanus-graph"}
    if spec.provider.name != "azure":
        address = base_url(spec, settings) or ""
        login = {"Authorization": f"Bearer {key}", **_organization(address, options)}
        return address, headers | login, {}
    azure = _azure_address(spec, settings)
    token = options.pop("azure_ad_token", None)
    login = {"Authorization": f"Bearer {token}"} if token else {"api-key": key or ""}
    address = f"{azure['azure_endpoint'].rstrip('/')}/openai/deployments/{spec.name}"
    return address, headers | login, {"api-version": azure["api_version"]}


def _uses_responses_api(spec: ModelSpec, settings: ModelSettings) -> bool:
    """Whether it is asked for; else only OpenAI's own service has it, for models that need it."""
    options = settings.options
    if isinstance(asked := options.get("use_responses_api"), bool):
        return asked
    if spec.provider.name not in ("openai", "azure") or is_other_server(spec, settings):
        return False
    given = {name for name, value in options.items() if value not in (None, False)}
    versioned = options.get("output_version") == "responses/v1"
    named = _RESPONSES_MODELS.match(spec.name) is not None
    return named or versioned or bool(given & _RESPONSES_OPTIONS)


def _responses_client(
    spec: ModelSpec, settings: ModelSettings, key: str | None, timeout: float
) -> BaseChatModel:
    import openai
    from langchain_openai import AzureChatOpenAI, ChatOpenAI

    limits = openai.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT_S))
    # Clients without a transport of their own follow the proxy variables. OPENAI_PROXY is
    # LangChain's, which refuses it together with clients that are given.
    http: dict[str, Any] = {
        "verify": tls_context(),
        "timeout": limits,
        "proxy": _own_proxy(settings),
    }
    arguments: dict[str, Any] = {
        "stream_usage": True,
        **settings.options,
        "use_responses_api": True,
        "model": spec.name,
        "api_key": key,
        "max_retries": 0,
        "timeout": limits,
        "openai_proxy": "",
        "http_client": openai.DefaultHttpxClient(**http),
        "http_async_client": openai.DefaultAsyncHttpxClient(**http),
    }
    if spec.provider.name == "azure":
        arguments |= _azure_address(spec, settings)
        return AzureChatOpenAI(**arguments)
    return ChatOpenAI(**arguments, base_url=base_url(spec, settings))


def _azure_address(spec: ModelSpec, settings: ModelSettings) -> dict[str, str]:
    endpoint = base_url(spec, settings) or os.environ.get("AZURE_OPENAI_ENDPOINT")
    if not endpoint:
        raise ConfigError(
            f"The model {spec} needs its resource's address: set the base URL, for example "
            "https://NAME.openai.azure.com, or AZURE_OPENAI_ENDPOINT."
        )
    version = settings.api_version or os.environ.get("OPENAI_API_VERSION") or "2024-10-21"
    return {
        "azure_endpoint": endpoint,
        "azure_deployment": spec.name,
        "api_version": version,
    }


def _basic_login(user: str, password: str) -> str:
    login = f"{unquote(user)}:{unquote(password)}".encode()
    return f"Basic {base64.b64encode(login).decode()}"


def _texts(given: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (given or {}).items()}


def _organization(address: str, options: dict[str, Any]) -> Mapping[str, str]:
    """Take out whose account pays; what the environment says of it is OpenAI's alone."""
    given = options.pop("organization", None) or options.pop("openai_organization", None)
    found = {"OpenAI-Organization": given}
    if is_openai(address):
        names = os.environ.get("OPENAI_ORG_ID") or os.environ.get("OPENAI_ORGANIZATION")
        found["OpenAI-Organization"] = given or names
        found["OpenAI-Project"] = os.environ.get("OPENAI_PROJECT_ID")
    return {name: str(value) for name, value in found.items() if value}


def _own_proxy(settings: ModelSettings) -> str | None:
    """Return the proxy that is meant for models; OPENAI_PROXY is LangChain's name for it."""
    return settings.options.get("openai_proxy") or os.environ.get("OPENAI_PROXY") or None


def _proxy(settings: ModelSettings, scheme: str, host: str, port: int | None) -> str | None:
    proxy = _own_proxy(settings) or environment_proxy(scheme, host, port or PORTS[scheme])
    if proxy is None:
        return None
    kind = proxy.partition("://")[0].lower() if "://" in proxy else "http"
    if kind.startswith("socks"):
        if importlib.util.find_spec("aiohttp_socks") is None:
            raise ConfigError(
                f"The proxy for {host} is a SOCKS proxy, which needs one package more. Install it "
                "with: pip install aiohttp-socks."
            )
    elif kind not in ("http", "https"):
        raise ConfigError(
            f"The proxy for {host} cannot be used: {kind}:// is not understood. Set "
            "http://HOST:PORT (OPENAI_PROXY, or HTTP_PROXY, HTTPS_PROXY and NO_PROXY)."
        )
    return proxy if "://" in proxy else f"http://{proxy}"
