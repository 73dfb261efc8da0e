"""The example apps, as processes of their own."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def environment(model: OpenAIServer) -> dict[str, str]:
    return {
        **os.environ, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test",
        "OPENMANUS_MODEL": "openai:m", "PYTHONPATH": str(EXAMPLES),
    }  # fmt: skip


def run(name: str, task: str, model: OpenAIServer, stdin: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, task], input=stdin, capture_output=True, text=True,
        env=environment(model), timeout=BACKSTOP_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_manus_is_a_node_of_another_graph(model: OpenAIServer) -> None:
    ask = Reply(calls=(Call("ask_human", {"inquire": "Which sources?"}),))
    model.add(ask, Reply("Copper is traded there."))
    shown = run("own_graph.py", "copper", model, "the exchange\n")
    assert "Which sources?" in shown
    assert "# copper\n\nCopper is traded there.\n\nFiles: []" in shown
    assert "copper" in model.requests[0].messages[-1]["content"]
    assert model.requests[1].messages[-1]["content"] == "the exchange"


def test_a_script_brings_its_own_parts() -> None:
    with OpenAIServer() as model:  # LangChain's own client writes no content beside calls
        refund_both(model)


def refund_both(model: OpenAIServer) -> None:
    refunds = [Call("refund", {"number": str(n), "euros": 40}) for n in (1001, 1002)]
    model.add(Reply(calls=(Call("find_order", {"number": "1001"}),)), Reply(calls=tuple(refunds)))
    model.add(Reply("One was paid."))
    shown = run("own_parts.py", "refund both", model, "approve\n")
    assert "Allow refund?" in shown
    assert shown.endswith("One was paid.\n")
    first, last = model.requests[0], model.requests[-1]
    assert first.messages[0]["content"].startswith("You handle refunds.")
    results = [message["content"] for message in last.messages if message["role"] == "tool"]
    assert results[:2] == ["Order 1001: 40 euros.", "40 euros of order 1001 were paid back."]
    assert "forbids it (deny refund number='1002'" in results[2]


TOKENS = '{"anna": "a", "bob": "b"}'


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Service:
    """The service under way."""

    def __init__(self, model: OpenAIServer) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "service:app", "--port", "0"],
            stderr=subprocess.PIPE, text=True, env=environment(model) | {"USER_TOKENS": TOKENS},
        )  # fmt: skip
        self.log: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        until(lambda: "running on" in "".join(self.log))
        found = re.search(r"running on (http://\S+)", "".join(self.log))
        assert found is not None
        self.client = httpx.Client(base_url=found[1], timeout=BACKSTOP_S, headers=bearer("a"))

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.log.extend(lines)

    def post(self, path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Return the events of a stream."""
        with self.client.stream("POST", path, json=body) as response:
            return list(events(response))

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(BACKSTOP_S)


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = response.iter_lines()
    for line in lines:
        if line.startswith("event: "):
            yield line.removeprefix("event: "), json.loads(next(lines).removeprefix("data: "))


@pytest.fixture
def service(model: OpenAIServer) -> Iterator[Service]:
    service = Service(model)
    yield service
    service.client.close()
    if service.process.poll() is None:
        service.process.kill()
        service.process.wait()


def test_the_service_streams_asks_gets_answers_and_leaves_nothing_behind(
    service: Service, model: OpenAIServer
) -> None:
    ask = Reply(calls=(Call("ask_human", {"inquire": "Which?"}),))
    model.add(ask, Reply("Blue."))
    first = service.post("/threads/1/runs", {"task": "paint"})
    assert [kind for kind, _ in first if kind != "notice"] == [
        "run_start", "think_start", "think_end", "tool_start", "interrupt", "final",
    ]  # fmt: skip
    (_, question), (_, final) = first[-2:]
    assert (question["question"], final["status"]) == ("Which?", "waiting")
    assert service.client.post("/threads/1/remarks", json={"text": "quick"}).status_code == 200
    second = service.post("/threads/1/answers", {"answers": {question["id"]: "blue"}})
    assert second[-1][0] == "final"
    assert second[-1][1]["answer"] == "Blue."
    assert model.requests[-1].messages[-1]["content"] == "quick"

    model.add(Reply(calls=(Call("bash", {"command": "touch begun; sleep 1000"}),)))
    body = {"task": "wait"}
    with service.client.stream("POST", "/threads/1/runs", json=body) as response:
        stream = events(response)  # held: without it the connection is closed
        next(event for event in stream if event[0] == "tool_start")
        until(Path("workspace/anna.1/begun").exists)
        assert service.children() != []
    until(lambda: service.children() == [])  # who hangs up, stops it
    model.add(Reply("I am back."))
    again = service.post("/threads/1/runs", {"task": "go on"})
    assert again[-1][1]["answer"] == "I am back."
    model.add(Reply("I know nothing of it."))
    task, client = {"task": "what did I paint?"}, service.client
    assert client.post("/threads/1/runs", json=task, headers=bearer("b")).status_code == 200
    assert len(model.requests[-1].messages) == 2  # bob's thread 1 is another one
    for wrong in (bearer("c"), {"Authorization": ""}):
        assert client.post("/threads/1/runs", json=task, headers=wrong).status_code == 401
    assert client.post("/threads/..bob.1/runs", json=task).status_code == 422
    service.stop()
    until(lambda: "shutdown complete" in "".join(service.log))
    assert "Traceback" not in "".join(service.log), service.log
