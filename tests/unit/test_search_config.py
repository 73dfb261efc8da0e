"""`[search]`: OpenManus's keys and ours, environment, trust, what is wrong with a value."""

from pathlib import Path
from typing import Any

import pytest

from openmanus_graph import Context
from openmanus_graph.backends.search.searching import choose_engines
from openmanus_graph.config.homes import risky_settings, trust
from openmanus_graph.config.resolve import all_layers, read_layers, resolve_settings, section
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.doctor import doctor
from openmanus_graph.state.search_engines import SearchSettings
from tests.support.layers import layer_of


def written(text: str, name: str = "openmanus.toml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path.absolute()


def resolved(**search: Any) -> SearchSettings:
    return section(SearchSettings, all_layers(Context(search=search))[0])


OPENMANUS = """
[llm]
model = "m"

[search]
engine = "Google"
fallback_engines = ["DuckDuckGo", "Baidu", "Bing"]
retry_delay = 60
max_retries = 3
lang = "zh"
country = "cn"
"""


def test_nothing_is_set_by_default() -> None:
    assert resolved() == SearchSettings()


def test_openmanus_keys_are_honoured() -> None:
    written(OPENMANUS, "config/config.toml")
    assert resolved() == SearchSettings(
        engine="google",
        fallback_engines=("duckduckgo", "baidu", "duckduckgo"),
        retry_delay=60,
        max_retries=3,
        lang="zh",
        country="cn",
    )


BING = "Bing's search interface was shut down in 2025; use duckduckgo"


@pytest.mark.parametrize(
    "text",
    [
        OPENMANUS,
        '[search]\nengine = "Bing"\n',
        '[search]\nengine = " BING "\nfallback_engines = ["bing"]\n',
    ],
)
def test_an_old_file_that_names_bing_works_with_a_warning(text: str) -> None:
    written(text)
    settings = resolve_settings(Context(), "t", without_model=True)
    (warning,) = (each for each in settings.warnings if "search" in each)
    assert BING in warning
    assert "bing" not in {settings.search.engine, *(settings.search.fallback_engines or ())}
    assert choose_engines(settings.search).engines


def test_a_key_of_bing_is_named_as_useless_and_never_shown() -> None:
    layer = layer_of(written('[search]\nbing_api_key = "secret-key"\n'))
    assert layer.unknown == ["search.bing_api_key"]


def test_a_key_of_bing_in_the_environment_is_nothing_to_warn_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BING_API_KEY", "left over")
    context = Context(search={"engine": "mojeek"})
    assert resolve_settings(context, "t", without_model=True).warnings == ()


def test_a_config_of_another_program_is_left_alone() -> None:
    for text in ('[search]\nengine = "none of ours"\n', "{{ a template }}\n"):
        written(text, "config/config.toml")
        assert resolved() == SearchSettings()


def test_what_the_caller_passes_goes_before_the_files() -> None:
    written('[search]\nengine = "mojeek"\nlang = "de"\ntimeout_s = 3\n')
    settings = resolved(engine="Wikipedia", fallback_engines=[])
    assert (settings.engine, settings.fallback_engines) == ("wikipedia", ())
    assert (settings.lang, settings.timeout_s) == ("de", 3)


def test_keys_come_from_the_environment_before_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    written('[search]\ntavily_api_key = "of the file"\nbaidu_api_key = "b"\n')
    monkeypatch.setenv("TAVILY_API_KEY", "of the environment")
    monkeypatch.setenv("BRAVE_SEARCH_API_KEY", " brave ")
    monkeypatch.setenv("BAIDU_API_KEY", "")
    monkeypatch.setenv("GOOGLE_API_KEY", "g")
    monkeypatch.setenv("GOOGLE_CSE_ID", "id")
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:8080/")
    settings = resolved()
    assert {name: key.get_secret_value() for name, key in settings.keys.items()} == {
        "tavily": "of the environment",
        "brave": "brave",
        "google": "g",
        "baidu": "b",
    }
    assert (settings.google_cse_id, settings.urls) == ("id", {"searxng": "http://127.0.0.1:8080"})
    assert "of the environment" not in repr(settings)
    assert resolved(tavily_api_key="of the caller").keys["tavily"].get_secret_value() == (
        "of the caller"
    )


def test_addresses_of_all_places_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = '[search]\nsearxng_url = "http://mine.test"\nurls = {brave = "https://b.test"}\n'
    written(mine, "config/openmanus/config.toml")
    assert resolved().urls == {"searxng": "http://mine.test", "brave": "https://b.test"}
    monkeypatch.setenv("SEARXNG_URL", "http://env.test")
    assert resolved(urls={"brave": "https://c.test/"}).urls == {
        "searxng": "http://env.test",
        "brave": "https://c.test",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('engine = "Gogle"', "There is no search engine 'Gogle'"),
        ('fallback_engines = ["altavista"]', "duckduckgo"),
        ('lang = "English"', "lang is 'English'"),
        ('country = "USA"', "country is 'usa'"),
        ('searxng_url = "localhost:8080"', "not a web address"),
        ('urls = {brave = "http://b.test:port"}', "not a web address"),
        ('urls = {bling = "http://b.test"}', r"search\.urls\.bling"),
        ("timeout_s = 0", r"search\.timeout_s"),
        ("total_timeout_s = 3600", r"search\.total_timeout_s"),
        ('tavily_api_key = "a\\nb"', "characters that no key has"),
        ("tavily_api_key = 123456789", r"search\.tavily_api_key"),
    ],
)
def test_a_wrong_value_is_named(text: str, said: str) -> None:
    path = written(f"[search]\n{text}\n")
    with pytest.raises(ConfigError, match=said) as caught:
        section(SearchSettings, [layer_of(path)])
    assert "123456789" not in str(caught.value)


def test_a_wrong_value_of_the_caller_is_named() -> None:
    with pytest.raises(ConfigError, match=r"search\.max_retries"):
        resolved(max_retries=-1)


def test_unknown_keys_are_named_in_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENMANUS_MODEL", "openai:m")
    written('[search]\nengin = "Google"\n')
    warnings = resolve_settings(Context(search={"langs": "de"}), "t").warnings
    assert any("search.engin is not known" in text for text in warnings)
    assert any("search.langs is not known" in text for text in warnings)


def test_an_untrusted_folder_sends_no_searches_elsewhere() -> None:
    path = written(
        '[search]\nsearxng_url = "http://thief.test"\nurls = {tavily = "http://thief.test"}\n'
        'engine = "tavily"\n'
    )
    assert resolved().urls == {}
    assert resolved().engine == "tavily"
    assert "search.urls" in read_layers(None)[1][-1]
    layer = layer_of(path)
    assert set(risky_settings(layer)) == {"search.searxng_url", "search.urls"}
    trust(Path.cwd(), layer)
    assert resolved().urls == {"searxng": "http://thief.test", "tavily": "http://thief.test"}


def test_doctor_says_which_engines_are_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "secret-of-mine")
    written('[search]\nengine = "Tavily"\nfallback_engines = ["DuckDuckGo", "Baidu"]\n')
    doctor()
    said = capsys.readouterr().out
    assert "✓ search: tavily, ddgs:duckduckgo\n" in said
    assert "· search: baidu is not asked; set BAIDU_API_KEY" in said
    assert "secret-of-mine" not in said


def test_doctor_says_when_no_engine_is_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    written('[search]\nengine = "tavily"\nfallback_engines = []\n')
    assert doctor() == 1
    assert "✗ search: no engine is set up" in capsys.readouterr().out


def test_doctor_speaks_of_a_wrong_engine(capsys: pytest.CaptureFixture[str]) -> None:
    written('[search]\nengine = "altavista"\n')
    assert doctor() == 1
    assert "✗ search: There is no search engine 'altavista'" in capsys.readouterr().out
