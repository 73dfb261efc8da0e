"""`openmanus tell`: send an interjection to an agent in another process."""

import asyncio
import shlex
import sys

from openmanus_graph.backends.persistence.interjections import tell
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.interfaces.service.lock import is_running
from openmanus_graph.interfaces.service.threads import known_thread


def tell_thread(thread: str, text: str) -> int:
    """Store an interjection for a thread, and print when it will be read."""
    known = known_thread(thread)
    said = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    asyncio.run(tell(known.id, said))
    if is_running(openmanus_home(), known.id):
        sys.stderr.write("The agent reads it at its next step.\n")
    else:
        again = f"openmanus resume {shlex.quote(known.id)}"
        sys.stderr.write(f"The agent is not at work. It reads this when it goes on: {again}\n")
    return 0
