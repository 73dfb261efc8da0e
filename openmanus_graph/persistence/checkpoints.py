"""Checkpoints of our own runs: SQLite below the home folder."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from openmanus_graph.persistence.database import LARGEST_LOG

CHECKPOINTS = "checkpoints.db"


class LeanSqliteSaver(AsyncSqliteSaver):
    """Counts versions of channels in plain numbers, as LangGraph's base class does.

    Its own are 50 characters each, and stand in every checkpoint for every channel: half of what
    a long thread stores. One process holds a thread, so numbers need nothing random.
    """

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the number after the current one."""
        return (current or 0) + 1


@contextlib.asynccontextmanager
async def open_checkpointer(home: Path) -> AsyncGenerator[AsyncSqliteSaver]:
    """Open the checkpoints of a home folder. sqlite3.Error if the file is damaged."""
    async with LeanSqliteSaver.from_conn_string(str(home / CHECKPOINTS)) as saver:
        await saver.setup()
        # Safe against a killed process; a full sync per checkpoint would only add power failures.
        await saver.conn.execute("PRAGMA synchronous=NORMAL")
        await saver.conn.execute(f"PRAGMA journal_size_limit={LARGEST_LOG}")
        yield saver
