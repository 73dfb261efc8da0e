"""The models of a run: which are asked in which order, and how much of a conversation they read.

First the model of the call's role, then the main one, then the fallback models. A model that failed
is passed over for a while, so that not every step of a run waits for it.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Hashable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from langchain_core.messages import AIMessage

from openmanus_graph.backends.models import build, failures, server_facts
from openmanus_graph.backends.models.prices import usage_of
from openmanus_graph.backends.models.resolved import Observations, ResolvedModel, resolve_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.recorder import ProviderRequest, awaited_fact, recorded_fact
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import ModelRole
from openmanus_graph.state.manus import Usage
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.settings import Settings

T = TypeVar("T")
OUT_OF_SERVICE_S: dict[failures.FailureKind, float] = {
    "retry": 60.0,
    "page": 60.0,
    "quota": math.inf,
    "not_found": math.inf,
}
"""How long a run passes over a model, by how it failed. Any other failure is caused by the request
or the settings: no other model is asked."""


class RunModels:
    """The models of one run, each resolved when it is first needed. Made by `run_models`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._resolved: dict[int, ResolvedModel] = {}
        """By the id of their settings: a run has its settings once."""
        self._observed: dict[Hashable, Observations] = {}
        self._out_until: dict[Hashable, float] = {}
        self.shortest_refused = math.inf
        """Tokens of the shortest request that was refused for its length."""

    async def resolved(self, settings: ModelSettings) -> ResolvedModel:
        """Return a model of the run. ConfigError: it cannot be set up."""
        if id(settings) not in self._resolved:
            model = await resolve_model(settings)
            observed = self._observed.setdefault(model.key, model.observed)
            self._resolved[id(settings)] = replace(model, observed=observed)
        return self._resolved[id(settings)]

    async def configured(self) -> list[ResolvedModel]:
        """Return the main model, the fallback models and those of roles. ConfigError names one."""
        found = _configured(self._settings)
        return [await _naming(where, self.resolved(one)) for where, one in found]

    async def main(self) -> ResolvedModel:
        return await self.resolved(self._settings.main)

    async def to_ask(
        self, role: ModelRole | None, *, pictured: bool = False
    ) -> list[ResolvedModel]:
        """Return the models for a call, the first one to be asked first.

        ConfigError: one cannot be set up. No role is the agent's own thinking. If there are
        pictures, each model that does not see them is replaced by the vision model, if there is
        one.
        """
        settings = self._settings
        await self.configured()
        chosen = [settings.main, *settings.fallback]
        if role is not None and role in settings.roles:
            chosen.insert(0, settings.roles[role])
        models = [await self.resolved(one) for one in chosen]
        if pictured and settings.vision is not None:
            vision = settings.vision
            models = [one if one.sees_images else await self.resolved(vision) for one in models]
        distinct = list({one.key: one for one in models}.values())
        now = time.monotonic()
        return [one for one in distinct if not self.is_out(one.key, now)] or distinct

    async def window(self, role: ModelRole | None = None) -> int:
        """Return how many tokens a request may hold, to the model that a role asks first."""
        return (await self.to_ask(role))[0].window

    async def see_pictures(self) -> bool:
        """Return True if the run's main model, or its vision model, sees pictures.

        The latter is not set up for this: a run without pictures needs no key for it.
        """
        return self._settings.vision is not None or (await self.main()).sees_images

    def note_refusal(self, tokens: int | None) -> None:
        self.shortest_refused = min(self.shortest_refused, tokens or math.inf)

    def pass_over(self, model: Hashable, failed: failures.ModelError, now: float) -> None:
        """Do not ask a model for a while, after a failure that allows to ask another one."""
        self._out_until[model] = now + OUT_OF_SERVICE_S[failed.kind]

    def is_out(self, model: Hashable, now: float) -> bool:
        return now < self._out_until.get(model, 0)


def run_models(session: Session) -> RunModels:
    key = RunModels, asyncio.get_running_loop()  # event loops never share a client
    return session.cached(key, lambda: RunModels(session.settings))


async def prepare_models(settings: Settings) -> None:
    """Prepare all models that a run may ask, but the one for pictures, which may need no key.

    ConfigError: one of them cannot be set up; names where it is configured.
    """
    for where, model in _configured(settings):
        await _naming(where, build.prepare_model(model))


def _configured(settings: Settings) -> Iterator[tuple[str, ModelSettings]]:
    yield "", settings.main
    for model in settings.fallback:
        yield "[llm] fallback: ", model
    for role, model in settings.roles.items():
        yield f"[llm.roles] {role}: ", model


async def _naming(where: str, preparing: Awaitable[T]) -> T:
    try:
        return await preparing
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


async def asks_small_model(session: Session, step: int | None = None) -> bool:
    """Return True if the run's main model is asked as small ones are; in a replay as it was.

    Args:
        step: Number of the agent step that begins; None within one, in which nothing changes.
    """
    known: dict[str, bool] = session.cached(asks_small_model, dict[str, bool])
    if not known or (step is not None and not known["small"]):
        name, replay = f"small model at {step or 0}", current_replay()
        if replay is None:
            small = (await run_models(session).main()).is_small
        else:
            small = replay.has_fact(name)
        if small:  # most are not, and then nothing is recorded
            await recorded_fact(session, name, lambda: True)
        known["small"] = small
    return known["small"]


LEAST_MISSING = 1500
"""Tokens; fewer are within the errors of an estimate."""
LEAST_READ = 1000
"""Tokens; no window is smaller, so a server that reports fewer counts differently."""
LEAST_SHARE = 0.4
"""Of the estimated tokens: tokenizers differ by a factor of two at most."""
GROWN = 1.5
"""A request that is so many times as long as another has more tokens by any tokenizer."""


def seems_cut(sent_tokens: int, usage: Usage, largest: tuple[int, int] = (0, 0)) -> bool:
    """Return True if a server has read far less than it was sent.

    Args:
        sent_tokens: Of the request, as estimated from its text.
        usage: As the server reported it; `input_tokens` includes those from its cache.
        largest: The same two figures of the conversation's largest request before.
    """
    read = usage["input_tokens"]
    if read < LEAST_READ or sent_tokens - read < LEAST_MISSING:
        return False
    no_more_than_before = sent_tokens > GROWN * largest[0] and read <= largest[1]
    return read < LEAST_SHARE * sent_tokens or no_more_than_before


async def look_for_cut(
    session: Session, emit: Emit, request: ProviderRequest, usage: Usage
) -> None:
    """Notice a server that reads only a part of a long conversation, and says nothing.

    Ollama, LM Studio and llama.cpp do so, by their settings. The person is notified once per run,
    and the run continues with the smaller window, so that the conversation is compacted in time.
    """
    model, observed = request.model, request.model.observed
    if model.server_address is None or observed.shown_window:
        return
    estimate = await asyncio.to_thread(usage_of, AIMessage(""), request.messages, request.tools)
    sent, read = estimate.input_tokens, usage["input_tokens"]
    largest = observed.largest_request
    observed.largest_request = max(largest, (sent, read))
    name, replay = f"silent cut of {model.name}", current_replay()
    if not seems_cut(sent, usage, largest) or (replay is not None and not replay.has_fact(name)):
        return

    async def kind_and_window() -> list[Any]:
        facts = await server_facts.facts_of(model.settings)
        return [facts.kind, facts.window]

    kind, window = await awaited_fact(session, name, kind_and_window)
    if window and window > 2 * sent:
        return  # it did not count what it had in its cache
    observed.shown_window = window or read + usage["output_tokens"]
    notice(
        emit,
        f"{model.name} was sent about {sent:,} tokens and read {read:,}: its server cuts long "
        f"conversations without a word. {server_facts.larger_window(kind)} Until then the "
        f"conversation is shortened to what fits into {observed.shown_window:,} tokens.",
    )
