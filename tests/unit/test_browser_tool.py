"""`browser_use` on pages that behave as pages on the web do."""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import ToolMessage

from openmanus_graph.backends.browser import tab
from openmanus_graph.backends.browser.action_specs import ACTION_SPECS
from openmanus_graph.backends.browser.actions import ACTION_HANDLERS
from openmanus_graph.backends.browser.browser_session import MAX_TABS
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.pages import state_for_request
from openmanus_graph.conversation.history import recently_called
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.mcp_server.client import asks_for_screenshot, with_screenshot
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.settings import BrowserSettings
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.browser_use import (
    ActionName,
    addresses_of,
    browser_use,
    effect_of,
)
from tests.support.awkward_site import awkward_site
from tests.support.browsing import Browsing
from tests.support.cli import until
from tests.support.graphs import calls
from tests.support.pages import PageServer
from tests.support.search_engines import Found, SearchServer
from tests.support.searching import local_settings

ALLOWED_BY_DEV = (
    "os.stat", "os.listdir", "os.remove", "io.BufferedReader.read", "io.BufferedWriter.write",
    "io.TextIOWrapper.read", "io.TextIOWrapper.write", "threading.Lock.acquire",
)  # fmt: skip
REFERENCE = (
    "go_to_url", "go_back", "web_search", "click_element", "input_text", "scroll_down",
    "scroll_up", "scroll_to_text", "send_keys", "get_dropdown_options", "select_dropdown_option",
    "extract_content", "switch_tab", "open_tab", "close_tab", "wait",
)  # fmt: skip
NEW = ("refresh", "hover", "upload_file", "drag_and_drop", "handle_dialog", "save_pdf", "click_at")


@pytest.fixture(scope="module")
def awkward() -> Iterator[str]:
    with awkward_site() as url:
        yield url


@pytest.fixture(autouse=True)
def _as_under_langgraph_dev() -> Iterator[None]:
    """Refuse what `langgraph dev` refuses on an event loop, the browser's own included."""
    with blockbuster_ctx("openmanus_graph") as detector:
        for name, function in detector.functions.items():
            if name.startswith("os.path.") or name in ALLOWED_BY_DEV:
                function.deactivate()
        yield


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Browsing]:
    browsing = Browsing(tmp_path / "work")
    with contextlib.closing(browsing.session):
        yield browsing


OF_ONE_ACTION = {"tab_id", "query", "keys"}
"""Arguments whose own description says what they are for."""


def test_schema_has_every_action_and_is_small() -> None:
    [schema] = Toolset({browser_use.name: browser_use}, None).definitions
    properties = schema["function"]["parameters"]["properties"]
    listed = re.findall(r"(\w+)(?:\(([^)]*)\))?[,.]", properties["action"]["description"])
    actions = dict(listed)
    assert {*REFERENCE, *NEW} <= set(actions)
    assert set(actions) == set(ACTION_SPECS) == {*ACTION_HANDLERS, "extract_content", "web_search"}
    assert set(actions) == set(get_args(ActionName))
    for name, spec in ACTION_SPECS.items():
        given = re.sub(r": [^|]*", "", actions[name])  # what an argument holds
        named = re.findall(r"(\w+)(\??)", given)
        needed = {argument for argument, maybe in named if not maybe} | OF_ONE_ACTION
        assert {*spec.required} <= needed, name
        assert {argument for argument, _ in named} <= {*properties}, name
    assert len(json.dumps(schema, separators=(",", ":"))) / 4 < 400
    names = set(properties)
    assert {"url", "index", "text", "scroll_amount", "tab_id", "query", "goal", "keys"} <= names


def test_an_unknown_action_is_answered_with_all_of_them() -> None:
    with pytest.raises(ToolError) as refused:
        Toolset({browser_use.name: browser_use}, None).check("browser_use", {"action": "click"})
    assert all(action in str(refused.value) for action in ACTION_SPECS)


def test_only_actions_on_a_page_are_external() -> None:
    assert effect_of({"action": "click_element"}) == "external"
    assert effect_of({"action": "input_text"}) == "external"
    assert effect_of({"action": "scroll_down"}) == "read_only"
    assert effect_of({"action": "extract_content"}) == "read_only"
    traits = traits_of(browser_use)
    assert traits.effect_of({"action": "send_keys"}) == "external"
    assert (traits.approval, traits.untrusted, traits.resource) == (False, True, "browser")
    assert addresses_of({"action": "open_tab", "url": "https://a.example"}) == ["https://a.example"]


@pytest.mark.slow
async def test_page_is_shown_whole_then_only_what_changed(use: Browsing, awkward: str) -> None:
    assert "[1] textbox" in await use("go_to_url", url=f"{awkward}/form")
    await use("input_text", index=use.index("User"), text="Ada")
    seen = await use.click("Greet")
    assert "Hello Ada" in seen
    assert "Form" not in seen
    assert "Form" in await use("get_state")


@pytest.mark.parametrize(
    ("action", "missing"),
    [("go_to_url", "url"), ("input_text", "index (or label) and text"), ("click_at", "x and y"),
     ("drag_and_drop", "index (or label)"), ("send_keys", "keys"), ("web_search", "query"),
     ("switch_tab", "tab_id")],
)  # fmt: skip
async def test_missing_parameter_is_named(used: Browsing, action: str, missing: str) -> None:
    seen = await used.observe(action)
    assert seen.failed
    assert seen.text == f"{action} needs {missing}. Call it again with that."


async def test_gone_index_gives_the_current_list(used: Browsing, awkward: str) -> None:
    await used("go_to_url", url=f"{awkward}/form")
    seen = await used.observe("click_element", index=4711)
    assert seen.failed
    assert "Greet" in seen.text


@pytest.mark.parametrize(
    ("address", "words"),
    [("http://127.0.0.1:81/", "cannot be reached"), ("file:///etc/passwd", "of the workspace only"),
     ("http://169.254.169.254/latest", "not reached"), ("http://10.0.0.1/", "--allow-host"),
     ("https://no-such-host.invalid/", "no host"), ("javascript:alert(1)", "only http and https"),
     ("chrome://version", "only http and https"), ("not a url", "neither a web address nor"),
     ("hello", "neither a web address nor"), ("localhost:81", "cannot be reached"),
     ("  ", "go_to_url needs url")],
)  # fmt: skip
async def test_refused_and_dead_addresses_say_why(used: Browsing, address: str, words: str) -> None:
    seen = await used.observe("go_to_url", url=address)
    assert seen.failed
    assert words in seen.text


async def test_a_link_is_written_without_its_site_and_opened_with_it(
    used: Browsing, awkward: str
) -> None:
    await used("go_to_url", url=f"{awkward}/form")
    seen = await used.observe("go_to_url", url="/plain")
    assert seen.failed
    assert f"On the site of this page it is {awkward}/plain" in seen.text
    assert not addresses_of({"url": " /plain"})
    assert addresses_of({"url": "//bad.example"}) == ["https://bad.example"]


async def test_http_errors_are_reported_and_shown(used: Browsing, awkward: str) -> None:
    seen = await used("go_to_url", url=f"{awkward}/nothing")
    assert "HTTP 404" in seen
    assert "No such page" in seen
    assert "HTTP 500" in await used("go_to_url", url=f"{awkward}/broken")


async def test_an_answer_without_a_page_and_a_wrong_charset_are_reported(
    use: Browsing, awkward: str
) -> None:
    assert "shows no page yet" in await use("click_element", index=1)
    seen = await use.observe("go_to_url", url=f"{awkward}/nocontent")
    assert seen.failed
    assert "HTTP 204" in seen.text
    assert "read it with fetch_page" in await use("go_to_url", url=f"{awkward}/garbled")
    assert "garbled" not in await use("go_to_url", url=f"{awkward}/plain")


async def test_redirect_to_a_private_address_is_reported_as_refused(
    use: Browsing, awkward: str
) -> None:
    use.configure(allow_hosts=(awkward.split("/")[2],))
    for path in ("inwards", "next-door"):
        seen = await use.observe("go_to_url", url=f"{awkward}/{path}")
        assert seen.failed
        assert "--allow-host" in seen.text
        assert not seen.trusted_text, "the server has chosen the place"
    assert (await use.observe("go_to_url", url="http://10.0.0.1/")).trusted_text


async def test_a_redirect_to_a_file_is_told(used: Browsing) -> None:
    with PageServer() as site:
        seen = await used.observe("go_to_url", url=site.url("/redirect?to=file:///etc/passwd"))
    assert seen.failed
    assert "such as a file of this machine" in seen.text


async def test_endless_redirect_ends(used: Browsing, awkward: str) -> None:
    seen = await used.observe("go_to_url", url=f"{awkward}/circle")
    assert seen.failed
    assert "circle" in seen.text


async def test_page_that_never_finishes_is_shown_as_far_as_it_is(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmanus_graph.backends.browser.pages.SETTLE_S", 1.0)
    seen = await use("go_to_url", url=f"{awkward}/unfinished")
    assert "First part" in seen
    assert "still loading" in seen


async def test_page_that_is_too_large_is_not_loaded_to_its_end(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmanus_graph.backends.browser.pages.SETTLE_S", 1.0)
    seen = await use("go_to_url", url=f"{awkward}/vast")
    assert "First part" in seen
    assert "too large (60.0 MB): its loading was stopped" in seen
    assert "loading" not in await use("get_state")


async def test_silent_server_is_given_up(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr("openmanus_graph.backends.browser.pages.RESPONSE_S", 0.5)
        seen = await use.observe("go_to_url", url=f"{awkward}/silent")
    assert seen.failed
    assert "did not answer within" in seen.text
    assert "Plain page" in await use("go_to_url", url=f"{awkward}/plain")


async def test_alert_is_reported_and_accepted(used: Browsing, awkward: str) -> None:
    await used("go_to_url", url=f"{awkward}/dialogs")
    seen = await used.click("Alert")
    assert 'alert: "Mind the gap"' in seen
    assert "handle_dialog" not in seen


async def test_confirm_waits_for_its_answer(used: Browsing, awkward: str) -> None:
    await used("go_to_url", url=f"{awkward}/dialogs")
    seen = await used.click("Confirm")
    assert '"Delete all?"' in seen
    blocked = await used.observe("click_element", index=1)
    assert blocked.failed
    assert "Nothing was done. A confirm dialog is open" in blocked.text
    assert "confirmed false" in await used("handle_dialog", accept=False)
    await used.click("Confirm")
    assert "confirmed true" in await used("handle_dialog")


async def test_prompt_gets_a_text(used: Browsing, awkward: str) -> None:
    await used("go_to_url", url=f"{awkward}/dialogs")
    assert "suggested: 'Bob'" in await used.click("Prompt")
    assert "name Ada" in await used("handle_dialog", text="Ada")
    assert (await used.observe("handle_dialog")).failed


@pytest.mark.slow
async def test_leaving_a_page_with_unsaved_text_is_asked(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/dialogs")
    await use("input_text", index=use.index("Text"), text="x")
    assert "asks whether to leave" in await use("go_to_url", url=f"{awkward}/plain")
    await use("handle_dialog", accept=False)
    assert "/dialogs" in await use("get_state")
    await use("go_to_url", url=f"{awkward}/plain")
    assert "Plain page" in await use("handle_dialog", accept=True)


async def test_unanswered_dialog_does_not_hang_for_ever(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tab, "UNANSWERED_S", 0.2)
    await use("go_to_url", url=f"{awkward}/dialogs")
    await use.click("Confirm")
    seen = await use("get_state")
    seen = await use.until("was not answered", seen)
    assert "confirmed false" in await use("get_state")


async def test_new_tab_becomes_the_current_one_and_tabs_are_managed(
    use: Browsing, awkward: str
) -> None:
    await use("go_to_url", url=f"{awkward}/tabs")
    seen = await use.click("New tab")
    assert "tab 2 (current)" in seen
    assert "Plain page" in seen
    assert "Flood" in await use("switch_tab", tab_id=1)
    assert "Closed: tab 2." in await use("close_tab", tab_id=2)
    assert "There is no tab 2" in await use("switch_tab", tab_id=2)
    assert "tab 3 (current)" in await use("open_tab", url=f"{awkward}/plain")


async def test_tab_that_takes_its_time_is_waited_for(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/tabs")
    assert "took its time" in await use.click("Late tab")


async def test_page_that_closes_itself(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/tabs")
    await use("open_tab", url=f"{awkward}/plain")
    await use("switch_tab", tab_id=1)
    assert "Close me" in await use.click("Open")
    await use.until("Flood", await use.click("Close me"))
    assert (list(use.browser.tabs), use.browser.current.id) == ([1, 2], 1)  # where it was opened


async def test_closing_the_last_tab(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    assert "No tab is open" in await use("close_tab")
    assert "Plain page" in await use("go_to_url", url=f"{awkward}/plain")


@pytest.mark.slow
async def test_flood_of_windows_is_bounded(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/tabs")
    seen = await use.click("Flood")
    seen = await use.until("closed at once", seen)
    assert len(use.browser.tabs) <= MAX_TABS


async def test_download_lands_in_the_workspace(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/files")
    assert "Downloaded downloads/report.txt (17 bytes)" in await use.click("Report")
    again = await use.click("Report")
    assert "downloads/report (2).txt" in again
    root = use.session.workspace.root
    assert (root / "downloads/report.txt").read_text() == "quarterly numbers"


@pytest.mark.slow
async def test_address_of_a_file_is_a_download(use: Browsing, awkward: str) -> None:
    seen = await use("go_to_url", url=f"{awkward}/report")
    assert "Downloaded downloads/report.txt" in seen
    assert "quarterly numbers" in await use("extract_content")


async def test_download_cannot_leave_its_folder(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/files")
    assert "Downloaded downloads/" in await use.click("Traversal")
    root = use.session.workspace.root
    assert [path.parent.name for path in root.rglob("*bashrc*")] == ["downloads"]


@pytest.mark.slow
async def test_downloads_folder_that_is_a_link_outside_is_refused(
    use: Browsing, awkward: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (use.session.workspace.root / "downloads").symlink_to(outside)
    assert "outside the workspace" in await use("go_to_url", url=f"{awkward}/report")
    assert not list(outside.iterdir())


@pytest.mark.slow
async def test_waiting_ends_with_the_download_it_is_for(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmanus_graph.backends.browser.tab.DOWNLOAD_WAIT_S", 0.0)
    await use("go_to_url", url=f"{awkward}/files")
    assert "Still downloading slow.bin" in await use.click("Slow")
    seen = await use("wait", seconds=60)
    assert "Downloaded downloads/slow.bin" in seen
    assert "Waited 60" not in seen


async def test_endless_download_is_stopped(use: Browsing, awkward: str) -> None:
    use.configure(browser=BrowserSettings(max_download_mb=1))
    await use("go_to_url", url=f"{awkward}/files")
    seen = await use.click("Endless")
    seen = await use.until("larger than 1", seen)
    assert not (use.session.workspace.root / "downloads").exists()


async def test_file_chooser_is_reported_and_filled(use: Browsing, awkward: str) -> None:
    (use.session.workspace.root / "a.txt").write_text("contents")
    await use("go_to_url", url=f"{awkward}/files")
    assert "asks for a file" in await use.click("Choose")
    assert "a.txt: contents" in await use("upload_file", text="a.txt")
    (use.session.workspace.root / "b.txt").write_text("more")
    seen = await use("upload_file", text="b.txt", index=use.index("Choose"))
    assert "b.txt: more" in seen
    assert "asks for a file" not in seen


async def test_upload_reaches_only_the_workspace(
    use: Browsing, awkward: str, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("secret")
    (use.session.workspace.root / "link").symlink_to(tmp_path / "key")
    await use("go_to_url", url=f"{awkward}/files")
    await use.click("Choose")
    for name in ("../key", "/etc/passwd", "link", "nothing.txt"):
        assert (await use.observe("upload_file", text=name)).failed


async def test_permissions_are_denied(used: Browsing, awkward: str) -> None:
    await used("go_to_url", url=f"{awkward}/permissions")
    assert "notifications denied" in await used.click("Ask")


async def test_page_cannot_reach_private_addresses(use: Browsing, awkward: str) -> None:
    assert "inward" in await use("go_to_url", url=f"{awkward}/inward")
    proxy = use.browser.connection.egress
    refused: list[str] = []

    def seen() -> bool:
        refused.extend(refusal.url for refusal in proxy.take_refusals() if refusal.by_guard)
        return any("169.254.169.254" in url for url in refused)

    await asyncio.to_thread(until, seen)


async def test_save_pdf(used: Browsing, awkward: str) -> None:
    await used("go_to_url", url=f"{awkward}/plain")
    assert "Saved the page as downloads/Plain.pdf" in await used("save_pdf")
    content = (used.session.workspace.root / "downloads/Plain.pdf").read_bytes()
    assert content.startswith(b"%PDF-")


async def test_basic_auth_is_reported(used: Browsing, awkward: str) -> None:
    seen = await used.observe("go_to_url", url=f"{awkward}/login")
    assert seen.failed
    assert "user name and a password" in seen.text


@pytest.mark.slow
async def test_going_back_and_refreshing(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    await use("go_to_url", url=f"{awkward}/form")
    assert "Plain page" in await use("go_back")
    assert "Plain page" in await use("refresh")
    assert "no page to go back to" in (await use("open_tab", url=f"{awkward}/plain")) + (
        await use("go_back")
    ) + (await use("go_back"))


async def test_long_page_is_cut_once_and_at_its_own_limit(use: Browsing, awkward: str) -> None:
    use.configure(browser=BrowserSettings(observation_tokens=4000))
    seen = await use.observe("go_to_url", url=f"{awkward}/long")
    assert seen.bounded
    assert 9000 < len(seen.text) < 17_000
    assert "left out" in seen.text


async def test_search_opens_the_first_result(
    use: Browsing, awkward: str, search_server: SearchServer
) -> None:
    hits = [Found("The plain one", f"{awkward}/plain", "x"), Found("Other", f"{awkward}/form", "y")]
    search_server.results["tavily"] = hits
    use.configure(search=local_settings(search_server, "tavily"))
    seen = await use("web_search", query="something plain")
    assert "2. Other" in seen
    assert "Plain page" in seen
    search_server.results["tavily"] = []
    assert "Nothing was found" in await use("web_search", query="nothing at all")


async def test_state_for_the_request(use: Browsing, awkward: str) -> None:
    assert await state_for_request(use.session, picture=True) == ("", None)
    await use("go_to_url", url=f"{awkward}/form")
    call = PendingCall(
        id="1", name="browser_use", args={"action": "get_state"}, occurrence=0, problem=None
    )
    assert asks_for_screenshot(call)
    seen = await with_screenshot(ToolMessage("all", tool_call_id="1"), use.session)
    (photo,) = seen.artifact["images"]
    assert (use.session.workspace.root / photo).read_bytes().startswith(b"\xff\xd8")
    text, picture = await state_for_request(use.session, picture=True)
    assert "/form" in text
    assert picture is not None
    assert picture.startswith("data:image/jpeg;base64,")
    assert "Changed" not in text
    assert (await state_for_request(use.session, picture=False))[1] is None
    await browser_loop.run(use.browser.new_tab)
    text, picture = await state_for_request(use.session, picture=True)
    assert "about:blank" in text
    assert picture is None


async def test_after_an_observation_only_what_has_changed_since_is_said(
    use: Browsing, awkward: str
) -> None:
    async def said() -> str:
        return (await state_for_request(use.session, picture=False, after_observation=True))[0]

    await use("go_to_url", url=f"{awkward}/form")
    assert await said() == ""
    page = use.browser.current.page
    await browser_loop.run(lambda: page.evaluate("document.body.append('It came late.')"))
    assert "It came late." in await said()
    await use("get_state")
    assert await said() == ""
    await browser_loop.run(lambda: page.evaluate("location.hash = 'there'"))
    assert "/form#there" in await said()


def test_recent_use_is_noticed() -> None:
    message = calls(("browser_use", {"action": "get_state"}))
    assert recently_called([message], "browser_use", 3)
    later = [message, *(calls(("bash", {})) for _ in range(3))]
    assert not recently_called(later, "browser_use", 3)


async def test_calls_from_different_event_loops(use: Browsing, awkward: str) -> None:
    await asyncio.to_thread(lambda: asyncio.run(use("go_to_url", url=f"{awkward}/plain")))
    seen = await asyncio.to_thread(lambda: asyncio.run(use("get_state")))
    assert "Plain page" in seen


async def test_cancelling_stops_the_action(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    task = asyncio.create_task(use("wait", seconds=60))
    await asyncio.to_thread(until, use.browser.lock.locked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "Plain page" in await use("get_state")
