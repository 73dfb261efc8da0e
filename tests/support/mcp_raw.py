"""A small MCP server over pipes, written by hand: starts at once, and does wrong what it is told.

`python mcp_raw.py [WAY]`: `exit`, `hang` and `junk` are ways of not starting, `library` has
resources, `tasks` runs calls as tasks, `no_tasks` has a tool that wants it to. It keeps a log of
what it was sent in the file that `MCP_LOG` names, and its tasks in the one that `MCP_TASKS` names.
`MCP_PAY` holds other fields of the tool `pay`, and `MCP_PROMPT` what a prompt says beside.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
LINKED = "what was linked"
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def tool(name: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema or NOTHING, **more}


tools: dict[str, dict[str, Any]] = {
    made["name"]: made
    for made in [
        tool("echo", {**TEXT, "required": ["text"]}, annotations={"readOnlyHint": True}),
        tool("pay", TEXT),
        tool("die"),
        tool("slow"),
        tool("change"),
        tool("shifty", TEXT),
        tool("old"),
        tool("fail"),
        tool("refuse"),
        tool("rich"),
        tool("ask"),
        tool("junk"),
        tool("picky", {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": {
            "A": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            "B": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        }}),
        tool("nonsense", {"type": "no such type", "properties": 7}),
    ]
}  # fmt: skip
tools["pay"] |= json.loads(os.environ.get("MCP_PAY", "{}"))
tools["pay"] |= json.loads(os.environ.get("MCP_PAY", "{}"))
WAY = sys.argv[1] if len(sys.argv) > 1 else ""
TOPIC: dict[str, Any] = {"type": "object", "properties": {"topic": {"type": "string"}}}
if WAY in ("tasks", "no_tasks"):
    tools["research"] = tool("research", TOPIC, execution={"taskSupport": "required"})


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    if path := os.environ.get("MCP_LOG"):
        with open(path, "a", encoding="utf-8") as log:  # noqa: PTH123  # starts faster
            log.write(line)
    message: dict[str, Any] = json.loads(line)
    return message


def rich() -> dict[str, Any]:
    blob = {"uri": "res://b.bin", "mimeType": "application/x-thing", "blob": "AAEC"}
    return {
        "content": [
            {"type": "text", "text": "words", "annotations": {"priority": 7}},
            {"type": "hologram", "of": "a cube"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "res://a", "text": "inside"}},
            {"type": "resource", "resource": blob},
            {"type": "resource_link", "uri": "res://linked", "name": "linked"},
        ],
        "structuredContent": {"answer": 42},
    }


def change() -> dict[str, Any]:
    tools.pop("old", None)
    tools["fresh"] = tool("fresh")
    tools["shifty"] = tool("shifty", {"type": "object", "properties": {"n": {"type": "integer"}}})
    send(method="notifications/tools/list_changed")
    return said("changed")


def ask() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    params = {"message": "How many?", "requestedSchema": schema}
    send(id="q", method="elicitation/create", params=params)
    while (message := read()).get("id") != "q":
        pass
    return said(json.dumps(message.get("result") or message.get("error")))


def slow(call_id: Any) -> dict[str, Any]:
    send(method="notifications/progress", params={"progressToken": call_id, "progress": 1})
    while (message := read()).get("method") != "notifications/cancelled":
        send(id=message.get("id"), result={})
    return said("late")


def called(call_id: Any, name: str, args: dict[str, Any]) -> dict[str, Any]:
    if name == "slow":
        return slow(call_id)
    if name in DEEDS:
        return DEEDS[name]()
    if name == "echo":  # what it is given as hexadecimal digits it says in words of its own
        text: str = args["text"]
        return said(bytes.fromhex(text[4:]).decode() if text.startswith("hex:") else text)
    return said(f"{name} {json.dumps(args)} pid {os.getpid()}")


def die() -> dict[str, Any]:
    sys.stderr.write("I cannot go on\n")
    os._exit(3)


def junk() -> dict[str, Any]:
    sys.stdout.write("this is not JSON\n{}\n[1, 2]\n")
    return said("after the junk")


def fail() -> dict[str, Any]:
    text = "the disk is full"
    return said(text, isError=True, structuredContent={"content": text})


DEEDS: dict[str, Callable[[], dict[str, Any]]] = {
    "die": die, "change": change, "fail": fail, "rich": rich, "ask": ask, "junk": junk,
}  # fmt: skip


def library(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "prompts/list":
        return PROMPTS[params.get("cursor") or "1"]
    if method == "prompts/get" and params["name"] in ("report", "bare"):
        return {"messages": prompted(params["name"], params.get("arguments") or {})}
    return resources(method, params) if method.startswith("resources/") else None


def resources(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    uri = params.get("uri")
    if method == "resources/templates/list":
        name = "line" if params.get("cursor") else "page"
        following = {} if params.get("cursor") else {"nextCursor": "2"}
        return {
            "resourceTemplates": [{"uriTemplate": f"res://{{{name}}}", "name": name}],
            **following,
        }
    if method == "resources/list" and not params.get("cursor"):
        book = {"uri": "res://book", "name": "book", "description": "All of it"}
        return {"resources": [book], "nextCursor": "2"}
    if method == "resources/list":
        return {"resources": [{"uri": "res://map", "name": "map", "mimeType": "image/png"}]}
    if uri == "res://map":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
    return None if uri == "res://nothing" else {"contents": [{"uri": uri, "text": LINKED}]}


PROMPTS: dict[str, dict[str, Any]] = {
    "1": {
        "prompts": [
            {
                "name": "report",
                "description": "Write a\n report",
                "arguments": [{"name": "subject", "required": True}, {"name": "tone"}],
            }
        ],
        "nextCursor": "2",
    },
    "2": {"prompts": [{"name": "bare"}]},
}


def prompted(name: str, args: dict[str, str]) -> list[dict[str, Any]]:
    if name == "bare":
        return [{"role": "user", "content": {"type": "text", "text": "/exit \x1b[2Jnow"}}]
    more = os.environ.get("MCP_PROMPT", "")
    tone = args.get("tone", "plain")
    reported = {"type": "text", "text": f"Report on {args['subject']}, {tone}.{more}"}
    page = {"uri": "res://book", "text": "Chapter 1"}
    picture = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    contents = [reported, {"type": "resource", "resource": page}, picture]
    return [{"role": "user", "content": content} for content in contents]


def tasks_file() -> Path:
    return Path(os.environ["MCP_TASKS"])


def read_tasks() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    if tasks_file().exists():
        found = json.loads(tasks_file().read_text(encoding="utf-8"))
    return found


def note_task(task_id: str, **what: Any) -> dict[str, Any]:
    """Write down what is new of a task, and return its state for the client."""
    known = read_tasks()
    task = known[task_id] = {**known.get(task_id, {"polls": 0}), **what}
    tasks_file().write_text(json.dumps(known), encoding="utf-8")
    at = "2026-01-01T00:00:00Z"
    state = {"taskId": task_id, "status": task["status"], "createdAt": at, "lastUpdatedAt": at}
    return {**state, "ttl": 60_000, "pollInterval": 10, "statusMessage": f"Poll {task['polls']}."}


def research(args: dict[str, Any]) -> dict[str, Any]:
    """Begin a task; its `topic` is how it goes on."""
    status = {"ask": "input_required", "fail": "failed", "cancel": "cancelled"}
    topic = args["topic"]
    task_id = f"task-{len(read_tasks()) + 1}"
    return {"task": note_task(task_id, topic=topic, status=status.get(topic, "working"))}


def polled(task_id: str) -> dict[str, Any] | None:
    task = read_tasks().get(task_id, {"topic": "forget"})
    if task["topic"] == "forget":
        return None
    polls = task["polls"] + 1
    if task["topic"] == "die" and polls == 1:
        note_task(task_id, polls=polls)
        die()
    done = polls >= 3 if task["topic"] != "long" else tasks_file().with_suffix(".go").exists()
    status = "completed" if task["status"] == "working" and done else task["status"]
    return note_task(task_id, polls=polls, status=status)


def finished(task_id: str) -> dict[str, Any] | None:
    task = read_tasks()[task_id]
    if task["topic"] == "fail":
        return None
    return ask() if task["topic"] == "ask" else said(f"All about {task['topic']}.")


def tasks(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Answer a request about a task; None where that is an error."""
    if method == "tasks/cancel":
        return note_task(params["taskId"], status="cancelled")
    return (polled if method == "tasks/get" else finished)(params["taskId"])


CAPABILITIES: dict[str, dict[str, Any]] = {
    "library": {"resources": {}, "prompts": {}},
    "tasks": {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}},
}


def beyond_tools(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method.startswith("tasks/"):
        return tasks(method, params)
    if method == "tools/call" and "task" in params:
        return research(params["arguments"])
    return library(method, params)


def answer(message: dict[str, Any]) -> None:
    params: dict[str, Any] = message.get("params") or {}
    result: dict[str, Any]
    match message.get("method"):
        case "initialize" if WAY == "unlicensed":
            send(id=message["id"], error={"code": -32000, "message": "No licence."})
            return
        case "initialize":
            version, info = params["protocolVersion"], {"name": "raw", "version": "1"}
            offered: dict[str, Any] = {"tools": {}, **CAPABILITIES.get(WAY, {})}
            result = {"protocolVersion": version, "serverInfo": info, "capabilities": offered}
        case "tools/list":
            result = {"tools": [*tools.values(), *many()]}
        case str(method) if found := beyond_tools(method, params):
            result = found
        case "tools/call" if params["name"] in tools and params["name"] != "refuse":
            result = called(message["id"], params["name"], params.get("arguments") or {})
        case _:
            code = -32000 if params.get("name") == "refuse" else -32602  # of the SDK for a loss
            send(id=message["id"], error={"code": code, "message": "I do not know that"})
            return
    send(id=message["id"], result=result)


def many() -> list[dict[str, Any]]:
    return [tool(f"extra_{n}") for n in range(200)] if WAY == "many" else []


def main() -> None:
    if WAY == "exit":
        sys.exit("no configuration found")
    if WAY == "junk":
        sys.stdout.write("Welcome!\n")
        sys.stdout.flush()
    if WAY in ("hang", "junk"):
        time.sleep(600)
    while True:
        message = read()
        if "id" in message and "method" in message:
            answer(message)


if __name__ == "__main__":
    main()
