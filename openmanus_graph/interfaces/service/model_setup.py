"""Sets up the person's model: tries provider, key and name, and stores what works."""

import asyncio
from dataclasses import dataclass, field

from langchain_core.messages import HumanMessage
from pydantic import SecretStr

from openmanus_graph.backends.models.build import prepare_model
from openmanus_graph.backends.models.failures import FailureKind, classify
from openmanus_graph.config.stored_model import store_key, store_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.settings import ModelSettings

TRIAL_S = 60.0
QUESTION = "Reply with the word ok."


@dataclass(frozen=True)
class ModelChoice:
    """A model that a person chose."""

    spec: str
    """`PROVIDER:NAME`."""
    base_url: str | None = None
    key: str | None = field(default=None, repr=False)
    """None: the environment has it, or the server wants none."""


class TrialError(ConfigError):
    """A model that did not answer.

    Attributes:
        kind: Why, in the words of `failures`.
    """

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: FailureKind = kind


async def try_model(choice: ModelChoice) -> None:
    """Ask the model something short.

    Raises:
        TrialError: It did not answer, and why; the sentence holds no key.
        ConfigError: Its name, its package or its key is wrong or missing.
    """
    key = SecretStr(choice.key) if choice.key else None
    model = await prepare_model(ModelSettings(choice.spec, choice.base_url, api_key=key))
    try:
        async with asyncio.timeout(TRIAL_S):
            await model.ainvoke([HumanMessage(QUESTION)])
    except TimeoutError as error:
        raise TrialError("retry", f"{choice.spec} did not answer within {TRIAL_S:g} s.") from error
    except Exception as error:  # each provider's client has exceptions of its own
        failure = classify(error, f"The model {choice.spec}")
        if failure is None:
            raise
        raise TrialError(failure.kind, failure.sentence) from None  # servers repeat keys


def store_choice(choice: ModelChoice) -> list[str]:
    """Store a model that works and its key; return where each is. Blocks."""
    places = [f"The model stands in {store_model(choice.spec, choice.base_url)}."]
    if choice.key:
        provider = choice.spec.partition(":")[0]
        kept = store_key(provider, choice.base_url, choice.key)
        places.append(f"The key is in {kept}.")
    return places
