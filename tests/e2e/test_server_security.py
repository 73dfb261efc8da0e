"""Who may talk to the server: nobody without the token, and no page of another site."""

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_client

from tests.support.serving import Served

pytestmark = pytest.mark.slow

ROUTES = (
    ("POST", "/threads/search"), ("POST", "/threads"), ("POST", "/runs/wait"),
    ("POST", "/runs/stream"), ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/info"),
    ("GET", "/metrics"), ("GET", "/"), ("POST", "/mcp/"), ("POST", "/a2a/manus"),
    ("GET", "/ui/manus"), ("PUT", "/store/items"), ("POST", "/assistants/search"),
    ("GET", "/app/api/options"), ("GET", "/app/api/threads"), ("GET", "/internal/truncate"),
    ("GET", "/noauth/threads"), ("GET", "/app/../threads/x"), ("GET", "/ok?check_db=1"),
)  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_answers_without_the_token(served: Served, method: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=served.url) as stranger:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-auth-scheme": "langsmith"}):
            answer = await stranger.request(method, path, headers=headers)
            assert answer.status_code == 401, (headers, answer.text)


def many_values() -> bytes:
    return b'{"metadata":[' + b"[]," * 1_500_000 + b"1]}"


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1 << 16):
        yield body[start : start + (1 << 16)]


@pytest.mark.parametrize("path", ["/threads", "/runs/wait", "/v1/chat/completions", "/ag-ui/manus"])
@pytest.mark.parametrize("in_chunks", [False, True])
async def test_json_that_would_fill_the_memory_is_refused(
    served: Served, path: str, in_chunks: bool
) -> None:
    headers = {"Content-Type": "application/json"}
    long = b'{"messages":"' + b"x" * (33 << 20) + b'"}'
    async with served.http() as client:
        for body, said in ((many_values(), "values"), (long, "MB")):
            content = in_parts(body) if in_chunks else body
            answer = await client.post(path, content=content, headers=headers)
            assert (answer.status_code, said in answer.text) == (413, True), answer.text[:200]
            assert len(answer.content) < 1000
        assert (await client.get("/ok")).status_code == 200


async def test_a_refusal_does_not_repeat_what_was_sent(served: Served) -> None:
    async with served.http() as client:
        answer = await client.post("/threads", json={"metadata": ["x" * 100_000]})
    assert answer.status_code == 422
    assert len(answer.content) < 10_000


async def test_a_file_may_be_larger_than_json(served: Served) -> None:
    async with served.http() as client:
        thread = (await client.post("/app/api/threads")).json()["id"]
        path = f"/app/api/threads/{thread}/files/large"
        answer = await client.put(path, content=b",[{" * (12 << 20))
    assert answer.status_code == 201, answer.text


async def test_the_page_and_a_sign_of_life_need_no_token(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url) as stranger:
        assert (await stranger.get("/ok")).json() == {"ok": True, "services": {}}
        assert (await stranger.get("/health")).json() == {"ok": True}
        page = await stranger.get("/app")
    assert page.status_code == 200
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert "'unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert served.token not in page.text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:2024", "", "127.0.0.1.evil.example"]
)
async def test_a_name_that_was_pointed_at_this_machine_gets_nothing(
    served: Served, host: str
) -> None:
    async with served.http(Host=host) as client:
        for path in ("/ok", "/app", "/app/api/threads", "/threads/search"):
            assert (await client.get(path)).status_code == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
async def test_pages_of_other_sites_are_refused_even_with_the_token(
    served: Served, origin: str
) -> None:
    async with served.http(Origin=origin) as client:
        started = await client.post("/runs", json={"assistant_id": "manus", "input": {}})
        asked = await client.options("/threads", headers={"Access-Control-Request-Method": "POST"})
        for answer in (started, asked, await client.get("/app/api/threads")):
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


async def test_a_form_of_another_site_starts_nothing(served: Served) -> None:
    body = '{"assistant_id": "manus", "input": {"messages": []}}'
    async with httpx.AsyncClient(base_url=served.url) as browser:
        for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "text/plain",
                        "Origin": served.url}):  # fmt: skip
            assert (await browser.post("/runs", content=body, headers=headers)).status_code == 401


async def test_studio_and_our_own_page_may_ask(served: Served) -> None:
    for origin in ("https://smith.langchain.com", served.url):
        async with served.http(Origin=origin) as client:
            answer = await client.post("/assistants/search", json={})
            assert answer.status_code == 200
    async with httpx.AsyncClient(base_url=served.url) as browser:
        asked = {
            "Origin": "https://smith.langchain.com",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        answer = await browser.options("/threads/search", headers=asked)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-headers"]


async def test_the_token_may_come_as_an_api_key(served: Served) -> None:
    async with get_client(url=served.url, api_key=served.token) as client:
        assert await client.assistants.search()


async def test_a_websocket_without_the_token_is_closed(served: Served) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"GET /threads/x/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b" 403 " in await reader.readline()
    writer.close()


def test_the_token_is_kept_for_the_person_alone(served: Served) -> None:
    path: Path = served.home / "server-token"
    assert path.read_text().strip() == served.token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(served.token) >= 40
