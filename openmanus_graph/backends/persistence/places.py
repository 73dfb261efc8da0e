"""Where each thread's files are: on which machine they were used last, and what its store holds."""

import json
from dataclasses import asdict, dataclass

from openmanus_graph.backends.persistence.database import Database
from openmanus_graph.backends.persistence.rows import read_json


@dataclass(frozen=True)
class Place:
    """Where a thread's files are."""

    host: str
    """Name of the machine, for people."""
    home: str
    """Identifies the home folder of the worker that had them last."""
    root: str
    """The workspace there."""
    inode: int = 0
    """Of that folder, by which other machines know it if they share its disk."""
    outputs: str = ""
    """The folder of long outputs there, as the conversation names it."""
    store: str = ""
    """`workspace_url`, if the files were put there."""
    files: str = ""
    """Digest of the workspace in the store."""
    private: str = ""
    """Digest of the private folder in the store."""
    behind: bool = False
    """Whether the files on the machine are newer than those in the store, which failed."""


class PlacesTable:
    """The table of places. Its methods block, and raise sqlite3.Error."""

    def __init__(self, database: Database) -> None:
        self._run = database.run

    def find(self, thread: str) -> Place | None:
        """Return where a thread's files are; None if it never had any."""
        rows = self._run("SELECT place FROM places WHERE thread = ?", (thread,))
        return Place(**read_json(rows[0][0])) if rows else None

    def record(self, thread: str, place: Place) -> None:
        """Record where the files are. LeaseLostError: another worker has the thread."""
        self._run(
            "INSERT INTO places (thread, place) VALUES (?, ?)"
            " ON CONFLICT (thread) DO UPDATE SET place = excluded.place",
            (thread, json.dumps(asdict(place))),
            worker_of=thread,
        )

    def forget_thread(self, thread: str) -> None:
        """Delete a thread's row."""
        self._run("DELETE FROM places WHERE thread = ?", (thread,), worker_of=thread)
