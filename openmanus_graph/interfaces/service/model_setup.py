"""Setting up a model: a provider, a key and a name are really tried, and kept only if they work.

`openmanus init` and the page's form share it.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import HumanMessage
from pydantic import SecretStr

from openmanus_graph.backends.models.build import build_unshared_model
from openmanus_graph.backends.models.failures import classify
from openmanus_graph.backends.models.spec import PROVIDERS, parse_spec
from openmanus_graph.config.chosen_model import store_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.settings import ModelSettings

TRIAL_TIMEOUT_S = 60
SUGGESTED = {
    "openai": "gpt-5-mini",
    "anthropic": "claude-sonnet-4-5",
    "google": "gemini-2.5-pro",
    "deepseek": "deepseek-chat",
    "openrouter": "openai/gpt-5-mini",
    "groq": "openai/gpt-oss-120b",
    "mistralai": "mistral-medium-latest",
    "xai": "grok-4",
    "moonshot": "kimi-k2-0905-preview",
    "ollama": "qwen3",
}
"""A model's name to begin with, by provider."""


@dataclass(frozen=True)
class ModelChoice:
    """What a person chose. The key stands in no `repr`."""

    model: str
    """`PROVIDER:NAME`."""
    base_url: str | None = None
    key: SecretStr | None = None


def providers() -> list[dict[str, Any]]:
    """Return the providers to choose from, each with what has to be asked about it."""
    return [
        {
            "name": one.name,
            "takes_key": one.takes_key,
            "takes_base_url": one.name in ("openai", "azure", "ollama"),
            "suggested": SUGGESTED.get(one.name, ""),
        }
        for one in PROVIDERS.values()
    ]


async def try_model(choice: ModelChoice) -> None:
    """Ask the model for a word. ConfigError says why it cannot be used; no key stands in it."""
    spec = parse_spec(choice.model)
    settings = ModelSettings(str(spec), base_url=choice.base_url, api_key=choice.key)
    model = await asyncio.to_thread(build_unshared_model, settings)
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT_S):
            # No run and no budget yet, so this is no matter of `call_model`.
            await model.ainvoke([HumanMessage("Answer with the word: ready")])
    except Exception as error:
        failure = classify(error, str(spec))
        if failure is None:
            raise
        raise ConfigError(_without(choice.key, failure.sentence)) from None
    finally:
        client = getattr(model, "root_async_client", None)
        if client is not None:
            await client.close()


async def set_up_model(choice: ModelChoice) -> None:
    """Try a model, and make it the default if it works. ConfigError: nothing was stored."""
    await try_model(choice)
    key = choice.key.get_secret_value().strip() if choice.key else None
    spec = parse_spec(choice.model)
    await asyncio.to_thread(store_model, str(spec), choice.base_url, key)


def _without(key: SecretStr | None, sentence: str) -> str:
    """Blank out a key that a server repeats in its refusal."""
    secret = key.get_secret_value().strip() if key else ""
    return sentence.replace(secret, "[redacted]") if secret else sentence
