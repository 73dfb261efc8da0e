"""The strict test server refuses what strict endpoints refuse."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.strict_openai import complaint

USER: dict[str, Any] = {"role": "user", "content": "Hello"}


def call(call_id: str = "c1", name: str = "bash", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*calls: dict[str, Any], content: Any = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str = "c1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, asking(call(), call("c2")), result("c2"), result()],
        [USER, asking(call()), result(), {"role": "assistant", "content": "Done."}],
        [{"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE]}],
    ],
)
def test_takes_correct_conversations(messages: list[dict[str, Any]]) -> None:
    assert complaint({"messages": messages}) is None


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "too short"),
        ([USER, asking(call())], "did not have response messages"),
        ([USER, asking(call()), USER], "did not have response messages"),
        ([USER, asking(call()), result("c9")], "answers no call"),
        ([USER, asking(call()), result(), result()], "answers no call"),
        ([USER, result()], "answers no call"),
        ([USER, asking(call(), call())], "two tool calls"),
        ([USER, asking(call("")), result("")], "no id"),
        ([USER, asking(call(name="run it!"))], "does not match"),
        ([USER, asking(call(arguments="{"))], "not JSON"),
        ([USER, asking(call(arguments="[]"))], "not an object"),
        ([USER, asking(call(), content=None)], "null"),
        ([USER, asking()], "needs content"),
        ([USER, {"role": "assistant", "content": ""}], "needs content"),
        ([{"role": "user", "content": None}], "null"),
        ([{"role": "user"}], "missing"),
        ([USER, asking(call()), result(content=[PICTURE])], "text parts only"),
    ],
)
def test_refuses_what_strict_endpoints_refuse(messages: list[dict[str, Any]], said: str) -> None:
    found = complaint({"messages": messages})
    assert found is not None
    assert said in found


def test_serves_a_script_file_from_the_command_line(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "Hi", "calls": [{"name": "bash", "args": {"x": 1}}]}]))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.support.openai_server", str(script)]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            base_url = process.stderr.readline().split()[-1]
            request = urllib.request.Request(
                f"{base_url}/chat/completions",
                data=json.dumps({"model": "m", "messages": [USER]}).encode(),
            )
            with urllib.request.urlopen(request) as answer:
                message = json.load(answer)["choices"][0]["message"]
        finally:
            process.terminate()
    assert message["content"] == "Hi"
    assert message["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"x": 1}'}
