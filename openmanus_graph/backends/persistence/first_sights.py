"""Which call of the model was the first at its place in a conversation.

A crash may lose the checkpoint that holds a reply whose calls have run. The model is then asked
again after the same message, and its calls get new ids: they are the calls that were seen there.
"""

from dataclasses import astuple, dataclass

from openmanus_graph.backends.persistence.database import Database

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS first_sights (
        thread TEXT NOT NULL, branch TEXT NOT NULL, namespace TEXT NOT NULL, parent TEXT NOT NULL,
        tool TEXT NOT NULL, args TEXT NOT NULL, position INTEGER NOT NULL,
        message TEXT NOT NULL, call_id TEXT NOT NULL,
        PRIMARY KEY (thread, branch, namespace, parent, tool, args, position)
    )
"""
_PLACE = (
    "thread = ? AND branch = ? AND namespace = ? AND parent = ? AND tool = ? AND args = ?"
    " AND position = ?"
)


@dataclass(frozen=True)
class CallPlace:
    """Where in a conversation a call was made."""

    thread: str
    branch: str
    namespace: str
    """Of the graph, in its checkpoints."""
    parent: str
    """Id of the message that the model had answered."""
    tool: str
    args: str
    """Digest of the arguments."""
    position: int
    """Among the calls of the reply with this tool and these arguments."""


class FirstSights:
    """The table of calls that were the first at their places."""

    def __init__(self, database: Database) -> None:
        """Make the table. Blocks."""
        self._database = database
        database.run(_SCHEMA)

    async def first_at(self, place: CallPlace, message: str, call_id: str) -> tuple[str, str]:
        """Return ids of reply and call that were the first at a place: these if there were none.

        Args:
            place: Where the call was made.
            message: Id of the model's reply.
            call_id: Of the call.
        """
        values = astuple(place)
        await self._database.arun(
            "INSERT INTO first_sights (thread, branch, namespace, parent, tool, args, position,"
            " message, call_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*values, message, call_id),
        )
        rows = await self._database.arun(
            f"SELECT message, call_id FROM first_sights WHERE {_PLACE}",  # ours
            values,
        )
        return (str(rows[0][0]), str(rows[0][1])) if rows else (message, call_id)

    def forget_thread(self, thread: str) -> None:
        """Delete a thread's rows. Blocks."""
        self._database.run("DELETE FROM first_sights WHERE thread = ?", (thread,))
