"""Sessions that search at a local server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from openmanus_graph.backends.search.search_engine import SearchEngine
from openmanus_graph.backends.search.searching import choose_engines
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.search_engines import SearchSettings
from openmanus_graph.testing import tool_session
from tests.support.search_engines import API_ENGINES, KEY, SearchServer
from tests.support.search_protocols import CX


def local_settings(server: SearchServer, *engines: str, **changes: Any) -> SearchSettings:
    """Make settings by which these engines are asked, in this order and at the server."""
    values: dict[str, Any] = {
        "engine": engines[0],
        "fallback_engines": engines[1:],
        "keys": {name: SecretStr(KEY) for name in API_ENGINES if name != "searxng"},
        "google_cse_id": CX,
        "urls": dict.fromkeys(API_ENGINES, server.url),
        "retry_delay": 0.01,
        "max_retries": 0,
    }
    return SearchSettings(**{**values, **changes})


def local_engine(server: SearchServer, name: str, **changes: Any) -> SearchEngine:
    """Make one engine as a run has it."""
    return choose_engines(local_settings(server, name, **changes)).engines[0]


def search_session(folder: Path, settings: SearchSettings, **changes: Any) -> Session:
    """Open a session that searches by these settings."""
    session = tool_session(folder)
    session.configure(replace(session.settings, search=settings, **changes))
    return session
