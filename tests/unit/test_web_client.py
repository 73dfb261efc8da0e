"""Plain HTTP: redirects, limits, encodings, TLS and what goes wrong."""

import asyncio
import contextlib
import gzip
import socket
import ssl
import tracemalloc
import zlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from openmanus_graph import ToolError
from openmanus_graph.backends.files.text_file import decode_page
from openmanus_graph.backends.web.client import Page, Robots, fetch
from openmanus_graph.backends.web.guard import Guard, Resolver
from tests.support.pages import BOMB_BYTES, PageServer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_blocking")]

PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


def leading_to(*addresses: str) -> Resolver:
    async def look_up(host: str, port: int) -> Sequence[str]:
        return addresses

    return look_up


def open_for(site: PageServer) -> Guard:
    return Guard(allow_hosts=(site.place,))


@asynccontextmanager
async def streaming(
    encoding: str, packed: bytes, size: int, media_type: str = "text/plain"
) -> AsyncGenerator[tuple[str, Guard]]:
    """Serve packed data in chunks of so many bytes; gives the address and who may reach it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Encoding: {encoding}"
        writer.write(f"{head}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):  # whoever has enough goes away
            for start in range(0, len(packed), size):
                piece = packed[start : start + size]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield f"http://{place}/", Guard(allow_hosts=(place,))


async def failing(url: str, guard: Guard, timeout_s: float = 20) -> str:
    with pytest.raises(ToolError) as caught:
        await fetch(url, guard, timeout_s=timeout_s)
    return str(caught.value)


async def test_a_page_is_fetched_with_what_the_server_says_of_it(site: PageServer) -> None:
    url = site.add("/a?b=c", "<p>ä</p>", "Text/HTML; Charset=UTF-8")
    page = await fetch(url, open_for(site))
    assert page == Page(url, url, 200, "text/html", "UTF-8", "<p>ä</p>".encode(), False)
    assert page.text == "<p>ä</p>"
    assert page.reason == "200 OK"


async def test_it_says_who_asks_and_sends_no_cookies(site: PageServer) -> None:
    site.add("/set", "x", headers={"Set-Cookie": "a=b; Path=/", "Location": "/echo"}, status=302)
    page = await fetch(site.url("/set"), open_for(site), headers={"X-Own": "yes"})
    said = page.text.lower()
    assert "user-agent: mozilla/5.0 (compatible; openmanus-graph/" in said
    assert "accept-encoding: gzip, deflate" in said
    assert "x-own: yes" in said
    assert f"host: {site.place}" in said
    assert "cookie" not in said


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(site: PageServer, status: int) -> None:
    site.add("/end/page", "arrived")
    url = site.url(f"/redirect?status={status}&to=/end/../end/page")
    page = await fetch(url, open_for(site))
    assert (page.text, page.url, page.requested) == ("arrived", site.url("/end/page"), url)


async def test_own_headers_do_not_follow_to_another_place(site: PageServer) -> None:
    with PageServer() as other:
        guard = Guard(allow_hosts=(site.place, other.place))
        url = site.url(f"/redirect?to={other.url('/echo')}")
        page = await fetch(url, guard, headers={"X-Key": "secret"})
    assert site.asked[0].headers["X-Key"] == "secret"
    assert "secret" not in page.text


@pytest.mark.parametrize(
    "to",
    ["http://127.0.0.1:1/", "http://169.254.169.254/latest/", "http://[::1]/", "http://2130706433:1/",
     "file:///etc/passwd", "//10.0.0.1/", "http://localhost:1/"],
)  # fmt: skip
async def test_a_redirect_to_a_forbidden_place_is_not_followed(site: PageServer, to: str) -> None:
    said = await failing(site.url(f"/redirect?to={to}"), open_for(site))
    assert "redirects, and that was not followed" in said
    assert len(site.asked) == 1


async def test_redirects_in_a_circle_or_without_end_are_given_up(site: PageServer) -> None:
    assert "in a circle" in await failing(site.url("/circle"), open_for(site))
    assert "more than 10 times" in await failing(site.url("/endless/0"), open_for(site))


async def test_a_private_address_is_not_even_connected_to(site: PageServer) -> None:
    assert "--allow-host" in await failing(site.url("/x"), Guard())
    evil = Guard(resolver=leading_to("127.0.0.1"))
    assert "--allow-host evil.example" in await failing(f"http://evil.example:{site.port}/x", evil)
    assert site.asked == []


async def test_a_name_that_changes_after_the_check_leads_nowhere(site: PageServer) -> None:
    site.add("/", "inside")
    answers = iter([["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]])
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    guard = Guard(resolver=rebinding)
    first = await guard.resolve("evil.example", site.port)
    assert str(first[0]) == "93.184.216.34"  # what a check beforehand sees
    assert "it leads to 127.0.0.1" in await failing(f"http://evil.example:{site.port}/", guard)
    assert asked == ["evil.example"] * 2
    assert site.asked == []


async def test_the_name_is_resolved_once_and_the_next_address_tried(site: PageServer) -> None:
    site.add("/", "here")
    asked: list[str] = []

    async def two(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.2", "127.0.0.1"]  # nobody listens at the first

    guard = Guard(allow_hosts=("two.example",), resolver=two)
    page = await fetch(f"http://two.example:{site.port}/", guard)
    assert page.text == "here"
    assert asked == ["two.example"]
    assert site.asked[0].headers["Host"] == f"two.example:{site.port}"


def tls_site(*names: str) -> tuple[ssl.SSLContext, trustme.CA]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context, authority


async def test_tls_goes_by_the_name_although_the_address_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, authority = tls_site("shop.example")
    seen: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    await asyncio.to_thread(authority.cert_pem.write_to_path, tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with PageServer(tls=context) as site:
        site.add("/", "safe")
        guard = Guard(("shop.example", "other.example"), resolver=leading_to("127.0.0.1"))
        page = await fetch(f"https://shop.example:{site.port}/", guard)
        assert page.text == "safe"
        assert seen == ["shop.example"]
        wrong = await failing(f"https://other.example:{site.port}/", guard)
        assert "certificate is not trusted" in wrong


async def test_an_unknown_certificate_is_refused() -> None:
    context, _ = tls_site("127.0.0.1")
    with PageServer(tls=context) as site:
        said = await failing(site.url("/"), open_for(site))
    assert "certificate is not trusted (" in said
    assert site.asked == []


async def test_plain_http_on_a_tls_port_and_the_other_way_round_is_reported(
    site: PageServer,
) -> None:
    said = await failing(site.url("/").replace("http:", "https:"), open_for(site))
    assert "no TLS connection" in said
    context, _ = tls_site("127.0.0.1")
    with PageServer(tls=context) as other:
        await failing(other.url("/").replace("https:", "http:"), open_for(other))


async def test_a_dead_host_is_reported(site: PageServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        said = await failing(f"http://127.0.0.1:{port}/", Guard(("127.0.0.1",)))
    assert "cannot be reached" in said


@pytest.mark.parametrize("path", ["/slow", "/drip", "/silent"])
async def test_a_page_that_never_ends_is_given_up(site: PageServer, path: str) -> None:
    said = await failing(site.url(path), open_for(site), timeout_s=0.5)
    assert "did not answer in full within 0.5 s" in said


async def test_a_server_that_is_none_or_breaks_off_is_reported(site: PageServer) -> None:
    assert "not answer as a web server" in await failing(site.url("/cut-off"), open_for(site))
    assert "damaged data" in await failing(site.url("/broken-gzip"), open_for(site))

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        said = await failing(f"http://127.0.0.1:{port}/", Guard(("127.0.0.1",)))
    assert "not answer as a web server" in said


async def test_a_long_page_is_cut_and_says_so(site: PageServer) -> None:
    for length in ("yes", "no"):
        page = await fetch(site.url(f"/big?mb=50&length={length}"), open_for(site))
        assert page.cut
        assert len(page.body) == 5 * 1024 * 1024
    exact = await fetch(site.url("/big?mb=5"), open_for(site))
    assert not exact.cut


async def test_a_long_file_is_refused_before_or_while_it_is_read(site: PageServer) -> None:
    for length in ("yes", "no"):
        url = site.url(f"/big?mb=60&type=application/zip&length={length}")
        said = await failing(url, open_for(site))
        assert "limit is 50.0 MB" in said
    page = await fetch(
        site.url("/big?mb=1&type=application/zip"), open_for(site), limit_bytes=1024 * 1024
    )
    assert len(page.body) == 1024 * 1024


async def test_a_page_made_to_explode_costs_no_more_than_the_limit(site: PageServer) -> None:
    assert BOMB_BYTES > 5 * 1024 * 1024
    page = await fetch(site.url("/bomb"), open_for(site))
    assert (page.cut, len(page.body)) == (True, 5 * 1024 * 1024)
    said = await failing(site.url("/bomb?type=application/pdf"), open_for(site))
    assert "more than 50.0 MB" in said
    tracemalloc.start()
    try:
        await fetch(site.url("/bomb"), open_for(site))
        assert tracemalloc.get_traced_memory()[1] < BOMB_BYTES / 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"packed " * 9000)),
        ("x-gzip", gzip.compress(b"packed " * 9000)),
        ("deflate", zlib.compress(b"packed " * 9000)),
        ("deflate", zlib.compress(b"packed " * 9000)[2:-4]),  # without zlib's frame
        ("identity", b"packed " * 9000),
    ],
)
async def test_packed_pages_are_unpacked(site: PageServer, encoding: str, packed: bytes) -> None:
    url = site.add("/p", packed, headers={"Content-Encoding": encoding})
    assert (await fetch(url, open_for(site))).body == b"packed " * 9000


TEXT = b"packed " * 3000
MEMBERS = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(TEXT) + gzip.compress(b"end")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
@pytest.mark.parametrize(
    ("encoding", "packed", "wanted"),
    [
        ("gzip", MEMBERS, TEXT * 2 + b"end"),  # RFC 1952, 2.2: as many members as one likes
        ("gzip", MEMBERS + b"\0" * 500, TEXT * 2 + b"end"),
        ("gzip", MEMBERS + b"garbage" * 90, TEXT * 2 + b"end"),
        ("gzip", MEMBERS + b"\x1f", TEXT * 2 + b"end"),
        ("gzip", MEMBERS + b"\x1f\x8bgarbage", TEXT * 2 + b"end"),
        ("deflate", zlib.compress(TEXT) + b"garbage", TEXT),
        ("deflate", zlib.compress(TEXT)[2:-4] + b"garbage", TEXT),
        ("deflate", zlib.compress(TEXT, 0)[2:-4], TEXT),
        ("deflate", zlib.compress(b"")[2:-4], b""),
        ("gzip", b"", b""),
    ],
)
async def test_packed_pages_are_unpacked_to_their_end_however_they_arrive(
    encoding: str, packed: bytes, wanted: bytes, size: int
) -> None:
    async with streaming(encoding, packed, size) as (url, guard):
        assert (await fetch(url, guard)).body == wanted


async def test_many_members_cost_no_more_than_the_limit() -> None:
    member = gzip.compress(b"\0" * (1 << 20), 1)
    async with streaming("gzip", member * 64, 4096) as (url, guard):
        tracemalloc.start()
        try:
            page = await fetch(url, guard, text_limit_bytes=1 << 22)
            assert tracemalloc.get_traced_memory()[1] < 1 << 24
        finally:
            tracemalloc.stop()
        assert (page.cut, len(page.body)) == (True, 1 << 22)
    async with streaming("gzip", member * 64, 4096, "application/pdf") as (url, guard):
        with pytest.raises(ToolError, match=r"more than 4\.0 MB"):
            await fetch(url, guard, limit_bytes=1 << 22)


async def test_an_encoding_that_was_not_asked_for_is_told(site: PageServer) -> None:
    url = site.add("/br", b"x", headers={"Content-Encoding": "br"})
    assert "'br', which was not asked for" in await failing(url, open_for(site))


async def test_error_pages_are_pages(site: PageServer) -> None:
    for status, said in ((404, "404 Not Found"), (500, "500 Internal Server Error"), (799, "799")):
        page = await fetch(site.url(f"/status/{status}"), open_for(site))
        assert page.reason == said
        assert f"Status {status}" in page.text


async def test_what_a_file_is_called_is_known(site: PageServer) -> None:
    disposition = "attachment; filename*=UTF-8''r%C3%A9sum%C3%A9.pdf"
    url = site.add("/f", b"x", "", headers={"Content-Disposition": disposition})
    page = await fetch(url, open_for(site))
    assert (page.media_type, page.filename) == ("", "résumé.pdf")


async def test_the_proxy_of_the_environment_is_used(
    site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@{site.place}")
    site.add("http://far.example/x", "through the proxy")
    page = await fetch("http://far.example/x", Guard(resolver=leading_to()))
    assert page.text == "through the proxy"
    assert site.asked[0].headers["Proxy-Authorization"].startswith("Basic ")
    with pytest.raises(ToolError, match="--allow-host"):
        await fetch("http://10.0.0.1/", Guard())
    monkeypatch.setenv("NO_PROXY", "far.example")
    with pytest.raises(ToolError, match="has no address"):
        await fetch("http://far.example/x", Guard(resolver=leading_to()))


async def test_a_proxy_that_cannot_be_used_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(ToolError, match="socks5:// is not understood"):
        await fetch("http://far.example/x", Guard())


@pytest.mark.parametrize(
    ("data", "declared", "text"),
    [
        ("Grüße".encode(), "iso-8859-1", "Grüße"),
        ("Grüße".encode("cp1252"), "utf-8", "Grüße"),
        ("Grüße".encode("cp1252"), None, "Grüße"),
        ("„Grüße“".encode("cp1252"), "iso-8859-1", "„Grüße“"),
        ("日本語のページ".encode("shift_jis"), "Shift_JIS", "日本語のページ"),
        ("日本語のページ".encode("iso2022_jp"), "ISO-2022-JP", "日本語のページ"),
        ("中文网页".encode("gbk"), "gb2312", "中文网页"),
        ("Привет".encode("koi8-r"), "koi8-r", "Привет"),
        (b'<meta charset="windows-1251">' + "Привет".encode("cp1251"), None,
         '<meta charset="windows-1251">Привет'),
        (b'<?xml version="1.0" encoding="ISO-8859-2"?>' + "Žluť".encode("iso8859-2"), None,
         '<?xml version="1.0" encoding="ISO-8859-2"?>Žluť'),
        ("Grüße".encode("utf-16"), None, "Grüße"),
        ("Grüße".encode("utf-8-sig"), "latin-1", "Grüße"),
        ("Grüße".encode(), "no-such-charset", "Grüße"),
        ("Grüße".encode(), "rot13", "Grüße"),
        ("Grüße".encode()[:-1] + b" Gr\xc3\xbc\xc3\x9f", "utf-8", "Grüß Grüß"),
        (b"", "utf-8", ""),
    ],
)  # fmt: skip
def test_a_wrong_or_missing_charset_is_seen_through(
    data: bytes, declared: str | None, text: str
) -> None:
    assert decode_page(data, declared) == text


async def test_robots_rules_are_kept_and_read_once(site: PageServer) -> None:
    rules = (
        "User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.php$\n"
        "User-agent: otherbot\nDisallow: /\n"
    )
    site.add("/robots.txt", rules, "text/plain")
    robots = Robots(open_for(site))
    paths = ["/", "/private/x", "/private/open", "/a.php", "/a.php?b"]
    allowed = await asyncio.gather(*(robots.allow(site.url(path)) for path in paths))
    assert allowed == [True, False, True, False, True]
    assert site.paths() == ["/robots.txt"]


@pytest.mark.parametrize("status", [404, 403, 500])
async def test_a_site_without_robots_rules_allows(site: PageServer, status: int) -> None:
    site.add("/robots.txt", "User-agent: *\nDisallow: /", "text/plain", status)
    assert await Robots(open_for(site)).allow(site.url("/x"))


async def test_robots_rules_for_this_agent_count(site: PageServer) -> None:
    site.add("/robots.txt", "User-agent: openmanus-graph\nDisallow: /\n\nUser-agent: *\nAllow: /")
    assert not await Robots(open_for(site)).allow(site.url("/x"))
