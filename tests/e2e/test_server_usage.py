"""Usage, metrics, quotas and turns of a real server."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import BIN, Page, Served, eventually, new_page
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

JOBS = 4


@pytest.fixture
def model() -> Iterator[OpenAIServer]:
    with OpenAIServer(strict=True) as server:
        yield server


@pytest.fixture
def own(tmp_path: Path, zygote: Zygote, model: OpenAIServer) -> Served:
    """A server of this test's own, which is not started yet."""
    env = {
        "OPENAI_BASE_URL": model.base_url,
        "OPENMANUS_MODEL": "openai:m",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    return Served(tmp_path / "own", env, ("--jobs", str(JOBS)), zygote)


def configure(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "config" / "openmanus"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def execute(served: Served, statement: str, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(served.home / "openmanus.db", timeout=BACKSTOP_S)) as db, db:
        for row in rows:
            db.execute(statement, row)
        return [] if rows else db.execute(statement).fetchall()


def client_of(served: Served, name: str) -> httpx.AsyncClient:
    """Add a user, and return a client with the user's token."""
    argv = [str(BIN / "openmanus"), "users", "add", name]
    env = {**os.environ, "OPENMANUS_HOME": str(served.home)}
    token = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    headers = {"Authorization": f"Bearer {token.strip()}"}
    return httpx.AsyncClient(base_url=served.url, headers=headers, timeout=BACKSTOP_S)


async def page_of(http: httpx.AsyncClient) -> Page:
    return Page(http, (await http.post("/app/api/threads", json={})).json()["id"])


def metrics_in(text: str) -> dict[str, Any]:
    """Read Prometheus's text format."""
    return {
        f"{sample.name} {' '.join(sample.labels.values())}".strip(): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_run_is_in_the_usage_and_in_the_metrics(own: Served, model: OpenAIServer) -> None:
    model.add(Reply(text="done"), Reply(text="done"))
    with own:
        async with new_page(own) as page:
            await page.ask(message="Do it.")
            await page.final()
            async with own.sdk() as client:
                thread = await client.threads.create()
                given = {"messages": [{"role": "user", "content": "Do it."}]}
                await client.runs.wait(thread["thread_id"], "manus", input=given)
            (await page.http.post("/app/api/demo", json={})).raise_for_status()
            found = (await page.http.get("/app/api/usage?by=trigger&since=2d")).json()
            text = (await page.http.get("/metrics")).text
            wrong = [
                (await page.http.get(f"/app/api/usage?{query}")).status_code
                for query in ("since=ever", "by=colour", "since=0d")
            ]
            async with httpx.AsyncClient(base_url=own.url) as stranger:
                doors = "/metrics", "/app/metrics", "/app/api/usage"
                refused = [(await stranger.get(path)).status_code for path in doors]
    rows = {row.pop("name"): row for row in found["rows"]}
    assert rows.keys() == {"page", "api"}
    assert rows["page"].pop("seconds") > 0
    assert rows["page"].pop("model_seconds") > 0
    assert rows["page"] == {
        "model_calls": 1, "input_tokens": 100, "cached_tokens": 40, "output_tokens": 20,
        "cost_usd": 0, "runs": 1, "finished": 1,
    }  # fmt: skip
    assert found["total"]["runs"] == 2
    assert [one["name"] for one in found["threads"]] == ["Do it.", "Do it."]
    read = metrics_in(text)
    assert read["openmanus_runs_total manus finished"] == 2
    assert read["openmanus_model_tokens_total openai:m cached"] == 80
    assert read["openmanus_model_tokens_total openai:m input"] == 120
    assert read["openmanus_model_calls_total openai:m"] == 2
    assert read["process_resident_memory_bytes"] > 1e6
    assert wrong == [422, 422, 422]
    assert refused == [401, 401, 401]


async def test_metrics_need_no_token_if_the_configuration_says_so(
    own: Served, tmp_path: Path
) -> None:
    configure(tmp_path, "[server]\nmetrics_public = true\n")
    with own:
        async with httpx.AsyncClient(base_url=own.url) as stranger:
            answer = await stranger.get("/metrics")
            refused = (await stranger.get("/app/api/usage")).status_code
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert metrics_in(answer.text)["openmanus_runs_running"] == 0
    assert refused == 401


async def test_a_killed_servers_run_counts_as_interrupted_once(
    own: Served, model: OpenAIServer
) -> None:
    asked, go = threading.Event(), threading.Event()

    def answer(_: dict[str, Any]) -> Reply:
        asked.set()
        go.wait(BACKSTOP_S)
        return Reply(text="done")

    model.add(answer, Reply(text="done"))
    own.start()
    async with new_page(own) as page:
        await page.ask(message="Do it.")
        await asyncio.to_thread(asked.wait, BACKSTOP_S)
        assert (process := own.process) is not None
        process.kill()
        await asyncio.to_thread(lambda: process.wait())
    go.set()
    with own:
        async with own.http() as http:
            for _ in range(2):
                total = (await http.get("/app/api/usage")).json()["total"]
                assert (total["runs"], total["finished"]) == (1, 0)
            again = Page(http, page.thread)
            await again.ask(resume=True)
            assert (await again.final())["status"] == "finished"
            total = (await http.get("/app/api/usage")).json()["total"]
    assert (total["runs"], total["finished"], total["model_calls"]) == (2, 1, 1)
    assert execute(own, "SELECT status FROM run_usage ORDER BY began") == [
        ("interrupted",),
        ("finished",),
    ]


async def test_a_run_that_waits_for_its_turn_is_not_lost_when_the_server_is_killed(
    own: Served, model: OpenAIServer, tmp_path: Path
) -> None:
    configure(tmp_path, "[server]\nquotas = { runs = 1 }\n")
    asked = threading.Event()

    def hang(body: dict[str, Any]) -> Reply:
        asked.set()
        return Reply(delay_s=BACKSTOP_S)

    model.add(hang, Reply(text="done"))
    with own:
        async with client_of(own, "ada") as ada:
            working, waiting = [await page_of(ada) for _ in range(2)]
            await working.ask(message="One.")
            await eventually(asked.is_set)
            await waiting.ask(message="Two.")
        await asyncio.to_thread(own.stop, signal.SIGKILL)
        await asyncio.to_thread(own.start)
        async with httpx.AsyncClient(
            base_url=own.url, headers=ada.headers, timeout=BACKSTOP_S
        ) as waiting.http:
            assert (await waiting.http.get(waiting.base)).json()["status"] == "interrupted"
            await waiting.ask(resume=True)
            assert (await waiting.final())["answer"] == "done"
    assert "Two." in str(model.requests[-1].messages)


async def test_a_users_hundred_runs_do_not_starve_another_users_one(
    own: Served, model: OpenAIServer
) -> None:
    asked, go = list[str](), threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        asked.append("bob" if "bob" in str(body["messages"][-1]["content"]) else "ada")
        go.wait(BACKSTOP_S)
        return Reply(text="done")

    model.add(*[answer] * 101)
    with own:
        async with client_of(own, "ada") as ada, client_of(own, "bob") as bob:
            for _ in range(100):
                await (await page_of(ada)).ask(message="A task of ada.")
            await (await page_of(bob)).ask(message="A task of bob.")

            def numbers() -> dict[str, Any]:
                return metrics_in(httpx.get(f"{own.url}/metrics", headers=own.headers).text)

            await eventually(lambda: numbers()["openmanus_runs_waiting"] == 101 - JOBS)
            assert asked == ["ada"] * JOBS
            assert numbers()["openmanus_runs_running"] == JOBS
            go.set()
            await eventually(lambda: len(asked) == 101)
    assert asked.index("bob") < 3 * JOBS


async def test_a_quota_of_runs_queues_what_is_over_it(
    own: Served, model: OpenAIServer, tmp_path: Path
) -> None:
    configure(tmp_path, "[server]\nquotas = { runs = 1, workspace_mb = 1 }\n")
    asked, go = list[str](), threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        asked.append("asked")
        go.wait(BACKSTOP_S)
        return Reply(text="done")

    model.add(answer, answer)
    with own:
        async with own.http() as http, client_of(own, "ada") as ada:
            first, second = [await page_of(ada) for _ in range(2)]
            await first.ask(message="One.")
            await eventually(lambda: bool(asked))
            await second.ask(message="Two.")
            text = (await http.get("/metrics")).text
            assert metrics_in(text)["openmanus_runs_running"] == 1
            assert asked == ["asked"]
            go.set()
            assert [(await page.final())["status"] for page in (first, second)] == ["finished"] * 2
            small, large = b"x" * 700_000, b"x" * 400_000
            stored = await first.http.put(f"{first.base}/files/a.bin", content=small)
            refused = await second.http.put(f"{second.base}/files/b.bin", content=large)
    assert stored.status_code == 201
    assert refused.status_code == 413
    assert "MB that your quota for files has left" in refused.json()["detail"]
