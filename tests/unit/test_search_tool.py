"""`web_search` as the model sees it: called alone, and in the graph."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from openmanus_graph import build_manus_graph
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.testing import tool_runtime
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools.web import web_search
from tests.support.graphs import calls, run_graph
from tests.support.search_engines import KEY, Behaviour, SearchServer, found
from tests.support.search_protocols import CX, Found
from tests.support.searching import local_settings, search_session


@pytest.fixture
def session(search_server: SearchServer, tmp_path: Path) -> Iterator[Session]:
    """A session that asks tavily, then brave, and may read local pages."""
    settings = local_settings(search_server, "tavily", "brave")
    session = search_session(tmp_path / "work", settings, allow_hosts=("127.0.0.1",))
    yield session
    session.close()


async def searched(session: Session, query: str = "cats", **given: Any) -> str:
    return await called(tool_runtime(session), query, **given)


async def called(runtime: Any, query: str, **given: Any) -> str:
    function = cast("StructuredTool", web_search).coroutine
    assert function is not None
    text, _ = cast("tuple[str, Any]", await function(query, runtime=runtime, **given))
    return text


def site(server: SearchServer, *pages: tuple[str, bytes], kind: str = "text/html") -> list[Found]:
    """Put pages on the server and return them as results."""
    for path, body in pages:
        server.pages[path] = (200, kind, body)
    return [Found(f"At {path}", f"{server.url}{path}", "A page.") for path, _ in pages]


def test_the_tool_is_declared_read_only_and_untrusted() -> None:
    traits = traits_of(web_search)
    assert (traits.effect, traits.untrusted, traits.approval) == ("read_only", True, False)


def test_the_model_sees_openmanus_parameters() -> None:
    schema = convert_to_openai_tool(web_search)["function"]["parameters"]
    assert list(schema["properties"]) == [
        "query",
        "num_results",
        "lang",
        "country",
        "fetch_content",
    ]
    assert schema["required"] == ["query"]
    assert schema["properties"]["num_results"]["default"] == 5


async def test_results_are_numbered_and_say_which_engine_answered(
    search_server: SearchServer, session: Session
) -> None:
    search_server.script["tavily"] = [Behaviour(status=429)]
    search_server.results["brave"] = found(2)
    assert await searched(session, "cats", num_results=2) == (
        "2 results for 'cats'.\n"
        "\n1. Title 1\n   https://site.example/page/1\n   About 1.\n"
        "\n2. Title 2\n   https://site.example/page/2\n   About 2.\n"
        "\nAsked: brave (2).\n"
        "Did not answer: tavily (too many requests, or the quota is used up (HTTP 429))."
    )


async def test_every_parameter_reaches_the_engine(
    search_server: SearchServer, session: Session
) -> None:
    search_server.results |= {"tavily": found(9), "brave": found(9, "b")}
    text = await searched(session, "big cats", num_results=12, lang="de", country="at")
    asked = search_server.asked("brave")[0].params
    assert (asked["q"], asked["count"], asked["search_lang"], asked["country"]) == (
        "big cats",
        "12",
        "de",
        "AT",
    )
    assert "12. " in text
    assert "13. " not in text
    assert "tavily does not support lang." in text


async def test_nothing_found_gives_advice(session: Session) -> None:
    text = await searched(session)
    assert text.startswith("No results for 'cats'. Use fewer or other words")
    assert "Asked: tavily (0), brave (0)." in text


async def test_all_engines_down_is_an_error_that_names_each(
    search_server: SearchServer, session: Session
) -> None:
    search_server.script = {"tavily": [Behaviour(status=500)], "brave": [Behaviour("html")]}
    with pytest.raises(ToolError, match=r"tavily: HTTP 500; brave: it answered with a web page"):
        await searched(session)


async def test_the_pages_found_are_read_at_once(
    search_server: SearchServer, session: Session
) -> None:
    article = b"<html><body><nav>Menu</nav><main><h1>Cats</h1><p>%s</p></main></body></html>"
    search_server.results["tavily"] = site(
        search_server,
        ("/one", article % (b"They purr. " * 20)),
        ("/two", article % (b"They climb. " * 20)),
    )
    text = await searched(session, num_results=2, fetch_content=True)
    assert "They purr. They purr." in text
    assert text.index("They purr") < text.index("2. At /two") < text.index("They climb")


async def test_a_page_that_fails_does_not_fail_the_search(
    search_server: SearchServer, session: Session
) -> None:
    results = site(search_server, ("/good", b"<p>All is well here today.</p>"), ("/empty", b""))
    search_server.pages["/gone"] = (404, "text/html", b"<p>Gone</p>")
    search_server.pages["/pdf"] = (200, "application/pdf", b"%PDF-1.4")
    results += [Found(path, f"{search_server.url}{path}") for path in ("/gone", "/pdf")]
    results += [Found("inside", "http://10.0.0.1/"), Found("dead", "http://127.0.0.1:9/")]
    search_server.results["tavily"] = results
    text = await searched(session, num_results=6, fetch_content=True)
    assert "All is well" in text
    assert "it answered 404" in text
    assert "it is application/pdf" in text
    assert text.count("(The page was not read: ") == 5


async def test_a_hanging_page_is_left_out(
    search_server: SearchServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmanus_graph.backends.search.searching.PAGE_TIMEOUT_S", 3)
    search_server.results["tavily"] = [
        *site(search_server, ("/good", b"All is well here today."), kind="text/plain"),
        Found("hangs", f"{search_server.url}/hangs"),
    ]
    search_server.script["unknown: GET /hangs"] = [Behaviour("silent")]
    text = await searched(session, num_results=2, fetch_content=True)
    assert "All is well" in text
    assert "hangs" in text
    assert "(The page was not read: it was not read within 3 s)" in text


async def test_long_pages_are_cut_evenly_and_kept_in_full(
    search_server: SearchServer, session: Session
) -> None:
    long = "".join(f"<p>Line {n} of a long page about cats.</p>" for n in range(2000)).encode()
    search_server.results["tavily"] = site(search_server, *((f"/{n}", long) for n in range(5)))
    text = await searched(session, fetch_content=True)
    assert len(text) < 8000
    assert text.count(") shows them ...]") == 5
    kept = next(session.workspace.outputs.glob("*.txt")).read_text(encoding="utf-8")
    assert "Line 1999 of a long page" in kept


async def test_of_many_results_the_first_pages_are_read(
    search_server: SearchServer, session: Session
) -> None:
    pages = [(f"/{n}", f"Page number {n} speaks.".encode()) for n in range(15)]
    search_server.results["tavily"] = site(search_server, *pages, kind="text/plain")
    text = await searched(session, num_results=15, fetch_content=True)
    assert "Page number 9 speaks." in text
    assert "Page number 10 speaks." not in text
    assert "(Only the first 10 pages were read.)" in text


async def test_pages_are_read_once_per_run(search_server: SearchServer, session: Session) -> None:
    results = site(search_server, ("/one", b"A text about cats."), kind="text/plain")
    search_server.results["tavily"] = results
    search_server.results["brave"] = results
    first = await searched(session, fetch_content=True)
    assert await searched(session, fetch_content=True) == first
    assert len(search_server.asked("unknown: GET /one")) == 1


async def test_engines_that_are_not_set_up_are_reported_to_the_person_once(
    search_server: SearchServer, tmp_path: Path
) -> None:
    settings = local_settings(search_server, "searxng", "baidu", keys={})
    search_server.results["searxng"] = found(5)
    session = search_session(tmp_path, settings)
    reported: list[Any] = []
    runtime = tool_runtime(session)
    runtime.stream_writer = reported.append
    for query in ("cats", "dogs"):
        await called(runtime, query)
    assert [event["type"] for event in reported] == ["notice"]
    assert "BAIDU_API_KEY" in reported[0]["text"]


def local_search(server: SearchServer, *engines: str) -> dict[str, Any]:
    """Make the `[search]` keys by which a run asks the server."""
    names = ("tavily", "brave", "google", "baidu")
    return {
        "engine": engines[0],
        "fallback_engines": engines[1:],
        "urls": dict.fromkeys((*names, "searxng"), server.url),
        "google_cse_id": CX,
        "max_retries": 0,
        **{f"{name}_api_key": KEY for name in names},
    }


async def test_the_graph_searches_and_marks_the_results_as_untrusted(
    search_server: SearchServer,
) -> None:
    search_server.results["google"] = found(3)
    ran = await run_graph(
        build_manus_graph(),
        calls(("web_search", {"query": "cats", "num_results": 3})),
        "done",
        search=local_search(search_server, "Brave", "Google"),
    )
    assert ran.values["status"] == "finished"
    (result,) = ran.results()
    assert re.fullmatch(r"<(untrusted-[0-9a-f]{8})>\n.*\n</\1>", result, re.DOTALL)
    assert "3. Title 3" in result
    assert "Asked: brave (0), google (3)." in result
    assert KEY not in str(ran.messages) + str(ran.events)


async def test_the_graph_survives_a_search_with_all_engines_down(
    search_server: SearchServer,
) -> None:
    search_server.script = {"brave": [Behaviour(status=500)], "baidu": [Behaviour(status=401)]}
    ran = await run_graph(
        build_manus_graph(),
        calls(("web_search", {"query": "cats"}), ("web_search", {"query": "x", "num_results": 0})),
        "no luck",
        search=local_search(search_server, "brave", "baidu"),
    )
    assert ran.values["answer"] == "no luck"
    down, wrong = ran.results()
    assert "brave: HTTP 500; baidu: its key was refused (HTTP 401)" in down
    assert "num_results" in wrong
    assert "greater than or equal to 1" in wrong
