"""Who may set Python's garbage collector: our own processes, never the app that embeds a graph."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SEEN = """
import gc
seen = set()

def look(*_):
    seen.add((gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()))
"""
EMBEDDING = """
import asyncio
gc.set_threshold(500, 9, 8)
gc.callbacks.append(look)  # each time Python collects, while modules are loaded as well
from openmanus_graph import Context, build_manus_graph, build_planning_graph, close
from openmanus_graph.testing import ScriptedChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

@tool
async def wait() -> str:
    "Wait."
    look()
    return "waited"

async def main():
    calls = [{"name": "wait", "args": {}, "id": str(number)} for number in range(3)]
    model = ScriptedChatModel([*(AIMessage("", tool_calls=[call]) for call in calls), "done"])
    context = Context(model=model, workspace="work")
    build_planning_graph()
    graph = build_manus_graph(tools=[wait])
    asked = {"messages": [{"role": "user", "content": "go"}]}
    assert (await graph.ainvoke(asked, context=context))["answer"] == "done"
    await close()

asyncio.run(main())
look()
print(*sorted(seen))
"""
COMMAND_LINE = """
import sys
from openmanus_graph.interfaces.cli.main import main
sys.argv = ["openmanus", "threads"]
try:
    main()
except SystemExit:
    enabled, (young, *_), frozen = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
    print(enabled, young > 2000, frozen > 0)
"""


@pytest.mark.parametrize(
    ("program", "settings"),
    [(EMBEDDING, "(True, (500, 9, 8), 0)"), (COMMAND_LINE, "True True True")],
    ids=["an app that embeds a graph keeps its settings", "the command line sets its own"],
)
def test_the_collector_is_set_by_our_own_processes_alone(
    program: str, settings: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEEN + program],
        env={"OPENMANUS_HOME": str(tmp_path / "home"), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == settings
