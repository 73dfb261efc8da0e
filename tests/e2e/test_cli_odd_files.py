"""Pipes, sockets, devices and endless files under names that we read: nothing waits for them."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

NAMES = (
    "plan.md", "openmanus-plan.md", "image-2.png", "a.chart.json", "a.png", "list.json",
    "report.md", "notes.docx", "book.xlsx", "data.csv", "page.html", "notes.ipynb", ".steps",
    "downloads", "mcp", "visualization",
)  # fmt: skip
HUGE = 10 * 1024**4


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


KINDS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "socket": bind,
    "huge": sparse,
    "endless": lambda path: path.symlink_to("/dev/zero"),
}


WHY = {
    "FIFO": "is a FIFO, not a file",
    "socket": "is a socket, not a file",
    "huge": "10.0 TB",
    "endless": "is outside the workspace",
}
CHARTS = "data_visualization"


def put(cli: Cli, kind: str) -> None:
    cli.workspace.mkdir()
    for name in NAMES:
        KINDS[kind](cli.workspace / name)


@pytest.mark.parametrize("kind", KINDS)
def test_no_reader_waits_and_each_says_why(cli: Cli, model: OpenAIServer, kind: str) -> None:
    put(cli, kind)
    (cli.workspace / "mine.json").write_text('[{"chartPath": "a.png", "insights_id": [1]}]')
    (cli.workspace / "table.json").write_text('[{"csvFilePath": "data.csv", "chartTitle": "t"}]')
    (cli.workspace / "ours.md").write_text("# Report\n\n![chart](image-2.png)\n")
    charts = [("list.json", "insight"), ("mine.json", "insight"), ("table.json", "visualization"),
              ("report.md", "report"), ("ours.md", "report")]  # fmt: skip
    calls = [Call("read_file", {"path": name}) for name in NAMES]
    calls += [Call("str_replace_editor", {"command": "view", "path": name}) for name in NAMES]
    calls += [
        Call(
            "str_replace_editor",
            {"command": "insert", "path": name, "insert_line": 0, "new_str": "x"},
        )
        for name in NAMES
    ]
    calls += [Call(CHARTS, {"json_path": path, "tool_type": tool}) for path, tool in charts]
    model.add(Reply(calls=tuple(calls)), Reply("All were refused."))
    args = ("--workspace", "files", "--agent", "data_analysis", "--timeout", "120", "--json")
    done = cli.run("run", "look at report.md and image-2.png", *args)
    assert (done.code, done.final["status"]) == (0, "finished"), done.stderr
    ended = done.of("tool_end")
    assert len(ended) == len(calls)
    assert not [event for event in ended if event["ok"]]
    said = {"FIFO": "is a FIFO, not a file", "socket": "is a socket, not a file",
            "huge": "has more than 50 MB", "endless": "is outside the workspace"}  # fmt: skip
    outputs = [event["output"] for event in ended[: 3 * len(NAMES)]]
    assert not [one for one in outputs if said[kind] not in one and "10.0 TB" not in one]
    assert {path.name for path in cli.workspace.iterdir()} == {
        *NAMES,
        "mine.json",
        "table.json",
        "ours.md",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_carried_out_beside_them(cli: Cli, model: OpenAIServer, kind: str) -> None:
    put(cli, kind)
    steps = [{"id": "a", "text": "Say it", "done_when": "file: report.md"}]
    plan = Call("planning", {"command": "create", "title": "T", "steps": steps})
    model.add(Reply(calls=(plan,)), *[Reply("It is in report.md.")] * 30)
    args = ("--workspace", "files", "--timeout", "120", "--json")
    done = cli.run("plan", "write report.md", *args)
    assert done.final["status"] in ("finished", "failed", "stopped"), done.stderr
