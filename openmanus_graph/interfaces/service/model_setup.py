"""Sets up the user's model, for `openmanus init` and the page: tries it, and stores it."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import HumanMessage
from pydantic import SecretStr

from openmanus_graph.backends.models.build import build_unshared_model, close_model
from openmanus_graph.backends.models.failures import FailureKind, classify
from openmanus_graph.backends.models.server_facts import OLLAMA_ADDRESS, facts_of
from openmanus_graph.backends.models.spec import (
    EXAMPLES,
    find_provider,
    parse_spec,
    provider_names,
)
from openmanus_graph.config.model import listed_models, store_key, store_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.model_settings import ModelSettings

TRIAL_S, LISTING_S = 60.0, 5.0
QUESTION = "Reply with the word ok."


@dataclass(frozen=True)
class ModelChoice:
    """A model that the user chose. No `repr` shows the key."""

    spec: str
    """`PROVIDER:NAME`."""
    base_url: str | None = None
    key: SecretStr | None = None
    """None: the environment has it, or the server needs none."""
    window: int | None = None
    """Tokens of one request, if the server reports it."""


class TrialError(ConfigError):
    """A model that did not answer; `kind` says why, in the words of `failures`."""

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: FailureKind = kind


def offered_providers() -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "takes_key": one.takes_key,
            "takes_base_url": one.name in ("openai", "azure", "ollama"),
            "suggested": EXAMPLES.get(one.name, ""),
        }
        for one in filter(None, map(find_provider, provider_names()))
    ]


async def offered_models(
    provider: str, base_url: str | None, key: SecretStr | None = None
) -> list[str] | None:
    """Return the models that a given server lists; None if nobody answers there.

    Empty if it lists none, or is a provider's own.
    """
    address = f"{base_url or OLLAMA_ADDRESS}/v1" if provider == "ollama" else base_url
    if address is None:
        return []
    shown = key.get_secret_value() if key else ""
    return await asyncio.to_thread(listed_models, address, shown, LISTING_S)


async def try_model(choice: ModelChoice) -> ModelChoice:
    """Ask the model something short; return the choice with the window that its server reports.

    TrialError says why it did not answer, without the key. ConfigError if its name, package or key
    is wrong or missing.
    """
    settings = ModelSettings(str(parse_spec(choice.spec)), choice.base_url, api_key=choice.key)
    model = await asyncio.to_thread(build_unshared_model, settings)
    try:
        async with asyncio.timeout(TRIAL_S):
            # Not by `call_model`: there is no run and no budget yet.
            await model.ainvoke([HumanMessage(QUESTION)])
    except TimeoutError as error:
        raise TrialError("retry", f"{choice.spec} did not answer within {TRIAL_S:g} s.") from error
    except Exception as error:  # each provider's client has its own exceptions
        failure = classify(error, f"The model {choice.spec}")
        if failure is None:
            raise
        key = choice.key.get_secret_value().strip() if choice.key else ""
        said = failure.sentence  # a server may repeat the key in its refusal
        raise TrialError(failure.kind, said.replace(key, "[redacted]") if key else said) from None
    finally:
        await close_model(model)
    return replace(choice, window=(await facts_of(settings)).window)


async def set_up_model(choice: ModelChoice) -> None:
    """Try a model, and make it the default if it works. ConfigError if nothing was stored."""
    await asyncio.to_thread(store_choice, await try_model(choice))


def store_choice(choice: ModelChoice) -> list[str]:
    """Store a model that works and its key; return sentences that say where each is. Blocks."""
    spec, places = parse_spec(choice.spec), list[str]()
    if choice.key is not None:
        key = choice.key.get_secret_value().strip()
        kept = store_key(spec.provider.name, choice.base_url, key)
        places.append(f"The key is in {kept}.")
    path = store_model(str(spec), choice.base_url, choice.window)
    reported = f", with the {choice.window:,} tokens that its server takes" if choice.window else ""
    return [f"The model is set in {path}{reported}.", *places]
