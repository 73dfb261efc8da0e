"""Each engine's protocol, against a local server that checks requests as the real one does."""

import base64
import logging
import socket

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.search.search_engine import EngineError, SearchQuery
from openmanus_graph.state.search_engines import SearchLocale, parse_search_locale
from tests.support.search_engines import API_ENGINES, KEY, Behaviour, SearchServer, found
from tests.support.search_protocols import Found
from tests.support.searching import local_engine

pytestmark = pytest.mark.slow

every_engine = pytest.mark.parametrize("name", API_ENGINES)


async def failure(server: SearchServer, name: str, query: str = "cats") -> EngineError:
    with pytest.raises(EngineError) as caught:
        await local_engine(server, name).search(SearchQuery(query))
    return caught.value


@every_engine
async def test_an_engine_returns_what_was_found(search_server: SearchServer, name: str) -> None:
    search_server.results[name] = found(3)
    hits = await local_engine(search_server, name).search(SearchQuery("cats & dogs", 3))
    assert [(hit.title, hit.url, hit.snippet) for hit in hits] == [
        (f"Title {n}", f"https://site.example/page/{n}", f"About {n}.") for n in (1, 2, 3)
    ]


@every_engine
async def test_an_engine_that_finds_nothing_returns_nothing(
    search_server: SearchServer, name: str
) -> None:
    assert await local_engine(search_server, name).search(SearchQuery("cats")) == []


@every_engine
@pytest.mark.parametrize("wanted", [1, 12, 50])
async def test_an_engine_delivers_many_within_what_it_documents(
    search_server: SearchServer, name: str, wanted: int
) -> None:
    search_server.results[name] = found(1000)
    hits = await local_engine(search_server, name).search(SearchQuery("cats", wanted))
    most = 20 if name == "tavily" else wanted
    assert len(hits) >= min(wanted, most)
    assert len({hit.url for hit in hits}) == len(hits)
    assert len(search_server.requests) <= 5


@every_engine
@pytest.mark.parametrize(
    "locale",
    [
        SearchLocale("de", "at"),
        SearchLocale("ja", "jp"),
        SearchLocale("zh", "tw", traditional=True),
        SearchLocale("zh", "cn"),
        SearchLocale("pt", "br"),
        SearchLocale("en", "gb"),
        SearchLocale("no", "no"),
        SearchLocale("he", "il"),
        SearchLocale("sw", "ke"),
        SearchLocale("en", "zz"),
    ],
)
async def test_every_locale_is_sent_in_a_form_the_engine_takes(
    search_server: SearchServer, name: str, locale: SearchLocale
) -> None:
    search_server.results[name] = found(1)
    assert await local_engine(search_server, name).search(SearchQuery("cats", 1, locale))


async def test_language_and_country_reach_every_engine_in_its_own_form(
    search_server: SearchServer,
) -> None:
    for name in API_ENGINES:
        await local_engine(search_server, name).search(
            SearchQuery("x", 1, parse_search_locale("de", "at"))
        )
    params = {name: search_server.asked(name)[0].params for name in API_ENGINES}
    assert search_server.asked("tavily")[0].body["country"] == "austria"
    assert params["searxng"]["language"] == "de-AT"
    assert (params["brave"]["country"], params["brave"]["search_lang"]) == ("AT", "de")
    google = params["google"]
    assert (google["gl"], google["hl"], google["lr"]) == ("at", "de", "lang_de")


async def test_engines_report_which_settings_they_ignore(search_server: SearchServer) -> None:
    ignores = {name: local_engine(search_server, name).ignores for name in API_ENGINES}
    assert {name: said for name, said in ignores.items() if said} == {
        "tavily": ("lang",),
        "baidu": ("lang", "country"),
    }


@every_engine
async def test_a_long_query_is_cut_to_what_the_engine_takes(
    search_server: SearchServer, name: str
) -> None:
    search_server.results[name] = found(1)
    query = SearchQuery("word " * 200 + "x" * 300, 1)
    assert await local_engine(search_server, name).search(query)


@every_engine
async def test_too_many_requests_says_how_long_to_wait(
    search_server: SearchServer, name: str
) -> None:
    search_server.script[name] = [Behaviour(status=429, headers={"Retry-After": "7"})]
    error = await failure(search_server, name)
    assert "429" in error.reason
    assert (error.passing, error.retry_after_s) == (True, 7)


async def test_brave_says_how_long_to_wait_in_a_header_of_its_own(
    search_server: SearchServer,
) -> None:
    limits = {"X-RateLimit-Limit": "1, 2000", "X-RateLimit-Reset": "1, 1419704"}
    search_server.script["brave"] = [Behaviour(status=429, headers=limits)]
    assert (await failure(search_server, "brave")).retry_after_s == 1


@pytest.mark.parametrize("name", [name for name in API_ENGINES if name != "searxng"])
async def test_a_wrong_key_is_named_as_the_cause_and_never_shown(
    search_server: SearchServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "wrong-key-of-mine-987654321"
    engine = local_engine(search_server, name, keys={name: SecretStr(wrong)})
    with pytest.raises(EngineError) as caught:
        await engine.search(SearchQuery("cats"))
    assert "key" in caught.value.reason.lower() or "token" in caught.value.reason.lower()
    assert not caught.value.passing
    assert wrong not in caught.value.reason
    assert wrong not in caplog.text
    assert wrong not in repr(engine) + repr(vars(engine))


@every_engine
async def test_the_right_key_never_reaches_the_log(
    search_server: SearchServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    search_server.results[name] = found(1)
    await local_engine(search_server, name).search(SearchQuery("cats"))
    assert "127.0.0.1" in caplog.text  # the client logs addresses
    assert KEY not in caplog.text


@pytest.mark.parametrize("name", [name for name in API_ENGINES if name != "searxng"])
async def test_a_key_that_the_engine_sends_back_is_not_shown(
    search_server: SearchServer, name: str
) -> None:
    said = {"error": {"message": f"The key {KEY} is over its quota", "code": 400}}
    search_server.script[name] = [Behaviour(status=400, body=said)]
    reason = (await failure(search_server, name)).reason
    assert "over its quota" in reason
    assert KEY not in reason


@every_engine
async def test_a_fault_of_the_server_is_passing(search_server: SearchServer, name: str) -> None:
    search_server.script[name] = [Behaviour(status=500)]
    error = await failure(search_server, name)
    assert "HTTP 500" in error.reason
    assert error.passing


@every_engine
@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (Behaviour("html"), "web page"),
        (Behaviour("truncated"), "broke off"),
        (Behaviour("list"), "documented form"),
        (Behaviour("html", status=302, headers={"Location": "https://x.test/"}), "redirects"),
        (Behaviour("html", status=503), "HTTP 503"),
        (Behaviour("wordless"), "cannot be reached"),
    ],
)
async def test_an_answer_of_another_form_is_a_failure(
    search_server: SearchServer, name: str, behaviour: Behaviour, said: str
) -> None:
    search_server.script[name] = [behaviour]
    assert said in (await failure(search_server, name)).reason


@every_engine
@pytest.mark.parametrize("results", ["text", {"a": 1}, 5])
async def test_results_that_are_no_list_are_a_failure(
    search_server: SearchServer, name: str, results: object
) -> None:
    body = {
        "results": results,
        "references": results,
        "items": results,
        "web": {"results": results},
    }
    search_server.script[name] = [Behaviour(body=body)]
    assert "documented form" in (await failure(search_server, name)).reason


async def test_a_part_of_another_form_is_a_failure(search_server: SearchServer) -> None:
    search_server.script["brave"] = [Behaviour(body={"web": ["odd"]})]
    assert "documented form" in (await failure(search_server, "brave")).reason


@every_engine
async def test_a_refused_connection_is_named(search_server: SearchServer, name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    nowhere = {name: f"http://127.0.0.1:{port}"}
    with pytest.raises(EngineError, match="connection refused") as caught:
        await local_engine(search_server, name, urls=nowhere).search(SearchQuery("cats"))
    assert caught.value.passing


@every_engine
async def test_entries_without_a_web_address_are_left_out(
    search_server: SearchServer, name: str
) -> None:
    good = {"url": "https://good.example/", "link": "https://good.example/"}
    search_server.raw[name] = [good, {"title": "none"}, None, "text", {"url": 7, "link": 7}]
    hits = await local_engine(search_server, name).search(SearchQuery("cats", 20))
    assert [(hit.title, hit.url, hit.snippet) for hit in hits] == [
        ("https://good.example/", "https://good.example/", "")
    ]


@every_engine
async def test_titles_are_plain_text(search_server: SearchServer, name: str) -> None:
    search_server.results[name] = [
        Found(
            "Tom &amp; <b>Jerry</b>\n &#39;90 < 100\x1b[31m",
            "https://a.example/?a=1&b=2",
            "<p>A</p> &lt;x&gt; \ud800" + "long " * 300,
        )
    ]
    hit = (await local_engine(search_server, name).search(SearchQuery("cats")))[0]
    assert hit.title == "Tom & Jerry '90 < 100[31m"
    assert hit.url == "https://a.example/?a=1&b=2"
    assert hit.snippet.startswith("A <x> long")
    assert len(hit.snippet) <= 400


async def test_a_huge_answer_is_not_read_to_its_end(search_server: SearchServer) -> None:
    search_server.script["tavily"] = [Behaviour(body={"results": ["x" * 6_000_000]})]
    assert "longer than" in (await failure(search_server, "tavily")).reason


async def test_searxng_without_json_says_how_to_mend_it(search_server: SearchServer) -> None:
    search_server.script["searxng"] = [Behaviour("html", status=403)]
    error = await failure(search_server, "searxng")
    assert "settings.yml" in error.reason
    assert not error.passing


async def test_searxng_whose_own_engines_fail_has_not_found_nothing(
    search_server: SearchServer,
) -> None:
    silent = [["google", "Suspended: CAPTCHA"], ["brave", "timeout"]]
    body = {"query": "x", "results": [], "unresponsive_engines": silent}
    search_server.script["searxng"] = [Behaviour(body=body)]
    assert "google (Suspended: CAPTCHA)" in (await failure(search_server, "searxng")).reason


@pytest.mark.parametrize("tail", ["", "/search"])
async def test_searxng_may_live_below_a_path(search_server: SearchServer, tail: str) -> None:
    engine = local_engine(search_server, "searxng", urls={"searxng": f"{search_server.url}{tail}"})
    search_server.results["searxng"] = found(1)
    assert await engine.search(SearchQuery("cats"))


async def test_searxng_is_sent_its_login_and_nobody_else(
    search_server: SearchServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = search_server.url.replace("//", "//me:p%40ss@")
    search_server.results["searxng"] = found(1)
    engine = local_engine(search_server, "searxng", urls={"searxng": address})
    assert await engine.search(SearchQuery("cats"))
    expected = base64.b64encode(b"me:p@ss").decode()
    assert search_server.requests[0].headers["authorization"] == f"Basic {expected}"
    for secret in ("p%40ss", "p@ss", expected):
        assert secret not in caplog.text + repr(vars(engine))


async def test_an_engine_on_this_machine_is_not_asked_through_the_proxy(
    search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    search_server.results["searxng"] = found(1)
    assert await local_engine(search_server, "searxng").search(SearchQuery("cats"))


async def test_an_engine_elsewhere_is_asked_through_the_environments_proxy(
    search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", search_server.url)
    engine = local_engine(search_server, "searxng", urls={"searxng": "http://engine.invalid"})
    await engine.search(SearchQuery("cats"))
    assert search_server.requests[0].headers["host"] == "engine.invalid"


async def test_a_name_that_does_not_exist_is_named_as_the_cause(
    search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    engine = local_engine(search_server, "searxng", urls={"searxng": "http://engine.invalid"})
    with pytest.raises(EngineError, match=r"engine\.invalid cannot be reached"):
        await engine.search(SearchQuery("cats"))


async def test_a_proxy_that_cannot_be_used_is_named(
    search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "gopher://127.0.0.1:9")
    assert "proxy" in (await failure(search_server, "searxng")).reason


async def test_baidus_error_under_status_200_is_a_failure(search_server: SearchServer) -> None:
    body = {"request_id": "1", "code": "216303", "message": f"rate limit of {KEY}"}
    search_server.script["baidu"] = [Behaviour(body=body)]
    reason = (await failure(search_server, "baidu")).reason
    assert "216303" in reason
    assert KEY not in reason
