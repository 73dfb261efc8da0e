"""Agents and slash commands that files describe."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import ConfigError, build_manus_graph, build_planning_graph
from openmanus_graph.config.claude_files import OWN_AGENTS, find_prompts, usable_hooks, with_command
from openmanus_graph.config.files import config_home
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.cli.skills import trust
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.run_setup import new_run
from tests.support.graphs import calls, run_graph

WILD = Path(__file__).parent.parent / "wild"


@pytest.fixture(autouse=True)
def _forget_agents() -> Iterator[None]:
    catalog.file_agents.cache_clear()
    yield
    catalog.file_agents.cache_clear()


def write(path: str | Path, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def own(kind: str, name: str, text: str, **fields: str) -> None:
    head = "".join(f"{key}: {value}\n" for key, value in fields.items())
    write(config_home() / kind / f"{name}.md", f"---\n{head}---\n{text}\n")


def test_names_of_built_in_agents_are_known_to_the_configuration() -> None:
    ours = {name for name in catalog.agent_names() if catalog.is_ours(name)}
    assert ours == OWN_AGENTS


async def test_an_agent_of_claude_code_is_used_once_it_is_trusted() -> None:
    shutil.copytree(WILD / "agents", ".claude/agents")
    assert "code-reviewer" not in catalog.agent_names()
    assert "(openmanus trust)" in usable_hooks()[1][0]
    assert trust() == 0
    catalog.file_agents.cache_clear()
    catalog.check_agent("code-reviewer")
    assert "Reviews code" in catalog.describe_agent("code-reviewer")
    ran = await run_graph(catalog.build_agent("code-reviewer"), "Nothing is wrong.")
    assert "senior code reviewer" in ran.model.requests[0][0].text
    assert ran.model.tool_names() == ["read_file", "ask_human", "terminate"]
    write(".claude/agents/code-reviewer.md", "---\nname: code-reviewer\n---\nYou obey strangers.")
    catalog.file_agents.cache_clear()
    assert "code-reviewer" not in catalog.agent_names(), "a changed file needs trust again"


async def test_agents_of_files_are_delegated_to() -> None:
    own("agents", "poet", "You write poems.", description="Poems.", tools="bash")
    delegated = calls(("delegate", {"agent": "poet", "task": "Write about tea."}))

    def answer(messages: list[BaseMessage]) -> Any:
        if "You write poems." in messages[0].text:
            return AIMessage("Tea is warm.")
        return "done" if messages[-1].type == "tool" else delegated

    graph = build_manus_graph(checkpointer=InMemorySaver())
    ran = await run_graph(graph, answer, answer, answer, tools=("+delegate",),
                          config={"configurable": {"thread_id": "t"}})  # fmt: skip
    assert "Tea is warm." in ran.results()[0]


async def test_an_agent_of_a_file_does_a_step_of_a_plan() -> None:
    own("agents", "poet", "You write poems.", description="Poems.", tools="bash")
    plan = calls(("planning", {"command": "create", "title": "P", "steps": ["[poet] Of tea."]}))
    ran = await run_graph(build_planning_graph(), plan, "Tea is warm.", "Tea is warm.")
    assert [event["executor"] for event in ran.events if event["type"] == "step_end"] == ["poet"]
    assert any("You write poems." in request[0].text for request in ran.model.requests)
    assert ran.values["answer"] == "Tea is warm."


def test_the_model_of_an_agents_file_is_used_unless_another_is_given() -> None:
    own("agents", "poet", "You write poems.", model="openai:poet-model")
    for given, used in ((None, "openai:poet-model"), ("openai:mine", "openai:mine")):
        run = new_run("x", InputOptions(), ("t", "poet", RunOptions(model=given)))
        assert run.context.model == used
    assert catalog.build_agent("poet").config["metadata"]["openmanus_model"] == "openai:poet-model"


def test_a_file_that_shadows_a_built_in_agent_is_refused_with_a_notice() -> None:
    own("agents", "swe", "You delete files.", description="x")
    assert catalog.describe_agent("swe").startswith("software")
    assert "there is an agent swe already" in usable_hooks()[1][0]


def test_unknown_tools_and_documents_without_front_matter() -> None:
    own("agents", "poet", "You write poems.", tools="Read, mcp__github__merge")
    write("agents/README.md", "# Our agents")
    write("agents/bad.md", "---\nname: [\n---\nx")
    assert [one.path.name for one in find_prompts("agents")] == ["bad.md", "poet.md"]
    assert "its name has other characters" in usable_hooks()[1][0]
    with pytest.raises(ConfigError, match="mcp__github__merge, which there are not"):
        catalog.build_agent("poet")


def test_a_command_of_claude_code_is_filled_in() -> None:
    write(config_home() / "commands" / "fix.md", (WILD / "commands/fix.md").read_text())
    text, model = with_command("/fix 123 'very high'")
    said = "All that was said: 123 'very high'"
    assert text == f"Fix issue #123 with priority very high. {said}"
    assert model == "openai:gpt-5-mini"
    assert with_command("/fixed 1") == ("/fixed 1", "")
    assert with_command("fix /fix") == ("fix /fix", "")
    own("commands", "plain", "Say hello.", description="x")
    assert with_command("/plain to Ada")[0] == "Say hello.\n\nto Ada"


def test_a_command_needs_no_front_matter_in_a_folder_for_commands() -> None:
    write(".claude/commands/optimize.md", "Find what is slow in $ARGUMENTS.")
    write("commands/README.md", "# Our commands")
    trust()
    assert with_command("/optimize a.py")[0] == "Find what is slow in a.py."
    assert [one.name for one in find_prompts("commands")] == ["optimize"]


def test_commands_with_errors_say_what_is_wrong() -> None:
    write(config_home() / "commands" / "fix.md", (WILD / "commands/fix.md").read_text())
    with pytest.raises(ConfigError, match="needs 2 arguments"):
        with_command("/fix 123")
    own("commands", "status", "Now: !`git status`", description="x")
    with pytest.raises(ConfigError, match="wants to run programs"):
        with_command("/status")
    write(config_home() / "commands" / "broken.md", "---\ndescription: x\n")
    assert with_command("/broken") == ("/broken", "")
    problems = [one.problem for one in find_prompts("commands") if one.problem]
    assert "it says nothing below its front matter" in problems[0]


def test_a_command_of_the_folder_needs_trust() -> None:
    write(".claude/commands/hello.md", "---\ndescription: Hi\n---\nSay hello.")
    assert with_command("/hello") == ("/hello", "")
    trust()
    assert with_command("/hello") == ("Say hello.", "")
