"""Calls that an MCP server runs as tasks: begun once, then asked for until they have ended."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import MCPServer, build_mcp_graph, open_session
from tests.support.graphs import Ran, calls, run_graph, scripted
from tests.support.mcp_servers import raw

pytestmark = pytest.mark.usefixtures("no_blocking")

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def server(tmp_path: Path) -> MCPServer:
    env = {"MCP_LOG": str(tmp_path / "log"), "MCP_TASKS": str(tmp_path / "tasks")}
    return raw(way="tasks", env=env)


def sent(server: MCPServer) -> list[dict[str, Any]]:
    """Return what the server was asked about the call and its task."""
    lines = Path(server.env["MCP_LOG"]).read_text(encoding="utf-8").splitlines()
    asked: list[dict[str, Any]] = list(map(json.loads, lines))
    return [one for one in asked if one.get("method", "").startswith(("tools/call", "tasks/"))]


async def research(topic: str, server: MCPServer, **more: Any) -> Ran:
    graph = build_mcp_graph(extra_tools=[server], checkpointer=InMemorySaver())
    answers = calls(("mcp_raw_research", {"topic": topic})), "done"
    async with open_session("t"):
        return await run_graph(graph, *answers, config=THREAD, policy="auto", **more)


async def test_a_task_is_begun_once_asked_for_and_its_result_fetched(server: MCPServer) -> None:
    ran = await research("cups", server)
    (result,) = ran.results()
    assert "All about cups." in result
    begun, *asked, fetched = sent(server)
    assert begun["params"]["task"]["ttl"] > 0
    assert [one["method"] for one in asked] == ["tasks/get"] * 3
    assert fetched["method"] == "tasks/result"
    assert fetched["params"]["taskId"] == "task-1"
    assert "mcp_raw_research: Poll 0." in [one["text"] for one in ran.events if "text" in one]


async def test_a_task_that_needs_input_asks_the_person(server: MCPServer) -> None:
    graph = build_mcp_graph(extra_tools=[server], checkpointer=InMemorySaver())
    model = scripted(calls(("mcp_raw_research", {"topic": "ask"})), "done")
    async with open_session("t"):
        await run_graph(graph, model=model, config=THREAD, policy="auto")
        (waiting,) = (await graph.aget_state(THREAD)).interrupts
        assert "How many?" in waiting.value["question"]
        ran = await run_graph(graph, model=model, task=Command(resume="3"), config=THREAD)
    (result,) = ran.results()
    assert '{"n": 3}' in result
    assert [one["method"] for one in sent(server)] == ["tools/call", "tasks/result"]


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("fail", "I do not know that"),
        ("cancel", "research was cancelled by its server: Poll 0. The call may have taken effect"),
        ("forget", "I do not know that"),
    ],
)
async def test_a_task_that_comes_to_nothing_says_why(
    topic: str, said: str, server: MCPServer
) -> None:
    ran = await research(topic, server)
    assert said in ran.results()[0]
    assert [m.status for m in ran.messages if m.type == "tool"] == ["error"]


async def test_a_task_outlives_its_servers_process(server: MCPServer) -> None:
    ran = await research("die", server)
    assert "All about die." in ran.results()[0]
    assert [one["method"] for one in sent(server)].count("tools/call") == 1


async def test_a_task_that_nobody_waits_for_any_more_is_cancelled(tmp_path: Path) -> None:
    env = {"MCP_LOG": str(tmp_path / "log"), "MCP_TASKS": str(tmp_path / "tasks")}
    server = raw(way="tasks", env=env, timeout_s=0.5)
    ran = await research("long", server)
    assert "was cut off after 0.5 s" in ran.results()[0]
    assert sent(server)[-1]["method"] == "tasks/cancel"


async def test_a_server_that_runs_no_tasks_is_called_plainly(tmp_path: Path) -> None:
    server = raw(way="no_tasks", env={"MCP_LOG": str(tmp_path / "log")})
    ran = await research("cups", server)
    assert "research" in ran.results()[0]
    (plain,) = sent(server)
    assert "task" not in plain["params"]
