"""What holds for the whole repository."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.utils.function_calling import convert_to_openai_tool

from docs.make import DRAWINGS, drawn
from docs.tools_page import tools_page
from openmanus_graph.events import events_page
from openmanus_graph.prompts import (
    browser_system_prompt,
    data_analysis_system_prompt,
    manus_system_prompt,
    mcp_system_prompt,
    planner_system_prompt,
    swe_system_prompt,
)
from openmanus_graph.tools import data_analysis_tools, default_tools, planner_tools

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "openmanus_graph"
SNAPSHOTS = Path(__file__).parent / "snapshots"

# graphs -> nodes -> tools, prompts -> state; what is named first may import what comes after it.
LAYERS = ["cli", "graphs", "nodes", "tools", "prompts", "state"]
PROMPTS = {
    "manus_system": manus_system_prompt,
    "browser_system": browser_system_prompt,
    "planner_system": planner_system_prompt,
    "swe_system": swe_system_prompt,
    "data_analysis_system": data_analysis_system_prompt,
    "mcp_system": mcp_system_prompt,
}
SIX = ["python_execute", "bash", "str_replace_editor", "ask_human", "create_chat_completion",
       "terminate"]  # fmt: skip


def imports(path: Path) -> set[str]:
    """Return the top packages of ours that a module imports when it is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("openmanus_graph."):
            names.add((node.module or "").split(".")[1])
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer: str) -> None:
    above = LAYERS[: LAYERS.index(layer)]
    for path in (PACKAGE / layer).rglob("*.py"):
        assert not imports(path) & set(above), path


@pytest.mark.parametrize("place", ["state", "errors.py"])
def test_the_foundations_import_nothing_of_ours(place: str) -> None:
    paths = [PACKAGE / place] if place.endswith(".py") else (PACKAGE / place).rglob("*.py")
    for path in paths:
        assert imports(path) <= {"state"}, path


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
web = tuple(f"openmanus_graph.{part}." for part in ("browser", "search", "web"))
print(sorted(name for name in sys.modules if name.startswith(web)))
print([name for name in ("bs4", "ddgs", "h11", "lxml", "playwright") if name in sys.modules])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    first, answer, web, libraries = done.stdout.splitlines()
    assert (first, answer, libraries) == ("[]", "done", "[]")
    light = ["browser.declared", "search.names", "search.places", "web.addresses", "web.guard"]
    assert web == str([f"openmanus_graph.{name}" for name in light])


@pytest.mark.parametrize("page", DRAWINGS)
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
    every = [*default_tools(), *planner_tools(), *data_analysis_tools()]
    tools = {tool.name: convert_to_openai_tool(tool)["function"] for tool in every}
    found = json.dumps(tools, indent=1, ensure_ascii=False) + "\n"
    assert found == (SNAPSHOTS / "tools.json").read_text(encoding="utf-8")
    for name, render in PROMPTS.items():
        prompt = render(workspace="/w", date="2026-01-01", instructions="")
        assert prompt + "\n" == (SNAPSHOTS / f"{name}.md").read_text(encoding="utf-8")


def test_the_first_request_with_the_six_tools_is_short() -> None:
    tools = [convert_to_openai_tool(tool) for tool in default_tools() if tool.name in SIX]
    prompt = manus_system_prompt(workspace="/home/me/work", date="2026-01-01", instructions="")
    request = [SystemMessage(prompt), HumanMessage("Draw the sales by month.")]
    assert len(tools) == 6
    assert count_tokens_approximately(request, tools=[*tools]) <= 1500


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
