"""Two processes of aegra with one PostgreSQL and one Redis, by the commands of docs/deploy.md."""

import asyncio
import json
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.support.aegra import TOKEN, Cluster, Installed, Worker, page_environment, redis
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres
from tests.support.serving import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("aegra")]
RUNS, EFFECTS = 100, 3
SHOP = '''
"""A shop as a tool: a line of a file for each order. It can be asked what it knows."""
import os
from pathlib import Path

from openmanus_graph import manus_tool

BOOK = Path(os.environ["ORDER_BOOK"])


async def known(args, key):
    lines = BOOK.read_text().splitlines() if BOOK.exists() else []
    return "ordered" if any(line.endswith(key) for line in lines) else None


@manus_tool(effect="external", approval=False, reconcile=known)
def order(item: str, idempotency_key: str) -> str:
    """Order an item.

    Args:
        item: Which.
        idempotency_key: Of this order.
    """
    with BOOK.open("a") as book:
        book.write(f"{item} {idempotency_key}\\n")
    return "ordered"
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The page's installation, once for all tests."""
    return Installed.into(tmp_path_factory.mktemp("deploy") / "clone")


@pytest.fixture
def model() -> Iterator[OpenAIServer]:
    """A model that orders what its task names, an item a step."""
    with OpenAIServer([next_order], loop=True) as server:
        yield server


def next_order(body: dict[str, Any]) -> Reply:
    (task,) = [one["content"] for one in body["messages"] if one["role"] == "user"][:1]
    done = sum(one["role"] == "tool" for one in body["messages"])
    name = str(task).split()[1]
    if done == EFFECTS:
        return Reply(f"{name} has all.")
    return Reply(calls=(Call("order", {"item": f"{name}-{done}"}),))


@pytest.fixture
def cluster(
    installed: Installed, model: OpenAIServer, postgres: Postgres, tmp_path: Path
) -> Iterator[Cluster]:
    """No process yet; a database of its own."""
    info = tmp_path / "brought" / "shop-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "brought_shop.py").write_text(SHOP)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[openmanus_graph.tools]\nshop = brought_shop:order\n")
    database = f"aegra_{tmp_path.name}".lower()
    postgres.execute(f'CREATE DATABASE "{database}"')
    env = {
        "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k", "OPENMANUS_MODEL": "openai:m",
        "PYTHONPATH": str(info.parent), "ORDER_BOOK": str(tmp_path / "orders"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"), "OPENMANUS_HOME": str(tmp_path / "home"),
        "OPENMANUS_WORKSPACE_URL": str(tmp_path / "files"),
        # A dead process is noticed sooner than by default.
        "LEASE_DURATION_SECONDS": "7", "HEARTBEAT_INTERVAL_SECONDS": "2",
        "REAPER_INTERVAL_SECONDS": "2", "OPENMANUS_LEASE_S": "5",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="redis") as short, redis(Path(short)) as redis_url:
        environment = page_environment(
            DATABASE_URL=postgres.url(database), REDIS_URL=redis_url, OPENMANUS_TOKEN=TOKEN
        )
        cluster = Cluster(installed, tmp_path, environment, env)
        yield cluster
        cluster.close()


def orders(cluster: Cluster) -> list[str]:
    path = Path(cluster.env["ORDER_BOOK"])
    return path.read_text().splitlines() if path.exists() else []


async def test_all_runs_end_and_each_order_is_made_once_if_a_process_is_killed(
    cluster: Cluster, postgres: Postgres, tmp_path: Path
) -> None:
    first, second = cluster.start(2)
    async with first.sdk() as one, second.sdk() as other:
        threads = [await one.threads.create() for _ in range(RUNS)]
        runs = [
            await client.runs.create(
                thread["thread_id"], "manus",
                input={"messages": [{"role": "user", "content": f"Order n{number}"}]},
            )
            for number, (thread, client) in enumerate(
                zip(threads, [one, other] * (RUNS // 2), strict=True)
            )
        ]  # fmt: skip
        await eventually(lambda: len(orders(cluster)) > RUNS * EFFECTS // 3)
        first.end(signal.SIGKILL)
        with psycopg.connect(postgres.url(f"aegra_{tmp_path.name}".lower())) as connection:
            left = connection.execute(
                "SELECT count(*) FROM runs WHERE status = 'running' AND claimed_by LIKE %s",
                (f"%-{first.process.pid}%",),
            ).fetchone()
        assert left is not None
        assert left[0] > 0, "it was killed when it had nothing to do"
        for run in runs:
            await other.runs.join(run["thread_id"], run["run_id"])
        ended = [await other.runs.get(run["thread_id"], run["run_id"]) for run in runs]
        states = [await other.threads.get_state(thread["thread_id"]) for thread in threads]
    assert Counter(run["status"] for run in ended) == {"success": RUNS}
    assert Counter(state["values"]["status"] for state in states) == {"finished": RUNS}
    expected = {f"n{number}-{item}" for number in range(RUNS) for item in range(EFFECTS)}
    assert Counter(line.split()[0] for line in orders(cluster)) == dict.fromkeys(expected, 1)
    for state in states:
        kinds = Counter(message["type"] for message in state["values"]["messages"])
        assert kinds == {"human": 1, "ai": EFFECTS + 1, "tool": EFFECTS}


async def follow(worker: Worker, thread: str, until_type: str) -> list[dict[str, Any]]:
    """Return the events of a thread as a page that is served by this process gets them."""
    events: list[dict[str, Any]] = []
    async with (
        worker.http() as http,
        http.stream("GET", f"/app/api/threads/{thread}/events") as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1].get("type") == until_type:
                    return events
    raise AssertionError("the stream ended")


async def test_the_page_works_on_each_process(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    async with first.http() as http, second.http() as other:
        assert "<html" in (await http.get("/app", headers={"Authorization": ""})).text
        thread = (await http.post("/app/api/threads")).json()["id"]
        wish = {"agent": "manus", "message": "Order tea"}
        begun = await http.post(f"/app/api/threads/{thread}/runs", json=wish)
        assert begun.status_code == httpx.codes.ACCEPTED, begun.text
        for worker in (first, second):
            async with asyncio.timeout(60):
                events = await follow(worker, thread, "final")
            assert events[-1]["answer"] == "tea has all."
        (listed,) = (await other.get("/app/api/threads")).json()["threads"]
        assert (listed["id"], listed["status"]) == (thread, "finished")
        again = await other.post(f"/app/api/threads/{thread}/runs", json={"message": "Order tea"})
        assert again.status_code == httpx.codes.ACCEPTED, again.text
