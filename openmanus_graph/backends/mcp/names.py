"""The names under which models see the tools of MCP servers."""

import hashlib
import re
from collections.abc import Collection

from openmanus_graph.state.mcp_server import SERVER_TOOL_PREFIX

LONGEST = 64
"""Characters that providers allow in a name."""
_SERVER_LONGEST = 24
_DIGEST = 6
_OTHER = re.compile(r"[^a-zA-Z0-9_-]+")


def tool_name(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """Return `mcp_<server>_<tool>`, always the same for the same two.

    A name that had to be changed or cut, or that is taken, ends in a digest of both, so that no
    two tools share one.

    Args:
        server: The server's name.
        tool: The tool's own.
        taken: Names that others have.
    """
    plain = f"{SERVER_TOOL_PREFIX}{server}_{tool}"
    if len(plain) <= LONGEST and not _OTHER.search(plain) and plain not in taken:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()
    short_server = _OTHER.sub("_", server).strip("_")[:_SERVER_LONGEST]
    readable = f"{SERVER_TOOL_PREFIX}{short_server}_{_OTHER.sub('_', tool).strip('_')}"
    for length in range(_DIGEST, len(digest) + 1):
        name = f"{readable[: LONGEST - length - 1]}_{digest[:length]}"
        if name not in taken:
            return name
    raise ValueError(f"no name is left for {tool!r} of {server!r}")
