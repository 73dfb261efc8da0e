"""The page at `/app` in a real Chromium, on a real `openmanus serve` with a scripted model."""

import contextlib
import re
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from openmanus_graph.backends.browser.browsers import find_browser
from tests.support.cli import KEY
from tests.support.limits import BACKSTOP_S
from tests.support.openai_server import OpenAIServer
from tests.support.processes import line_of
from tests.support.serving import Served
from tests.support.zygote import Zygote

PATIENCE_MS = BACKSTOP_S * 1000
expect.set_options(timeout=PATIENCE_MS)
SETTINGS = """
allow_hosts = ["127.0.0.1"]
vision_model = "openai:test-model"

[prices."test-model"]
input = 10
output = 100
"""
SCROLLED = """async () => {
    const box = document.querySelector('.timeline');
    for (let i = 0; i < 100; i += 1) {
        box.scrollTop -= 700;
        await new Promise((resolve) => requestAnimationFrame(resolve));
    }
}"""
"""Scrolls through the timeline, 700 px a frame."""
CLERK = '''
"""An agent with a tool that has effects outside."""

from openmanus_graph import build_manus_graph, manus_tool, register_agent


@manus_tool(effect="external")
def send_invoice(customer: str, amount: float = 1.0) -> str:
    """Send an invoice.

    Args:
        customer: The customer's number.
        amount: Dollars.
    """
    return f"sent {amount} to {customer}"


def build_clerk(*, extra_tools=(), **options):
    """Send invoices."""
    return build_manus_graph(extra_tools=[*extra_tools, send_invoice], **options)


register_agent("clerk", build_clerk)
'''


@dataclass(frozen=True)
class Desk:
    """What the page's tests need: a server, the model its agents ask, and a browser."""

    served: Served
    model: OpenAIServer
    browser: Browser

    def tab(self, thread: str = "", **options: Any) -> "Tab":
        """Open the page in a tab of its own, as somebody who has the token."""
        return Tab(self.browser, self.served, **options).open(thread)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask the server as the page would."""
        return httpx.request(method, self.served.url + path, headers=self.served.headers, **more)


@contextlib.contextmanager
def desk(root: Path) -> Generator[Desk]:
    """Serve and browse for the length of a block."""
    with Zygote() as zygote, served_page(root, zygote) as (served, model), chromium() as browser:
        yield Desk(served, model, browser)


@contextlib.contextmanager
def served_page(root: Path, zygote: Zygote) -> Generator[tuple[Served, OpenAIServer]]:
    """Serve for the length of a block; the server keeps its port when started again."""
    (root / "clerk.py").write_text(CLERK, "utf-8")
    settings = root / "config" / "openmanus" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(SETTINGS, "utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with OpenAIServer(strict=True) as model:
        env = {
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": KEY,
            "OPENMANUS_MODEL": "openai:test-model",
            "XDG_CONFIG_HOME": str(root / "config"),
        }
        served = Served(root, env, ("--port", port, "--import", "clerk"), zygote)
        with served:
            yield served, model
    assert KEY not in served.log


@contextlib.contextmanager
def chromium() -> Generator[Browser]:
    """A browser for the length of a block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(None), args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One tab with the page, as a person uses it."""

    def __init__(self, browser: Browser, served: Served, **options: Any) -> None:
        self.served = served
        given: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, **options}
        self.context = browser.new_context(**given)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.wrong: list[str] = []
        """What must not happen: errors of scripts, and what the content policy had to stop."""
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("console", self._console)

    def open(self, thread: str = "", *, token: bool = True) -> "Tab":
        """Open the page, or a thread on it."""
        path = f"/app/t/{thread}" if thread else "/app"
        secret = f"#token={self.served.token}" if token else ""
        self.page.goto(self.served.url + path + secret)
        return self

    def start(self, task: str, *, agent: str = "manus", **limits: str) -> str:
        """Start a task and return its thread."""
        page = self.page
        expect(page.locator("#agent option").first).to_be_attached(timeout=PATIENCE_MS)
        if "/app/t/" in page.url:
            page.get_by_role("button", name="New task").click()
        self.options(agent=agent, **limits)
        page.get_by_role("textbox", name="Task", exact=True).fill(task)
        page.get_by_role("button", name="Start", exact=True).click()
        page.wait_for_url(re.compile("/app/t/"))
        return self.thread

    def options(self, *, agent: str | None = None, **limits: str) -> None:
        """Choose an agent and limits, named as on the page."""
        self.page.locator(".options-box summary").click()
        if agent is not None:
            self.page.get_by_role("combobox", name="Agent", exact=True).select_option(agent)
        for name, value in limits.items():
            self.page.get_by_role("spinbutton", name=name, exact=True).fill(value)

    @property
    def thread(self) -> str:
        """The thread that is open."""
        return self.page.url.rpartition("/t/")[2].partition("#")[0]

    @property
    def status(self) -> Locator:
        """The words that say how the run stands."""
        return self.page.locator(".pill")

    def until(self, status: str) -> None:
        """Wait until the run stands like that."""
        expect(self.status).to_have_text(status, timeout=PATIENCE_MS)

    def sees(self, text: str | re.Pattern[str], within: str = ".timeline") -> None:
        """Wait until a text can be read."""
        expect(self.page.locator(within)).to_contain_text(text, timeout=PATIENCE_MS)

    def busiest_s(self, action: Callable[[], object]) -> float:
        """Do something, and return the longest work for one frame, in the page's own time."""
        session = self.context.new_cdp_session(self.page)
        pieces: list[Any] = []
        ended: list[Any] = []

        def collect(part: dict[str, Any]) -> None:
            pieces.extend(part["value"])

        def end(part: dict[str, Any]) -> None:
            ended.append(part)

        session.on("Tracing.dataCollected", collect)
        session.on("Tracing.tracingComplete", end)
        session.send("Tracing.start", {"categories": "devtools.timeline"})
        action()
        session.send("Tracing.end")
        while not ended:
            self.page.wait_for_timeout(20)  # lets the events come in
        drawn = [one.get("tdur", 0) for one in pieces if one["name"] == "FireAnimationFrame"]
        session.detach()
        return float(max(drawn)) / 1e6

    def memory_bytes(self) -> int:
        """Return what the tab's process has for itself, after collecting garbage."""
        session = self.context.new_cdp_session(self.page)
        session.send("HeapProfiler.collectGarbage")
        session.detach()
        tabs = [
            process.memory_full_info().uss
            for process in psutil.Process().children(recursive=True)
            if "--type=renderer" in line_of(process)
        ]
        return max(tabs)

    def close(self) -> None:
        """Close it; nothing wrong may have happened."""
        self.context.close()
        assert self.wrong == []

    def _dialog(self, dialog: Any) -> None:
        if dialog.type == "alert":
            self.wrong.append(f"a script ran: {dialog.message}")
        dialog.accept()

    def _console(self, message: Any) -> None:
        expected = ("Failed to load resource", "Blocked script execution in")
        if message.type == "error" and not any(words in message.text for words in expected):
            self.wrong.append(message.text)
