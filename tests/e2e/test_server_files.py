"""Files of a thread through the server: only its own, whole, and never run as a page of ours."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support.limits import BACKSTOP_S
from tests.support.serving import Page, Served, eventually, new_page

EVIL = "<img src=x onerror=alert(1)>.html"


async def workspace_of(page: Page) -> Path:
    return Path((await page.http.get(f"{page.base}/files")).json()["workspace"])


async def test_an_uploaded_file_is_listed_shown_and_downloaded(served: Served) -> None:
    async with new_page(served) as page:
        for name, body in ((EVIL, b"<script>alert(1)</script>"), ("sub/ü 100%.md", b"# Hi")):
            put = await page.http.put(f"{page.base}/files/{quote(name)}", content=body)
            assert put.status_code == 201, put.text
        listed = (await page.http.get(f"{page.base}/files")).json()["files"]
        assert [(file["path"], file["view"]) for file in listed] == [
            (EVIL, "html"), ("sub/ü 100%.md", "markdown"),
        ]  # fmt: skip
        async with httpx.AsyncClient(base_url=served.url) as frame:  # which has no token
            shown = await frame.get(listed[0]["url"], headers={"Sec-Fetch-Dest": "iframe"})
            assert shown.content == b"<script>alert(1)</script>"
            policy = shown.headers["content-security-policy"]
            assert policy.startswith("sandbox; default-src 'none'")
            assert shown.headers["x-content-type-options"] == "nosniff"
            assert shown.headers["content-disposition"].startswith("inline")
            opened = await frame.get(listed[0]["url"], headers={"Sec-Fetch-Dest": "document"})
            assert opened.headers["content-disposition"].startswith("attachment")
            saved = await frame.get(listed[1]["download"])
            assert saved.content == b"# Hi"
            assert saved.headers["content-disposition"] == (
                "attachment; filename*=UTF-8''%C3%BC%20100%25.md"
            )


async def test_a_link_opens_its_own_file_only(served: Served) -> None:
    async with new_page(served) as page:
        for name in ("mine.txt", "other.txt"):
            await page.http.put(f"{page.base}/files/{name}", content=b"x")
        listed = (await page.http.get(f"{page.base}/files")).json()["files"]
        ticket = listed[0]["url"].split("/")[3]
        async with httpx.AsyncClient(base_url=served.url) as frame:
            for path in (f"{ticket}/other.txt", f"{ticket[:-2]}AA/mine.txt", "x/mine.txt", "/mine"):
                assert (await frame.get(f"/app/files/{path}")).status_code in (401, 403, 404)


@pytest.mark.parametrize(
    "name",
    ["../x", "..%2fx", "%2e%2e/x", "%2e%2e%2f%2e%2e%2fx", "/etc/x", "%2fetc%2fx", "a/../../x",
     "link/x", "a%00b", "..", ".", "%2e", "x" * 300, ".openmanus/x", "openmanus.toml"],
)  # fmt: skip
async def test_no_path_leads_out_of_the_workspace(
    served: Served, name: str, tmp_path: Path
) -> None:
    async with new_page(served) as page:
        workspace = await workspace_of(page)
        await asyncio.to_thread(workspace.mkdir, parents=True)
        (workspace / "link").symlink_to(tmp_path)
        before = below(workspace.parent), below(tmp_path)
        status = await raw_put(served, f"{page.base}/files/{name}")
        assert status in (400, 403, 404, 405, 307), status
        assert (below(workspace.parent), below(tmp_path)) == before


async def test_links_and_special_files_are_not_served(served: Served, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    async with new_page(served) as page:
        await page.http.put(f"{page.base}/files/a.txt", content=b"a")
        workspace = await workspace_of(page)
        listed = (await page.http.get(f"{page.base}/files")).json()["files"]
        (workspace / "a.txt").unlink()
        (workspace / "a.txt").symlink_to(tmp_path / "secret")
        os.mkfifo(workspace / "pipe")
        async with httpx.AsyncClient(base_url=served.url, timeout=BACKSTOP_S) as frame:
            answer = await frame.get(listed[0]["url"])
            assert answer.status_code == 404
            assert "secret" not in answer.text.replace(str(tmp_path), "")
        names = [f["path"] for f in (await page.http.get(f"{page.base}/files")).json()["files"]]
        assert names == ["pipe"] or names == []


async def test_a_hundred_megabytes_arrive_whole_or_not_at_all(served: Served) -> None:
    block = os.urandom(1 << 20)

    async def body(count: int, *, fail: bool = False) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield block
        if fail:
            raise ConnectionResetError

    async with new_page(served) as page:
        put = await page.http.put(f"{page.base}/files/big.bin", content=body(100))
        assert put.status_code == 201, put.text
        assert put.json()["size"] == 100 << 20
        again = await page.http.put(f"{page.base}/files/big.bin", content=b"small")
        assert again.status_code == 409
        with pytest.raises(ConnectionResetError):
            await page.http.put(f"{page.base}/files/half.bin", content=body(20, fail=True))
        replaced = await page.http.put(f"{page.base}/files/big.bin?replace=1", content=b"small")
        assert replaced.status_code == 201
        assert await raw_put(served, f"{page.base}/files/huge.bin", length=2 << 30) == 413
        workspace = await workspace_of(page)
        await eventually(lambda: not [*workspace.rglob("*.part")])
        files = (await page.http.get(f"{page.base}/files")).json()["files"]
        assert [(file["path"], file["size"]) for file in files] == [("big.bin", 5)]


def below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if ".openmanus" not in path.parts}


async def raw_put(served: Served, target: str, length: int = 1) -> int:
    """Send a request as it stands: clients tidy paths up before they send them."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"PUT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {served.token}\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\nx".encode()
    )
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status
