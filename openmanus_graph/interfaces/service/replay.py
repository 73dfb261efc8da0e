"""Replays threads and bundles, to compare what their models would be sent now."""

import dataclasses
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import override

from openmanus_graph.backends.persistence.flight_record import FlightRecord, read_flight_record
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError, RefusedDataError
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.interfaces.service.lock import holding_thread
from openmanus_graph.model_calls.what_if import WhatIf
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.testing.replays import Replayed, replay

if TYPE_CHECKING:
    from openmanus_graph.backends.persistence.threads import Thread
    from openmanus_graph.state.context import Context

__all__ = ["Replayed", "record_of", "replay_bundle", "replay_graph", "replay_thread"]
_HOME_VARIABLE = "OPENMANUS_HOME"


async def record_of(known: "Thread") -> FlightRecord:
    """Return the record of a thread on which no run works.

    Raises:
        ConfigError: Its record does not suffice.
        RunError: A run works on the thread.
        sqlite3.Error: The database is damaged or cannot be used.
    """
    async with holding_thread(openmanus_home(), known.id):
        return await read_flight_record(database_url(), known)


async def replay_thread(
    known: "Thread", context: "Context", what_if: WhatIf | None = None, graph: Any = None
) -> Replayed:
    """Do a thread's runs again, answered by its record; nothing is written, no model reached.

    Args:
        known: The thread.
        context: Of its runs.
        what_if: What is tried on them.
        graph: From `replay_graph`, for callers that look at where it stopped.

    Raises as `record_of`, and ConfigError if the settings are wrong.
    """
    async with holding_thread(openmanus_home(), known.id):
        record = await read_flight_record(database_url(), known)
        graph = graph or replay_graph(record.agent)
        return await replay(record, graph, context, elsewhere=False, what_if=what_if)


async def replay_bundle(
    record: FlightRecord, context: "Context", what_if: WhatIf | None = None, graph: Any = None
) -> Replayed:
    """Replay what was recorded elsewhere, in empty folders. Arguments as of `replay_thread`.

    Raises:
        ConfigError: The settings are wrong.
    """
    with _empty_home() as folder:
        within = dataclasses.replace(context, workspace=str(folder / "workspace"))
        graph = graph or replay_graph(record.agent)
        try:
            return await replay(record, graph, within, what_if=what_if)
        except ConfigError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError, RefusedDataError) as error:
            what = str(error).partition("\n")[0]  # what follows are the libraries' own addresses
            raise ConfigError(
                f"The bundle cannot be replayed: it was not written by openmanus export, or was "
                f"changed ({type(error).__name__}: {what})."
            ) from error


@contextmanager
def _empty_home() -> Generator[Path]:
    before = os.environ.get(_HOME_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="openmanus-replay-") as folder:
        os.environ[_HOME_VARIABLE] = str(Path(folder, "home"))
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[_HOME_VARIABLE]
            else:
                os.environ[_HOME_VARIABLE] = before


def replay_graph(agent: str) -> Any:
    """Build the graph that a replay runs on; it keeps its checkpoints in memory."""
    return build_agent(agent, checkpointer=_NumberingSaver(serde=StrictSerializer()))


class _NumberingSaver(InMemorySaver):
    """Numbers versions as our databases' savers do, so that these can take its checkpoints over."""

    @override
    def get_next_version(self, current: Any, channel: None) -> Any:
        return (current or 0) + 1
