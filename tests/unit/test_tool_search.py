"""Finding tools among many, by words and by names."""

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.tool_calls.tool_search import MOST_LOADED, ToolSearch, matching_tools
from openmanus_graph.tool_calls.toolset import Toolset


class Named(JsonSchemaTool):
    @override
    def problems(self, args: Mapping[str, Any]) -> list[str]:
        return []

    @override
    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> Observation:
        return Observation("")


def tools(**described: str) -> list[Named]:
    return [
        Named(name=name, description=text, parameters={"type": "object"}, traits=Traits())
        for name, text in described.items()
    ]


OFFICE = tools(
    mcp_mail_send="Sends a message to somebody.",
    mcp_mail_find="Finds messages by sender or words.",
    mcp_git_create_issue="Opens an issue in a repository.",
    mcp_git_list_issues="Lists the issues of a repository.",
    mcp_clock_now="Says what time it is.",
)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue", "mcp_git_create_issue"),
        ("list_issues", "mcp_git_list_issues"),
        ("send mail", "mcp_mail_send"),
        ("TIME", "mcp_clock_now"),
        ("repositories: lists", "mcp_git_list_issues"),
    ],
)
def test_rare_words_and_names_count_most(query: str, best: str) -> None:
    assert matching_tools(query, OFFICE)[0] == best


@pytest.mark.parametrize("query", ["", "???", "quantum"])
def test_nothing_matches_nothing(query: str) -> None:
    assert matching_tools(query, OFFICE) == []


async def searched(many: list[Named], query: str) -> Observation:
    nothing: Any = None  # it uses no runtime
    return await ToolSearch.over(many).observe({"query": query}, nothing)


def loaded(observation: Observation) -> list[str]:
    assert observation.update is not None
    names: list[str] = StrictSerializer().from_text(observation.update or "")["loaded_tools"]
    return names


async def test_words_load_the_best_few_and_name_others_that_match() -> None:
    many = tools(**{f"mcp_a_file_{n}": "Reads a file.\nIn blocks. " * 20 for n in range(40)})
    found = await searched(many, "file")
    assert loaded(found) == [f"mcp_a_file_{n}" for n in range(MOST_LOADED)]
    lines = found.text.splitlines()
    assert lines[MOST_LOADED + 1].startswith("These match as well")
    assert lines[-1].startswith("- mcp_a_file_19: Reads a file. In blocks.")
    assert lines[-1].endswith(" ...")


async def test_names_load_these_and_no_others() -> None:
    found = await searched(OFFICE, "mcp_clock_now, mcp_mail_find")
    assert loaded(found) == ["mcp_clock_now", "mcp_mail_find"]
    assert (await searched(OFFICE, "quantum")).update is None


def test_the_description_lists_names_up_to_a_length() -> None:
    assert "mcp_mail_send, mcp_mail_find" in ToolSearch.over(OFFICE).description
    many = tools(**{f"mcp_server_{n}_{'x' * 40}": "" for n in range(500)})
    described = ToolSearch.over(many).description
    assert described.startswith("Finds tools of the connected servers, 500 in all")
    assert len(described) < 4500
    assert "more." in described


def test_a_request_has_the_found_tools_after_all_others_in_the_order_of_finding() -> None:
    every = {tool.name: tool for tool in [*tools(terminate=""), *OFFICE]}
    toolset = Toolset(every, None, [tool.name for tool in OFFICE])

    def sent(*found: str) -> list[str]:
        return [one["function"]["name"] for one in toolset.loaded_definitions(found)]

    assert sent() == ["terminate"]
    assert sent("mcp_mail_send", "gone", "terminate", "mcp_clock_now") == [
        "terminate", "mcp_mail_send", "mcp_clock_now",
    ]  # fmt: skip
    with pytest.raises(ToolError, match=r"mean mcp_mail_send\? Available: terminate, and \d more"):
        toolset.find("mcp_mail_sent")
