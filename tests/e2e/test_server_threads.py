"""The server's list of threads: searched, pinned, archived, and changed in bulk."""

import asyncio
import uuid
from typing import Any

import pytest

from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Page, Served, new_page

pytestmark = pytest.mark.slow


async def ids(page: Page, **query: str | bool) -> list[str]:
    answer = await page.http.get("/app/api/threads", params={"limit": 500, **query})
    return [thread["id"] for thread in answer.json()["threads"]]


async def bulk(page: Page, action: str, *threads: str) -> Any:
    body = {"action": action, "ids": threads}
    answer = await page.http.post("/app/api/threads/bulk", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_thread_is_found_by_what_was_said_shown_and_answered(
    served: Served, served_model: OpenAIServer
) -> None:
    ask = Call("ask_human", {"inquire": "Which quincunx?"})
    shell = Call("bash", {"command": "echo 'first'; echo 'xylograph 木版画 of the sheet'"})
    served_model.add(
        Reply("Let me see.", calls=(shell,)), Reply(calls=(ask,)), Reply("A palimpsest.")
    )
    async with new_page(served) as page:
        await page.ask(agent="manus", message="Look at the Übersicht.")
        await page.final()
        question = page.seen[-2]["id"]
        answer = {"type": "respond", "message": "The one of Zürich."}
        await page.ask(answers={question: answer})
        await page.final()
        for words, line in {
            "XYLOGR": "xylograph 木版画 of the sheet", "版画": "xylograph 木版画 of the sheet",
            "quincunx": "Which quincunx?", "zurich": "The one of Zürich.",
            "palimp": "A palimpsest.", "ubersicht": "Look at the Übersicht.",
        }.items():  # fmt: skip
            answered = await page.http.get("/app/api/threads", params={"q": words})
            found = {one["id"]: one["found"] for one in answered.json()["threads"]}
            assert found == {page.thread: line}, words
        assert await ids(page, q="palimp zurich xylo") == [page.thread]
        assert await ids(page, q='palimp "nowhere') == []
        assert (await bulk(page, "delete", page.thread))["done"] == [page.thread]
        assert await ids(page, q="palimp") == []


async def test_threads_are_pinned_archived_and_deleted_in_bulk(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(*(Reply("Done.") for _ in range(3)), Reply("Slow.", delay_s=60))
    made: list[str] = []
    for _ in range(3):
        async with new_page(served) as page:
            await page.ask(agent="manus", message="Do it.")
            await page.final()
            made.append(page.thread)
    nowhere = str(uuid.uuid4())
    async with new_page(served) as page:
        await page.ask(agent="manus", message="Work for long.")
        await page.until(lambda event: event["type"] == "think_start")
        path = "/app/api/threads"
        pinned = await page.http.patch(f"{path}/{made[0]}", json={"pinned": True, "title": "A  b"})
        assert pinned.status_code == 204
        threads = (await page.http.get(path, params={"limit": 1})).json()
        first = threads["threads"][0]
        assert (first["id"], first["title"], first["pinned"]) == (made[0], "A b", True)
        second = (await page.http.get(path, params={"limit": 1, "before": threads["next"]})).json()
        assert [one["id"] for one in second["threads"]] == [page.thread]

        answer = await bulk(page, "archive", *made, made[0], nowhere, "a/b")
        assert answer["done"] == made
        assert set(answer["refused"]) == {nowhere, "a/b"}
        assert not {*made} & {*await ids(page)}
        assert [*await ids(page, archived=True)][0] == made[0]
        assert {*made} <= {*await ids(page, archived=True)}
        assert (await bulk(page, "unarchive", made[1]))["refused"] == {}
        assert made[1] in await ids(page)

        answer = await bulk(page, "delete", made[1], page.thread, made[2])
        assert answer["done"] == [made[1], made[2]]
        assert "Stop it first" in answer["refused"][page.thread]
        assert page.thread in await ids(page)
        for wrong in ({"pinned": "maybe"}, {"status": "finished"}, {"title": "  "}):
            refused = await page.http.patch(f"{path}/{made[0]}", json=wrong)
            assert refused.status_code == 422, wrong
        bodies: list[dict[str, Any]] = [
            {"action": "delete", "ids": ["x"] * 501},
            {"action": "burn", "ids": []},
            {"action": "delete"},
        ]
        for body in bodies:
            refused = await page.http.post(f"{path}/bulk", json=body)
            assert refused.status_code == 422, body
        await asyncio.gather(*(bulk(page, action, made[0]) for action in ("archive", "delete")))
        assert made[0] not in await ids(page, archived=True)
        await page.http.post(f"{page.base}/stop")
        await page.final()
