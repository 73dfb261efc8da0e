"""Plain HTTP GET: every redirect is checked, size and time are limited, no cookies."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from openmanus_graph.backends.web.exchange import Page, Request, exchange
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.state.addresses import WebAddress, parse_address

if TYPE_CHECKING:
    from protego import Protego


TIMEOUT_S = 30.0
MAX_REDIRECTS = 10
TEXT_LIMIT = 5 * 1024 * 1024
"""Bytes of a page in HTML or another kind of text; what follows is left out."""
LIMIT = 50 * 1024 * 1024
"""Bytes of anything else: documents are of no use in part."""
_REDIRECTS = {301, 302, 303, 307, 308}
_PAGE = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8,*/*;q=0.7"


async def fetch(
    url: str,
    guard: Guard,
    *,
    timeout_s: float = TIMEOUT_S,
    limit_bytes: int = LIMIT,
    text_limit_bytes: int = TEXT_LIMIT,
    headers: Mapping[str, str] | None = None,
    download_limit_bytes: int = 0,
) -> Page:
    """Get a page by HTTP GET, following redirects.

    Args:
        guard: Checks each hop.
        timeout_s: For all hops together.
        limit_bytes: A longer body is refused.
        text_limit_bytes: A longer text is cut, and the page says so.
        headers: In addition to the usual ones; not sent to another origin after a redirect.
        download_limit_bytes: What the browser may download; 0 if errors must not suggest that.

    Raises:
        ToolError: There is no page; the text says why.
    """
    request = Request(
        guard.check(url), {"Accept": _PAGE, **(headers or {})}, limit_bytes, text_limit_bytes,
        download_limit_bytes,
    )  # fmt: skip
    try:
        async with asyncio.timeout(timeout_s):
            return await _follow_redirects(request, guard)
    except TimeoutError as error:
        raise TrustedToolError(
            f"{url} did not answer in full within {timeout_s:g} s. Try again later, or use "
            "another source."
        ) from error


async def _follow_redirects(request: Request, guard: Guard) -> Page:
    requested, seen = request.address.url, {request.address.url}
    for _ in range(MAX_REDIRECTS + 1):
        reply = await _exchange_once(request, guard, requested)
        address = request.address
        if reply.status not in _REDIRECTS or not reply.location:
            return replace(reply, requested=requested)
        following = _next_address(address, reply.location, guard)
        same = following.origin == address.origin
        headers = request.headers if same else {"Accept": request.headers["Accept"]}
        request = replace(request, address=following, headers=headers)
        if request.address.url in seen:
            raise ToolError(
                f"{requested} redirects in a circle (to {request.address.url} again). It may want "
                "cookies or a login: try browser_use."
            )
        seen.add(request.address.url)
    raise ToolError(
        f"{requested} redirects more than {MAX_REDIRECTS} times, at last to "
        f"{request.address.url}. Try browser_use, or another source."
    )


async def _exchange_once(request: Request, guard: Guard, requested: str) -> Page:
    try:
        return await exchange(request, guard)
    except TrustedToolError as error:
        if request.address.url == requested:
            raise
        raise ToolError(str(error)) from error  # its text contains an address that a server chose


def _next_address(address: WebAddress, location: str, guard: Guard) -> WebAddress:
    try:
        return guard.check(urljoin(address.url, location.strip()))
    except (ToolError, ValueError) as error:
        raise ToolError(f"{address.url} redirects, and that was not followed. {error}") from error


AGENT = "openmanus-graph"
_ROBOTS_TIMEOUT_S = 10.0
_ROBOTS_BYTES = 512 * 1024


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
                f"{origin}/robots.txt", self._guard, timeout_s=_ROBOTS_TIMEOUT_S,
                text_limit_bytes=_ROBOTS_BYTES,
            )  # fmt: skip
        except ToolError:
            return None  # fetching the page reports the error
        if page.status != 200:
            return None

        def parse() -> "Protego":
            from protego import Protego

            return Protego.parse(page.body.decode("utf-8", "replace"))

        return await asyncio.to_thread(parse)
