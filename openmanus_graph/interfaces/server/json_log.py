"""The log of `openmanus serve --log-format json`: one JSON object per line, without secrets."""

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.config.secret_values import known_secrets

_FIELDS = {
    "time": "timestamp", "level": "level", "logger": "logger", "message": "event",
    "thread": "thread_id", "run": "run_id", "user": "user", "path": "path", "error": "exception",
}  # fmt: skip
"""The server's names of what is written. All else is left out: it may hold what users sent."""


def write_json_lines() -> None:
    """Let the server render its log, which it is about to set up, as lines of JSON. Blocks."""
    secrets = known_secrets()

    def render(logger: Any, method: str, event: Mapping[str, Any]) -> str:
        config = var_child_runnable_config.get() or {}
        of_run: Mapping[str, Any] = config.get("configurable") or {}
        known = {"user": of_run.get("user_id"), **event}
        line = {
            name: redact_secrets(secrets.remove_from(str(known[given])))
            for name, given in _FIELDS.items()
            if known.get(given) is not None
        }
        return json.dumps(line)

    server_logging: Any = import_module("langgraph_api.logging")  # it has no types
    server_logging.renderer = render
