"""The page without a model: the form that tries one, and the demo."""

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.test_page_access import violations
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.page import Tab, chromium
from tests.support.serving import Served
from tests.support.zygote import Zygote

KEY, WRONG = "sk-right-0123456789abcdefghij", "sk-wrong-0123456789abcdefghij"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def bare(tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server with nothing configured, whose log holds as much as it can."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENMANUS_MODEL"):
        monkeypatch.delenv(name, raising=False)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    options = ("--log-level", "DEBUG")
    with Served(tmp_path / "work", env, options, zygote) as served:
        yield served


def test_a_model_is_tried_and_kept_only_if_it_answers(
    bare: Served, browser: Browser, tmp_path: Path
) -> None:
    refusal = Reply(status=401, error={"message": f"Incorrect API key provided: {WRONG}"})
    first = Reply(status=401, error={"message": "You did not provide an API key."})
    with OpenAIServer([first, refusal, Reply(text="ready"), Reply(text="Hello.")]) as model:
        tab = Tab(browser, bare).open()
        page = tab.page
        form = page.locator(".welcome .setup")
        expect(form.get_by_label("Provider")).to_have_value("openai")
        assert "null" not in page.locator("body").inner_text()
        assert violations(tab) == []
        expect(page.get_by_role("textbox", name="Task", exact=True)).to_be_hidden()
        form.get_by_label("Address").fill("http://127.0.0.1:9/v1")
        form.get_by_label("Address").press("Tab")
        expect(form.get_by_text("Nobody answers there.")).to_be_visible()
        expect(form.get_by_label("Key")).to_be_hidden()
        form.get_by_label("Address").fill(model.base_url)
        form.get_by_label("Address").press("Tab")
        expect(form.get_by_label("Model")).to_have_value("test-model")
        expect(form.get_by_label("Key")).to_be_hidden()
        form.get_by_label("Model").fill("some-model")
        form.get_by_role("button", name="Test and save").click()
        expect(form.get_by_role("alert")).to_contain_text("401")
        form.get_by_label("Key").fill(WRONG)
        form.get_by_role("button", name="Test and save").click()
        expect(form.get_by_role("alert")).to_contain_text("401")
        assert WRONG not in page.content()
        form.get_by_label("Key").fill(KEY)
        form.get_by_role("button", name="Test and save").click()
        expect(page.get_by_role("textbox", name="Task", exact=True)).to_be_focused()
        expect(form).to_be_hidden()
        expect(page.locator(".options-box summary")).to_contain_text("openai:some-model")
        page.keyboard.type("Say hello.")
        page.keyboard.press("Enter")
        tab.sees("Hello.")
        assert model.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        tab.close()
    keys = tmp_path / "config" / "openmanus" / "credentials.json"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert list(json.loads(keys.read_text()).values()) == [{"key": KEY}]
    bare.stop()
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and path != keys
               and re.search(b"sk-(right|wrong)-0123", path.read_bytes())]  # fmt: skip
    assert holding == []


def test_values_that_mcp_servers_want_are_asked_for(
    bare: Served, browser: Browser, tmp_path: Path
) -> None:
    server = {"command": "node", "args": ["server.js"], "env": {"TOKEN": "${input:shop-token}"}}
    wanted = {"id": "shop-token", "description": "Token of the shop", "password": True}
    path = tmp_path / "config" / "openmanus" / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"servers": {"shop": server}, "inputs": [wanted]}))
    tab = Tab(browser, bare).open()
    form = tab.page.locator(".inputs")
    expect(form.get_by_label("Token of the shop")).to_have_attribute("type", "password")
    form.get_by_label("Token of the shop").fill("t0ken-of-the-shop")
    form.get_by_role("button", name="Keep it").click()
    expect(form.get_by_label("Token of the shop")).to_be_hidden()
    tab.close()
    kept = json.loads((path.parent / "credentials.json").read_text())
    assert kept == {f"mcp-input {path} shop-token": {"key": "t0ken-of-the-shop"}}


@pytest.mark.exhaustive
def test_the_demo_is_watched_without_a_key(bare: Served, browser: Browser) -> None:
    tab = Tab(browser, bare).open()
    tab.page.get_by_role("button", name="Watch the demo").click()
    tab.page.wait_for_url(re.compile("/app/t/"))
    tab.until("Finished")
    tab.sees(re.compile("Gentoo"))
    expect(tab.page.locator(".banner", has_text="This is the demo")).to_be_visible()
    tab.page.get_by_role("tab", name="Files").click()
    expect(tab.page.locator(".files")).to_contain_text(".png")
    expect(tab.page.get_by_role("textbox", name="Next message")).to_be_hidden()
    tab.page.get_by_role("button", name="New task").click()
    tab.page.get_by_role("button", name="Watch the demo").click()
    tab.page.wait_for_url(re.compile("/app/t/"))
    tab.until("Finished")
    tab.close()
