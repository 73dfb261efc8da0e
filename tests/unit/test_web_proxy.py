"""The proxy that all of a browser's traffic goes through."""

import asyncio
import base64
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence

import httpx2
import pytest
import trustme

from openmanus_graph.backends.web import proxy as hops
from openmanus_graph.backends.web.guard import Guard, Upstream, parse_upstream
from openmanus_graph.backends.web.proxy import MARK, GuardedProxy
from tests.support.limits import BACKSTOP_S
from tests.support.pages import PageServer

pytestmark = pytest.mark.usefixtures("no_blocking")

PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


async def to_this_machine(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def proxy(site: PageServer) -> AsyncIterator[GuardedProxy]:
    """One that lets the site be reached, as itself and as `shop.example`."""
    guard = Guard((site.place, "shop.example"), resolver=to_this_machine)
    running = GuardedProxy(guard)
    await running.start()
    yield running
    await running.close()


def client(proxy: GuardedProxy, **more: object) -> httpx2.AsyncClient:
    via = httpx2.Proxy(proxy.server, auth=(proxy.username, proxy.password))
    return httpx2.AsyncClient(proxy=via, timeout=BACKSTOP_S, trust_env=False, **more)  # type: ignore[arg-type]  # passed on


def login(proxy: GuardedProxy) -> str:
    words = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {words}\r\n"


async def connected(proxy: GuardedProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(proxy))


def port_of(proxy: GuardedProxy) -> int:
    return int(proxy.server.rpartition(":")[2])


async def tunnel(
    proxy: GuardedProxy, target: str
) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a tunnel and return the status line of the answer."""
    reader, writer = await connected(proxy)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login(proxy)}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return head.decode().partition("\r\n")[0], reader, writer


async def test_pages_and_their_headers_pass_through(site: PageServer, proxy: GuardedProxy) -> None:
    site.add("/a?b=%7Bc%7D", "hello", headers={"X-Own": "1", "Set-Cookie": "a=b"}, status=203)
    async with client(proxy) as browser:
        answer = await browser.get(site.url("/a?b=%7Bc%7D"), headers={"Cookie": "x=y"})
    assert (answer.status_code, answer.text) == (203, "hello")
    assert answer.headers["x-own"] == "1"
    assert answer.headers["set-cookie"] == "a=b"
    asked = site.asked[0]
    assert asked.path == "/a?b=%7Bc%7D"
    assert asked.headers["Host"] == site.place
    assert asked.headers["Cookie"] == "x=y"
    assert not any(name.lower().startswith("proxy-") for name in asked.headers)
    assert proxy.take_refusals() == []


async def test_one_connection_serves_many_requests_to_different_places(
    site: PageServer, proxy: GuardedProxy
) -> None:
    async with client(proxy, limits=httpx2.Limits(max_connections=1)) as browser:
        for path in ("/1", "/2"):
            site.add(path, path)
            assert (await browser.get(site.url(path))).text == path
        refused = await browser.get("http://10.0.0.1/")
        assert (refused.status_code, refused.headers[MARK]) == (403, "refused")
        assert (await browser.head(site.url("/1"))).status_code == 200
        refused = await browser.head("http://10.0.0.1/")
        assert refused.status_code == 403
        assert (await browser.get(site.url("/2"))).text == "/2"


async def test_bodies_pass_both_ways(site: PageServer, proxy: GuardedProxy) -> None:
    data = b"x" * 3_000_000

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, 6_000, 1000):
            yield data[start : start + 1000]

    async with client(proxy) as browser:
        assert (await browser.post(site.url("/post"), content=data)).content == data
        answer = await browser.post(site.url("/post"), content=pieces())
        assert answer.content == data[:6_000]
        big = await browser.get(site.url("/big?mb=8&length=no"))
        assert len(big.content) == 8 * 1024 * 1024


async def test_it_sends_on_while_a_page_is_still_coming(
    site: PageServer, proxy: GuardedProxy
) -> None:
    async with client(proxy) as browser, browser.stream("GET", site.url("/slow")) as answer:
        async for piece in answer.aiter_bytes():
            assert piece == b"<h1>Half"
            break


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data/", "http://2130706433/",
     "http://localhost:1/", "http://evil.example/"],
)  # fmt: skip
async def test_forbidden_places_are_refused_with_a_readable_page(
    proxy: GuardedProxy, url: str
) -> None:
    async with client(proxy) as browser:
        answer = await browser.get(url)
    assert (answer.status_code, answer.headers[MARK]) == (403, "refused")
    assert "--allow-host" in answer.text
    (refusal,) = proxy.take_refusals()
    assert refusal.by_guard
    assert (refusal.url, refusal.reason) == (url, answer.text.strip())
    assert proxy.take_refusals() == []


@pytest.mark.parametrize(
    "target", ["127.0.0.1:1", "169.254.169.254:80", "[::1]:443", "evil.example:443", "0x7f.1:22"]
)
async def test_tunnels_to_forbidden_places_are_refused(proxy: GuardedProxy, target: str) -> None:
    status, _, writer = await tunnel(proxy, target)
    writer.close()
    assert status.startswith("HTTP/1.1 403")
    assert [refusal.by_guard for refusal in proxy.take_refusals()] == [True]


async def test_a_dead_host_is_distinguished_from_a_forbidden_one(proxy: GuardedProxy) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"shop.example:{unused.getsockname()[1]}"
        async with client(proxy) as browser:
            answer = await browser.get(f"http://{dead}/x")
        status, _, writer = await tunnel(proxy, dead)
        writer.close()
    assert (answer.status_code, answer.headers[MARK]) == (502, "failed")
    assert status.startswith("HTTP/1.1 502")
    refusals = proxy.take_refusals()
    assert [(refusal.url, refusal.by_guard) for refusal in refusals] == [
        (f"http://{dead}/x", False), (f"https://{dead}/", False),
    ]  # fmt: skip
    assert "cannot be reached (connection refused). Check" in refusals[0].reason


async def test_a_dead_upstream_is_named() -> None:
    proxy = GuardedProxy(Guard(), Upstream("http", "127.0.0.1", 9))
    await proxy.start()
    async with client(proxy) as browser:
        await browser.get("http://shop.example/")
    await proxy.close()
    [refusal] = proxy.take_refusals()
    assert "(the proxy 127.0.0.1:9: connection refused)" in refusal.reason


async def test_encrypted_pages_pass_through_a_tunnel(proxy: GuardedProxy, site: PageServer) -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("shop.example").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with PageServer(tls=serving) as shop:
        shop.add("/x", "secret")
        async with client(proxy, verify=trusting) as browser:
            answer = await browser.get(f"https://shop.example:{shop.port}/x")
    assert answer.text == "secret"


async def test_a_tunnel_keeps_half_closed_sides_open(proxy: GuardedProxy) -> None:
    async def echo_after_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read()  # until the other side has ended
        writer.write(said[::-1])
        writer.close()

    server = await asyncio.start_server(echo_after_end, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        status, reader, writer = await tunnel(proxy, f"shop.example:{port}")
        assert status.startswith("HTTP/1.1 200")
        writer.write(b"abc")
        writer.write_eof()
        assert await reader.read() == b"cba"
        writer.close()


async def test_a_silent_tunnel_ends(proxy: GuardedProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        over.set()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        monkeypatch.setattr(hops, "IDLE_S", 0.3)
        port = server.sockets[0].getsockname()[1]
        _, reader, writer = await tunnel(proxy, f"shop.example:{port}")
        assert await asyncio.wait_for(reader.read(), BACKSTOP_S) == b""
        await asyncio.wait_for(over.wait(), BACKSTOP_S)
        writer.close()


@pytest.mark.parametrize(
    "login_line",
    ["", "Proxy-Authorization: Basic b3Blbm1hbnVzOng=\r\n", "Proxy-Authorization: x\r\n"],
)
@pytest.mark.parametrize("request_line", ["CONNECT {place}", "GET http://{place}/"])
async def test_other_processes_of_the_machine_cannot_use_it(
    site: PageServer, proxy: GuardedProxy, login_line: str, request_line: str
) -> None:
    reader, writer = await connected(proxy)
    line = request_line.format(place=site.place)
    writer.write(f"{line} HTTP/1.1\r\nHost: x\r\n{login_line}\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 407")
    writer.close()
    assert site.asked == []


@pytest.mark.parametrize(
    "line", ["GET / HTTP/1.1", "GET https://shop.example/ HTTP/1.1", "GET ftp://x/ HTTP/1.1",
             "CONNECT /x HTTP/1.1", "CONNECT a:b:c HTTP/1.1"],
)  # fmt: skip
async def test_what_is_no_request_for_a_proxy_is_refused(proxy: GuardedProxy, line: str) -> None:
    reader, writer = await connected(proxy)
    writer.write(f"{line}\r\nHost: x\r\n{login(proxy)}\r\n".encode())
    assert b" 403 " in await reader.readline()
    writer.close()


async def test_noise_and_long_heads_end_the_connection_only(
    site: PageServer, proxy: GuardedProxy
) -> None:
    for noise in (b"\x16\x03\x01\x02\0\x01\0\r\n\r\n", b"GET /" + b"a" * 400_000, b""):
        reader, writer = await connected(proxy)
        with contextlib.suppress(ConnectionError):  # it may be gone while we still speak
            writer.write(noise)
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), BACKSTOP_S) == b""
        writer.close()
    async with client(proxy) as browser:
        assert (await browser.get(site.url("/status/200"))).status_code == 200


async def test_a_server_that_breaks_off_is_reported_or_breaks_the_answer_off(
    site: PageServer, proxy: GuardedProxy
) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    server = await asyncio.start_server(rude, "127.0.0.1", 0)
    async with server, client(proxy) as browser:
        port = server.sockets[0].getsockname()[1]
        answer = await browser.get(f"http://shop.example:{port}/")
        assert (answer.status_code, answer.headers[MARK]) == (502, "failed")
        with pytest.raises(httpx2.RemoteProtocolError):
            await browser.get(site.url("/cut-off"))


async def test_the_second_request_of_a_connection_cannot_reach_the_first_ones_server(
    site: PageServer, proxy: GuardedProxy
) -> None:
    """However a server frames its answers, each request is checked and sent by itself."""
    site.add("/a", "a")
    reader, writer = await connected(proxy)
    both = "".join(
        f"GET {url} HTTP/1.1\r\nHost: {site.place}\r\n{login(proxy)}\r\n"
        for url in (site.url("/a"), "http://10.0.0.1/admin")
    )
    writer.write(both.encode())
    text = b""
    while b"--allow-host" not in text:
        piece = await asyncio.wait_for(reader.read(10_000), BACKSTOP_S)
        assert piece
        text += piece
    writer.close()
    assert site.paths() == ["/a"]


async def test_it_goes_through_an_upstream_proxy(site: PageServer) -> None:
    outer = GuardedProxy(Guard((site.place, "far.example"), resolver=to_this_machine))
    await outer.start()
    upstream = Upstream("http", "127.0.0.1", port_of(outer), outer.username, outer.password)

    async def no_names(host: str, port: int) -> Sequence[str]:
        raise OSError("names are the upstream's business")

    inner = GuardedProxy(Guard(resolver=no_names), upstream)
    await inner.start()
    site.add("/x", "far away")
    async with client(inner) as browser:
        answer = await browser.get(f"http://far.example:{site.port}/x")
        assert answer.text == "far away"
        refused = await browser.get("http://10.0.0.1/")
        assert refused.status_code == 403
    status, reader, writer = await tunnel(inner, f"far.example:{site.port}")
    assert status.startswith("HTTP/1.1 200")
    writer.write(b"GET /x HTTP/1.1\r\nHost: far.example\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"far away")
    writer.close()
    status, _, writer = await tunnel(inner, "elsewhere.example:443")
    writer.close()
    assert status.startswith("HTTP/1.1 502")
    assert "answered 403" in inner.take_refusals()[-1].reason
    await inner.close()
    await outer.close()


async def test_closing_lets_go_of_an_upstream_that_does_not_answer() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        over.set()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as upstream:
        port = upstream.sockets[0].getsockname()[1]
        running = GuardedProxy(Guard(), Upstream("http", "127.0.0.1", port))
        await running.start()
        reader, writer = await connected(running)
        head = f"CONNECT far.example:443 HTTP/1.1\r\nHost: x\r\n{login(running)}\r\n"
        writer.write(head.encode())
        await asyncio.wait_for(asked.wait(), BACKSTOP_S)
        await running.close()
        await asyncio.wait_for(over.wait(), BACKSTOP_S)
        assert await reader.read() == b""
        writer.close()


def test_an_upstream_is_read_from_its_address() -> None:
    read = parse_upstream("https://me:p%40ss@proxy.example:8443")
    assert (read.scheme, read.host, read.port) == ("https", "proxy.example", 8443)
    assert (read.username, read.password) == ("me", "p@ss")
    assert "p@ss" not in repr(read)
    assert parse_upstream("proxy.example:3128", "a", "b").username == "a"


async def test_closing_ends_open_connections(site: PageServer) -> None:
    running = GuardedProxy(Guard((site.place,)))
    await running.start()
    _, reader, writer = await tunnel(running, site.place)
    idle, port = await connected(running), port_of(running)
    await asyncio.wait_for(running.close(), BACKSTOP_S)
    assert await asyncio.wait_for(reader.read(), BACKSTOP_S) == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    idle[1].close()


async def test_ten_browsers_at_once(site: PageServer, proxy: GuardedProxy) -> None:
    async with client(proxy) as browser:
        answers = await asyncio.gather(*(browser.get(site.url("/big?mb=1")) for _ in range(10)))
    assert [len(answer.content) for answer in answers] == [1024 * 1024] * 10
