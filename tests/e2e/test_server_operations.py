"""The server deletes old threads by itself, answers probes, and logs lines of JSON."""

import asyncio
import json
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from langchain_core.messages import HumanMessage

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.files import config_home
from openmanus_graph.config.homes import make_folder
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served, eventually, new_page
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

OLD, PINNED, NEW = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


def write_threads(home: Path) -> Threads:
    """Write three threads into a home; two are 40 days old."""
    make_folder(home)
    database = open_database(DatabaseUrl.in_folder(home))
    threads = Threads(database)
    for thread in (OLD, PINNED, NEW):
        threads.begin(thread, "manus", "say", {}, HumanMessage("say"))
        threads.end(thread, "finished")
        JournalTable(database).write(thread, [(1, '{"type": "final"}')])
    database.run("UPDATE threads SET updated = datetime('now', '-40 days') WHERE id != ?", (NEW,))
    database.run("UPDATE threads SET pinned = 1 WHERE id = ?", (PINNED,))
    return threads


@pytest.mark.parametrize(
    ("config", "env"),
    [('[storage]\nkeep = "30d"\n', {}), ("", {"LANGGRAPH_THREAD_TTL": "43200"})],
    ids=["keep", "ttl"],
)
async def test_old_threads_are_deleted_right_after_a_start(
    tmp_path: Path, zygote: Zygote, config: str, env: Mapping[str, str]
) -> None:
    """By our own key, and by LangGraph's, in minutes."""
    served = Served(tmp_path / "own", env, zygote=zygote)
    threads = await asyncio.to_thread(write_threads, served.home)
    config_home().mkdir(parents=True, exist_ok=True)
    (config_home() / "config.toml").write_text(config)
    with served:
        await eventually(lambda: threads.find(OLD) is None)
        async with served.sdk() as client:
            for thread in (PINNED, NEW):
                assert (await client.threads.get(thread))["thread_id"] == thread

            async def listed() -> set[str]:
                return {one["thread_id"] for one in await client.threads.search(limit=10)}

            async with asyncio.timeout(60):
                while await listed() != {PINNED, NEW}:  # noqa: ASYNC110  # nobody announces it
                    await asyncio.sleep(0.02)
        assert JournalTable(open_database(DatabaseUrl.in_folder(served.home))).last(OLD) == 0
        threads.begin(OLD, "manus", "again", {}, None)


async def test_a_run_that_waits_keeps_its_thread(
    tmp_path: Path, zygote: Zygote, model: OpenAIServer
) -> None:
    env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
    with Served(tmp_path / "own", env, options=("--jobs", "1"), zygote=zygote) as served:
        database = open_database(DatabaseUrl.in_folder(served.home))
        model.add(Reply("said"))
        async with new_page(served) as working, new_page(served) as waiting:
            await waiting.ask(message="Say.")
            await waiting.final()
            await eventually(lambda: _status(database, waiting.thread) == "finished")
            database.run("UPDATE threads SET updated = datetime('now', '-40 days')")
            wait = "touch begun; until [ -e go ]; do sleep 0.02; done"
            model.add(Reply(calls=(Call("bash", {"command": wait}),)), Reply("x"), Reply("y"))
            await working.ask(message="Work.")
            begun = served.folder / "workspace" / working.thread / "begun"
            await eventually(begun.exists)
            await waiting.ask(message="More.")  # there is one job at a time
            assert Threads(database).expired({"finished": 86400.0}) == []
            begun.with_name("go").touch()
            await waiting.final()


def _status(database: object, thread: str) -> str:
    found = Threads(database).find(thread)  # type: ignore[arg-type]
    return found.status if found else ""


async def test_probes_tell_whether_the_database_answers_and_no_more(
    tmp_path: Path, zygote: Zygote
) -> None:
    with Served(tmp_path / "own", zygote=zygote) as served:
        database = served.home / "openmanus.db"
        async with httpx.AsyncClient(base_url=served.url) as stranger:

            async def probe(path: str) -> tuple[int, dict[str, object]]:
                answer = await stranger.get(path)
                return answer.status_code, answer.json()

            for path in ("/ready", "/health"):
                assert await probe(path) == (200, {"ok": True})
            await asyncio.to_thread(database.rename, database.with_name("away.db"))
            for path in ("/ready", "/health"):
                assert await probe(path) == (503, {"ok": False})
            assert (await probe("/ok"))[0] == 200
            assert (await stranger.get("/ready?x=1")).status_code == 401
            await asyncio.to_thread(database.with_name("away.db").rename, database)
            assert await probe("/ready") == (200, {"ok": True})


async def test_the_log_is_lines_of_json_without_secrets(
    tmp_path: Path, zygote: Zygote, model: OpenAIServer
) -> None:
    key = "quite-secret-and-without-any-pattern"
    env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m", "OPENAI_API_KEY": key}
    options = ("--log-format", "json", "--log-level", "INFO")
    with Served(tmp_path / "own", env, options=options, zygote=zygote) as served:
        model.add(Reply(status=401, error={"error": {"message": f"The key {key} is wrong."}}))
        wish = {"messages": [{"role": "user", "content": "Say."}]}
        async with served.sdk() as client:
            thread = (await client.threads.create())["thread_id"]
            ended = await client.runs.wait(thread, "manus", input=wish)
            assert ended["status"] == "failed"
        async with served.http() as http:
            for secret in (key, served.token):
                await http.get(f"/app/api/threads/{secret}")
        await asyncio.to_thread(served.stop, signal.SIGTERM)
        lines = [json.loads(line) for line in served.log.splitlines()]
        assert len(lines) > 3
        for line in lines:
            assert {"time", "level", "message"} <= line.keys(), line
        of_run = [line for line in lines if line.get("thread") == thread]
        assert of_run
        assert all(uuid.UUID(line["run"]) for line in of_run)
        assert any(line.get("user") == "owner" for line in of_run)
        assert key not in served.log
        assert served.token not in served.log
