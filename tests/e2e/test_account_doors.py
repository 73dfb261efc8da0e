"""Users of `openmanus a2a` and `openmanus mcp-server`: each has own tasks, sessions and files."""

import contextlib
import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.support.cli import Cli
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.servers import Served, served

pytestmark = pytest.mark.slow
SECRET = "zanzibar"
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


@dataclass
class Door:
    served: Served
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    @contextlib.contextmanager
    def http(self, name: str) -> Generator[httpx.Client]:
        headers = {**MCP_HEADERS, "Authorization": f"Bearer {self.tokens[name]}"}
        with httpx.Client(headers=headers, timeout=BACKSTOP_S) as http:
            yield http

    def rpc(self, name: str, method: str, params: Any = None, **headers: str) -> Any:
        """Send a request of JSON-RPC, and return the answer with its result or error."""
        with self.http(name) as http:
            body: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": method,
                "params": params or {},
            }
            answer = http.post(self.served.url, json=body, headers=headers)
        data = [one for one in answer.text.splitlines() if one.startswith("data: {")]
        return json.loads(data[-1].removeprefix("data: ") if data else answer.text)


def users(home: Cli) -> dict[str, str]:
    """Add the users, once, and return their tokens."""
    roles = {"alice": "user", "bob": "user", "vera": "viewer"}
    found = {one: home.run("users", "add", one, "--role", role) for one, role in roles.items()}
    assert all(one.code == 0 for one in found.values()), found
    return {one: made.stdout.strip() for one, made in found.items()}


@pytest.fixture(scope="module")
def tokens(home: Cli) -> dict[str, str]:
    return users(home)


@pytest.fixture(scope="module")
def agents(home: Cli, tokens: dict[str, str]) -> Iterator[Door]:
    config = home.write("notes.toml", 'tools = ["+memory"]')
    with served(home, "a2a", "--config", str(config)) as server:
        yield Door(server, {**tokens, "machine": server.token or ""})


@pytest.fixture(scope="module")
def tools(home: Cli, tokens: dict[str, str]) -> Iterator[Door]:
    with served(home, "mcp-server", "--transport", "http", "--agent", "manus") as server:
        yield Door(server, {**tokens, "machine": server.token or ""})


def message(text: str, **where: str) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"message": {"role": "user", "messageId": "m", "parts": parts, **where}}


def test_tasks_of_another_user_are_not_found(agents: Door, llm: OpenAIServer) -> None:
    llm.begin_again()
    llm.add(Reply(calls=(Call("ask_human", {"inquire": f"Is it {SECRET}?"}),)))
    hers = agents.rpc("alice", "message/send", message(f"Say {SECRET}."))["result"]
    assert hers["status"]["state"] == "input-required", hers
    task, context = hers["id"], hers["contextId"]
    one = {"id": task, "taskId": task}
    config = {"url": "http://127.0.0.1:1/"}
    attacks = [
        ("tasks/get", one), ("tasks/cancel", one), ("tasks/resubscribe", one),
        ("tasks/pushNotificationConfig/get", one), ("tasks/pushNotificationConfig/list", one),
        ("tasks/pushNotificationConfig/set", {**one, "pushNotificationConfig": config}),
        ("message/send", message("yes", taskId=task)),
        ("message/stream", message("x", taskId=task)),
        ("message/send", message("x", contextId=context)),
        ("message/stream", message("x", contextId=context)),
        ("message/send", message("x", taskId=task, contextId=context)),
    ]  # fmt: skip
    for name in ("bob", "vera", "machine"):
        for method, params in attacks:
            answer = agents.rpc(name, method, params)
            assert "error" in answer, (name, method, answer)
            assert SECRET not in json.dumps(answer)
        listed = agents.rpc(name, "ListTasks", {}, **{"A2A-Version": "1.0"})["result"]
        assert not listed.get("tasks"), (name, listed)
    for name, known in (("bob", False), ("alice", True)):
        found = agents.rpc(name, "GetTask", {"id": task}, **{"A2A-Version": "1.0"})
        assert ("result" in found) is known
    listed = agents.rpc("alice", "ListTasks", {}, **{"A2A-Version": "1.0"})["result"]
    assert [one["id"] for one in listed["tasks"]] == [task]
    llm.add(Reply(text="Thank you."))
    done = agents.rpc("alice", "message/send", message("yes", taskId=task))["result"]
    assert done["status"]["state"] == "completed", done


def test_notes_belong_to_the_user_of_the_task(agents: Door, llm: OpenAIServer) -> None:
    llm.begin_again()
    note = {"command": "create", "path": "/memories/user/a.md", "file_text": SECRET}
    seen: dict[str, str] = {}
    for name, args in (("alice", note), ("bob", {"command": "view", "path": "/memories"})):
        llm.add(Reply(calls=(Call("memory", args),)), Reply(text="Done."))
        agents.rpc(name, "message/send", message("Note it."))
        seen[name] = str(llm.requests[-1].messages[-1]["content"])
    assert "Created /memories/user/a.md" in seen["alice"]
    assert "There are no notes" in seen["bob"]


def test_a_viewer_starts_no_task(agents: Door, llm: OpenAIServer) -> None:
    llm.begin_again()
    answer = agents.rpc("vera", "message/send", message("Do it."))
    assert "viewer" in answer["error"]["message"]
    assert not llm.requests


def test_a_removed_user_is_refused_at_once(home: Cli, agents: Door) -> None:
    agents.tokens["carl"] = home.run("users", "add", "carl").stdout.strip()
    with agents.http("carl") as http:
        assert http.post(agents.served.url, json={}).status_code == 200
        assert home.run("users", "revoke", "carl").code == 0
        assert http.post(agents.served.url, json={}).status_code == 401


def opened(tools: Door, name: str) -> dict[str, str]:
    """Open a session, and return the header that names it."""
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with tools.http(name) as http:
        answer = http.post(tools.served.url, json=body)
        assert answer.status_code == 200, answer.text
        header = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert http.post(tools.served.url, json=told, headers=header).status_code == 202
    return header


def call(tools: Door, name: str, tool: str, args: Any, session: dict[str, str]) -> Any:
    return tools.rpc(name, "tools/call", {"name": tool, "arguments": args}, **session)


def test_sessions_files_and_threads_of_another_user_are_refused(
    tools: Door, llm: OpenAIServer
) -> None:
    llm.begin_again()
    hers, his = opened(tools, "alice"), opened(tools, "bob")
    written = f"echo {SECRET} > {SECRET}.txt"
    llm.add(Reply(calls=(Call("bash", {"command": written}),)), Reply(text=f"It is {SECRET}."))
    done = call(tools, "alice", "run_task", {"task": "Do it."}, hers)["result"]
    thread = done["structuredContent"]["thread"]
    link = next(one["uri"] for one in done["content"] if one["type"] == "resource_link")
    read = tools.rpc("alice", "resources/read", {"uri": link}, **hers)
    assert SECRET in json.dumps(read["result"])
    for name in ("bob", "vera", "machine"):
        for method in ("tools/list", "resources/list", "ping"):
            assert tools.rpc(name, method, **hers)["error"]["message"] == "Session not found"
        with tools.http(name) as http:
            assert http.delete(tools.served.url, headers=hers).status_code == 404
            assert http.get(tools.served.url, headers=hers).status_code == 404
    refused = call(tools, "bob", "run_task", {"task": "What is it?", "thread": thread}, his)
    assert refused["result"]["isError"] is True
    unread = tools.rpc("bob", "resources/read", {"uri": link}, **his)
    assert SECRET not in json.dumps([refused, unread]).replace(link, "")
    assert tools.rpc("bob", "resources/list", **his)["result"]["resources"] == []
    assert "result" in tools.rpc("alice", "ping", **hers)


def test_a_viewer_calls_no_tool(tools: Door) -> None:
    session = opened(tools, "vera")
    assert "result" in tools.rpc("vera", "tools/list", **session)
    answer = call(tools, "vera", "bash", {"command": "true"}, session)
    assert "viewer" in json.dumps(answer["error"])
