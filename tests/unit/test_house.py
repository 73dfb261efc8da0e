"""What holds for the whole repository."""

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from docs.events_page import events_page
from docs.make import DRAWINGS, drawn
from docs.tools_page import tools_page
from openmanus_graph.graphs.catalog import agent_tools
from openmanus_graph.nodes.think_request import own_prompt
from openmanus_graph.prompts import render
from openmanus_graph.tool_calls.agent import Agent, with_tools
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools import (
    data_analysis_tools,
    default_tools,
    desktop_tools,
    optional_tools,
    planner_tools,
    research_tools,
)

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "openmanus_graph"
SNAPSHOTS = Path(__file__).parent / "snapshots"

AGENTS = ("manus", "browser", "planner", "swe", "data_analysis", "research", "desktop", "mcp")
PLAN_PROMPTS = [
    *(f"plan_{part}" for part in
      ("create", "look", "looked", "workspace", "step", "step_result", "step_answer", "only_step",
       "replan", "rejected", "invalid", "summary")),
    "step_ending",
]  # fmt: skip


def built_agent(name: str) -> Agent:
    """Return an agent as its graph is built with, with its default tools."""
    module = import_module(f"openmanus_graph.graphs.{name}")
    builder: Any = getattr(module, f"build_{name}_graph")
    return with_tools(cast("Agent", builder._agent), agent_tools(name))


@pytest.mark.slow
def test_nothing_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    program = """
import asyncio, sys
import openmanus_graph
print([name for name in ("langgraph", "openai", "pydantic") if name in sys.modules])
from openmanus_graph import Context, build_manus_graph
from openmanus_graph.testing import ScriptedChatModel
context = Context(model=ScriptedChatModel(["done"]), workspace="work")
asked = {"messages": [{"role": "user", "content": "go"}]}
print(asyncio.run(build_manus_graph().ainvoke(asked, context=context))["answer"])
web = tuple(f"openmanus_graph.backends.{part}." for part in ("browser", "search", "web"))
print(sorted(name for name in sys.modules if name.startswith(web)))
late = ("bs4", "ddgs", "h11", "langchain", "lxml", "playwright", "yaml")
print([name for name in late if name in sys.modules])
ours = ("nodes.create_plan", "nodes.schedule", "tools.delegate", "tools.memory", "tools.planning")
print([name for name in ours if f"openmanus_graph.{name}" in sys.modules])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    first, answer, web, libraries, ours = done.stdout.splitlines()
    assert (first, answer, libraries, ours) == ("[]", "done", "[]", "[]")
    light = ["browser.action_specs"]
    assert web == str([f"openmanus_graph.backends.{name}" for name in light])


@pytest.mark.slow
def test_the_plain_loop_loads_nothing_of_plans(tmp_path: Path) -> None:
    program = """
import sys
from openmanus_graph.nodes import act, hooks, stuck_check, think
print([name for name in sys.modules if name.startswith("openmanus_graph.planning")])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n"


def test_one_module_touches_the_garbage_collector() -> None:
    touching = [path for path in PACKAGE.rglob("*.py") if "import gc\n" in path.read_text("utf-8")]
    in_process = [path.name for path in touching if path.name != "fork_server.py"]  # a program
    assert in_process == ["own_process.py"]


@pytest.mark.slow
def test_public_names_stand_in_one_list(tmp_path: Path) -> None:
    program = """
import json
import openmanus_graph
offered = dir(openmanus_graph)
from openmanus_graph import *
try:
    from openmanus_graph import build_nothing_graph
except ImportError as error:
    refusal = str(error)
print(json.dumps([offered, sorted(set(globals()) & set(offered)), refusal]))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    offered, imported, refusal = json.loads(done.stdout)
    listed = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body
    names = [alias for node in listed if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.name == alias.asname for alias in names), "checkers take others for private"
    assert offered == imported == sorted(alias.name for alias in names)
    assert "build_nothing_graph" in refusal


@pytest.mark.parametrize(
    ("names", "home"),
    [
        (("langgraph.channels", "_messages_delta_reducer"), "manus.py"),
        (("langgraph_runtime_inmem",), "app.py"),
        (
            ("langgraph.checkpoint.base import id", "langgraph.checkpoint.base.id"),
            "checkpointer.py",
        ),
    ],
)
def test_what_is_beta_or_private_elsewhere_is_imported_by_one_module(
    names: tuple[str, ...], home: str
) -> None:
    lines = {path: path.read_text("utf-8").splitlines() for path in PACKAGE.rglob("*.py")}
    importing = {
        path.name
        for path, texts in lines.items()
        for line in texts
        if "import " in line and any(name in line for name in names)
    }
    assert importing == {home}


@pytest.mark.parametrize("page", DRAWINGS)
@pytest.mark.slow
def test_the_drawings_show_the_graphs_as_they_are(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert drawn(page, text) == text, "run: uv run python docs/make.py"


def test_the_events_page_is_as_the_code() -> None:
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    assert events_page() == text, "run: uv run python docs/make.py"


def test_the_tools_page_is_as_the_code() -> None:
    text = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    assert tools_page() == text, "run: uv run python docs/make.py"


def test_prompt_and_tools_are_as_in_the_snapshots() -> None:
    tools = (default_tools, planner_tools, data_analysis_tools, desktop_tools, research_tools)
    every = [tool for some in tools for tool in some()]
    sent = Toolset({tool.name: tool for tool in every}, None).definitions
    shown = {tool["function"]["name"]: tool["function"] for tool in sent}
    found = json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    assert found == (SNAPSHOTS / "tools.json").read_text(encoding="utf-8")
    for name in AGENTS:
        assert own_prompt(built_agent(name)) + "\n" == (SNAPSHOTS / f"{name}_system.md").read_text(
            encoding="utf-8"
        )


def test_every_parameter_of_a_tool_is_described() -> None:
    every = [*planner_tools(), *data_analysis_tools(), *desktop_tools(), *optional_tools()]
    sent = Toolset({tool.name: tool for tool in every}, None).definitions
    found = {
        f"{tool['function']['name']}.{name}": parameter
        for tool in sent
        for name, parameter in tool["function"]["parameters"]["properties"].items()
    }
    assert len(sent) >= 17
    assert len(found) >= 80
    assert [name for name, parameter in found.items() if not parameter.get("description")] == []


def test_the_prompts_of_plans_are_as_in_the_snapshot() -> None:
    folder = PACKAGE / "prompts"
    texts = (f"# {name}\n\n{(folder / f'{name}.md').read_text('utf-8')}" for name in PLAN_PROMPTS)
    assert "\n".join(texts) == (SNAPSHOTS / "plans.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", AGENTS)
def test_a_step_is_not_told_how_the_agent_usually_ends(name: str) -> None:
    prompt = own_prompt(built_agent(name), hands_over=True)
    usual = ("report.md", "The task is done", "language of the task", "terminate")
    assert not [words for words in usual if words in prompt]
    assert "It says what to hand over" in prompt


@pytest.mark.parametrize(
    ("name", "variables", "reason"),
    [
        (
            "no_such_text",
            {},
            "There is no prompt 'no_such_text'. Available: about_run, ",
        ),
        ("plan_rejected", {"plan": "x"}, "The prompt plan_rejected also needs: reason."),
        (
            "plan_summary",
            {"goal": "x", "url": "y"},
            "The prompt plan_summary has no variables goal, url.",
        ),
    ],
)
def test_a_prompt_is_refused_unless_all_of_it_is_right(
    name: str, variables: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        render(name, **variables)


@pytest.mark.slow
def test_every_prompt_is_used_and_given_its_variables() -> None:
    """A wrong name or variable would show where it is rendered, in a branch seldom taken."""
    named: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value)
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "render" and isinstance(node.args[0], ast.Constant):
                given = {keyword.arg or "": "x" for keyword in node.keywords}
                assert render(str(node.args[0].value), **given), path
    assert {path.stem for path in (PACKAGE / "prompts").glob("*.md")} <= named


@pytest.mark.slow
def test_a_package_brings_a_tool_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "brought.py").write_text(
        "from openmanus_graph import manus_tool\n"
        "@manus_tool(effect='pure')\n"
        "def greet(name: str) -> str:\n"
        '    """Greet.\n\n    Args:\n        name: Who.\n    """\n'
        "    return 'hi ' + name\n"
    )
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[openmanus_graph.tools]\ngreet = brought:greet\n")
    code = (
        "from openmanus_graph.tools import default_tools;"
        "print([tool.name for tool in default_tools()][-1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "greet"
