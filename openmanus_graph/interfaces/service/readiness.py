"""Checks a server's configuration before it accepts clients, who could not correct it."""

import asyncio
import sys
from dataclasses import replace

from openmanus_graph.backends.sandbox.choose import require_sandbox
from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.model_calls.candidates import prepare_models
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

_NAME = "server"
"""Thread id for resolving the settings before there is a thread."""


def ready_for_tools(options: RunOptions) -> tuple[Context, Settings]:
    """Check the settings and the sandbox; most tools need no model, so there may be none. Blocks.

    Raises:
        ConfigError: Which setting is wrong.
    """
    context = to_context(options)
    try:
        settings = resolve_settings(context, _NAME)
    except ConfigError as error:
        from openmanus_graph.backends.models.build import MissingModel

        context = replace(context, model=MissingModel(why=str(error)))
        settings = resolve_settings(context, _NAME)  # fails again unless it was for the model
    for warning in settings.warnings:
        sys.stderr.write(f"{warning}\n")
    require_sandbox(settings.sandbox)
    return context, settings


def ready_for_runs(options: RunOptions, agent: str) -> Settings:
    """Check that an agent can run: its model and the home folder. Blocks.

    Raises:
        ConfigError: What is missing, and what to do.
    """
    settings = resolve_settings(to_context(options), _NAME)
    prepare_home(settings.home)
    build_agent(agent)
    asyncio.run(prepare_models(settings))
    return settings
