"""The package ddgs as it is, against local pages and once against whatever network there is."""

import asyncio
from pathlib import Path

import pytest
from ddgs.engines import ENGINES

from openmanus_graph.backends.search import engines
from openmanus_graph.backends.search.engines import metasearch
from openmanus_graph.backends.search.search_engine import EngineError, SearchQuery
from openmanus_graph.backends.search.searching import choose_engines, search_for
from openmanus_graph.errors import ToolError
from openmanus_graph.state.search_engines import DDGS_BACKENDS, SearchSettings, parse_search_locale
from tests.support.limits import BACKSTOP_S, POLL_S
from tests.support.search_engines import Behaviour, SearchServer, found
from tests.support.search_protocols import Found
from tests.support.searching import search_session


@pytest.fixture
def local(search_server: SearchServer, monkeypatch: pytest.MonkeyPatch) -> SearchServer:
    """Point two of ddgs's backends at the server."""
    for name, path in {"duckduckgo": "/html/", "mojeek": "/mojeek"}.items():
        monkeypatch.setattr(ENGINES["text"][name], "search_url", f"{search_server.url}{path}")
    return search_server


@pytest.mark.parametrize("backend", ["duckduckgo", "mojeek"])
async def test_ddgs_returns_what_a_page_lists(local: SearchServer, backend: str) -> None:
    local.results[backend] = [
        Found("Tom &amp; <b>Jerry</b>", "https://a.example/1", "About &lt;it&gt;."),
        Found("No address", "javascript:void(0)"),
        Found("Second", "https://a.example/2", "More."),
    ]
    hits = await metasearch(backend).search(SearchQuery("cats", 5))
    assert sorted((hit.title, hit.url) for hit in hits) == [
        ("Second", "https://a.example/2"),
        ("Tom & Jerry", "https://a.example/1"),
    ]


async def test_ddgs_is_given_language_and_country(local: SearchServer) -> None:
    locale = parse_search_locale("ja", "jp")
    await metasearch("duckduckgo").search(SearchQuery("cats", 5, locale))
    assert local.asked("duckduckgo")[0].form["l"] == "jp-jp"


async def test_ddgs_reads_further_pages(local: SearchServer) -> None:
    local.results["mojeek"] = found(10)
    hits = await metasearch("mojeek").search(SearchQuery("cats", 15))
    assert len(hits) == 10
    assert [request.params.get("s") for request in local.asked("mojeek")] == [None, "11"]


async def test_ddgs_that_finds_nothing_returns_nothing(local: SearchServer) -> None:
    assert await metasearch("mojeek").search(SearchQuery("cats")) == []


@pytest.mark.parametrize("status", [202, 403, 429, 500])
async def test_a_refusal_is_distinguished_from_nothing_found(
    local: SearchServer, status: int
) -> None:
    local.script["mojeek"] = [Behaviour("html", status=status)]
    with pytest.raises(EngineError, match=f"HTTP {status}") as caught:
        await metasearch("mojeek").search(SearchQuery("cats"))
    assert caught.value.passing


async def test_a_silent_server_is_given_up(
    local: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "REQUEST_TIMEOUT_S", 1)
    local.script["mojeek"] = [Behaviour("silent")]
    with pytest.raises(EngineError, match="in time"):
        await metasearch("mojeek").search(SearchQuery("cats"))


async def test_a_dead_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINES["text"]["mojeek"], "search_url", "http://127.0.0.1:9/")
    with pytest.raises(EngineError, match="cannot be reached"):
        await metasearch("mojeek").search(SearchQuery("cats"))


async def test_ddgs_does_not_block_the_event_loop(local: SearchServer) -> None:
    local.script["mojeek"] = [Behaviour("silent")]
    task = asyncio.create_task(metasearch("mojeek").search(SearchQuery("cats")))
    async with asyncio.timeout(BACKSTOP_S):
        while not local.asked("mojeek"):  # noqa: ASYNC110  # the server is another thread
            await asyncio.sleep(POLL_S)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    local.stopping.set()


async def test_one_backend_hands_over_to_the_next(local: SearchServer, tmp_path: Path) -> None:
    local.script["mojeek"] = [Behaviour("html", status=429)]
    local.results["duckduckgo"] = found(3)
    settings = SearchSettings(engine="mojeek", fallback_engines=("duckduckgo",))
    report = await search_for(search_session(tmp_path, settings), "cats", num_results=3)
    assert [hit.engine for hit in report.hits] == ["ddgs:duckduckgo"] * 3
    assert "429" in report.attempts[0].problem


def test_every_backend_is_one_that_ddgs_has() -> None:
    assert set(DDGS_BACKENDS) <= set(ENGINES["text"])


async def test_a_real_search_ends_with_results_or_a_clear_error(tmp_path: Path) -> None:
    session = search_session(tmp_path, SearchSettings())
    try:
        report = await search_for(session, "LangGraph documentation")
        outcome = "\n".join(hit.url for hit in report.hits)
        named = [attempt.engine for attempt in report.attempts]
    except ToolError as error:
        outcome = str(error)
        named = [engine.name for engine in choose_engines(SearchSettings()).engines]
    if "http" not in outcome:  # no network, or every engine refuses this machine
        assert outcome.startswith("The web could not be searched.") or not outcome
        assert all(f"{name}: " in outcome for name in named) or not outcome
