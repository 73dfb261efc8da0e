"""The only reader of environment variables and configuration files."""

from openmanus_graph.config.resolve import resolve_context, resolve_settings

__all__ = ["resolve_context", "resolve_settings"]
