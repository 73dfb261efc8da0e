"""The route that lists what can be chosen: agents, models, limits, policies."""

import asyncio
from importlib.metadata import version
from typing import Any, get_args

from fastapi import APIRouter

from openmanus_graph.backends.models.endpoint import api_key
from openmanus_graph.backends.models.spec import RECORDED, parse_spec
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, describe_agent
from openmanus_graph.interfaces.server.files import MAX_UPLOAD_BYTES
from openmanus_graph.interfaces.server.store import store
from openmanus_graph.interfaces.service.final_event import model_label
from openmanus_graph.state.context import Context, Policy, SandboxMode
from openmanus_graph.state.settings import Settings

SHOWN = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy", "review_plan")
RECENT_THREADS = 200
"""How many threads' models are offered."""
router = APIRouter(prefix="/app/api")


@router.get("/options")
async def show_options() -> dict[str, Any]:
    """Return what can be chosen, and the defaults."""
    return await asyncio.to_thread(_options, store().threads)


def _options(threads: Threads) -> dict[str, Any]:
    settings, problem, needs_model = _settings()
    model = model_label(settings) if settings and not needs_model else None
    defaults: dict[str, Any] = dict.fromkeys((*SHOWN, "sandbox", "network"))
    if settings:
        defaults = {name: getattr(settings, name) for name in SHOWN}
        defaults |= {"sandbox": settings.sandbox.mode, "network": settings.sandbox.network}
    return {
        "agents": [{"name": name, "description": describe_agent(name)} for name in agent_names()],
        "default_agent": DEFAULT_AGENT,
        "model": model,
        "problem": problem,
        "needs_model": needs_model,
        "models": _models(model, threads),
        "defaults": defaults,
        "policies": list(get_args(Policy)),
        "sandboxes": list(get_args(SandboxMode)),
        "max_upload_bytes": MAX_UPLOAD_BYTES,
        "version": version("openmanus-graph"),
        "warnings": list(settings.warnings) if settings else [],
    }


def _settings() -> tuple[Settings | None, str | None, bool]:
    """Return the settings of a new run, what is wrong, and whether all that lacks is a model."""
    try:
        without_model = resolve_settings(Context(), "new", without_model=True)
    except ConfigError as error:
        return None, str(error), False
    try:
        settings = resolve_settings(Context(), "new")
        if isinstance(settings.main.model, str):
            api_key(parse_spec(settings.main.model), settings.main)
    except ConfigError as error:
        return without_model, str(error), True
    return settings, None, False


def _models(default: str | None, threads: Threads) -> list[str]:
    """Return the models to choose from: the default, then those of the newest threads."""
    used = [thread.options.get("model") for _, thread in threads.page(RECENT_THREADS, None, "")]
    found = dict.fromkeys(name for name in (default, *used) if isinstance(name, str) and name)
    return [name for name in found if not name.startswith(f"{RECORDED.name}:")]
