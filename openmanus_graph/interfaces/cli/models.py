"""`openmanus models`: what was learnt about models' servers."""

import sys

from openmanus_graph.backends.models.dialects import forget, learnt_lines
from openmanus_graph.runtime.output import printable


def list_learnt() -> int:
    """Print what was learnt, one line for each server and model."""
    lines = learnt_lines()
    for line in lines:
        sys.stdout.write(f"{printable(line)}\n")
    if not lines:
        sys.stderr.write(
            "Nothing was learnt yet: no server has refused a request that was changed.\n"
        )
    return 0


def forget_server(server: str) -> int:
    """Forget what was learnt about a server, and say so."""
    known = forget(server)
    said = (
        "Forgotten. It is learnt again if the server still refuses it."
        if known
        else (f"Nothing was learnt about {server}. `openmanus models` lists the servers.")
    )
    sys.stderr.write(f"{printable(said)}\n")
    return 0 if known else 1
