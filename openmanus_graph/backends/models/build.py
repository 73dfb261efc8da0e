"""From the settings of a model to a client that is ready to be asked."""

import asyncio
import hashlib
import importlib
import json
import threading
from collections.abc import Collection, Coroutine, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, ModelProfile
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import ValidationError
from typing_extensions import override

from openmanus_graph.backends.models.dialects import is_openai
from openmanus_graph.backends.models.endpoint import api_key, base_url
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
from openmanus_graph.runtime.shutdown import register_closer
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
            from openmanus_graph.backends.models.openai_clients import build_openai_client

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
