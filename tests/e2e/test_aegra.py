"""Two processes of aegra with one PostgreSQL and one Redis, by the commands of docs/deploy.md."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.schema import Run

from tests.support.aegra import TOKEN, Cluster, Installed, Worker, page_environment, redis
from tests.support.cli import Cli
from tests.support.graphs import own_words
from tests.support.limits import BACKSTOP_S
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


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIServer]:
    """A model that orders what its task names, an item a step."""
    with OpenAIServer([next_order], loop=True) as server:
        yield server


def next_order(body: dict[str, Any]) -> Reply:
    task = next(one["content"] for one in body["messages"] if one["role"] == "user")
    done = sum(one["role"] == "tool" for one in body["messages"])
    name = own_words(task).split()[1]
    if done == EFFECTS:
        return Reply(f"{name} has all.")
    return Reply(calls=(Call("order", {"item": f"{name}-{done}"}),))


@contextlib.contextmanager
def a_cluster(
    installed: Installed, model: OpenAIServer, postgres: Postgres, folder: Path
) -> Generator[Cluster]:
    """Run no process yet; the database is new."""
    info = folder / "brought" / "shop-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "brought_shop.py").write_text(SHOP)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[openmanus_graph.tools]\nshop = brought_shop:order\n")
    database = f"aegra_{folder.name}".lower()
    postgres.execute(f'CREATE DATABASE "{database}"')
    env = {
        "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k", "OPENMANUS_MODEL": "openai:m",
        "PYTHONPATH": str(info.parent), "ORDER_BOOK": str(folder / "orders"),
        "XDG_CONFIG_HOME": str(folder / "config"), "OPENMANUS_HOME": str(folder / "home"),
        # A dead process is noticed sooner than by default.
        "LEASE_DURATION_SECONDS": "7", "HEARTBEAT_INTERVAL_SECONDS": "2",
        "REAPER_INTERVAL_SECONDS": "2", "OPENMANUS_LEASE_S": "5",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="redis") as short, redis(Path(short)) as redis_url:
        database_url = postgres.url(database)
        environment = page_environment(
            DATABASE_URL=database_url, REDIS_URL=redis_url, OPENMANUS_TOKEN=TOKEN
        )
        cluster = Cluster(installed, folder, environment, env, database_url)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def cluster(
    installed: Installed,
    model: OpenAIServer,
    postgres: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with a_cluster(installed, model, postgres, tmp_path_factory.mktemp("pair")) as cluster:
        cluster.start({"WORKER_COUNT": "0"}, {})
        yield cluster


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> list[Worker]:
    """Two processes, for tests that leave them as they are; the first only takes requests."""
    return cluster.workers


def orders(cluster: Cluster) -> list[str]:
    path = Path(cluster.env["ORDER_BOOK"])
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "restarted"])
async def test_all_runs_end_and_each_order_is_made_once_if_a_process_is(
    installed: Installed,
    model: OpenAIServer,
    postgres: Postgres,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    """Restarted means each of them, one after the other, while runs go on."""
    with a_cluster(installed, model, postgres, tmp_path) as cluster:
        await see_through(cluster, restarts=number == signal.SIGTERM)


def is_stopped_at_work(cluster: Cluster, worker: Worker) -> bool:
    """Stop a process; return True if it had runs then, else let it go on."""
    worker.process.send_signal(signal.SIGSTOP)
    with psycopg.connect(cluster.database_url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM runs WHERE status = 'running' AND claimed_by LIKE %s",
            (f"%-{worker.process.pid}%",),
        ).fetchone()
    if found and found[0]:
        return True
    worker.process.send_signal(signal.SIGCONT)
    return False


async def see_through(cluster: Cluster, *, restarts: bool) -> None:
    drain = {"WORKER_DRAIN_TIMEOUT": "1"}
    first, second = cluster.start(drain, drain)
    third: list[Worker] = []
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
        if restarts:
            third += await asyncio.to_thread(cluster.start, {})
            for worker in (first, second):
                await asyncio.to_thread(worker.end, signal.SIGTERM)
        else:
            await eventually(lambda: is_stopped_at_work(cluster, first))
            first.end(signal.SIGKILL)
    async with [*third, second][0].sdk() as left:
        ended = [await ended_run(left, run) for run in runs]
        states = [await left.threads.get_state(thread["thread_id"]) for thread in threads]
    assert Counter(run["status"] for run in ended) == {"success": RUNS}
    assert Counter(state["values"]["status"] for state in states) == {"finished": RUNS}
    expected = {f"n{number}-{item}" for number in range(RUNS) for item in range(EFFECTS)}
    assert Counter(line.split()[0] for line in orders(cluster)) == dict.fromkeys(expected, 1)
    for state in states:
        kinds = Counter(message["type"] for message in state["values"]["messages"])
        assert kinds == {"human": 1, "ai": EFFECTS + 1, "tool": EFFECTS}


async def ended_run(client: LangGraphClient, run: Run) -> Run:
    """Wait for a run's end, and have made an order that was cut off before the shop knew of it."""
    await client.runs.join(run["thread_id"], run["run_id"])
    ended = await client.runs.get(run["thread_id"], run["run_id"])
    if ended["status"] != "interrupted":
        return ended
    state = await client.threads.get_state(run["thread_id"])
    (question,) = (one for task in state["tasks"] for one in task["interrupts"])
    assert question["value"]["kind"] == "unknown_outcome"
    answer = {question["id"]: {"type": "approve"}}
    again = await client.runs.create(run["thread_id"], "manus", command={"resume": answer})
    return await ended_run(client, again)


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


async def statuses(http: httpx.AsyncClient) -> dict[str, str]:
    """Return the threads that a page lists, with their statuses: other tests have some, too."""
    listed = (await http.get("/app/api/threads")).json()["threads"]
    return {one["id"]: one["status"] for one in listed}


async def test_the_page_works_on_each_process(pair: list[Worker]) -> None:
    first, second = pair
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
        assert (await statuses(other))[thread] == "finished"
        state = (await other.get(f"/app/api/threads/{thread}/checkpoints")).json()
        assert state["checkpoints"]
        assert (await other.delete(f"/app/api/threads/{thread}")).is_success
        assert thread not in await statuses(http)


async def test_each_user_has_own_threads(
    cluster: Cluster, bare_cli: Cli, model: OpenAIServer
) -> None:
    first, second = cluster.workers
    bare_cli.env["OPENMANUS_DATABASE_URL"] = cluster.database_url
    tokens = {one: bare_cli.run("users", "add", one).stdout.strip() for one in ("alice", "bob")}
    headers = {one: {"Authorization": f"Bearer {token}"} for one, token in tokens.items()}
    wish = {"agent": "manus", "message": "Order figs"}
    run = {"assistant_id": "manus", "input": {"messages": [{"role": "user", "content": "Order x"}]}}
    async with first.http() as machine, second.http() as hers, second.http() as his:
        hers.headers.update(headers["alice"])
        his.headers.update(headers["bob"])
        thread = (await hers.post("/app/api/threads")).json()["id"]
        begun = await hers.post(f"/app/api/threads/{thread}/runs", json=wish)
        assert begun.status_code == httpx.codes.ACCEPTED, begun.text
        joined = await hers.get(f"/threads/{thread}/runs/{begun.json()['run_id']}/join")
        assert joined.is_success, joined.text
        assert (await hers.get(f"/threads/{thread}/state")).json()["values"]["answer"]
        created = await his.post("/threads", json={})
        assert created.is_success, created.text
        own = created.json()["thread_id"]
        for http in (his, machine):
            for path in ("", "/state", "/history", "/runs"):
                for base in ("/threads", "/app/api/threads"):
                    seen = await http.get(f"{base}/{thread}{path}")
                    assert seen.status_code in (403, 404, 405), (base, path, seen.text)
            found = (await http.post("/threads/search", json={})).json()
            assert thread not in {one["thread_id"] for one in found}
            assert thread not in await statuses(http)
            refused = await http.post(f"/threads/{thread}/runs/wait", json=run)
            assert refused.status_code == httpx.codes.NOT_FOUND
        asked = len(model.requests)
        for aim in (
            {"config": {"thread_id": thread, "metadata": {"thread_id": thread}}},
            {"config": {"configurable": {"thread_id": thread}}},
            {"metadata": {"thread_id": thread}}, {"checkpoint": {"thread_id": thread}},
        ):  # fmt: skip
            await his.post(f"/threads/{own}/runs/wait", json={**run, **aim})
        assert "figs" not in str([one.body for one in model.requests[asked:]])
        assert f"workspace/{thread}" not in str([one.body for one in model.requests[asked:]])
        assert len(model.requests) > asked
        found = await hers.get(f"/threads/{thread}/state")
        assert "Order x" not in found.text
        assert thread in await statuses(hers)


async def test_both_forms_of_the_token_open_it_and_monitors_need_none(pair: list[Worker]) -> None:
    worker = pair[0]
    async with httpx.AsyncClient(base_url=worker.url) as nobody:
        for path in ("/ok", "/health", "/ready"):
            assert (await nobody.get(path)).status_code == httpx.codes.OK
        for path in ("/threads/search", "/assistants/search"):
            refused = await nobody.post(path, json={})
            assert refused.status_code == httpx.codes.UNAUTHORIZED
    clients: list[Any] = [worker.sdk(), get_client(url=worker.url, api_key=TOKEN)]
    for client in clients:
        async with client:
            assert (await client.assistants.get("manus"))["graph_id"] == "manus"
            schemas = await client.assistants.get_schemas("manus")
            assert "max_steps" in schemas["context_schema"]["properties"]
    async with worker.http() as http:
        elsewhere = {"Origin": "https://elsewhere.example"}
        refused = await http.post("/threads", json={}, headers=elsewhere)
        assert refused.status_code == httpx.codes.FORBIDDEN


async def test_a_second_run_on_a_thread_is_refused_while_one_works(
    pair: list[Worker], model: OpenAIServer
) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def wait_first(body: dict[str, Any]) -> Reply:
        if "Wait" in str(body["messages"]):
            waiting.set()
            assert go_on.wait(BACKSTOP_S)
            return Reply("Waited.")
        return next_order(body)

    model.script[:] = [wait_first]
    wish = {"input": {"messages": [{"role": "user", "content": "Wait"}]}}
    try:
        async with pair[0].sdk() as one, pair[1].sdk() as other:
            thread = (await one.threads.create())["thread_id"]
            run = await one.runs.create(thread, "manus", **wish)
            assert await asyncio.to_thread(waiting.wait, BACKSTOP_S)
            for client in (one, other):
                with pytest.raises(httpx.HTTPStatusError) as refusal:
                    await client.runs.create(thread, "manus", **wish)
                assert refusal.value.response.status_code == httpx.codes.CONFLICT
            go_on.set()
            await other.runs.join(thread, run["run_id"])
            assert (await other.threads.get_state(thread))["values"]["answer"] == "Waited."
    finally:
        go_on.set()
        model.script[:] = [next_order]


async def test_what_its_ttl_deletes_is_gone_here_too_but_not_what_waits_or_is_pinned(
    installed: Installed, model: OpenAIServer, postgres: Postgres, tmp_path: Path
) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        asks = own_words(body["messages"][-1]["content"]) == "Ask"
        return Reply(calls=(Call("ask_human", {"inquire": "?"}),)) if asks else Reply("Said.")

    model.script[:] = [reply]
    ttl = json.dumps({"default_ttl": 0.2, "sweep_interval_minutes": 0.01})
    try:
        with a_cluster(installed, model, postgres, tmp_path) as cluster:
            (worker,) = cluster.start({"AEGRA_THREAD_TTL": ttl})
            async with worker.sdk() as client:
                ids: list[str] = []
                for text in ("Say", "Ask", "Say, pinned"):
                    ids.append((await client.threads.create())["thread_id"])
                    wish = {"messages": [{"role": "user", "content": text}]}
                    await client.runs.wait(ids[-1], "manus", input=wish)
                with psycopg.connect(cluster.database_url, autocommit=True) as connection:
                    table = "openmanus.threads"
                    pin = f"UPDATE {table} SET pinned = 1 WHERE id = %s"
                    connection.execute(pin.encode(), (ids[2],))

                    def count(name: str, column: str, thread: str) -> int:
                        query = f"SELECT count(*) FROM openmanus.{name} WHERE {column} = %s"
                        rows = connection.execute(query.encode(), (thread,)).fetchall()
                        return int(rows[0][0])

                    assert count("checkpoints", "thread_id", ids[0])
                    await eventually(lambda: not count("threads", "id", ids[0]))
                    assert not count("checkpoints", "thread_id", ids[0])
                    swept = "SELECT count(*) FROM thread WHERE thread_id = %s"

                    def is_swept() -> bool:
                        return connection.execute(swept.encode(), (ids[0],)).fetchone() == (0,)

                    await eventually(is_swept)
                    newer = (await client.threads.create())["thread_id"]
                    wish = {"messages": [{"role": "user", "content": "Say, later"}]}
                    await client.runs.wait(newer, "manus", input=wish)
                    await eventually(lambda: not count("threads", "id", newer))
                    for thread in ids[1:]:  # they are older, so their time is over, too
                        assert (await client.threads.get(thread))["thread_id"] == thread
                        assert count("checkpoints", "thread_id", thread)
    finally:
        model.script[:] = [next_order]


def test_a_batch_is_done_there(pair: list[Worker], bare_cli: Cli) -> None:
    bare_cli.env["OPENMANUS_TOKEN"] = TOKEN
    bare_cli.write("notes.txt", "read me")
    tasks = [{"id": f"t{n}", "task": f"Order b{n}", "files": ["notes.txt"]} for n in range(6)]
    bare_cli.write("tasks.jsonl", "\n".join(map(json.dumps, tasks)))
    batch = ("batch", "tasks.jsonl", "--out", "out.jsonl", "--jobs", "3", "--remote", pair[1].url)
    for _ in range(2):  # the second time nothing is left
        done = bare_cli.run(*batch)
        assert done.code == 0, done.stderr
    results = map(json.loads, (bare_cli.cwd / "out.jsonl").read_text().splitlines())
    found = {one["id"]: (one["status"], one["answer"]) for one in results}
    assert found == {f"t{n}": ("finished", f"b{n} has all.") for n in range(6)}


async def test_an_event_that_both_processes_get_is_one_run(
    cluster: Cluster, pair: list[Worker]
) -> None:
    configuration = cluster.folder / "config" / "openmanus" / "config.toml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(
        '[triggers.hook]\nkind = "webhook"\nsecret = "a hook\'s secret"\n'
        'task = "Order hooked for {title}"\n'
    )
    body = b'{"title": "x"}'
    digest = hmac.new(b"a hook's secret", body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": "d1"}
    async with httpx.AsyncClient(timeout=BACKSTOP_S) as client:
        sending = [
            client.post(f"{one.url}/hooks/hook", content=body, headers=headers)
            for one in [*pair, *pair, pair[0]]
        ]
        assert [one.status_code for one in await asyncio.gather(*sending)] == [200] * 5

    def states() -> list[tuple[str]]:
        with psycopg.connect(cluster.database_url) as database:
            return database.execute("SELECT state FROM openmanus.deliveries").fetchall()

    await eventually(lambda: states() == [("delivered",)])
    ordered = [one.split()[0] for one in orders(cluster) if one.startswith("hooked-")]
    assert ordered == [f"hooked-{number}" for number in range(EFFECTS)]
