"""How long a call may take, and that what it printed by then is never lost."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.runtime.limits import CUT_OFF_GRACE_S, STOPPING_S, limit_call
from openmanus_graph.runtime.tool_runtime import time_limit_of
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tool_calls.declaration import manus_tool, traits_of
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.data_visualization import visualization_preparation
from openmanus_graph.tools.execution import bash, python_execute
from tests.support.cli import until
from tests.support.graphs import calls, run_graph

pytestmark = pytest.mark.slow


@tool
def waits(timeout_s: float | None = 300) -> str:
    """Wait.

    Args:
        timeout_s: How long.
    """
    return str(timeout_s)


@manus_tool(effect="read_only", timeout_s=90)
def looks() -> str:
    """Look."""
    return ""


TOOLS = {one.name: one for one in (bash, python_execute, visualization_preparation, waits, looks)}
OWN = [("bash", {"command": "true"}), ("python_execute", {"code": "1"})]


@pytest.mark.parametrize(("name", "args"), OWN)
@pytest.mark.parametrize("setting", [0.5, 60, 120, 600])
@pytest.mark.parametrize("named", [None, 1, 60, 119, 120, 121, 600, "300", 120.0, 0, 3601, 10**400])
def test_a_call_gets_what_it_names_and_else_the_setting(
    name: str, args: dict[str, Any], setting: float, named: Any
) -> None:
    given = {**args, **({} if named is None else {"timeout_s": named})}
    wanted = setting if named is None else min(3600, max(1, int(named)))
    own_s, sandbox = (
        Toolset(TOOLS, None).own_limit_s(name, given),
        SandboxSettings(timeout_s=setting),
    )
    limit = limit_call(own_s, traits_of(TOOLS[name]), sandbox, 7, None, stops_itself=True)
    assert limit.seconds == wanted
    assert limit.cut_off_at == 7 + wanted + CUT_OFF_GRACE_S


@pytest.mark.parametrize(
    ("name", "args", "left_s", "seconds", "cut_off"),
    [
        ("waits", {}, None, 300, 300 + CUT_OFF_GRACE_S),
        ("waits", {"timeout_s": 5}, None, 5, 5 + CUT_OFF_GRACE_S),
        ("waits", {"timeout_s": None}, None, 120, 120 + CUT_OFF_GRACE_S),
        ("looks", {}, None, 90, 90),
        ("looks", {}, 10, 10, 10),
        ("looks", {}, -3, 0.1, 0.1),
        ("visualization_preparation", {}, None, 300, 300 + CUT_OFF_GRACE_S),
        ("visualization_preparation", {}, 10, 10, 10 + STOPPING_S),
        ("bash", {}, 10, 10, 10 + STOPPING_S),
        ("bash", {"timeout_s": 5}, 1000, 5, 5 + CUT_OFF_GRACE_S),
        ("bash", {"timeout_s": 5}, -3, 0.1, 0.1 + STOPPING_S),
    ],
)
def test_the_outer_limit_follows_from_the_calls_own(
    name: str, args: dict[str, Any], left_s: float | None, seconds: float, cut_off: float
) -> None:
    toolset = Toolset(TOOLS, None)
    filled = {"visualization_preparation": {"code": "1", "code_type": "insight"}}.get(name, {})
    own_s = toolset.own_limit_s(name, {**filled, **args})
    stops = name in toolset.self_stopping
    limit = limit_call(
        own_s, traits_of(TOOLS[name]), SandboxSettings(), 0, left_s, stops_itself=stops
    )
    assert limit.seconds == pytest.approx(seconds)
    assert limit.cut_off_at == pytest.approx(cut_off)


def test_a_tool_called_without_a_run_keeps_what_it_is_told(tmp_path: Path) -> None:
    session = tool_session(tmp_path, sandbox=SandboxSettings(timeout_s=600))
    runtime = tool_runtime(session)
    assert time_limit_of(runtime, Traits(timeout_s=None), 120).remaining_s() == 120
    assert time_limit_of(runtime, Traits(timeout_s=None)).remaining_s() == 600
    assert time_limit_of(runtime, Traits(timeout_s=None)).cut_off_at == math.inf
    session.close()


NAMED = [
    (
        "bash",
        {"command": "touch begun; until [ -e go ]; do sleep 0.02; done", "timeout_s": 120},
    ),
    (
        "python_execute",
        {
            "code": "import os\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): pass",
            "timeout_s": 120,
        },
    ),
]


@pytest.mark.parametrize("made", NAMED)
async def test_a_call_that_names_the_usual_limit_gets_it_under_a_shorter_setting(
    made: tuple[str, dict[str, Any]],
) -> None:
    """It outlives one that began after it, named none, and was cut off at the setting."""
    await asyncio.to_thread(Path("openmanus.toml").write_text, "[sandbox]\ntimeout_s = 0.4\n")
    graph = build_manus_graph(tools=[bash, python_execute])
    named = asyncio.ensure_future(run_graph(graph, calls(made), "done"))
    await asyncio.to_thread(until, Path("work/begun").exists)
    endless = calls(("bash", {"command": "while :; do :; done"}))
    other = await run_graph(graph, endless, "done", workspace="other")
    assert "Still running after 0.4 s" in other.results()[0]
    await asyncio.to_thread(Path("work/go").touch)
    assert "nterrupted" not in (await named).results()[0]


PRINTING = [
    ("bash", {"command": "echo first; while :; do :; done"}),
    ("python_execute", {"code": "print('first')\nwhile True: pass"}),
    (
        "visualization_preparation",
        {"code": "print('first')\nwhile True: pass", "code_type": "insight"},
    ),
]


@pytest.mark.parametrize("made", PRINTING)
async def test_what_was_printed_is_shown_when_the_runs_time_is_over(
    made: tuple[str, dict[str, Any]],
) -> None:
    tools = [bash, python_execute, visualization_preparation]
    graph = build_manus_graph(tools=tools, checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    opening = calls(("bash", {"command": "true"}), ("python_execute", {"code": "1"}))
    await run_graph(graph, opening, "open", config=config)
    ran = await run_graph(graph, calls(made), config=config, timeout_s=2)
    shown = ran.results()[-1]
    assert shown.startswith("first\n")
    assert "[Interrupted after" in shown  # a command does not continue without its run
    assert ran.values["stop_reason"] == "timeout"
