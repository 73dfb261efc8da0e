"""The robots.txt rules of sites, fetched once per run and site."""

import asyncio
from typing import TYPE_CHECKING

from openmanus_graph.backends.web.client import fetch
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.errors import ToolError
from openmanus_graph.state.addresses import parse_address

if TYPE_CHECKING:
    from protego import Protego

AGENT = "openmanus-graph"
_TIMEOUT_S = 10.0
_BYTES = 512 * 1024


class Robots:
    """The rules of the sites that a run visits.

    protego reads them: the standard library's parser knows no wildcards.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._rules: dict[str, asyncio.Task[Protego | None]] = {}

    async def allow(self, url: str) -> bool:
        """Return whether robots.txt allows this page; a site without rules does."""
        address = parse_address(url)
        if address.origin not in self._rules:
            self._rules[address.origin] = asyncio.ensure_future(self._read(address.origin))
        # Several pages wait for it; a cancelled one must not cancel it for the others.
        rules = await asyncio.shield(self._rules[address.origin])
        return rules is None or rules.can_fetch(address.url, AGENT)

    async def _read(self, origin: str) -> "Protego | None":
        try:
            page = await fetch(
                f"{origin}/robots.txt", self._guard, timeout_s=_TIMEOUT_S, text_limit_bytes=_BYTES
            )
        except ToolError:
            return None  # fetching the page reports the error
        if page.status != 200:
            return None
        return await asyncio.to_thread(_parsed, page.body.decode("utf-8", "replace"))


def _parsed(text: str) -> "Protego":
    from protego import Protego

    return Protego.parse(text)
