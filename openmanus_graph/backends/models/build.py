"""From the settings of a model to a client that is ready to be asked."""

import asyncio
import base64
import hashlib
import importlib
import importlib.util
import json
import os
import re
import threading
from collections.abc import Collection, Coroutine, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, ModelProfile
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import ValidationError
from typing_extensions import override

from openmanus_graph.backends.models.dialects import is_openai
from openmanus_graph.backends.models.endpoint import (
    api_key,
    base_url,
    environment_proxy,
    is_other_server,
    tls_context,
)
from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.backends.models.prices import (
    CallUsage,
    PriceQuery,
    Prices,
    are_loaded,
    cost_usd,
    load_prices,
    needs_prices,
    price_queries,
)
from openmanus_graph.backends.models.spec import ModelSpec, parse_spec, provider_of
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.system_exit import register_closer
from openmanus_graph.state.addresses import PORTS
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.validation import validation_problems

T = TypeVar("T")
IDLE_TIMEOUT_S = 300.0
"""How long a server may stay silent: reasoning models think for minutes before the first byte."""

_CLIENT_OPTIONS: dict[str, Mapping[str, Any]] = {
    "anthropic": {"max_retries": 0, "timeout": IDLE_TIMEOUT_S},
    "google": {"max_retries": 1, "timeout": IDLE_TIMEOUT_S},  # counts the first attempt
    "bedrock": {"max_retries": 0, "timeout": IDLE_TIMEOUT_S},
    "ollama": {"client_kwargs": {"timeout": IDLE_TIMEOUT_S}},
}
"""Switch off the retries of the packages' own clients, and limit how long they wait."""

_Key = tuple[str, str | None, str | None, str | None, str]
_lock = threading.Lock()
_models: dict[asyncio.AbstractEventLoop, dict[_Key, BaseChatModel]] = {}


def build_unshared_model(settings: ModelSettings) -> BaseChatModel:
    """Build a client that nobody else is given, for trying a model; its caller closes it. Blocks.

    ConfigError as `prepare_model`.
    """
    if not isinstance(settings.model, str):
        return settings.model
    spec = parse_spec(settings.model)
    return _build(spec, settings, api_key(spec, settings))


async def prepare_model(settings: ModelSettings) -> BaseChatModel:
    """Return the model's client, the same one for the same settings within one event loop.

    Connections belong to the loop that opened them, so loops never share a client. The provider's
    library, certificates and prices, which take about a second, are loaded off the event loop.

    Raises:
        ConfigError: The model's name, its package or its key is wrong or missing.
    """
    if stand_in := _stand_in(settings):
        return stand_in
    loop = asyncio.get_running_loop()
    queries = _price_queries(settings)
    if not are_loaded(queries):
        await asyncio.to_thread(load_prices, queries)
    if not isinstance(settings.model, str):
        return settings.model
    spec = parse_spec(settings.model)
    model = _models.get(loop, {}).get(_key(spec, settings))
    return model if model is not None else await asyncio.to_thread(_cached, spec, settings, loop)


def _stand_in(settings: ModelSettings) -> BaseChatModel | None:
    """Return what stands in for a model in a replay, which needs no key for it."""
    replay, name = current_replay(), model_name(settings)
    profile = None if replay is None else replay.profile(name)
    if profile is None:
        return None
    why = "A replay asks no model."
    return MissingModel(model_name=name, why=why, profile=cast("ModelProfile", profile))


def run_and_close_models(work: Coroutine[Any, Any, T]) -> T:
    """Run a program's work in an event loop of its own, and close the models that it used."""

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
    """Close the connections of a client that was built here."""
    connections: Any = getattr(model, "connections", None)  # of our own
    if connections is not None:
        await connections.aclose()
    client = getattr(model, "root_async_client", None)
    if client is not None:
        await client.close()
    sync_client = getattr(model, "root_client", None)
    if sync_client is not None:
        await asyncio.to_thread(sync_client.close)


register_closer(close_models)


def model_name(settings: ModelSettings) -> str:
    """Name a model for people and prices: `PROVIDER:NAME`, or what the instance calls itself."""
    if isinstance(settings.model, str):
        return settings.model
    for attribute in ("model_name", "model", "model_id"):
        value = getattr(settings.model, attribute, None)
        if isinstance(value, str):
            return value
    return type(settings.model).__name__


def model_key(settings: ModelSettings) -> Hashable:
    """Return what tells a model and its server from others, as long as an instance lives."""
    if isinstance(settings.model, str):
        return settings.model, settings.base_url
    return id(settings.model)


def _price_queries(settings: ModelSettings) -> Sequence[PriceQuery]:
    """Return what has to be looked for in the list of prices before the model is asked."""
    name = model_name(settings)
    plain = name.partition(":")[2] if isinstance(settings.model, str) else name
    if not needs_prices(plain, settings.base_url):
        return ()
    return price_queries(plain, provider_of(settings), settings.base_url)


def price_of(settings: ModelSettings, used: CallUsage, prices: Prices | None) -> float | None:
    """Return the dollars of a call; None if nobody knows them. Blocks until prices are loaded."""
    name = model_name(settings)
    plain = name.partition(":")[2] if isinstance(settings.model, str) else name
    return cost_usd(plain, provider_of(settings), used, prices, base_url=settings.base_url)


def costs_nothing(settings: ModelSettings, prices: Prices | None) -> bool:
    """Return True if a model is known to be free, as on this machine. Blocks like `price_of`."""
    million = CallUsage(input_tokens=10**6, cached_tokens=0, output_tokens=10**6)
    return price_of(settings, million, prices) == 0


def _key(spec: ModelSpec, settings: ModelSettings) -> _Key:
    return (
        str(spec),
        base_url(spec, settings),
        api_key(spec, settings),
        settings.api_version,
        json.dumps(dict(settings.options), sort_keys=True, default=repr),
    )


def _cached(
    spec: ModelSpec, settings: ModelSettings, loop: asyncio.AbstractEventLoop
) -> BaseChatModel:
    key = _key(spec, settings)
    with _lock:  # `prepare_model` comes here in threads
        for closed in [other for other in _models if other.is_closed()]:
            del _models[closed]
        models = _models.setdefault(loop, {})
        if key not in models:
            models[key] = _build(spec, settings, api_key(spec, settings))
        return models[key]


def _build(spec: ModelSpec, settings: ModelSettings, key: str | None) -> BaseChatModel:
    try:
        if spec.provider.package is None:
            return build_openai_client(spec, settings, key, IDLE_TIMEOUT_S)
        return _build_packaged(spec, settings, key)
    except ConfigError:
        raise
    except (ValidationError, TypeError, ValueError, ImportError) as error:
        # ImportError: a SOCKS proxy needs a package of its own. Pydantic's own text would repeat
        # the input, keys included.
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
    # Retries are counted in one place, which is not the client: see `retries`.
    options = {key: value for key, value in settings.options.items() if key != "max_retries"}
    arguments: dict[str, Any] = {**_CLIENT_OPTIONS.get(provider.name, {}), **options}
    arguments["model"] = spec.name
    if key is not None and provider.key_argument:
        arguments[provider.key_argument] = key
    address = base_url(spec, settings)
    if address:
        arguments[provider.url_argument] = address
    model: BaseChatModel = client(**arguments)
    return model


def cache_options(model: BaseChatModel, session_key: str) -> dict[str, str]:
    """Return the options that lead all requests of a session to the same prompt cache.

    Only OpenAI's own service is sent them: others that speak its protocol may refuse what they do
    not know. A key that the person has set stands.

    Args:
        model: Any provider's.
        session_key: Of the thread, or of one of its workers, whose conversation is another. The
            service is sent a hash of it.
    """
    client: Any = getattr(model, "root_async_client", model)  # LangChain's client has one
    address = getattr(client, "base_url", None)
    if not address or not is_openai(str(address)):
        return {}
    if "prompt_cache_key" in getattr(model, "model_kwargs", {}):
        return {}
    return {
        "prompt_cache_key": hashlib.sha256(f"openmanus {session_key}".encode()).hexdigest()[:32]
    }


def client_parameters(client: BaseChatModel) -> set[str]:
    """Return the names of the parameters that a client sends with each request."""
    own: Any = getattr(client, "sent_parameters", None)
    if own is not None:
        return set(own)
    given = {name for name, value in vars(client).items() if value is not None}
    return given | set(getattr(client, "model_kwargs", None) or ())


def without_parameters(client: BaseChatModel, parameters: Collection[str]) -> BaseChatModel:
    """Return a client of a provider's package that leaves out parameters that it would send."""
    update: dict[str, Any] = {name: None for name in parameters if name in vars(client)}
    if kwargs := getattr(client, "model_kwargs", None):
        update["model_kwargs"] = {k: v for k, v in kwargs.items() if k not in parameters}
    return client.model_copy(update=update)


class MissingModel(BaseChatModel):
    """A stand-in where tools run without a model: says, when it is asked, why there is none."""

    model_name: str = "none"
    why: str

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise ConfigError(self.why)

    @property
    @override
    def _llm_type(self) -> str:
        return "missing"


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
    from openmanus_graph.backends.models.endpoint import Connections
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
