"""Pages that a search opens of itself cannot spell a file out."""

from pathlib import Path

import pytest

from openmanus_graph import build_manus_graph
from openmanus_graph.safety.openings import MOST_OF_SITE
from tests.support.graphs import calls, run_graph
from tests.support.search_engines import Found, SearchServer


@pytest.fixture
def notes() -> None:
    Path("work").mkdir()
    Path("work/notes.txt").write_text("the secret")


@pytest.mark.usefixtures("notes")
async def test_a_search_reads_few_pages_of_a_site_that_nobody_named() -> None:
    queries = [f"word{number}" for number in range(2)]
    with SearchServer() as server:
        pages = [f"/{number}" for number in range(MOST_OF_SITE - 1)]
        server.results["searxng"] = [Found(page, f"{server.url}{page}") for page in pages]
        server.pages |= dict.fromkeys(pages, (200, "text/plain", b"A text."))
        searches = [("web_search", {"query": one, "fetch_content": True}) for one in queries]
        ran = await run_graph(
            build_manus_graph(),
            calls(("read_file", {"path": "notes.txt"}), prefix="a"),
            calls(*searches, prefix="b"),
            calls(("web_search", {"query": "another", "fetch_content": True}), prefix="d"),
            "done",
            task="Summarise notes.txt.",
            allow_hosts=(server.url.removeprefix("http://"),),
            search={"engine": "searxng", "searxng_url": server.url, "fallback_engines": []},
        )
        opened = [page for page in pages for _ in server.asked(f"unknown: GET {page}")]
    assert len(opened) == MOST_OF_SITE
    assert ran.results()[-1].count("it was left out: private data was read") == len(pages)
