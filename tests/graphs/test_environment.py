"""What the system prompt says about where an agent works, and what the first request costs."""

import asyncio
import base64
import json
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from bench.tables import BYTES_PER_TOKEN
from openmanus_graph import (
    build_browser_graph,
    build_data_analysis_graph,
    build_manus_graph,
    build_mcp_graph,
    build_planner_graph,
    build_swe_graph,
    open_session,
)
from openmanus_graph.backends.sandbox import choose
from openmanus_graph.backends.sandbox.backend import Probe
from openmanus_graph.backends.sandbox.confinement import usual_libraries
from openmanus_graph.prompts import render
from openmanus_graph.state.settings import SandboxSettings
from tests.support.graphs import Ran, calls, run_graph, scripted
from tests.support.mcp_servers import raw

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def system(ran: Ran, request: int = 0) -> str:
    return ran.model.requests[request][0].text


def reported(ran: Ran, request: int = 0) -> str:
    """Return the front of a request: the system prompt, and the run's user message."""
    return "".join(message.text for message in ran.model.requests[request][:2])


async def test_the_first_request_of_manus_is_short() -> None:
    ran = await run_graph(build_manus_graph(), "done", task="Draw the sales by month.")
    folder = str(Path("work").absolute())  # noqa: ASYNC240  # where it is says nothing
    texts = [m.text.replace(folder, "/home/me/work") for m in ran.model.requests[0]]
    body = {"messages": texts, "tools": ran.model.options[0]["tools"]}
    assert len(ran.model.tool_names(0)) == 10
    assert len(json.dumps(body, separators=(",", ":"))) / BYTES_PER_TOKEN <= 1700


@pytest.mark.parametrize(
    ("build", "has_python"),
    [
        (build_manus_graph, True),
        (build_planner_graph, True),
        (build_swe_graph, True),
        (build_data_analysis_graph, True),
        (build_browser_graph, False),
        (partial(build_mcp_graph, extra_tools=[raw()]), False),
    ],
)
async def test_every_agent_is_told_where_it_works(
    build: Any, has_python: bool, tmp_path: Path
) -> None:
    graph = build(checkpointer=InMemorySaver())
    limits: dict[str, Any] = {"max_steps": 7, "max_cost_usd": 2}
    async with open_session("t"):
        ran = await run_graph(graph, "done", config=THREAD, workspace=str(tmp_path), **limits)
    text = reported(ran)
    assert f"Workspace: {tmp_path} " in text
    assert date.today().isoformat() in text
    assert "at most 7 steps and $2." in text
    assert "You are not shown pictures." in text
    assert "Calls of one reply run in order" in text
    assert "<untrusted-XXXXXXXX>" in text
    assert ("Python has pandas, numpy" in text) == has_python
    assert ("Python and shell have no network" in text) == has_python


async def test_environment_follow_the_settings() -> None:
    more: dict[str, Any] = {"network": "any", "max_total_tokens": 9000, "timeout_s": 60.4}
    ran = await run_graph(build_manus_graph(), "done", **more)
    assert "Python and shell reach the network." in reported(ran)
    assert " steps and $3 and 9000 tokens and 60 seconds." in reported(ran)


async def test_programs_without_a_sandbox_are_said_to_reach_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: SandboxSettings) -> Probe:
        return Probe("x", False, "not here")

    for backend in (choose.Bwrap, choose.Nono):
        monkeypatch.setattr(backend, "probe", missing)
    # What was found out is remembered by settings: no other test has these.
    await asyncio.to_thread(Path("openmanus.toml").write_text, "[sandbox]\nprocesses = 432\n")
    ran = await run_graph(build_manus_graph(), "done")
    assert "Python and shell reach the network." in reported(ran)


async def test_the_system_prompt_is_the_same_in_all_steps(tmp_path: Path) -> None:
    write = ("str_replace_editor", {"command": "create", "path": "pandas.py", "file_text": "1"})
    use = ("python_execute", {"code": "import pandas"})
    replies = (calls(write), calls(use), "done")
    ran = await run_graph(build_manus_graph(), *replies, workspace=str(tmp_path))
    assert len({system(ran, request) for request in range(3)}) == 1


async def test_ones_own_system_prompt_is_followed_by_what_the_mark_means() -> None:
    ran = await run_graph(build_manus_graph(prompts={"system": "Be brief."}), "done")
    assert system(ran) == f"Be brief.\n\n{render('text_from_outside')}"


def test_only_libraries_of_the_sandbox_are_named() -> None:
    found = usual_libraries(SandboxSettings())
    named = {"pandas", "openpyxl", "PIL", "pypdf", "xlsxwriter", "pypdfium2", "cryptography"}
    assert named <= {*found}
    assert "reportlab" not in found
    assert usual_libraries(SandboxSettings(mode="docker")) == ()


@pytest.mark.parametrize("sees", [False, True])
async def test_a_model_that_is_not_shown_a_picture_is_told_so(sees: bool, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)

    view = ("str_replace_editor", {"command": "view", "path": "dot.png"})
    model = scripted(calls(view), "done")
    model.profile = {"image_inputs": sees}
    ran = await run_graph(build_manus_graph(), model=model, workspace=str(tmp_path))
    (shown,) = ran.results()
    assert shown.startswith("dot.png: image/png, 1 x 1 pixels")
    assert ("You are not shown pictures" in shown) is not sees
    assert ("You are not shown pictures" in reported(ran)) is not sees


async def test_a_vision_model_is_shown_what_the_main_model_is_not(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    view = ("str_replace_editor", {"command": "view", "path": "dot.png"})
    model, vision = scripted(calls(view)), scripted("done")
    model.profile = {"image_inputs": False}
    context: dict[str, Any] = {"vision_model": vision, "workspace": str(tmp_path)}
    ran = await run_graph(build_manus_graph(), model=model, **context)
    assert ran.values["answer"] == "done"
    assert "You are not shown pictures" not in ran.results()[0] + reported(ran)
