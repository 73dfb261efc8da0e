"""Which engine is asked when, and what becomes of the ones that fail."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.search import searching
from openmanus_graph.backends.search.searching import choose_engines, search_for
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.search_engines import SearchSettings
from tests.support.limits import BACKSTOP_S, POLL_S
from tests.support.search_engines import KEY, Behaviour, SearchServer, found
from tests.support.searching import local_settings, search_session

pytestmark = pytest.mark.slow


class Clock:
    """A clock that stands still, except for those who sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 1000 + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def names(settings: SearchSettings) -> list[str]:
    return [engine.name for engine in choose_engines(settings).engines]


DDGS = ["ddgs:duckduckgo", "ddgs:brave", "ddgs:mojeek", "ddgs:startpage", "ddgs:yahoo",
        "ddgs:wikipedia"]  # fmt: skip
TAVILY = {"tavily": SecretStr(KEY)}


def test_without_settings_the_engines_without_a_key_are_asked() -> None:
    assert names(SearchSettings()) == DDGS
    assert choose_engines(SearchSettings()).notices == []


def test_what_is_set_up_comes_before_what_needs_nothing() -> None:
    settings = SearchSettings(keys=TAVILY, urls={"searxng": "http://s.example"})
    assert names(settings) == ["searxng", "tavily", *DDGS]


def test_the_named_engine_comes_first_and_the_rest_follows() -> None:
    assert names(SearchSettings(engine="wikipedia", keys=TAVILY)) == [
        "ddgs:wikipedia",
        "tavily",
        *DDGS[:-1],
    ]


def test_named_fallbacks_are_the_only_ones() -> None:
    settings = SearchSettings(engine="mojeek", fallback_engines=("tavily",), keys=TAVILY)
    assert names(settings) == ["ddgs:mojeek", "tavily"]
    assert names(SearchSettings(engine="mojeek", fallback_engines=())) == ["ddgs:mojeek"]


def test_fallbacks_without_an_engine_follow_what_is_set_up() -> None:
    settings = SearchSettings(fallback_engines=("mojeek",), keys=TAVILY)
    assert names(settings) == ["tavily", "ddgs:mojeek"]
    assert names(SearchSettings(fallback_engines=("mojeek",)))[0] == "ddgs:duckduckgo"


def test_openmanus_engines_without_keys_are_served_as_near_as_can_be() -> None:
    choice = choose_engines(
        SearchSettings(engine="google", fallback_engines=("duckduckgo", "baidu"))
    )
    assert [engine.name for engine in choice.engines] == ["ddgs:startpage", "ddgs:duckduckgo"]
    google, baidu = choice.notices
    assert "GOOGLE_API_KEY and GOOGLE_CSE_ID" in google
    assert "startpage" in google
    assert "BAIDU_API_KEY" in baidu
    assert "not asked" in baidu


def test_openmanus_engines_with_keys_are_asked_themselves() -> None:
    keys = {name: SecretStr(KEY) for name in ("google", "baidu", "brave")}
    settings = SearchSettings(
        engine="google", fallback_engines=("baidu", "brave"), keys=keys, google_cse_id="cx"
    )
    assert names(settings) == ["google", "baidu", "brave"]
    assert choose_engines(settings).notices == []


def test_a_google_key_without_an_id_is_not_enough() -> None:
    settings = SearchSettings(engine="google", fallback_engines=(), keys={"google": SecretStr("k")})
    assert names(settings) == ["ddgs:startpage"]


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (Behaviour(status=429), "429"),
        (Behaviour(status=403), "403"),
        (Behaviour(status=500), "500"),
        (Behaviour("html"), "web page"),
        (Behaviour("wordless"), "cannot be reached"),
        (Behaviour("silent"), "no answer within 2 s"),
        (Behaviour("drip"), "no answer within 2 s"),
    ],
)
async def test_an_engine_that_fails_hands_over_to_the_next(
    search_server: SearchServer, tmp_path: Path, behaviour: Behaviour, said: str
) -> None:
    search_server.script["tavily"] = [behaviour]
    search_server.results["brave"] = found(5)
    settings = local_settings(search_server, "tavily", "brave", timeout_s=2)
    report = await search_for(search_session(tmp_path, settings), "cats")
    assert {hit.engine for hit in report.hits} == {"brave"}
    failed, answered = report.attempts
    assert said in failed.problem
    assert (answered.engine, answered.hits, answered.problem) == ("brave", 5, "")


async def test_an_engine_that_finds_nothing_hands_over_to_the_next(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.results["brave"] = found(5)
    session = search_session(tmp_path, local_settings(search_server, "tavily", "brave"))
    report = await search_for(session, "cats")
    assert len(report.hits) == 5
    assert [(item.engine, item.hits) for item in report.attempts] == [("tavily", 0), ("brave", 5)]


async def test_an_engine_that_raises_anything_hands_over_to_the_next(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.script["tavily"] = [Behaviour("deep")]
    search_server.results["brave"] = found(5)
    session = search_session(tmp_path, local_settings(search_server, "tavily", "brave"))
    report = await search_for(session, "cats")
    assert report.attempts[0].problem == "its answer broke off or is not JSON"
    assert len(report.hits) == 5


async def test_the_next_engine_gives_what_the_first_lacks(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.results["tavily"] = found(3)
    search_server.results["brave"] = [*found(2), *found(4, "other")]
    search_server.results["google"] = found(9, "third")
    session = search_session(tmp_path, local_settings(search_server, "tavily", "brave", "google"))
    report = await search_for(session, "cats", num_results=6)
    assert [hit.engine for hit in report.hits] == ["tavily"] * 3 + ["brave"] * 3
    assert len({hit.url for hit in report.hits}) == 6
    assert not search_server.asked("google")


async def test_a_slow_engine_costs_little_once_there_are_results(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.results["tavily"] = found(1)
    for name in ("brave", "searxng", "google", "baidu"):
        search_server.script[name] = [Behaviour("silent")]
    engines = ("tavily", "brave", "searxng", "google", "baidu")
    settings = local_settings(search_server, *engines, timeout_s=2, total_timeout_s=60)
    report = await search_for(search_session(tmp_path, settings), "cats")
    assert len(report.hits) == 1
    assert "the time was over" in report.attempts[-1].problem
    assert not search_server.asked("baidu")


async def test_all_engines_together_keep_within_the_time(
    search_server: SearchServer, tmp_path: Path
) -> None:
    engines = ("tavily", "brave", "google", "baidu", "searxng")
    for name in engines:
        search_server.script[name] = [Behaviour("silent")] * 9
    settings = local_settings(
        search_server, *engines, timeout_s=0.5, total_timeout_s=1, max_retries=9
    )
    with pytest.raises(ToolError, match="not asked, the time was over"):
        await search_for(search_session(tmp_path, settings), "cats")
    assert len(search_server.requests) <= 3, "of 60, only those for which there was time"


async def test_when_all_are_down_each_is_named_with_its_reason(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.script = {
        "tavily": [Behaviour(status=401)],
        "brave": [Behaviour(status=429)],
        "searxng": [Behaviour("html", status=403)],
    }
    settings = local_settings(search_server, "tavily", "brave", "searxng")
    with pytest.raises(ToolError) as caught:
        await search_for(search_session(tmp_path, settings), "cats")
    said = str(caught.value)
    assert "tavily: its key was refused" in said
    assert "brave: too many requests" in said
    assert "searxng: it does not give out JSON" in said
    assert "Try again later" in said
    assert KEY not in said


async def test_when_nothing_is_set_up_it_says_what_to_set(tmp_path: Path) -> None:
    settings = SearchSettings(engine="tavily", fallback_engines=("baidu", "searxng"))
    with pytest.raises(ToolError) as caught:
        await search_for(search_session(tmp_path, settings), "cats")
    for needed in ("TAVILY_API_KEY", "BAIDU_API_KEY", "searxng_url", "ddgs"):
        assert needed in str(caught.value)


async def test_nothing_found_anywhere_is_no_error(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.script["brave"] = [Behaviour(status=500)]
    session = search_session(tmp_path, local_settings(search_server, "tavily", "brave"))
    report = await search_for(session, "cats")
    assert report.hits == ()


async def test_a_passing_failure_is_tried_again_after_a_short_wait(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.script["tavily"] = [Behaviour(status=503), Behaviour(status=429)]
    search_server.script["brave"] = [Behaviour(status=401)]
    search_server.results["tavily"] = found(5)
    settings = local_settings(search_server, "tavily", "brave", max_retries=2)
    report = await search_for(search_session(tmp_path, settings), "cats")
    assert len(report.hits) == 5
    assert len(search_server.asked("tavily")) == 3
    assert len(search_server.asked("brave")) == 1, "a wrong key stays wrong"
    assert report.attempts[0].problem == ""


async def test_openmanus_long_delay_does_not_make_anybody_wait(
    search_server: SearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_server.script["tavily"] = [Behaviour(status=500)]
    search_server.results["tavily"] = found(1)
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("openmanus_graph.backends.search.searching.asyncio.sleep", note)
    settings = local_settings(search_server, "tavily", max_retries=3, retry_delay=60)
    assert (await search_for(search_session(tmp_path, settings), "cats")).hits
    assert [round(seconds) for seconds in slept] == [5]


async def test_an_engine_that_asks_for_time_gets_it(
    search_server: SearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_server.script["tavily"] = [Behaviour(status=429, headers={"Retry-After": "7"})]
    search_server.results["tavily"] = found(5)
    clock = Clock()
    monkeypatch.setattr(searching, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    settings = local_settings(search_server, "tavily", max_retries=1)
    assert (await search_for(search_session(tmp_path, settings), "cats")).hits
    assert clock.slept == [7]


async def test_an_engine_that_asks_for_much_time_is_left_alone_for_the_run(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.script["tavily"] = [Behaviour(status=429, headers={"Retry-After": "600"})]
    search_server.results |= {"tavily": found(5), "brave": found(5)}
    settings = local_settings(search_server, "tavily", "brave", max_retries=3)
    session = search_session(tmp_path, settings)
    await search_for(session, "cats")
    report = await search_for(session, "dogs")
    assert len(search_server.asked("tavily")) == 1
    assert "left alone for" in report.attempts[0].problem
    session.configure(session.settings)
    await search_for(session, "cats")
    assert len(search_server.asked("tavily")) == 2, "a new run asks again"


async def test_nobody_waits_longer_than_a_search_may_take(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.script["tavily"] = [Behaviour(status=429, headers={"Retry-After": "600"})]
    settings = local_settings(search_server, "tavily", max_retries=3)
    async with asyncio.timeout(BACKSTOP_S):
        with pytest.raises(ToolError, match="429"):
            await search_for(search_session(tmp_path, settings), "cats")


async def test_the_same_question_is_asked_once_per_run(
    search_server: SearchServer, tmp_path: Path
) -> None:
    search_server.results["tavily"] = found(9)
    session = search_session(tmp_path, local_settings(search_server, "tavily"))
    first = await search_for(session, "big cats")
    assert await search_for(session, "  big   cats ", lang="en") is first
    await search_for(session, "big cats", num_results=6)
    await search_for(session, "big cats", lang="de")
    await search_for(session, "big cats", country="gb")
    await search_for(session, "dogs")
    assert len(search_server.requests) == 5
    session.configure(session.settings)
    await search_for(session, "big cats")
    assert len(search_server.requests) == 6


async def test_what_failed_or_found_nothing_is_asked_again(
    search_server: SearchServer, tmp_path: Path
) -> None:
    session = search_session(tmp_path, local_settings(search_server, "tavily"))
    await search_for(session, "cats")
    search_server.results["tavily"] = found(1)
    assert (await search_for(session, "cats")).hits


async def test_configured_language_and_country_count_unless_others_are_asked_for(
    search_server: SearchServer, tmp_path: Path
) -> None:
    settings = local_settings(search_server, "searxng", lang="de", country="at")
    session = search_session(tmp_path, settings)
    await search_for(session, "cats")
    await search_for(session, "cats", lang="fr")
    await search_for(session, "cats", lang="fr-CA")
    await search_for(session, "cats", country="ch")
    reported = [request.params["language"] for request in search_server.requests]
    assert reported == ["de-AT", "fr-AT", "fr-CA", "de-CH"]


@pytest.mark.parametrize(
    ("query", "given", "said"),
    [
        ("  ", {}, "empty"),
        ("x" * 3000, {}, "3000 characters"),
        ("x", {"num_results": 0}, "1 to 50"),
        ("x", {"num_results": 51}, "1 to 50"),
        ("x", {"lang": "English"}, "lang is 'English'"),
        ("x", {"country": "Germany"}, "country is 'germany'"),
    ],
)
async def test_wrong_values_are_named(
    tmp_path: Path, query: str, given: dict[str, Any], said: str
) -> None:
    session: Session = search_session(tmp_path, SearchSettings())
    with pytest.raises(ToolError, match=said):
        await search_for(session, query, **given)


async def test_a_cancelled_search_ends_at_once(search_server: SearchServer, tmp_path: Path) -> None:
    search_server.script["tavily"] = [Behaviour("silent")]
    session = search_session(tmp_path, local_settings(search_server, "tavily", "brave"))
    task = asyncio.create_task(search_for(session, "cats"))
    async with asyncio.timeout(BACKSTOP_S):
        while not search_server.asked("tavily"):  # noqa: ASYNC110  # the server is another thread
            await asyncio.sleep(POLL_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not search_server.asked("brave")
