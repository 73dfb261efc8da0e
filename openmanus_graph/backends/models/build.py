"""Builds the clients of models from their settings, and closes them."""

import asyncio
import base64
import importlib
import importlib.util
import json
import os
import re
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit

from langchain_core.language_models import BaseChatModel, ModelProfile
from langchain_core.outputs import ChatResult
from pydantic import ValidationError
from typing_extensions import override

from openmanus_graph.backends.models.dialects import is_openai
from openmanus_graph.backends.models.effort import effort_options
from openmanus_graph.backends.models.endpoint import Connections, environment_proxy, tls_context
from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.backends.models.spec import (
    ModelSpec,
    api_key,
    base_url,
    is_other_server,
    model_name,
    parse_spec,
)
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.runtime.process import register_closer
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.state.addresses import PORTS
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.validation import validation_problems

T = TypeVar("T")
IDLE_TIMEOUT_S = 300.0
"""How long a server may stay silent: reasoning models think for minutes before the first byte."""
CONNECT_TIMEOUT_S = 10.0
_CLIENT_OPTIONS: dict[str, Mapping[str, Any]] = {
    "anthropic": {"max_retries": 0, "timeout": IDLE_TIMEOUT_S},
    "google": {"max_retries": 1, "timeout": IDLE_TIMEOUT_S},  # counts the first attempt
    "bedrock": {"max_retries": 0, "timeout": IDLE_TIMEOUT_S},
    "ollama": {"client_kwargs": {"timeout": IDLE_TIMEOUT_S}},
}
"""Switch off the retries of the packages' clients, and limit how long they wait."""
_SETTLED = frozenset({
    "api_key", "openai_api_key", "openai_api_base", "max_retries", "timeout", "openai_proxy",
    "use_responses_api", "http_client", "http_async_client", "http_socket_options",
    "stream_chunk_timeout", "tiktoken_model_name", "include_response_headers", "disabled_params",
})  # fmt: skip
"""Options of LangChain's client that are decided here, or mean nothing to ours."""
_OWN = ("default_headers", "default_query")
_RESPONSES_OPTIONS = frozenset({
    "reasoning", "include", "truncation", "context_management", "use_previous_response_id",
})  # fmt: skip
_RESPONSES_MODELS = re.compile(r"gpt-5(\.\d)?-pro|gpt-5\.6-sol|gpt-6|.*codex", re.IGNORECASE)

_Key = tuple[str, str | None, str | None, str | None, str]
_lock = threading.Lock()
_models: dict[asyncio.AbstractEventLoop, dict[_Key, BaseChatModel]] = {}


def build_unshared_model(settings: ModelSettings) -> BaseChatModel:
    """Build a client that is shared with no run, for trying a model; its caller closes it. Blocks.

    ConfigError as `prepare_model`.
    """
    if not isinstance(settings.model, str):
        return settings.model
    spec = parse_spec(settings.model)
    return _build(spec, settings, api_key(spec, settings))


async def prepare_model(settings: ModelSettings) -> BaseChatModel:
    """Return the model's client, the same one for the same settings within one event loop.

    Connections belong to the loop that opened them, so loops never share a client. The provider's
    library and certificates, which take about a second, are loaded off the event loop. ConfigError:
    the model's name, its package or its key is wrong or missing.
    """
    replay, name = current_replay(), model_name(settings)
    profile = None if replay is None else replay.profile(name)
    if profile is not None:  # a replay needs no key for a recorded model
        why = "A replay asks no model."
        return MissingModel(model_name=name, why=why, profile=cast("ModelProfile", profile))
    if not isinstance(settings.model, str):
        return settings.model
    spec = parse_spec(settings.model)
    return await asyncio.to_thread(_shared, spec, settings, asyncio.get_running_loop())


def _shared(
    spec: ModelSpec, settings: ModelSettings, loop: asyncio.AbstractEventLoop
) -> BaseChatModel:
    key = api_key(spec, settings)
    given = {**settings.options, "effort": settings.effort}
    options = json.dumps(given, sort_keys=True, default=repr)
    place = str(spec), base_url(spec, settings), key, settings.api_version, options
    with _lock:
        for closed in [other for other in _models if other.is_closed()]:
            del _models[closed]
        models = _models.setdefault(loop, {})
        if place not in models:
            models[place] = _build(spec, settings, key)
        return models[place]


def run_and_close_models(work: Coroutine[Any, Any, T]) -> T:
    """Run a program's work in a new event loop, and close the models that it used."""

    async def run() -> T:
        try:
            return await work
        finally:
            await close_models()

    return asyncio.run(run())


async def close_models() -> None:
    """Close the connections of this event loop's clients; the owner of the loop calls it last."""
    for model in _models.pop(asyncio.get_running_loop(), {}).values():
        await close_model(model)


async def close_model(model: BaseChatModel) -> None:
    connections: Any = getattr(model, "connections", None)  # of our own client
    if connections is not None:
        await connections.aclose()
    client = getattr(model, "root_async_client", None)
    if client is not None:
        await client.close()
    sync_client = getattr(model, "root_client", None)
    if sync_client is not None:
        await asyncio.to_thread(sync_client.close)


register_closer(close_models)


class MissingModel(BaseChatModel):
    """Replaces the model where tools run without one: raises, when it is asked, why."""

    model_name: str = "none"
    why: str

    @override
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise ConfigError(self.why)

    @property
    @override
    def _llm_type(self) -> str:
        return "missing"


def _build(spec: ModelSpec, settings: ModelSettings, key: str | None) -> BaseChatModel:
    options = {**effort_options(spec, settings), **settings.options}
    settings = replace(settings, options=options)
    try:
        if spec.provider.package is None:
            return build_openai_client(spec, settings, key)
        return _build_packaged(spec, settings, key)
    except ConfigError:
        raise
    except (ValidationError, TypeError, ValueError, ImportError) as error:
        # ImportError: a SOCKS proxy needs another package. Pydantic's own text would repeat the
        # input, keys included.
        reasons = str(error)
        if isinstance(error, ValidationError):
            reasons = "; ".join(validation_problems(error, whole=""))
        raise ConfigError(f"The model {spec} cannot be set up: {redact_secrets(reasons)}") from None


def _build_packaged(spec: ModelSpec, settings: ModelSettings, key: str | None) -> BaseChatModel:
    provider = spec.provider
    assert provider.package is not None
    try:
        client: Any = getattr(importlib.import_module(provider.package), provider.client)
    except ImportError as error:
        raise ConfigError(
            f"The model {spec} needs a package that is not installed ({error.name}). "
            f"{install_extra(provider.name)}"
        ) from error
    # Retries are counted in one place, which is not the client: see `with_retries`.
    options = {key: value for key, value in settings.options.items() if key != "max_retries"}
    arguments: dict[str, Any] = {**_CLIENT_OPTIONS.get(provider.name, {}), **options}
    arguments["model"] = spec.name
    if key is not None and provider.takes_key:
        arguments["api_key"] = key
    if address := base_url(spec, settings):
        arguments[provider.url_argument] = address
    model: BaseChatModel = client(**arguments)
    return model


def build_openai_client(spec: ModelSpec, settings: ModelSettings, key: str | None) -> BaseChatModel:
    """Build the client of a model that speaks OpenAI's protocol; nothing is connected yet. Blocks.

    ConfigError: the address, the proxy or the certificates are wrong. ValueError: an option is
    (pydantic's ValidationError among them).
    """
    timeout = settings.options.get("timeout", IDLE_TIMEOUT_S)
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise ValueError(f"timeout = {timeout!r} is not a number of seconds")
    if _uses_responses_api(spec, settings):
        return _responses_client(spec, settings, key, timeout)
    from openmanus_graph.backends.models.openai_compatible import OpenAICompatibleModel

    options = {name: value for name, value in settings.options.items() if name not in _SETTLED}
    own_headers, own_query = (_texts(options.pop(name, None)) for name in _OWN)
    address, headers, query = _endpoint(spec, settings, key, options)
    parts = urlsplit(address)
    if parts.username is not None:  # a login in the address wins over the key, as in a browser
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
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
            _proxy(settings, parts),
            min(timeout, CONNECT_TIMEOUT_S),
            timeout,
        ),
    }
    return OpenAICompatibleModel(**fields)


def _texts(given: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (given or {}).items()}


def _endpoint(
    spec: ModelSpec, settings: ModelSettings, key: str | None, options: dict[str, Any]
) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return address, headers and query of a model's server; removes their options."""
    # Gateways may refuse the names of HTTP libraries.
    headers = {"Content-Type": "application/json", "User-Agent": "openmanus-graph"}
    if spec.provider.name == "azure":
        azure = _azure_address(spec, settings)
        token = options.pop("azure_ad_token", None)
        login = {"Authorization": f"Bearer {token}"} if token else {"api-key": key or ""}
        address = f"{azure['azure_endpoint'].rstrip('/')}/openai/deployments/{spec.name}"
        return address, headers | login, {"api-version": azure["api_version"]}
    address = base_url(spec, settings) or ""
    headers["Authorization"] = f"Bearer {key}"
    account = options.pop("organization", None) or options.pop("openai_organization", None)
    project = None
    if is_openai(address):  # the environment names OpenAI's accounts only
        account = (
            account or os.environ.get("OPENAI_ORG_ID") or os.environ.get("OPENAI_ORGANIZATION")
        )
        project = os.environ.get("OPENAI_PROJECT_ID")
    payer = {"OpenAI-Organization": account, "OpenAI-Project": project}
    return address, headers | {name: str(value) for name, value in payer.items() if value}, {}


def _uses_responses_api(spec: ModelSpec, settings: ModelSettings) -> bool:
    """Return True if it is asked for, or if the model needs it at OpenAI's own service."""
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
    # Clients without their own transport follow the proxy variables. LangChain refuses OPENAI_PROXY
    # together with given clients.
    http: dict[str, Any] = {
        "verify": tls_context(),
        "timeout": limits,
        "proxy": _openai_proxy(settings),
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
    return {"azure_endpoint": endpoint, "azure_deployment": spec.name, "api_version": version}


def _openai_proxy(settings: ModelSettings) -> str | None:
    return settings.options.get("openai_proxy") or os.environ.get("OPENAI_PROXY") or None


def _proxy(settings: ModelSettings, address: SplitResult) -> str | None:
    scheme, host = address.scheme, address.hostname or ""
    proxy = _openai_proxy(settings)
    proxy = proxy or environment_proxy(scheme, host, address.port or PORTS[scheme])
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
