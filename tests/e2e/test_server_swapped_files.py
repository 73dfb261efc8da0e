"""The server's file routes beside a program that swaps files for links out, and for pipes."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_server_files import workspace_of
from tests.support.limits import BACKSTOP_S
from tests.support.serving import Served, new_page
from tests.support.swapping import FOLDER, swapping

pytestmark = pytest.mark.slow

NAMES = ("a.txt", "page.html", "image.png")
SECRET = b"a-secret-of-the-host"
ROUNDS = 150


async def test_no_route_shows_the_host_or_hangs_while_files_are_swapped(
    served: Served, tmp_path: Path
) -> None:
    host = tmp_path / "host"
    host.mkdir()
    for name in NAMES:
        (host / name).write_bytes(SECRET)
    async with (
        new_page(served) as page,
        httpx.AsyncClient(base_url=served.url, timeout=BACKSTOP_S) as frame,
    ):
        paths = [*NAMES, *(f"{FOLDER}/{name}" for name in NAMES)]
        for path in paths:
            put = await page.http.put(f"{page.base}/files/{path}", content=b"mine")
            assert put.status_code == 201
        root = await workspace_of(page)
        listed = (await page.http.get(f"{page.base}/files")).json()["files"]
        urls = [file[kind] for file in listed for kind in ("url", "download")]
        before = {path.name: path.read_bytes() for path in host.iterdir()}

        async def ask(call: Any) -> str:
            answer: httpx.Response = await call
            assert answer.status_code < 500, answer.text
            assert SECRET not in answer.content
            return f"{answer.request.method} {answer.status_code}"

        seen = set[str]()
        with swapping(root, host, *NAMES):
            for _ in range(ROUNDS):
                calls = [frame.get(url) for url in urls]
                calls += [page.http.get(f"{page.base}/files")]
                calls += [
                    page.http.put(f"{page.base}/files/{path}?replace=1", content=b"mine")
                    for path in paths[:2]
                ]
                calls += [page.http.post(f"{page.base}/scripts/{path}") for path in paths[:2]]
                seen |= set(await asyncio.gather(*map(ask, calls)))
        assert {"GET 200", "GET 404"} <= seen
        assert {path.name: path.read_bytes() for path in host.iterdir()} == before


async def test_pipes_and_devices_in_a_workspace_hang_nothing(
    served: Served, tmp_path: Path
) -> None:
    async with (
        new_page(served) as page,
        httpx.AsyncClient(base_url=served.url, timeout=BACKSTOP_S) as frame,
    ):
        for name in ("a.txt", "image-2.png", "a.chart.json", "plan.md", "page.html"):
            await page.http.put(f"{page.base}/files/{name}", content=b"x")
        root = await workspace_of(page)
        listed = (await page.http.get(f"{page.base}/files")).json()["files"]
        for number, file in enumerate(listed):
            path = root / file["path"]
            path.unlink()
            if number % 2:
                path.symlink_to("/dev/zero")
            else:
                os.mkfifo(path)
        (root / "zeros").symlink_to("/dev")
        answers = await asyncio.gather(
            *(frame.get(file["url"]) for _ in range(20) for file in listed),
            *(frame.get(file["download"]) for file in listed),
        )
        assert {answer.status_code for answer in answers} == {404}
        for file in listed:
            for replace in ("", "?replace=1"):
                url = f"{page.base}/files/{file['path']}{replace}"
                put = await page.http.put(url, content=b"y")
                assert put.status_code in (400, 409), put.text
            scripts = await page.http.post(f"{page.base}/scripts/{file['path']}")
            assert scripts.status_code == 404
        for path in ("zeros/zero", "zeros/null", "zeros/new"):
            assert (
                await page.http.put(f"{page.base}/files/{path}", content=b"y")
            ).status_code == 400
        assert (await page.http.get(f"{page.base}/files")).status_code == 200
