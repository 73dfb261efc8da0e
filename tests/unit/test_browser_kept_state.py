"""Cookies, local storage and addresses of a thread's browser outlive its process."""

import contextlib
import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.kept_state import (
    MAX_ALL_STORED_CHARS,
    MAX_STORED_CHARS,
    STORAGE_LOST,
    UNREADABLE,
    BrowserState,
    has_kept_tabs,
    load_state,
    newest_stored,
    save_state,
    state_file,
)
from openmanus_graph.state.settings import BrowserSettings
from tests.support.browsing import Browsing
from tests.support.sampling import sampled
from tests.support.static_site import SiteHandler, serving

pytestmark = pytest.mark.slow


class MembersHandler(SiteHandler):
    """`/login` sets a session cookie; every other page says whether it came, and what is stored."""

    def do_GET(self) -> None:
        known = SimpleCookie(self.headers.get("Cookie", "")).get("member")
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        if self.path == "/login":
            self.send_header("Set-Cookie", "member=ada; HttpOnly; SameSite=Lax")
        if self.path == "/elsewhere":
            self.send_header("Content-Security-Policy", "sandbox")
        self.end_headers()
        name = known.value if known else "nobody"
        self.wfile.write(
            f"<!doctype html><title>Members</title><p>Hello {name} at {self.path}.</p>"
            "<label>Note <input></label> <output></output><script>document.querySelector('output')"
            ".textContent = 'Stored: ' + localStorage.getItem('theme')</script>".encode()
        )


@pytest.fixture
def members() -> Iterator[str]:
    with serving(MembersHandler) as url:
        yield url


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Browsing]:
    browsing = kept(tmp_path)
    with contextlib.closing(browsing.session):
        yield browsing


def kept(folder: Path, **settings: Any) -> Browsing:
    """Return a new process's browser of the same checkpointed thread, which is not open yet."""
    browsing = Browsing(folder / "work", **settings)
    browsing.session.checkpointed = True
    return browsing


async def script(use: Browsing, text: str) -> None:
    """Run a script in the current page."""
    page = use.browser.current.page
    await browser_loop.run(lambda: page.evaluate(text))


def file_of(use: Browsing) -> Path:
    """Return the file in which a session's browser is kept."""
    file = state_file(use.session)
    assert file is not None
    return file


def kept_of(use: Browsing) -> BrowserState:
    """Return what is kept of a session's browser."""
    state = load_state(file_of(use))
    assert state is not None
    return state


def save(use: Browsing, state: BrowserState) -> None:
    """Keep this as an earlier process's browser of the session."""
    assert save_state(use.session.workspace, file_of(use), state)


def kill(use: Browsing) -> None:
    """Let a session end as by `kill -9`: nothing is closed."""
    use.session.reset_in_child_process()


async def logged_in(use: Browsing, site: str) -> None:
    """Open two pages as a member, with something stored and something typed."""
    await use("go_to_url", url=f"{site}/login")
    await use("go_to_url", url=f"{site}/first")
    await script(use, "localStorage.setItem('theme', 'dark')")
    await use("open_tab", url=f"{site}/second")
    await use("switch_tab", tab_id=1)
    await use("input_text", index=use.index("Note"), text="half a sentence")


@pytest.mark.parametrize("killed", sampled([True, False], 1, "logged in"))
async def test_another_process_is_logged_in_and_at_the_same_pages(
    use: Browsing, members: str, tmp_path: Path, killed: bool
) -> None:
    await logged_in(use, members)
    assert use.browser.handle_state() == f"browser tabs: {members}/first, {members}/second"
    if killed:
        kill(use)
    else:
        use.session.close()
    again = kept(tmp_path)
    assert has_kept_tabs(again.session)
    with contextlib.closing(again.session):
        seen = await again.observe("click_element", index=1)
        assert seen.failed, "the index is of the page of before"
        assert "click_element was not done." in seen.text
        assert (
            f"The browser was opened again with its cookies at {members}/first. What was typed is "
            "lost; the old indices are no longer valid."
        ) in seen.text
        assert "Hello ada at /first." in seen.text
        assert "Stored: dark" in seen.text
        assert "half a sentence" not in seen.text
        assert "opened again" not in await again("get_state"), "it is said once"
        assert "Hello ada at /second." in await again("switch_tab", tab_id=2)


async def test_what_is_lost_is_said_whichever_action_comes_first(
    use: Browsing, members: str, tmp_path: Path
) -> None:
    await logged_in(use, members)
    kill(use)
    later = kept(tmp_path)
    with contextlib.closing(later.session):
        seen = await later("extract_content")
        assert seen.startswith("The browser was opened again with its cookies at ")
        assert "What was typed is lost" in seen
        assert "Hello ada at /first." in seen
        assert "opened again" not in await later("get_state")


async def test_what_pages_did_after_the_last_action_is_kept_at_a_clean_end(
    use: Browsing, members: str, tmp_path: Path
) -> None:
    await use("go_to_url", url=f"{members}/first")
    await script(use, "document.cookie = 'member=late'; localStorage.setItem('theme', 'late')")
    use.session.close()
    again = kept(tmp_path)
    with contextlib.closing(again.session):
        seen = await again("get_state")
    assert "Hello late" in seen
    assert "Stored: late" in seen


async def test_only_the_owner_may_read_the_file(use: Browsing, members: str) -> None:
    await logged_in(use, members)
    file = file_of(use)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file], "no draft is left"
    assert "half a sentence" not in file.read_text()


async def test_nothing_is_kept_of_a_thread_without_checkpoints(use: Browsing, members: str) -> None:
    use.session.checkpointed = False
    await logged_in(use, members)
    use.session.close()
    assert not has_kept_tabs(use.session)
    assert not (use.session.workspace.private / "browser").exists()


@pytest.mark.parametrize(
    "settings", [BrowserSettings(profile="p"), BrowserSettings(cdp_url="http://127.0.0.1:9")]
)
def test_a_persons_own_browser_keeps_its_logins_itself(
    tmp_path: Path, settings: BrowserSettings
) -> None:
    assert state_file(kept(tmp_path, settings=settings).session) is None


def test_workers_of_a_thread_have_a_file_each(tmp_path: Path) -> None:
    session = kept(tmp_path).session
    files = {state_file(session)}
    for key in ("t\0/1", "t\0/2"):
        session.key = key
        files.add(state_file(session))
    assert len(files) == 3


async def test_an_address_that_may_not_be_opened_any_more_is_left_out(
    use: Browsing, members: str, tmp_path: Path
) -> None:
    with serving(MembersHandler) as other:
        await use("go_to_url", url=f"{members}/first")
        await use("open_tab", url=f"{other}/second")
        use.session.close()
        again = kept(tmp_path, allow=members.removeprefix("http://"))
        with contextlib.closing(again.session):
            seen = await again("get_state")
        assert f"{other}/second was not opened again." in seen
        assert "--allow-host" in seen
        assert "Hello nobody at /first." in seen
        assert f"The browser was opened again at {members}/first. What was typed is lost;" in seen


async def test_an_address_that_is_dead_does_not_fail_the_tool(
    use: Browsing, tmp_path: Path
) -> None:
    with serving(MembersHandler) as site:
        await logged_in(use, site)
        use.session.close()
    again = kept(tmp_path)
    with contextlib.closing(again.session), serving(MembersHandler) as other:
        seen = await again.observe("go_to_url", url=f"{other}/third")
        assert not seen.failed
        assert f"{site}/first was not opened again. It did not load." in seen.text
        assert "at /third." in seen.text
        assert len(again.browser.tabs) == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"cookies": 3}', b'{"tabs": ["http://a/"], "current": 1}', b"\xff"]
)
async def test_of_a_damaged_file_the_model_is_told_that_all_is_lost(
    use: Browsing, members: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = file_of(use)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert load_state(file) is None
    assert not has_kept_tabs(use.session), "so that the model is not told that they come back"
    assert "cannot be read" in caplog.text
    assert UNREADABLE in await use("click_element", index=1)
    seen = await use("go_to_url", url=f"{members}/first")
    assert "Hello nobody" in seen
    assert UNREADABLE not in seen, "it is said once"
    assert kept_of(use).tabs == (f"{members}/first",)


async def test_a_file_that_is_damaged_after_it_was_promised_is_said_to_be_lost(
    use: Browsing, members: str, tmp_path: Path
) -> None:
    await logged_in(use, members)
    kill(use)
    again = kept(tmp_path)
    assert has_kept_tabs(again.session)
    content = file_of(again).read_bytes()
    file_of(again).write_bytes(content[: len(content) // 2])
    with contextlib.closing(again.session):
        seen = await again("go_to_url", url=f"{members}/first")
    assert seen.startswith(f"{UNREADABLE}\n")
    assert "Hello nobody at /first." in seen
    assert "Stored: null" in seen


COOKIE = {"name": "member", "value": "ada", "domain": "127.0.0.1", "path": "/"}


@pytest.mark.parametrize(
    "refused",
    [
        BrowserState(cookies=(COOKIE, {**COOKIE, "sameSite": "Odd"})),
        BrowserState(cookies=(COOKIE, {"value": "without a name"})),
        BrowserState((COOKIE,), {"no origin": {"theme": "dark"}}),
    ],
)
async def test_what_the_browser_refuses_is_said_to_be_lost_and_none_of_it_restored(
    use: Browsing, members: str, refused: BrowserState
) -> None:
    known = refused.local_storage | {members: {"theme": "dark"}}
    save(use, replace(refused, local_storage=known, tabs=(f"{members}/first",), current=0))
    assert has_kept_tabs(use.session)
    seen = await use.observe("click_element", index=1)
    assert seen.failed, "the index is of the page of before"
    assert (
        f"The browser was opened again at {members}/first. {STORAGE_LOST} What was typed is lost;"
    ) in seen.text
    assert "with its cookies" not in seen.text
    assert "Hello nobody at /first." in seen.text
    assert "Stored: null" in seen.text
    assert (kept_of(use).cookies, kept_of(use).local_storage) == ((), {})
    assert STORAGE_LOST not in await use("get_state"), "it is said once"


async def test_cookies_are_said_to_be_lost_if_no_tab_was_open(use: Browsing, members: str) -> None:
    save(use, BrowserState(cookies=({"value": "without a name"},)))
    assert STORAGE_LOST in await use("go_to_url", url=f"{members}/first")


async def test_too_much_local_storage_is_not_kept(use: Browsing, members: str) -> None:
    await use("go_to_url", url=f"{members}/first")
    await script(use, f"localStorage.setItem('theme', 'x'.repeat({MAX_STORED_CHARS}))")
    await use("get_state")
    assert kept_of(use).local_storage == {}
    await use("go_to_url", url=f"{members}/elsewhere")
    assert kept_of(use).tabs == (f"{members}/elsewhere",)


def test_the_newest_sites_are_kept_as_far_as_there_is_room() -> None:
    most = {"theme": "x" * (MAX_STORED_CHARS - 5)}
    sites = {f"https://{number}.example": most for number in range(100)}
    kept = newest_stored(sites)
    assert list(kept) == list(sites)[-len(kept) :]
    assert MAX_ALL_STORED_CHARS / 2 < len(json.dumps(kept)) <= MAX_ALL_STORED_CHARS <= 2_000_000
    assert MAX_STORED_CHARS <= 100_000


async def test_the_file_stays_small_and_holds_all_cookies(use: Browsing, members: str) -> None:
    old = {f"https://{number}.example": {"theme": "x" * 900_000} for number in range(5)}
    cookies = tuple(
        {"name": f"c{n}", "value": "v" * 3000, "domain": f"{n}.example", "path": "/"}
        for n in range(100)
    )
    save(use, BrowserState(cookies, old, tabs=(f"{members}/first",)))
    await use("get_state")
    kept = kept_of(use)
    assert len(kept.cookies) == 100
    assert list(kept.local_storage) == ["https://3.example", "https://4.example"]


async def test_a_full_disk_does_not_fail_the_tool(
    use: Browsing, members: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use("go_to_url", url=f"{members}/login")

    def full(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("openmanus_graph.runtime.atomic_files.os.open", full)
        assert "at /second." in await use("go_to_url", url=f"{members}/second")
    assert json.loads(file_of(use).read_text())["tabs"] == [f"{members}/login"]
