"""Which model a run asks, and how to reach it; a server of this machine if none is configured."""

import asyncio
import http.client
import json
import os
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr

from openmanus_graph.config.declared import Layer
from openmanus_graph.config.stored_model import stored_key
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_loopback
from openmanus_graph.state.context import Context, ModelRole
from openmanus_graph.state.model_settings import LlmKeys, ModelSettings, ProfileKeys

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

ALSO_OF_MAIN = ("takes_media", "requests_per_minute", "tokens_per_minute")
"""Keys of `[llm]` that hold for the main model, whatever its provider is."""
API_TYPES = {"": "openai", "openai": "openai", "azure": "azure", "aws": "bedrock"}
USUAL_PORTS = (11434, 1234, 8000, 8080, 9931)
"""Ollama, LM Studio, vLLM, llama.cpp now and later; the first that lists a chat model is taken."""

LOCAL_PORTS_VARIABLE = "OPENMANUS_LOCAL_PORTS"
"""Names other ports, separated by commas; empty: none are asked."""

_NOT_FOR_CHAT = ("embed", "bge-", "e5-", "gte-", "minilm", "rerank", "whisper", "tts", "ocr")


def main_model(context: Context, layers: Sequence[Layer]) -> ModelSettings:
    """Choose the main model and how to reach it. ConfigError says what to set.

    Args:
        context: What the caller passed.
        layers: All places, most important first.
    """
    use: dict[str, Any] = {
        **{
            name: first(each.values.get(f"llm.{name}") for each in layers) or "auto"
            for name in ("tool_calling", "profile")
        },
        **{name: first(each.values.get(f"llm.{name}") for each in layers) for name in ALSO_OF_MAIN},
    }
    if context.model is not None and not isinstance(context.model, str):
        return ModelSettings(context.model, options=context.model_options or {}, **use)
    # A file's model may be a plain name, as OpenManus writes it; its `api_type` is the provider.
    spec: str | None = first(map(_named_model, layers))
    provider = _provider_of(spec) if spec else "openai"
    files = [layer for layer in layers if layer.path is not None]
    layer = first(file for file in files if _is_of(file.llm, provider))
    section = (layer.llm if layer else None) or LlmKeys()
    base_url = context.base_url
    if base_url is None and provider == "openai":
        base_url = os.environ.get("OPENAI_BASE_URL") or None
    base_url = base_url or first(_base_url(file, provider) for file in files)
    # A file's key goes to that file's own server, never to another.
    own = layer is not None and base_url == _base_url(layer, provider)
    key: SecretStr | None = section.api_key if own else None
    if provider == "openai" and os.environ.get("OPENAI_API_KEY"):
        key = SecretStr(os.environ["OPENAI_API_KEY"])
    stored = stored_key(provider, base_url)
    if provider == "openai" and base_url is None and key is None and stored is None:
        spec, base_url = _local_model(spec)
    if spec is None:
        raise ConfigError(
            "No model is set. Run openmanus init, give --model PROVIDER:NAME, or set "
            "OPENMANUS_MODEL (for example openai:gpt-5-mini)."
        )
    return ModelSettings(
        model=spec,
        base_url=base_url,
        api_key=key,
        stored_key=stored,
        api_version=section.api_version,
        options={**_llm_options(section), **_model_options(context, layers)},
        vision=section.sees_images,
        context_window=section.context_window,
        **use,
    )


def _local_model(spec: str | None) -> tuple[str, str]:
    found = asyncio.run(find_local_server())
    if found is None:
        raise ConfigError(
            "There is no model to talk to: OPENAI_API_KEY is not set, no --base-url is given, and "
            "no local server (Ollama, LM Studio, vLLM, llama.cpp) answers on its usual port. "
            "Set one up with openmanus init, or set OPENAI_API_KEY, or give --model PROVIDER:NAME "
            "with that provider's key, or start a local server. `openmanus demo` needs none of "
            "them."
        )
    base_url, name = found
    return spec or f"openai:{name}", base_url


class OtherModels:
    """The models that are asked beside the main one, by what their settings call them."""

    def __init__(self, layers: Sequence[Layer], main: ModelSettings) -> None:
        self._main, self._layers = main, layers
        self._profiles: dict[str, ProfileKeys] = {}
        for layer in reversed(layers):
            self._profiles |= layer.values.get("llm.profiles", {})

    def named(self, name: "str | BaseChatModel", key: str) -> ModelSettings:
        """Return a model by `PROVIDER:NAME`, by the name of its profile, or as an instance.

        Args:
            name: What the settings have.
            key: Where they have it, for the error.

        Raises:
            ConfigError: There is no such profile.
        """
        if not isinstance(name, str):
            return ModelSettings(name)
        profile = self._profiles.get(name)
        if profile is not None:
            return _of_profile(profile)
        if ":" in name:
            return self._beside_main(name)
        known = ", ".join(self._profiles) or "there are none"
        raise ConfigError(
            f"{key} names the model {name!r}, which is neither PROVIDER:NAME nor a table "
            f"[llm.profiles.{name}]; profiles: {known}."
        )

    def fallback(self, context: Context) -> tuple[ModelSettings, ...]:
        """Return the models that stand in for others, in order. ConfigError as `named`."""
        names = context.fallback
        if names is None:
            names = first(each.values.get("llm.fallback") for each in self._layers) or ()
        return tuple(self.named(name, "[llm] fallback") for name in names)

    def roles(self, context: Context) -> dict[ModelRole, ModelSettings]:
        """Return the models of roles that have one of their own. ConfigError as `named`."""
        given = context.roles or {}
        found: dict[ModelRole, ModelSettings] = {}
        for role in cast("tuple[ModelRole, ...]", get_args(ModelRole)):
            name = given.get(role) or first(
                each.values.get(f"llm.roles.{role}") for each in self._layers
            )
            if name is not None:
                found[role] = self.named(name, f"[llm.roles] {role}")
        return found

    def vision(self, context: Context) -> ModelSettings | None:
        """Return the model that looks at pictures, if one is set. ConfigError as `named`."""
        model = context.vision_model or first(
            layer.values.get("vision_model") for layer in self._layers
        )
        if model is not None:
            return replace(self.named(model, "vision_model"), vision=True)
        section: LlmKeys | None = first(layer.vision for layer in self._layers)
        if section is None or section.model is None:
            return None
        return ModelSettings(
            model=f"{_provider(section)}:{section.model}",
            base_url=section.base_url,
            api_key=section.api_key,
            api_version=section.api_version,
            options=_llm_options(section),
            vision=True,
            context_window=section.context_window,
        )

    def _beside_main(self, spec: str) -> ModelSettings:
        """Return a model that shares the main one's server, key and rates if their provider is one.

        What is set of the main model itself is not the other's.
        """
        main = self._main
        if not isinstance(main.model, str) or spec.split(":")[0] != main.model.split(":")[0]:
            return ModelSettings(spec, stored_key=stored_key(spec.partition(":")[0], None))
        return replace(
            main,
            model=spec,
            vision=None,
            context_window=None,
            takes_media=None,
            tool_calling="auto",
            profile="auto",
        )


def _of_profile(profile: ProfileKeys) -> ModelSettings:
    return ModelSettings(
        model=profile.model,
        base_url=profile.base_url,
        api_key=profile.api_key,
        stored_key=stored_key(profile.model.partition(":")[0], profile.base_url),
        api_version=profile.api_version,
        options=profile.model_options,
        vision=profile.sees_images,
        context_window=profile.context_window,
        takes_media=profile.takes_media,
        tool_calling=profile.tool_calling,
        profile=profile.profile,
        requests_per_minute=profile.requests_per_minute,
        tokens_per_minute=profile.tokens_per_minute,
    )


def _named_model(layer: Layer) -> str | None:
    model: str | None = layer.values.get("model")
    if model is None and layer.llm is not None and layer.llm.model:
        return f"{_provider(layer.llm)}:{layer.llm.model}"
    return model


def _provider_of(spec: str) -> str:
    return spec.partition(":")[0].strip().lower()


def _provider(section: LlmKeys) -> str:
    # Anything else OpenManus treats as an OpenAI-compatible server, "ollama" included.
    return API_TYPES.get(section.api_type.lower(), "openai")


def _llm_options(section: LlmKeys) -> dict[str, Any]:
    options = {"max_tokens": section.max_tokens, "temperature": section.temperature}
    return {key: value for key, value in options.items() if value is not None}


def _model_options(context: Context, layers: Sequence[Layer]) -> Mapping[str, Any]:
    """Return what the caller passed, or else what the first file has."""
    return context.model_options or first(each.values.get("model_options") for each in layers) or {}


def first(values: Iterable[Any]) -> Any:
    """Return the first value that is set."""
    return next((value for value in values if value is not None), None)


def _is_of(section: LlmKeys | None, provider: str) -> bool:
    """Return True if a section is filled, and for this provider or the main model's, whatever."""
    if section is None:
        return False
    named = section.model or section.base_url or section.api_key or section.api_type
    return not named or _provider(section) == provider


def _base_url(layer: Layer, provider: str) -> str | None:
    """Return a file's address of this provider's server; that of another provider is not it."""
    own = _provider_of(layer.values.get("model") or "openai")
    if "base_url" in layer.values and own == provider:
        return cast("str", layer.values["base_url"])
    return layer.llm.base_url if layer.llm is not None and _is_of(layer.llm, provider) else None


def local_ports() -> Sequence[int]:
    """Return the ports of this machine where a model server is looked for. ConfigError: wrong."""
    named = os.environ.get(LOCAL_PORTS_VARIABLE)
    if named is None:
        return USUAL_PORTS
    ports = [one.strip() for one in named.split(",") if one.strip()]
    if not all(one.isdecimal() and 0 < int(one) < 65536 for one in ports):
        raise ConfigError(
            f"{LOCAL_PORTS_VARIABLE} is {named!r}, which is no list of ports. Write them separated "
            "by commas (11434,8080), or leave it empty to look for no server."
        )
    return [int(one) for one in ports]


async def find_local_server(
    ports: Sequence[int] | None = None, timeout_s: float = 1.0
) -> tuple[str, str] | None:
    """Ask all ports at once; return the base URL and the first chat model, or None.

    Args:
        ports: `local_ports` if left out.
        timeout_s: How long each may take to answer.

    Raises:
        ConfigError: The variable that names the ports is wrong.
    """
    ports = local_ports() if ports is None else ports
    places = [f"http://127.0.0.1:{port}/v1" for port in ports]
    models = await asyncio.gather(*(listed_model(place, timeout_s) for place in places))
    listed = zip(places, models, strict=True)
    return next(((place, model) for place, model in listed if model is not None), None)


async def listed_model(base_url: str, timeout_s: float = 1.0) -> str | None:
    """Return the first chat model that a server lists without a key, or None.

    Args:
        base_url: Of OpenAI's protocol.
        timeout_s: How long it may take to answer.
    """
    return await asyncio.to_thread(_chat_model, base_url, timeout_s)


def _chat_model(base_url: str, timeout_s: float) -> str | None:
    place = urlsplit(base_url)
    if place.scheme not in ("http", "https"):
        return None
    # Proxy variables must not send a question about this machine elsewhere.
    is_local = is_loopback(place.hostname or "")
    direct = [urllib.request.ProxyHandler({})] if is_local else []
    opener = urllib.request.build_opener(*direct)
    try:
        with opener.open(f"{base_url.rstrip('/')}/models", timeout=timeout_s) as answer:
            listed: object = json.load(answer)
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None
    for entry in _entries(listed):
        name = entry.get("id")
        if isinstance(name, str) and not any(part in name.lower() for part in _NOT_FOR_CHAT):
            return name
    return None


def _entries(listed: object) -> list[Mapping[str, object]]:
    data = cast("Mapping[str, object]", listed).get("data") if isinstance(listed, dict) else None
    entries = cast("list[object]", data) if isinstance(data, list) else []
    return [cast("Mapping[str, object]", entry) for entry in entries if isinstance(entry, dict)]
