import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.small import results
from bench.small_tasks import TASKS
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

FIRST = TASKS["write"].variant(1)
NAME, LINE = next((name, text or "") for name, text in FIRST.right.files.items())
TRIED = "echo x > /usr/x; ls /root; cat /etc/shadow; curl -sS http://1.1.1.1; true"


def brain(body: dict[str, Any]) -> Reply:
    """Do the first task, and try what the sandbox forbids; at the second, call for ever."""
    asked = any(FIRST.text in str(message) for message in body["messages"])
    if asked and any(message["role"] == "tool" for message in body["messages"]):
        return Reply(text=f"I made {NAME} with that line.")
    return Reply(calls=(Call("bash", {"command": f"printf {LINE!r} > {NAME}; {TRIED}"}),))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer([brain], loop=True) as one:
        yield one


def small(server: OpenAIServer, out: Path, *more: str) -> str:
    command = [sys.executable, "-m", "bench.small", "--base-url", server.base_url]
    command += ["--model", "test-model", "--tasks", "write", "--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agents_do_a_task_in_a_sandbox_and_are_counted_alike(
    server: OpenAIServer, tmp_path: Path
) -> None:
    out = tmp_path / "runs.jsonl"
    table = small(server, out, "--harness", "ours-native", "create_agent")
    found = results([out])
    assert [one.case.harness for one in found] == ["ours-native", "create_agent"]
    for one in found:
        assert (one.solved, one.claimed, one.error) == (True, True, ""), one
        assert (one.counts.calls, one.counts.tokens_in, one.counts.tokens_out) == (2, 200, 40), one
        assert one.answer == f"I made {NAME} with that line."
    sent = [request.body for request in server.requests]
    assert [(body["temperature"], body["seed"]) for body in sent] == [(0, 1)] * 4
    for request in server.requests[1::2]:
        observed = str(request.messages[-1]["content"])
        assert "/usr/x: Read-only file system" in observed
        assert "/etc/shadow: No such file or directory" in observed
        assert "Failed to connect to 1.1.1.1" in observed
        assert ".pyenv" not in observed
        assert ".ssh" not in observed
    assert "| ours-native | 1 of 1 | 0 | 2 | 200 | 40 |" in table
    small(server, out, "--harness", "create_agent", "--variants", "1", "2")
    [_, _, endless] = results([out])  # what had a result was not done again
    assert endless.case.variant == 2
    assert (endless.solved, endless.claimed, endless.counts.calls) == (False, False, 12)
    assert "limit of 12 model calls" in endless.error
    assert len(server.requests) == 4 + 12
