"""Which models a call may ask, in order: that of its role, the main one, then the fallbacks.

A model that failed is passed over for a while, so that not every step of a run waits for it.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from functools import partial

from openmanus_graph.backends.models.build import model_key, prepare_model
from openmanus_graph.backends.models.failures import FailureKind, ModelError
from openmanus_graph.backends.models.resolved import ResolvedModel, resolve_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.recorder import recorded_fact
from openmanus_graph.model_calls.silent_cuts import within_shown_window
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import ModelRole
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.settings import Settings

OUT_OF_SERVICE_S: dict[FailureKind, float] = {
    "retry": 60.0,
    "page": 60.0,
    "quota": math.inf,
    "not_found": math.inf,
}
"""How long a run passes over a model, by how it failed. Of any other failure the request itself is
the cause, or the settings are: no other model is asked."""


class Outages:
    """The models that are out of service for one run."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def add(self, model: ModelSettings, failed: ModelError, now: float) -> None:
        """Note that a model has failed."""
        self._until[model_key(model)] = now + OUT_OF_SERVICE_S[failed.kind]

    def is_out(self, model: ModelSettings, now: float) -> bool:
        """Say whether a model is passed over."""
        return now < self._until.get(model_key(model), 0)


def outages(session: Session) -> Outages:
    """Return those of the session's current run."""
    return session.cached(Outages, Outages)


def may_fall_back(error: ModelError) -> bool:
    """Say whether another model may answer what this one could not."""
    return error.kind in OUT_OF_SERVICE_S


async def resolved_model(model: ModelSettings, session: Session) -> ResolvedModel:
    """Return a model ready to be asked; it is prepared when the session's run first needs it.

    Raises:
        ConfigError: It cannot be set up.
    """
    # By identity, which costs nothing: a run has its settings once. The model keeps them, so that
    # no others get the same id. Event loops never share a client.
    key = resolved_model, asyncio.get_running_loop()
    known = session.cached(key, dict[int, ResolvedModel])
    if id(model) not in known:
        known[id(model)] = await resolve_model(model)
    return known[id(model)]


async def prepare_models(
    settings: Settings, prepare: Callable[[ModelSettings], Awaitable[object]] = prepare_model
) -> None:
    """Prepare all models that a run may ask, but the one for pictures, which may need no key.

    Args:
        settings: Name the models.
        prepare: Prepares one.

    Raises:
        ConfigError: One of them cannot be set up; names where it is configured.
    """
    for where, model in _configured(settings):
        try:
            await prepare(model)
        except ConfigError as error:
            raise ConfigError(f"{where}{error}") from error


def _configured(settings: Settings) -> Iterator[tuple[str, ModelSettings]]:
    yield "", settings.main
    for model in settings.fallback:
        yield "[llm] fallback: ", model
    for role, model in settings.roles.items():
        yield f"[llm.roles] {role}: ", model


async def models_to_ask(
    role: ModelRole | None, session: Session, *, pictured: bool = False
) -> list[ModelSettings]:
    """Return the models for a call, the first one to be asked first.

    Args:
        role: Of the call; None for the agent's own thinking.
        session: Of the run.
        pictured: Whether there are pictures: for each model that does not see, the vision model is
            asked, if there is one.

    Raises:
        ConfigError: A model cannot be set up.
    """
    settings, now = session.settings, time.monotonic()
    await prepare_models(settings, partial(resolved_model, session=session))
    models = [settings.main, *settings.fallback]
    if role is not None and role in settings.roles:
        models.insert(0, settings.roles[role])
    if pictured and settings.vision is not None:
        seeing = [(await resolved_model(one, session)).sees_images for one in models]
        models = [m if s else settings.vision for m, s in zip(models, seeing, strict=True)]
    distinct = list({model_key(one): one for one in models}.values())
    known = outages(session)
    return [one for one in distinct if not known.is_out(one, now)] or distinct


async def window_of(session: Session, role: ModelRole | None = None) -> int:
    """Return how many tokens a request may hold, to the model that a role is asked of."""
    first = (await models_to_ask(role, session))[0]
    window = (await resolved_model(first, session)).window
    return within_shown_window(session, first, window)


async def pictures_reach_a_model(session: Session) -> bool:
    """Say whether pictures are seen by the run's main model, or by the one for pictures.

    The latter always does. It is not prepared for this: a run without pictures needs no key for it.
    """
    settings = session.settings
    if settings.vision is not None:
        return True
    return (await resolved_model(settings.main, session)).sees_images


async def asks_small_model(session: Session, step: int | None = None) -> bool:
    """Return True if the run's main model is asked as small ones are; in a replay as it was.

    Args:
        session: Of the run.
        step: Number of the agent step that begins; None within one, in which nothing changes.
    """
    known: dict[str, bool] = session.cached(asks_small_model, dict[str, bool])
    if not known or (step is not None and not known["small"]):
        name, replay = f"small model at {step or 0}", current_replay()
        if replay is None:
            small = (await resolved_model(session.settings.main, session)).is_small
        else:
            small = replay.has_fact(name)
        if small:  # most are not, and then nothing is recorded
            await recorded_fact(session, name, lambda: True)
        known["small"] = small
    return known["small"]
