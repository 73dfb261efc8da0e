"""Addresses, texts, locales and pages of results as pure functions."""

import pytest

from openmanus_graph.backends.search.engines import region
from openmanus_graph.backends.search.search_engine import (
    MAX_PAGES,
    EngineError,
    Hit,
    SearchQuery,
    is_web_address,
    page_key,
    paged,
    plain,
)
from openmanus_graph.backends.search.searching import SearchRun
from openmanus_graph.state.search_engines import (
    COUNTRY_NAMES,
    SearchLocale,
    SearchSettings,
    parse_search_locale,
)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/x",
        "https://www.a.example/x/",
        "https://A.example:443/x#part",
        "https://a.example/x?utm_source=n&gclid=1&fbclid=2",
        "https://a.example/x?&mc_cid=4",
        "https://a.example/%78",
    ],
)
def test_addresses_of_one_page_have_one_identity(url: str) -> None:
    assert page_key(url) == page_key("https://a.example/x")


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/y",
        "https://a.example/x?id=1",
        "https://a.example:8443/x",
        "https://b.a.example/x",
        "https://a.example/x#!/item/5",
        "https://a.example/x#/item/5",
        "https://a.example/x?utm=1",
    ],
)
def test_other_pages_have_another_identity(url: str) -> None:
    assert page_key(url) != page_key("https://a.example/x")


def test_the_order_of_parameters_does_not_matter() -> None:
    assert page_key("https://a.example/?b=2&a=1") == page_key("https://a.example?a=1&b=2")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "javascript:alert(1)",
        "ftp://a.example/",
        "/relative",
        "https://",
        "http://a.example:0/",
        "http://a.example:port/",
        "http://[::1",
        "https://a.example/ b",
        "https://a.example/\x00",
        "https://a.example/\ud800",
    ],
)
def test_what_cannot_be_opened_is_no_web_address(url: str) -> None:
    assert not is_web_address(url)


@pytest.mark.parametrize("url", ["https://a.example", "http://[::1]:80/", "https://köln.example/ö"])
def test_web_addresses(url: str) -> None:
    assert is_web_address(url)


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert plain("word " * 100, 20) == "word word word word…"


@pytest.mark.parametrize(
    ("lang", "country", "locale"),
    [
        ("en", "", SearchLocale("en", "us")),
        ("EN", "UK", SearchLocale("en", "gb")),
        (" de ", "AT", SearchLocale("de", "at")),
        ("de-CH", "", SearchLocale("de", "ch")),
        ("en_GB", "us", SearchLocale("en", "us")),
        ("zh-TW", "", SearchLocale("zh", "tw", traditional=True)),
        ("zh-Hant", "us", SearchLocale("zh", "us", traditional=True)),
        ("zh-Hans-TW", "", SearchLocale("zh", "tw")),
        ("zh", "cn", SearchLocale("zh", "cn")),
    ],
)
def test_codes_are_read_as_people_write_them(lang: str, country: str, locale: SearchLocale) -> None:
    assert parse_search_locale(lang, country) == locale


def test_the_usual_country_counts_when_nothing_else_says_one() -> None:
    assert parse_search_locale("de", "", "at").country == "at"
    assert parse_search_locale("de-CH", "", "at").country == "ch"


@pytest.mark.parametrize(("lang", "country"), [("English", ""), ("", ""), ("en", "usa"), ("e", "")])
def test_what_is_no_code_is_refused(lang: str, country: str) -> None:
    with pytest.raises(ValueError, match="code such as"):
        parse_search_locale(lang, country)


def test_countries_have_english_names() -> None:
    assert COUNTRY_NAMES["de"] == "germany"
    assert COUNTRY_NAMES["us"] == "united states"
    assert all(len(code) == 2 and name == name.lower() for code, name in COUNTRY_NAMES.items())


@pytest.mark.parametrize(
    ("locale", "backend", "code"),
    [
        (SearchLocale("en", "gb"), "duckduckgo", "uk-en"),
        (SearchLocale("ja", "jp"), "duckduckgo", "jp-jp"),
        (SearchLocale("zh", "tw", traditional=True), "duckduckgo", "tw-tzh"),
        (SearchLocale("zh", "cn"), "duckduckgo", "cn-zh"),
        (SearchLocale("de", "at"), "duckduckgo", "at-de"),
        (SearchLocale("ja", "jp"), "wikipedia", "jp-ja"),
        (SearchLocale("en", "gb"), "mojeek", "gb-en"),
    ],
)
def test_ddgs_is_given_the_locale_as_each_backend_reads_it(
    locale: SearchLocale, backend: str, code: str
) -> None:
    assert region(locale, backend) == code


def test_a_query_is_cut_at_a_word() -> None:
    assert SearchQuery("some words here").text_up_to(11) == "some words"
    assert SearchQuery("some words here").text_up_to(100, 2) == "some words"
    assert SearchQuery("x" * 50).text_up_to(10) == "x" * 10


def hits(*numbers: int) -> list[Hit]:
    return [Hit(f"t{n}", f"https://a.example/{n}") for n in numbers]


async def test_pages_are_asked_for_until_there_is_enough() -> None:
    asked: list[int] = []

    async def page(number: int) -> list[Hit]:
        asked.append(number)
        return hits(*range(number * 10, number * 10 + 10))

    assert len(await paged(page, 25, 10)) == 30
    assert asked == [0, 1, 2]


async def test_pages_end_with_a_short_one_or_at_the_limit() -> None:
    asked: list[int] = []

    async def same(number: int) -> list[Hit]:
        asked.append(number)
        return hits(*range(10)) if number == 0 else hits(*range(5, 15))

    assert len(await paged(same, 50, 10)) == 15
    assert asked == [0, 1]

    async def endless(number: int) -> list[Hit]:
        return hits(number)

    assert len(await paged(endless, 50, 1)) == MAX_PAGES


async def test_a_later_page_that_fails_does_not_cost_the_first() -> None:
    async def page(number: int) -> list[Hit]:
        if number:
            raise EngineError("over")
        return hits(*range(10))

    assert len(await paged(page, 25, 10)) == 10


def test_results_are_merged_without_duplicates_up_to_what_is_wanted() -> None:
    found = SearchRun(SearchQuery("cats", 3), SearchSettings(), {})
    found.add("one", [*hits(1), Hit("again", "http://www.a.example/1/?utm_source=x")], ())
    found.add("two", hits(1, 2, 3, 4), ("lang",))
    assert [(hit.title, hit.engine) for hit in found.hits] == [
        ("t1", "one"),
        ("t2", "two"),
        ("t3", "two"),
    ]
    assert [(item.engine, item.hits) for item in found.attempts.values()] == [
        ("one", 1),
        ("two", 2),
    ]
    assert found.complete
