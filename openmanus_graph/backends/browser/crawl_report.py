"""The report on several crawled pages, for the model."""

import asyncio
from collections.abc import Sequence

from openmanus_graph.backends.browser.crawl import Crawl, Crawled, Failed
from openmanus_graph.backends.web.reading import fitted
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.output import LIMIT
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.tool_traits import Observation

_BUDGET = LIMIT - 500
_LEAST = 300


async def crawled(
    session: Session, urls: Sequence[str], timeout_s: int, threshold: int, *, fresh: bool
) -> Observation:
    """Crawl pages and report on each.

    Args:
        session: Of the run.
        urls: Their addresses; each is read once.
        timeout_s: For each page.
        threshold: Shorter lines of menus and footers are left out, in words.
        fresh: Whether to read again what was read before.

    Raises:
        ToolError: No address is among them.
    """
    crawl = session.cached(Crawl, lambda: Crawl(session))
    wanted = list(dict.fromkeys(url.strip() for url in urls if url.strip()))
    if not wanted:
        raise TrustedToolError(
            "urls names no address. Give whole addresses, such as https://example.com/"
        )
    results = await crawl.read(
        wanted, timeout_s=timeout_s, fresh=fresh, word_count_threshold=threshold
    )
    text = await asyncio.to_thread(_text, results, session.workspace)
    failures = [result for result in results if isinstance(result, Failed)]
    failed = len(failures) == len(results)
    return Observation(
        text, failed=failed, trusted_text=failed and all(f.trusted_text for f in failures)
    )


def _text(results: Sequence[Crawled | Failed], workspace: Workspace) -> str:
    """Render the report. Blocks when a page is long."""
    read = [result for result in results if isinstance(result, Crawled)]
    failed = len(results) - len(read)
    rows = [f"{len(results)} address{'es' if len(results) > 1 else ''}: {len(read)} read, "
            f"{failed} failed."]  # fmt: skip
    heads = [_head(number, result) for number, result in enumerate(results, 1)]
    budget = _BUDGET - sum(map(len, heads))
    for result, share in zip(results, _shares(results, budget), strict=True):
        rows.append(heads.pop(0))
        if isinstance(result, Crawled):
            rows.append(fitted(result.text, share, workspace))
    return "\n\n".join(rows)


def _shares(results: Sequence[Crawled | Failed], budget: int) -> list[int]:
    """Divide the budget: what short pages do not need goes to the long ones."""
    sizes = [len(result.text) if isinstance(result, Crawled) else 0 for result in results]
    shares = [0] * len(sizes)
    for left, (size, index) in enumerate(sorted(zip(sizes, range(len(sizes)), strict=True))):
        fair = max(_LEAST, budget // (len(sizes) - left))
        shares[index] = min(size, fair)
        budget -= shares[index]
    return shares


def _head(number: int, result: Crawled | Failed) -> str:
    if isinstance(result, Failed):
        return f"## {number}. {result.url}\nFAILED: {result.reason}"
    title = f"\nTitle: {result.title}" if result.title else ""
    moved = f" (from {result.requested})" if result.url != result.requested else ""
    counts = f"{result.words} words, {result.links} links, {result.images} images"
    cached = "from the cache" if result.cached else f"{result.seconds:.1f} s"
    note = f"\n({result.note})" if result.note else ""
    return (
        f"## {number}. {result.url}{moved}\nHTTP {result.status}, {cached}, {counts}{title}{note}"
    )
