"""The route that lists what can be chosen: agents, models, limits, policies."""

import asyncio
from importlib.metadata import version
from typing import Any, get_args

from fastapi import APIRouter
from langchain_core.language_models import BaseChatModel

from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, describe_agent
from openmanus_graph.interfaces.server.files import MAX_UPLOAD_BYTES
from openmanus_graph.state.context import Context, Policy, SandboxMode
from openmanus_graph.state.settings import Settings

SHOWN = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy", "review_plan")
router = APIRouter(prefix="/app/api")


@router.get("/options")
async def show_options() -> dict[str, Any]:
    """Return what can be chosen, and the defaults."""
    return await asyncio.to_thread(_options)


def _options() -> dict[str, Any]:
    settings, problem = _configured()
    model = settings.main.model if settings else None
    named = type(model).__name__ if isinstance(model, BaseChatModel) else model
    return {
        "agents": [{"name": name, "description": describe_agent(name)} for name in agent_names()],
        "default_agent": DEFAULT_AGENT,
        "model": named,
        "problem": problem,
        "models": [named] if named else [],
        "defaults": _defaults(settings),
        "policies": list(get_args(Policy)),
        "sandboxes": list(get_args(SandboxMode)),
        "max_upload_bytes": MAX_UPLOAD_BYTES,
        "version": version("openmanus-graph"),
        "warnings": list(settings.warnings) if settings else [],
    }


def _configured() -> tuple[Settings | None, str | None]:
    try:
        return resolve_settings(Context(), "new"), None
    except ConfigError as error:
        return None, str(error)


def _defaults(settings: Settings | None) -> dict[str, Any]:
    if settings is None:
        return dict.fromkeys((*SHOWN, "sandbox", "network"))
    chosen = {name: getattr(settings, name) for name in SHOWN}
    return {**chosen, "sandbox": settings.sandbox.mode, "network": settings.sandbox.network}
