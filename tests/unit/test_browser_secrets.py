"""Secrets are typed by name, on their own site only, and shown nowhere."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.pages import state_for_request
from openmanus_graph.backends.browser.secrets import Secrets
from openmanus_graph.config.homes import risky_settings, without_risks
from openmanus_graph.config.resolve import all_layers, section
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.state.context import Context
from openmanus_graph.state.setting_declaration import SiteSecret, parse_secret
from openmanus_graph.state.settings import BrowserSettings
from tests.support.awkward_site import awkward_site
from tests.support.browsing import Browsing
from tests.support.layers import layer_of

pytestmark = pytest.mark.slow

WORD = "hunter2-secret"


def secret(name: str, value: str, domain: str) -> SiteSecret:
    return SiteSecret(name, SecretStr(value), domain)


@pytest.fixture(scope="module")
def awkward() -> Iterator[str]:
    with awkward_site() as url:
        yield url


@pytest.fixture
def use(tmp_path: Path, awkward: str) -> Iterator[Browsing]:
    host = awkward.partition("//")[2]
    known = (secret("word", WORD, host), secret("bank", "4711-0815", "bank.example"))
    browsing = Browsing(tmp_path / "work", BrowserSettings(secrets=known))
    with contextlib.closing(browsing.session):
        yield browsing


async def value_of(use: Browsing, field: str) -> str:
    page = use.browser.current.page
    return await browser_loop.run(lambda: page.input_value(f"[name={field}]"))


@pytest.mark.parametrize(("label", "field"), [("Word", "pass"), ("Plain", "plain")])
async def test_secret_is_typed_and_never_shown(
    use: Browsing, awkward: str, label: str, field: str
) -> None:
    seen = await use("go_to_url", url=f"{awkward}/form")
    assert "<secret>word</secret>" in seen
    assert "bank" not in seen
    index = use.index(f'"{label}"')
    seen = await use("input_text", index=index, text="<secret>word</secret>")
    assert await value_of(use, field) == WORD
    everything = seen + await use("get_state") + await use("extract_content")
    state, picture = await state_for_request(use.session, picture=True)
    assert WORD not in everything + state
    assert picture is not None


async def test_plain_field_is_masked_in_pictures(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/form")
    await use("input_text", index=use.index("Plain"), text="<secret>word</secret>")
    page = use.browser.current.page
    style = "getComputedStyle(document.querySelector('[name=plain]')).webkitTextSecurity"
    assert await browser_loop.run(lambda: page.evaluate(style)) == "disc"


async def test_echoed_secret_is_redacted_and_not_photographed(use: Browsing, awkward: str) -> None:
    seen = await use("go_to_url", url=f"{awkward}/echoed")
    assert "Your word is <secret>word</secret>." in seen
    assert WORD not in await use("extract_content")
    page = use.browser.current.page
    await browser_loop.run(lambda: page.evaluate("document.title = 'Of hunter2/secret'"))
    await browser_loop.run(lambda: page.evaluate("word => { location.hash = word }", WORD))
    assert use.browser.handle_state().endswith("/echoed#<secret>word</secret>")
    assert "Saved the page as downloads/file.pdf" in await use("save_pdf")
    asked: list[str] = []

    async def model(system: str, question: str) -> str:
        asked.append(question)
        return "It is <secret>word</secret>."

    use.model = model
    assert WORD not in await use("extract_content", goal="the word")
    assert WORD not in asked[0]
    text, picture = await state_for_request(use.session, picture=True)
    assert WORD not in text
    assert picture is None


async def test_secret_of_another_site_is_refused(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/form")
    index = use.index("Plain")
    seen = await use.observe("input_text", index=index, text="<secret>bank</secret>")
    assert seen.failed
    assert "bank.example only" in seen.text
    unknown = await use.observe("input_text", index=index, text="<secret>nothing</secret>")
    assert "there is no secret nothing" in unknown.text
    assert await value_of(use, "plain") == ""


async def test_secret_in_a_frame_of_another_site_is_refused(use: Browsing, awkward: str) -> None:
    # The outer page is on the secret's site, the field's frame is not.
    other = awkward.replace("127.0.0.1", "localhost")
    await use("go_to_url", url=f"{awkward}/plain")
    page = use.browser.current.page
    frame = (
        f"document.body.insertAdjacentHTML('beforeend', '<iframe src=\"{other}/form\"></iframe>')"
    )
    await browser_loop.run(lambda: page.evaluate(frame))
    await use.until("Greet", await use("get_state"))
    seen = await use.observe("input_text", index=use.index("Plain"), text="<secret>word</secret>")
    assert seen.failed
    assert "belongs to localhost" in seen.text


async def test_secrets_go_into_fields_only(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/form")
    for args in (
        {"action": "send_keys", "keys": "<secret>word</secret>"},
        {"action": "go_to_url", "url": f"{awkward}/plain?q=<secret>word</secret>"},
    ):
        seen = await use.observe(**args)
        assert seen.failed
        assert WORD not in seen.text


async def test_http_login_comes_from_a_secret(tmp_path: Path, awkward: str) -> None:
    host = awkward.partition("//")[2]
    known = (secret("http_auth", "ada:lovelace", host),)
    use = Browsing(tmp_path)
    with contextlib.closing(use.session):
        assert f"PASSWORD@{host}." in await use("go_to_url", url=f"{awkward}/login")
        use.configure(browser=BrowserSettings(secrets=known))
        assert "Welcome inside" in await use("go_to_url", url=f"{awkward}/login")


@pytest.mark.parametrize(
    ("domain", "url", "fits"),
    [
        ("example.com", "https://example.com/login", True),
        ("example.com", "https://accounts.example.com", True),
        ("example.com", "http://example.com", False),
        ("example.com", "https://example.com.evil.net", False),
        ("example.com", "https://notexample.com", False),
        ("example.com", "https://example.com@evil.net", False),
        ("example.com:8443", "https://example.com", False),
        ("example.com:8443", "https://example.com:8443", True),
        ("localhost", "http://localhost:3000", True),
        ("localhost", "http://evil.localhost:3000", False),
        ("example.com", "null", False),
        ("example.com", "about:blank", False),
    ],
)
def test_site_of_a_secret(domain: str, url: str, fits: bool) -> None:
    secrets = Secrets((secret("word", WORD, domain),))
    assert (secrets.names_for(url) == ["word"]) == fits
    if fits:
        assert secrets.fill_in("a <secret>word</secret>", url) == f"a {WORD}"
    else:
        with pytest.raises(ToolError):
            secrets.fill_in("<secret>word</secret>", url)


def test_redaction_knows_how_values_are_written() -> None:
    secrets = Secrets(
        (secret("word", 'pä&ss "x"/1', "a.example"), secret("long", "z" * 60, "b.example"))
    )
    for written in ('pä&ss "x"/1', "p%C3%A4%26ss%20%22x%22%2F1", "pä&amp;ss &quot;x&quot;/1",
                    json.dumps('pä&ss "x"/1')):  # fmt: skip
        assert "ss" not in secrets.redacted(f"<{written}>")
    assert "zzz" not in secrets.redacted("z" * 41)


def test_where_secrets_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMANUS_SECRET_LOGIN", "from@env@a.example")
    path = tmp_path / "openmanus.toml"
    path.write_text('[browser.secrets]\nlogin = "file@a.example"\npin = "1234@b.example"\n')
    options = RunOptions(secret=["word=x=y@c.example:8080"], config=str(path))
    settings = section(BrowserSettings, all_layers(to_context(options))[0])
    assert [(s.name, s.value.get_secret_value(), s.domain) for s in settings.secrets] == [
        ("word", "x=y", "c.example:8080"),
        ("login", "from@env", "a.example"),
        ("pin", "1234", "b.example"),
    ]
    assert "secret" not in options.stored()
    assert "x=y" not in repr(settings) + repr(to_context(options))
    assert options.over({"max_steps": 3}).secret == options.secret


@pytest.mark.parametrize(
    "text", ["hidden", "word=@a.example", "word=x", "=x@a.example", "a b=x@c.d"]
)
def test_secret_that_is_not_understood_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_secret(SecretStr(text))
    assert text not in str(raised.value)


def test_settings_of_the_reference(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        """
        [browser]
        headless = false
        disable_security = true
        extra_chromium_args = ["--mute-audio"]
        chrome_instance_path = ""
        wss_url = ""
        cdp_url = ""
        max_content_length = 5000
        [browser.proxy]
        server = "http://proxy.example:8080"
        username = "ada"
        password = "lovelace"
        """
    )
    layer = layer_of(path)
    context = Context(browser={"nonsense": 1}, config=str(path))
    layers, odd = all_layers(context)
    settings = section(BrowserSettings, layers)
    assert odd == ["browser.nonsense is not known here and was left out."]
    assert settings.headless is False
    assert settings.disable_security
    assert settings.extra_chromium_args == ("--mute-audio",)
    assert (settings.chrome_instance_path, settings.cdp_url, settings.wss_url) == (None, None, None)
    assert settings.max_content_length == 5000
    assert settings.proxy is not None
    assert settings.proxy.password.get_secret_value() == "lovelace"
    assert "lovelace" not in repr(settings)
    assert set(risky_settings(layer)["browser"]) == {
        "disable_security", "extra_chromium_args", "proxy"
    }  # fmt: skip
    tamed = section(BrowserSettings, [without_risks(layer)])
    assert tamed == BrowserSettings(headless=False, max_content_length=5000)


def test_wrong_settings_are_named() -> None:
    for given in ({"headless": "perhaps"}, {"cdp_url": "http://a", "profile": "b"}):
        with pytest.raises(ConfigError, match="browser"):
            section(BrowserSettings, all_layers(Context(browser=given))[0])


def test_what_a_person_typed_is_hidden_in_every_form_it_may_take() -> None:
    secrets = Secrets((secret("word", "tea", "bank.example"),), {"alice & co", "tea at six"})
    seen = "alice &amp; co ?q=alice+%26+co tea at six, tea"
    hidden = "[typed by the person]"
    assert secrets.redacted(seen) == f"{hidden} ?q={hidden} {hidden}, <secret>word</secret>"
    assert secrets.names_for("https://bank.example/") == ["word"]
