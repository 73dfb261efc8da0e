"""`langgraph dev`: our graph in the server that Studio talks to, without `--allow-blocking`."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client

from openmanus_graph import tell
from openmanus_graph.interfaces.server import server_config
from openmanus_graph.state.manus import ManusOutput, ManusState
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

ROOT = Path(__file__).parent.parent.parent
TOKEN = "a-token-of-the-tests"


@pytest.fixture
def model() -> Iterator[OpenAIServer]:
    with OpenAIServer(strict=True) as server:
        yield server


@pytest.fixture
def address(model: OpenAIServer, tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "server.log").open("w")
    server = subprocess.Popen(
        [Path(sys.executable).parent / "langgraph", "dev", "--no-browser", "--no-reload",
         "--port", str(port), "--n-jobs-per-worker", "8"],
        cwd=ROOT,
        env={
            **os.environ,
            "OPENAI_BASE_URL": model.base_url,
            "OPENMANUS_MODEL": "openai:m",
            "OPENMANUS_TOKEN": TOKEN,
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        log.close()
    logged = (tmp_path / "server.log").read_text()
    assert "BlockingError" not in logged
    assert "Studio needs the header Authorization: Bearer TOKEN." in logged
    assert TOKEN not in logged


async def ready(address: str) -> Any:
    """Wait until the server answers, and return a client."""
    async with httpx.AsyncClient() as client, asyncio.timeout(BACKSTOP_S):
        while True:
            try:
                if (await client.get(f"{address}/ok")).status_code == 200:
                    return get_client(url=address, api_key=TOKEN)
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def test_a_run_with_tools_and_a_question(
    model: OpenAIServer, address: str, tmp_path: Path
) -> None:
    workspace = tmp_path / "files"
    model.add(
        Reply(
            calls=(
                Call("python_execute", {"code": "print(6 * 7)"}),
                Call("bash", {"command": "echo hi > out.txt"}),
            )
        ),
        Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)),
        Reply(text="It is 42."),
    )
    async with await ready(address) as client:
        async with httpx.AsyncClient() as stranger:
            assert (await stranger.post(f"{address}/threads/search", json={})).status_code == 401
        assistants = await client.assistants.search()
        assert "manus" in [assistant["graph_id"] for assistant in assistants]
        schemas = await client.assistants.get_schemas(assistants[0]["assistant_id"])
        assert "max_steps" in schemas["context_schema"]["properties"]
        internals = {*ManusState.__annotations__} - {*ManusOutput.__annotations__}
        internals -= {"step_count", "plans"}
        assert not internals & {*schemas["state_schema"]["properties"]}
        thread = (await client.threads.create())["thread_id"]
        context = {"workspace": str(workspace)}
        message = {"messages": [{"role": "user", "content": "What is 6 times 7?"}]}
        await client.runs.wait(thread, "manus", input=message, context=context)
        state = await client.threads.get_state(thread)
        assert state["interrupts"][0]["value"]["question"] == "Go on?"
        assert state["values"]["step_count"] == 2
        assert not internals & {*state["values"]}
        await tell(thread, "Be brief.")
        values = await client.runs.wait(thread, "manus", command={"resume": "yes"}, context=context)
        assert values["answer"] == "It is 42."
        assert values["status"] == "finished"
        assert [artifact["path"] for artifact in values["artifacts"]] == ["out.txt"]
        results = [m["content"] for m in values["messages"] if m["type"] == "tool"]
        assert results[0] == "42"
        assert results[2] == "yes"
        reported = [m["content"] for m in values["messages"] if m["type"] == "human"]
        assert reported == ["What is 6 times 7?", "Be brief."]


def test_the_file_says_what_serve_says() -> None:
    written = json.loads((ROOT / "langgraph.json").read_text())
    served = server_config()
    assert written["graphs"] == served["graphs"]
    for part in ("http", "auth", "checkpointer", "store"):
        assert written[part] == served[part]
