"""Which model a run asks, and how to reach it."""

import asyncio
import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import SecretStr

from openmanus_graph.config.files import Layer
from openmanus_graph.config.sections import LlmSection
from openmanus_graph.errors import ConfigError
from openmanus_graph.settings import ModelSettings
from openmanus_graph.state.context import Context

API_TYPES = {"": "openai", "openai": "openai", "azure": "azure", "aws": "bedrock"}


def main_model(context: Context, layers: list[Layer]) -> ModelSettings:
    """Choose the main model and how to reach it. ConfigError says what to set."""
    if context.model is not None and not isinstance(context.model, str):
        return ModelSettings(context.model, options=context.model_options or {})
    spec: str | None = context.model or os.environ.get("OPENMANUS_MODEL") or None
    # A file's model may be a plain name, as OpenManus writes it; its `api_type` is the provider.
    spec = spec or first(_file_model(layer) for layer in layers)
    provider = spec.split(":", 1)[0] if spec else "openai"
    layer = first(layer for layer in layers if _is_of(layer.llm, provider))
    section = layer.llm if layer else LlmSection()
    base_url = context.base_url
    if base_url is None and provider == "openai":
        base_url = os.environ.get("OPENAI_BASE_URL") or None
    base_url = base_url or first(_base_url(layer, provider) for layer in layers)
    # A file's key goes to that file's own server, never to another.
    own = layer is not None and base_url == _base_url(layer, provider)
    key: SecretStr | None = section.api_key if own else None
    if provider == "openai" and os.environ.get("OPENAI_API_KEY"):
        key = SecretStr(os.environ["OPENAI_API_KEY"])
    if provider == "openai" and base_url is None and key is None:
        spec, base_url = _local_model(spec)
    if spec is None:
        raise ConfigError(
            "No model is set. Give --model PROVIDER:NAME, or set OPENMANUS_MODEL "
            "(for example openai:gpt-5-mini)."
        )
    return ModelSettings(
        model=spec,
        base_url=base_url,
        api_key=key,
        api_version=section.api_version,
        options={**_llm_options(section), **_model_options(context, layers)},
        vision=section.sees_images,
        context_window=section.context_window,
    )


def _local_model(spec: str | None) -> tuple[str, str]:
    from openmanus_graph.models.local import find_local_server  # heavy imports stay lazy

    found = asyncio.run(find_local_server())
    if found is None:
        raise ConfigError(
            "There is no model to talk to: OPENAI_API_KEY is not set, no --base-url is given, and "
            "no local server (Ollama, LM Studio, vLLM, llama.cpp) answers on its usual port. "
            "Set OPENAI_API_KEY, or give --model PROVIDER:NAME with that provider's key, or "
            "start a local server. `openmanus demo` needs none of them."
        )
    base_url, name = found
    return spec or f"openai:{name}", base_url


def vision_model(
    context: Context, layers: list[Layer], main: ModelSettings
) -> ModelSettings | None:
    """Choose the model that looks at pictures, if one is set."""
    model = context.vision_model or first(layer.config.vision_model for layer in layers)
    if model is not None and not isinstance(model, str):
        return ModelSettings(model, vision=True)
    section: LlmSection | None = first(layer.vision for layer in layers)
    if model is not None:
        same = isinstance(main.model, str) and model.split(":")[0] == main.model.split(":")[0]
        return (
            dataclasses.replace(main, model=model, vision=True)
            if same
            else ModelSettings(model, vision=True)
        )
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


def _file_model(layer: Layer) -> str | None:
    if layer.config.model:
        return layer.config.model
    return f"{_provider(layer.llm)}:{layer.llm.model}" if layer.llm.model else None


def _provider(section: LlmSection) -> str:
    # Anything else OpenManus treats as an OpenAI-compatible server, "ollama" included.
    return API_TYPES.get(section.api_type.lower(), "openai")


def _llm_options(section: LlmSection) -> dict[str, Any]:
    options = {"max_tokens": section.max_tokens, "temperature": section.temperature}
    return {key: value for key, value in options.items() if value is not None}


def _model_options(context: Context, layers: list[Layer]) -> Mapping[str, Any]:
    return context.model_options or first(layer.config.model_options for layer in layers) or {}


def first(values: Iterable[Any]) -> Any:
    """Return the first value that is set."""
    return next((value for value in values if value is not None), None)


def _is_of(section: LlmSection, provider: str) -> bool:
    """Say whether a section is filled, and for this provider."""
    return bool(section.model_fields_set) and _provider(section) == provider


def _base_url(layer: Layer, provider: str) -> str | None:
    if provider == "openai" and layer.config.base_url:
        return layer.config.base_url
    return layer.llm.base_url if _is_of(layer.llm, provider) else None
