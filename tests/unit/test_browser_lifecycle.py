"""One Chromium for all threads; what becomes of it and of us when something dies."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from openmanus_graph.backends.browser import browsers as shared
from openmanus_graph.backends.browser.browsers import browser_loop, find_browser
from openmanus_graph.backends.browser.page import frames
from openmanus_graph.backends.browser.reading import render_page
from openmanus_graph.errors import ToolError
from openmanus_graph.state.settings import BrowserSettings, ProxySettings
from tests.support.awkward_site import awkward_site
from tests.support.browsing import Browsing
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.processes import line_of
from tests.support.sampling import sampled
from tests.support.static_site import SiteHandler, serving

pytestmark = pytest.mark.slow

THREADS = 4
PER_THREAD_MB = 150
OTHERS: set[psutil.Process] = set()


@pytest.fixture(scope="module")
def awkward() -> Iterator[str]:
    with awkward_site() as url:
        yield url


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Browsing]:
    browsing = Browsing(tmp_path / "work")
    with contextlib.closing(browsing.session):
        yield browsing


@pytest.fixture(autouse=True)
def _own_browser() -> Iterator[None]:
    """Let each test begin and end without a browser, but for those that page tests have open."""
    browser_loop.call(shared.shared_browsers.close, BACKSTOP_S)
    OTHERS.clear()
    OTHERS.update(chromiums(), drivers())
    yield
    browser_loop.call(shared.shared_browsers.close, BACKSTOP_S)


def chromiums() -> list[psutil.Process]:
    """List the browser processes of a test: each Chromium's first."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if "--remote-debugging-pipe" in line and not any("--type=" in word for word in line):
                found.append(process)
    return [process for process in found if process not in OTHERS]


def renderers(browser: psutil.Process) -> list[psutil.Process]:
    """List the processes in which a browser draws its pages."""
    return [one for one in browser.children(recursive=True) if "--type=renderer" in line_of(one)]


def memory_mb(root: psutil.Process) -> float:
    """Return what a browser uses, shared pages counted once."""
    total = 0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


async def test_threads_share_one_chromium(tmp_path: Path, awkward: str) -> None:
    threads = [Browsing(tmp_path / str(number)) for number in range(THREADS)]
    with contextlib.ExitStack() as stack:
        for thread in threads:
            stack.callback(thread.session.close)
        await threads[0]("go_to_url", url=f"{awkward}/article")
        (root,) = chromiums()
        one = memory_mb(root)
        seen = await asyncio.gather(
            *(thread("go_to_url", url=f"{awkward}/article") for thread in threads[1:])
        )
        assert all("The tower" in text for text in seen)
        assert chromiums() == [root]
        more = (memory_mb(root) - one) / (THREADS - 1)
        assert more < PER_THREAD_MB, f"{more:.0f} MB more for each thread"
        sys.stdout.write(f"one thread {one:.0f} MB, {more:.0f} MB more for each\n")


async def test_threads_do_not_share_cookies(tmp_path: Path, awkward: str) -> None:
    one, other = Browsing(tmp_path / "one"), Browsing(tmp_path / "other")
    with contextlib.closing(one.session), contextlib.closing(other.session):
        await one("go_to_url", url=f"{awkward}/setcookie")
        assert "login=ada" in await one("go_to_url", url=f"{awkward}/cookie")
        assert "login=ada" not in await other("go_to_url", url=f"{awkward}/cookie")


async def test_browser_stays_open_between_runs_and_closes_with_its_thread(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "IDLE_S", 0.1)
    await use("go_to_url", url=f"{awkward}/setcookie")
    use.configure(max_steps=7)  # another run begins
    assert "as you wished" in await use("get_state")
    assert "/setcookie" in use.browser.handle_state()
    use.session.close()
    await asyncio.to_thread(until, lambda: not chromiums())
    await asyncio.to_thread(until, lambda: not drivers())


async def test_a_start_that_is_cancelled_leaves_no_process(use: Browsing) -> None:
    starting = asyncio.ensure_future(use("get_state"))
    await asyncio.to_thread(until, lambda: bool(drivers()))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    use.session.close()
    await asyncio.to_thread(until, lambda: not chromiums() and not drivers())


async def test_browser_that_is_killed_is_opened_again(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/setcookie")
    await use("go_to_url", url=f"{awkward}/form")
    (root,) = chromiums()
    root.kill()
    await asyncio.to_thread(root.wait, 10)
    seen = await use.observe("click_element", index=1)
    assert seen.failed
    assert "opened again with its cookies at" in seen.text
    assert "Greet" in seen.text
    assert "opened again" not in await use("get_state")
    assert "login=ada" in await use("go_to_url", url=f"{awkward}/cookie")


async def test_browser_that_dies_during_an_action(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    (root,) = chromiums()
    waiting = asyncio.create_task(use.observe("go_to_url", url=f"{awkward}/silent"))
    await asyncio.to_thread(until, use.browser.lock.locked)
    root.kill()
    seen = await waiting
    assert seen.failed
    assert "opened again" in seen.text
    assert "Plain page" in await use("get_state")


class TypingHandler(SiteHandler):
    """A page with a field that asks the server for each letter, and gets no answer."""

    asked = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/letter":
            self.asked.set()
            self.connection.recv(1)  # until whoever asks is gone
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(
            b'<title>Typing</title><input aria-label=Name oninput="const asking = new '
            b"XMLHttpRequest(); asking.open('GET', '/letter', false); asking.send()\">"
        )


async def test_browser_that_dies_in_the_middle_of_typing(use: Browsing) -> None:
    with serving(TypingHandler) as url:
        await use("go_to_url", url=f"{url}/")
        (root,) = chromiums()
        typing = asyncio.create_task(use.observe("input_text", index=1, text="Ada Lovelace"))
        await asyncio.to_thread(TypingHandler.asked.wait, BACKSTOP_S)
        root.kill()
        seen = await typing
        assert seen.failed
        assert "input_text was cut off" in seen.text
        assert "What was typed is lost" in seen.text
        assert "Ada" not in await use("get_state")


@pytest.mark.exhaustive
async def test_driver_that_is_killed_is_started_again(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    (driver,) = drivers()
    driver.kill()
    await asyncio.to_thread(driver.wait, 10)
    seen = await use("get_state")
    assert "opened again" in seen
    assert "Plain page" in seen


async def test_crashed_page_is_loaded_again(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/form")

    async def crash() -> None:
        page = use.browser.current.page
        session: Any = await page.context.new_cdp_session(page)  # its answer is partly unknown
        crashed = asyncio.Event()
        page.on("crash", lambda _: crashed.set())
        sending = asyncio.ensure_future(session.send("Page.crash"))
        await crashed.wait()
        sending.cancel()  # nobody is left to answer

    await browser_loop.run(crash)
    seen = await use("get_state")
    assert "had crashed and was loaded again" in seen
    assert "Greet" in seen
    assert list(use.browser.tabs) == [1]


async def test_page_or_browser_that_dies_while_nothing_is_done_is_noticed(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A page that is dead answers no question: its death must be noticed, not its silence.
    monkeypatch.setattr(frames, "CALL_LIMIT_S", 10 * BACKSTOP_S)
    await use("go_to_url", url=f"{awkward}/form")
    (browser,) = chromiums()
    for doomed, said in ((renderers(browser), "had crashed"), ([browser], "had ended")):
        waiting = asyncio.ensure_future(use("wait", seconds=2))
        await asyncio.to_thread(until, use.browser.lock.locked)
        for process in doomed:
            process.kill()
        async with asyncio.timeout(BACKSTOP_S):
            seen = await waiting
        assert said in seen
        assert "Greet" in seen


def test_nothing_is_left_when_our_process_is_killed(tmp_path: Path, awkward: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio, sys, time
        from pathlib import Path
        from tests.support.browsing import Browsing
        use = Browsing(Path({str(tmp_path)!r}))
        asyncio.run(use("go_to_url", url="{awkward}/plain"))
        print("open", flush=True)
        time.sleep(600)
    """)
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) > 3
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not [one for one in below if is_running(one)])


@pytest.mark.parametrize(
    "ending", sampled(("pass", "raise SystemExit(3)", "1 / 0", "signal"), 1, "endings")
)
def test_nothing_is_left_when_our_process_ends(tmp_path: Path, awkward: str, ending: str) -> None:
    # Whoever starts the tests in the background may have it ignored.
    caught = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    interrupted = f"{caught}; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    last = interrupted if ending == "signal" else ending
    program = textwrap.dedent(f"""
        import asyncio, os, signal, time, psutil
        from pathlib import Path
        from tests.support.browsing import Browsing
        use = Browsing(Path({str(tmp_path)!r}))
        asyncio.run(use("go_to_url", url="{awkward}/plain"))
        print(*(one.pid for one in psutil.Process().children(recursive=True)), flush=True)
        {last}
    """)
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        cwd=root,
        text=True,
        timeout=BACKSTOP_S,
    )
    below = list(map(int, done.stdout.split()))
    assert len(below) > 3, done.stderr
    until(lambda: not any(map(psutil.pid_exists, below)))


async def test_ctrl_c_does_not_end_the_browser(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    (driver,) = drivers()
    # A terminal sends it to the whole group, the driver included.
    os.kill(driver.pid, signal.SIGINT)
    assert "Plain page" in await use("get_state")
    assert "opened again" not in await use("get_state")


async def test_profile_keeps_logins_and_is_used_by_one(tmp_path: Path, awkward: str) -> None:
    settings = BrowserSettings(profile=str(tmp_path / "profile"))
    first = Browsing(tmp_path / "one", settings)
    with contextlib.closing(first.session):
        await first("go_to_url", url=f"{awkward}/setcookie")
        second = Browsing(tmp_path / "two", settings)
        with contextlib.closing(second.session):
            refused = await second.observe("go_to_url", url=f"{awkward}/plain")
        assert refused.failed
        assert "is in use by another run" in refused.text
    third = Browsing(tmp_path / "three", settings)
    with contextlib.closing(third.session):
        assert "login=ada" in await third("go_to_url", url=f"{awkward}/cookie")


@pytest.mark.exhaustive
async def test_other_settings_open_another_browser(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/plain")
    use.configure(browser=BrowserSettings(extra_chromium_args=("--lang=de",)))
    seen = await use("get_state")
    assert "settings changed" in seen
    assert "Plain page" in seen


@pytest.mark.exhaustive
async def test_logins_stay_in_their_profile_when_another_is_set(
    tmp_path: Path, awkward: str
) -> None:
    profile = BrowserSettings(profile=str(tmp_path / "profile"))
    use = Browsing(tmp_path / "work", profile)
    with contextlib.closing(use.session):
        await use("go_to_url", url=f"{awkward}/setcookie")
        await use("go_to_url", url=f"{awkward}/plain")
        use.configure(browser=BrowserSettings())
        seen = await use("go_to_url", url=f"{awkward}/cookie")
        assert "profile changed, and it was opened again with other logins at" in seen
        assert "login=ada" not in seen
        use.configure(browser=profile)
        assert "login=ada" in await use("go_to_url", url=f"{awkward}/cookie")


async def test_configured_proxy_is_used(tmp_path: Path) -> None:
    asked: list[str] = []
    server = await asyncio.start_server(
        lambda reader, writer: proxy_answers(reader, writer, asked), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    proxy = ProxySettings(f"http://127.0.0.1:{port}", "ada", SecretStr("lovelace"))
    use = Browsing(tmp_path, BrowserSettings(proxy=proxy))
    with contextlib.closing(use.session):
        seen = await use("go_to_url", url="http://news.example/today")
        await asyncio.to_thread(use.session.close)
    server.close()
    assert "Said by the upstream proxy" in seen
    assert any("http://news.example/today" in request for request in asked)
    assert any("YWRhOmxvdmVsYWNl" in request for request in asked)


async def proxy_answers(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]
) -> None:
    asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
    body = b"<title>Proxied</title><p>Said by the upstream proxy."
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


async def test_pages_are_rendered_beside_the_thread(use: Browsing, awkward: str) -> None:
    shown = await asyncio.gather(
        *(render_page(use.session, f"{awkward}/article?{number}", 60) for number in range(5))
    )
    assert {page.status for page in shown} == {200}
    assert all("Rendered by a script." in page.text for page in shown)
    assert all("In the shadow root." in page.text for page in shown)
    assert all("<title>Tower</title>" in page.text for page in shown)
    assert {page.media_type for page in shown} == {"text/html"}
    with pytest.raises(ToolError, match="not reached"):
        await render_page(use.session, "http://10.0.0.1/", 60)
    with pytest.raises(ToolError, match="was not rendered within"):
        await render_page(use.session, f"{awkward}/silent", 3)


def test_missing_browser_is_reported_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"openmanus doctor --fix"):
        find_browser(None)
    with pytest.raises(ToolError, match="chrome_instance_path"):
        find_browser(str(tmp_path / "chrome"))
    own = tmp_path / "chromium-1" / "chrome-linux" / "chrome"
    own.parent.mkdir(parents=True)
    own.touch(0o755)
    assert find_browser(None) == own


async def test_browser_that_does_not_start_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "chrome"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    use = Browsing(tmp_path / "work", BrowserSettings(chrome_instance_path=str(broken)))
    with contextlib.closing(use.session):
        seen = await use.observe("go_to_url", url="https://example.com")
    assert seen.failed
    assert "did not start" in seen.text


async def test_browser_starts_where_it_may_not_make_a_sandbox(
    use: Browsing, awkward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # Chromium refuses root its sandbox
    assert "Plain page" in await use("go_to_url", url=f"{awkward}/plain")


def test_doctor_finds_the_browser_or_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "openmanus_graph.interfaces.cli", "doctor"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "✓ browser: " in found().stdout
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    said = found().stdout
    assert "✗ browser: No browser is installed" in said
    assert "-m playwright install" in said


def test_event_loop_thread_passes_on_results_errors_and_cancellation() -> None:
    async def work() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ToolError("no")

    async def outer() -> None:
        assert await browser_loop.run(work) == "openmanus-browser"
        with pytest.raises(ToolError, match="no"):
            await browser_loop.run(fail)
        begun, ended = threading.Event(), threading.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

        task = asyncio.ensure_future(browser_loop.run(wait))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(ended.wait)

    asyncio.run(outer())
    asyncio.run(outer())


def drivers() -> list[psutil.Process]:
    """List the driver processes of this one."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "run-driver" in process.cmdline():
                found.append(process)
    return [process for process in found if process not in OTHERS]


def is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
