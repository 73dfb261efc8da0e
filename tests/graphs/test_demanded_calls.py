"""A call is demanded after a reply that did nothing, of servers that keep to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.models.dialects import learnt_lines
from openmanus_graph.tools.closing import terminate
from tests.support.graphs import Ran, add, calls, run_graph
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

ADD = Call("add", {"a": 1, "b": 2})
LAZY = "I will add the numbers now."
DONE = "The sum is 3."


class Sum(BaseModel):
    total: int


async def run_on(server: OpenAIServer, **context: Any) -> Ran:
    """Run in a process of its own, as far as clients are concerned."""
    try:
        graph = build_manus_graph(tools=[add, terminate])
        return await run_graph(graph, model="openai:m", base_url=server.base_url, **context)
    finally:
        await close_models()


def demands(server: OpenAIServer) -> list[Any]:
    return [one.body.get("tool_choice") for one in server.requests]


def constrained(body: dict[str, Any]) -> Reply:
    """Do nothing unless a call is demanded."""
    if body.get("tool_choice") == "required":
        return Reply(calls=(ADD,))
    has_worked = any(one["role"] == "tool" for one in body["messages"])
    return Reply(text=DONE if has_worked else LAZY)


async def test_a_reply_that_did_nothing_is_followed_by_a_demand() -> None:
    with OpenAIServer([constrained] * 6, strict=True) as server:
        for _ in range(2):
            ran = await run_on(server)
            assert (ran.values["status"], ran.values["answer"]) == ("finished", DONE)
            assert ran.results() == ["3"]
    assert demands(server) == [None, "required", None] * 2
    assert learnt_lines() == []


@pytest.mark.parametrize(
    "unmoved",
    [
        Reply(text=DONE),
        Reply(text="```" + "\n" * 200, finish_reason="length"),
        Reply(text="<tool_call>" + '{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'),
    ],
    ids=["a-text", "to-the-limit", "a-call-as-text"],
)
async def test_a_server_that_does_not_keep_to_it_is_not_asked_for_it_again(unmoved: Reply) -> None:
    script = [Reply(text=LAZY), unmoved, Reply(text=DONE), Reply(text=DONE)]
    with OpenAIServer(script, strict=True) as server:
        await run_on(server)
        seen = len(server.requests)
        assert demands(server)[:2] == [None, "required"]
        server.script += [Reply(text=LAZY), Reply(calls=(ADD,)), Reply(text=DONE)]
        while len(server.requests) < seen + 3:
            await run_on(server)
        assert "required" not in demands(server)[2:]
    (line,) = learnt_lines()
    assert line.endswith("tool calls are never forced")


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "said",
    [
        "The tool_choice parameter does not support being set to required in thinking mode",
        "deepseek-reasoner does not support this tool_choice",
        "toolChoice: only `auto` can be used with this model",
    ],
)
async def test_a_refusal_of_the_demand_costs_one_request(status: int, said: str) -> None:
    refused = Reply(status=status, error={"message": said})
    script = [Reply(text=LAZY), refused, Reply(calls=(ADD,)), Reply(text=DONE)]
    again = [Reply(text=LAZY), Reply(calls=(ADD,)), Reply(text=DONE)]
    with OpenAIServer([*script, *again], strict=True) as server:
        for _ in range(2):
            assert (await run_on(server)).values["answer"] == DONE
    assert demands(server) == [None, "required", None, None, None, None, None]


@pytest.mark.parametrize(
    ("tools", "context"),
    [([add], {}), ([add, terminate], {"response_format": Sum})],
    ids=["no-way-to-answer", "an-answer-is-an-object"],
)
async def test_nothing_is_demanded_where_an_answer_is_no_call(
    tools: list[Any], context: dict[str, Any]
) -> None:
    graph = build_manus_graph(tools=tools)
    ran = await run_graph(graph, LAZY, '{"total": 3}', **context)
    assert len(ran.model.requests) == 2
    assert [one.get("tool_choice") for one in ran.model.options] == [None, None]


@pytest.fixture
def towns() -> str:
    """Make a table in the workspace, and return its name."""
    table = Path("work/towns.csv")
    table.parent.mkdir()
    table.write_text("".join(f"town{number},{37 * number}\n" for number in range(300)))
    return table.name


Made = Callable[[str], Any]


def as_call(text: str) -> Any:
    return calls(("terminate", {"status": "success", "answer": text}))


def as_text(text: str) -> Any:
    return text


@pytest.mark.parametrize("form", [as_text, as_call])
async def test_a_demanded_answer_is_checked_as_often_as_any(form: Made, towns: str) -> None:
    wrong, task = "It is 513275 in all.", f"What is the sum of the second column of {towns}?"
    ran = await run_graph(build_manus_graph(), wrong, form(wrong), task=task, answer_check="ask")
    assert len(ran.model.requests) == 2
    assert ran.values["claims"]["not_found"] == 1


@pytest.mark.parametrize("said", [LAZY, "Let me read the file first."])
async def test_a_demand_makes_no_answer_of_an_announcement(said: str) -> None:
    graph = build_manus_graph(tools=[add, terminate])
    ran = await run_graph(graph, said, as_call(said), as_call(said), task="Add 1 and 2.")
    assert ran.values["status"] == "failed"
    worked = calls(("add", {"a": 1, "b": 2}))
    ran = await run_graph(graph, worked, as_call("Next, I will rest."), task="Add 1 and 2.")
    assert ran.values["status"] == "finished", "who has worked is believed"
