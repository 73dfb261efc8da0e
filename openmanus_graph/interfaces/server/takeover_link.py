"""The link in the terminal for a person who has no page open when the agent wants one."""

import sys
from urllib.parse import quote

_page: list[str] = []


def remember_page(address: str) -> None:
    """Keep the page's address with its token, as `openmanus serve` prints it."""
    _page[:] = [address]


def announce_takeover(thread: str, worker: str) -> None:
    """Print where a person finds a browser of a thread; nothing under another server."""
    for known in _page:
        page, _, token = known.partition("#")
        link = f"{page}/t/{thread}?browser={quote(worker, safe='')}#{token}"
        sys.stdout.write(f"The agent asks you to take its browser over: {link}\n")
        sys.stdout.flush()
