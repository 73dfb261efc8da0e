"""Which calls of a reply run in order, and which at once."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph import manus_tool
from openmanus_graph.safety.provenance import JudgedReply
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.sequential_groups import (
    call_groups,
    dependent_groups,
    first_groups,
    independent,
)
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools import default_tools, planner_tools
from tests.support.graphs import add, calls

A_FILE, ANOTHER = Traits("workspace", "file:a.txt"), Traits("external", "file:b.txt")
HELPER = Traits("workspace", runs_agent=True)
PURE, BASH = Traits("read_only"), Traits("workspace", "bash")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PURE, PURE, True),
        (PURE, Traits("read_only", "browser"), True),
        (Traits("read_only", "browser"), Traits("read_only", "browser"), False),
        (A_FILE, ANOTHER, True),
        (A_FILE, A_FILE, False),
        (A_FILE, Traits("read_only", "file:a.txt"), False),
        (A_FILE, PURE, False),
        (A_FILE, Traits("workspace", "file:folder"), False),
        (A_FILE, BASH, False),
        (BASH, PURE, False),
        (BASH, Traits("workspace", "python"), False),
        (Traits(), PURE, False),
        (Traits(), Traits(), False),
        (Traits("read_only", "file:a"), Traits("read_only", "file:b"), True),
        (HELPER, HELPER, True),
        (HELPER, BASH, False),
        (HELPER, PURE, False),
    ],
)
def test_calls_are_independent_only_where_they_declare_it(
    one: Traits, other: Traits, expected: bool
) -> None:
    assert independent(one, other) is independent(other, one) is expected


def test_groups_are_joined_by_what_depends_on_both() -> None:
    files = [Traits("workspace", f"file:{name}.txt") for name in "aba"]
    assert dependent_groups(files) == [[0, 2], [1]]
    assert dependent_groups([*files, BASH]) == [[0, 1, 2, 3]]
    assert dependent_groups([PURE, A_FILE, PURE]) == [[0, 1, 2]]
    assert dependent_groups([]) == []


@pytest.mark.parametrize(
    ("made", "first"),
    [
        ([HELPER, HELPER], [[0], [1]]),
        ([BASH, HELPER, HELPER, BASH], [[0]]),
        ([BASH, BASH, HELPER], [[0, 1]]),
        ([HELPER, HELPER, BASH, HELPER], [[0], [1]]),
        ([BASH, A_FILE], [[0, 1]]),
    ],
)
def test_a_call_that_runs_an_agent_is_a_group_of_its_own_and_others_wait(
    made: list[Traits], first: list[list[int]]
) -> None:
    groups = dependent_groups(made)
    assert [one for group in groups for one in first_groups(group, made)] == first


def groups_in(tools: Any, messages: list[AnyMessage]) -> list[list[PendingCall]]:
    toolset = Toolset({tool.name: tool for tool in tools}, None)
    return call_groups(toolset.tools, JudgedReply(messages, toolset.traits))


def groups_of(*made: tuple[str, dict[str, Any]], tools: Any = ()) -> list[list[str]]:
    """Return the names of the tools in each group."""
    found = groups_in(tools or TOOLS, [HumanMessage("go"), calls(*made)])
    return [[call["name"] for call in group] for group in found]


TOOLS = list({tool.name: tool for tool in (*default_tools(), *planner_tools())}.values())
CHART = ("python_execute", {"code": "savefig('a.png')"})
VIEW = ("str_replace_editor", {"command": "view", "path": "a.png"})


@pytest.mark.parametrize(
    "made",
    [
        (CHART, VIEW),
        (("bash", {"command": "date > a.txt"}), ("read_file", {"path": "a.txt"})),
        (("made_up", {"a": "b"}), ("web_search", {"query": "x"})),
        (("read_file", {"path": "a.txt"}), ("bash", {"command": "rm a.txt"})),
        (("str_replace_editor", {"path": "src/a.py"}), ("str_replace_editor", {"path": "src"})),
        (("bash", {"command": "make"}), ("terminate", {"status": "success"})),
    ],
)
def test_what_may_need_an_earlier_call_runs_after_it(made: Any) -> None:
    assert groups_of(*made) == [[name for name, _ in made]]


def test_what_changes_nothing_runs_at_once_also_beside_the_end_and_a_question() -> None:
    searches = [("web_search", {"query": str(n)}) for n in range(5)]
    others = [
        ("terminate", {"status": "success"}),
        ("ask_human", {"inquire": "Who?"}),
        ("planning", {"command": "list"}),
    ]
    assert len(groups_of(*searches, *others)) == 8
    end = ("create_chat_completion", {"response": "x"})
    assert groups_of(end, ("terminate", {"status": "success"})) == [[end[0], "terminate"]]


def test_tools_of_others_run_in_order_unless_they_say_that_they_change_nothing() -> None:
    twice = [("add", {"a": 1, "b": 1})] * 2
    assert groups_of(*twice, tools=[add]) == [["add", "add"]]
    reader = add.model_copy(update={"metadata": {"effect": "read_only"}})
    assert groups_of(*twice, tools=[reader]) == [["add"], ["add"]]


def test_arguments_that_a_declaration_cannot_read_put_the_call_in_order() -> None:
    @manus_tool(effect="read_only", resource=lambda args: f"file:{args['path']}")
    def read(path: str) -> str:
        """Read.

        Args:
            path: What.
        """
        return path

    made = [("read", {"path": "a"}), ("read", {"where": "b"}), ("read", {"path": "c"})]
    assert groups_of(*made, tools=[read]) == [["read"] * 3]


def test_a_broken_call_has_its_place_in_the_group() -> None:
    reply = AIMessage(
        "",
        tool_calls=[{"name": "bash", "args": {"command": "ls"}, "id": "b"}],
        invalid_tool_calls=[
            {
                "name": "bash",
                "args": "{",
                "id": "a",
                "error": "no JSON",
                "type": "invalid_tool_call",
            }
        ],
        additional_kwargs={"broken_calls_at": [0]},
    )
    (group,) = groups_in(TOOLS, [HumanMessage("go"), reply])
    assert [call["id"] for call in group] == ["a", "b"]
