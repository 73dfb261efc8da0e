"""The route that lists what can be chosen: agents, models, limits, policies."""

import asyncio
from importlib.metadata import version
from typing import Any, get_args

from fastapi import APIRouter

from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, describe_agent
from openmanus_graph.interfaces.server.files import MAX_UPLOAD_BYTES
from openmanus_graph.interfaces.service.step_events import model_label
from openmanus_graph.state.context import Context, Policy, SandboxMode

SHOWN = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy", "review_plan")
router = APIRouter(prefix="/app/api")


@router.get("/options")
async def show_options() -> dict[str, Any]:
    """Return what can be chosen, and the defaults."""
    return await asyncio.to_thread(_options)


def _options() -> dict[str, Any]:
    settings, problem = None, None
    try:
        settings = resolve_settings(Context(), "new")
    except ConfigError as error:
        problem = str(error)
    model = model_label(settings) if settings else None
    defaults: dict[str, Any] = dict.fromkeys((*SHOWN, "sandbox", "network"))
    if settings:
        defaults = {name: getattr(settings, name) for name in SHOWN}
        defaults |= {"sandbox": settings.sandbox.mode, "network": settings.sandbox.network}
    return {
        "agents": [{"name": name, "description": describe_agent(name)} for name in agent_names()],
        "default_agent": DEFAULT_AGENT,
        "model": model,
        "problem": problem,
        "models": [model] if model else [],
        "defaults": defaults,
        "policies": list(get_args(Policy)),
        "sandboxes": list(get_args(SandboxMode)),
        "max_upload_bytes": MAX_UPLOAD_BYTES,
        "version": version("openmanus-graph"),
        "warnings": list(settings.warnings) if settings else [],
    }
