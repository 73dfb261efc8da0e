"""Whatever a model replies, its thread ends, goes on and can be read.

A failure is drawn again by the seed in pytest's header and the case's number.
"""

import json
import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, message_to_dict
from langchain_core.tools import tool
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.config.resolve import database_url
from openmanus_graph.tools.closing import ask_human
from tests.support.graphs import add, calls, run_graph
from tests.support.odd_replies import OddModel, message, wire_reply
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import chance, sampled

pytestmark = pytest.mark.slow

ENDED = ("finished", "failed", "stopped")
CONFIG: Any = {"configurable": {"thread_id": "t"}}
THREADS = 40
"""Of each kind in a default run; with five replies each, most of them odd."""
CASES = sampled(range(1000), THREADS, "odd replies")
SOME = sampled(range(1000), 4, "odd replies in each database")


@tool
def note(value: Any) -> str:
    """Note any value.

    Args:
        value: It.
    """
    return f"noted {str(value)[:50]}"


async def survives(model: Any, **context: Any) -> list[BaseMessage]:
    """Run a thread of odd replies with a pause before each act, in new savers; read and go on."""
    given: Any = {"messages": [HumanMessage("Add and note something.")]}
    values: dict[str, Any] = {}
    for _ in range(60):
        async with open_checkpointer(database_url()) as saver:
            graph: Any = build_manus_graph(tools=[add, note], checkpointer=saver)
            values = await graph.ainvoke(
                given,
                CONFIG,
                context=Context(model=model, workspace="work", policy="auto", **context),
                interrupt_before=["act"],
                durability="sync",
            )
            given = None
        if values.get("status"):
            break
    assert values["status"] in ENDED, "it goes on for ever"
    async with open_checkpointer(database_url()) as saver:
        graph = build_manus_graph(tools=[add, note], checkpointer=saver)
        again = await run_graph(graph, "The end.", task="And now?", config=CONFIG)
        assert again.values["status"] == "finished"
        async for state in graph.aget_state_history(CONFIG):
            assert state.config
        messages: list[BaseMessage] = (await graph.aget_state(CONFIG)).values["messages"]
    for sent in again.model.requests:
        sendable(sent)
    assert len({one.id for one in messages}) == len(messages)
    return messages


def sendable(messages: Any) -> None:
    """Fail if something of a request is not JSON that every server takes."""
    for one in messages:
        found = message_to_dict(one)
        text = json.dumps(found, allow_nan=False, ensure_ascii=False, default=_of_bytes)
        text.encode()
        made = [*one.tool_calls, *one.invalid_tool_calls] if isinstance(one, AIMessage) else []
        for call in made:
            assert call["id"]
            assert len(str(call["id"])) < 300


def _of_bytes(value: object) -> str:
    """Signatures of thoughts, which their own provider's client encodes."""
    assert isinstance(value, bytes)
    return value.hex()


@pytest.mark.parametrize("number", CASES)
async def test_whatever_a_client_returns_the_thread_goes_on(number: int) -> None:
    drawn = chance(f"odd messages {number}")
    await survives(OddModel.of(*(message(drawn) for _ in range(5))))


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("number", SOME)
async def test_whatever_a_client_returns_each_database_keeps_it(number: int) -> None:
    drawn = chance(f"odd messages {number}")
    await survives(OddModel.of(*(message(drawn) for _ in range(5))))


@pytest.mark.parametrize("number", CASES)
async def test_whatever_comes_from_the_wire_the_thread_goes_on(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = chance(f"odd wire {number}")
    replies = [wire_reply(drawn) for _ in range(5)]
    with OpenAIServer([*replies, *[Reply("The answer is 3.")] * 60]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        await survives("openai:test-model")


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"value": 18446744073709551616}', "'value' holds a number beyond 64 bits"),
        ('{"value": [{"x": -9223372036854775809}]}', "'value' holds a number beyond 64 bits"),
        ('{"value": 1e999}', "'value' holds a number that is not finite"),
        ('{"value": NaN}', "'value' holds a number that is not finite"),
        (f'{{"value": {"7" * 5000}}}', "not a JSON object"),
        (f'{{"value": {deep(150)}}}', "nested more than 100 levels"),
        (f'{{"value": {deep(600)}}}', "nested more than 100 levels"),
        (f'{{"value": {deep(100_000)}}}', "nested more than 100 levels"),
        (r'{"value": "\ud83d"}', "half a character"),
        (json.dumps({"k" * 5000: 1}), "The name of an argument has 5000 characters"),
        (json.dumps({"value": {"k" * 5000: 1}}), "'value' holds a key of 5000 characters"),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("way", ["wire", "text"])
async def test_the_model_is_told_which_argument_is_odd(
    monkeypatch: pytest.MonkeyPatch, arguments: str, said: str, way: str
) -> None:
    first = Reply(calls=(Call("note", arguments),))
    if way == "text":
        made = f'{{"name": "note", "arguments": {arguments}}}'
        first = Reply(f"<tool_call>{made}</tool_call>")
    with OpenAIServer([first, Reply("The answer is 3."), Reply("The end.")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        messages = await survives("openai:test-model")
    reported = next(one for one in messages if one.type == "tool")
    if way == "wire":
        assert said in reported.text
    assert "not run" in reported.text
    assert getattr(reported, "status", "") == "error"


RESULTS = [
    "\ud83d \0 seen",
    *(deep(depth) for depth in (150, 500, 800, 950, 5000)),
    "[" * 100_000,
    "7" * 5000,
    json.dumps({"a": 2**70, "b": float("nan"), "k" * 5000: "\ud83d"}),
]


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("result", RESULTS, ids=range(len(RESULTS)))
async def test_odd_values_from_other_doors_do_not_end_a_thread(result: str) -> None:
    """A client's history, what a tool returns, what a person answers."""

    @tool(response_format="content_and_artifact")
    def look() -> tuple[str, Any]:
        """Look."""
        return result, {"number": 2**70, "deep": json.loads(deep(150))}

    history = [HumanMessage("Before."), calls(("note", {"value": 2**70, "inf": float("inf")}))]
    task: Any = {"messages": [*history, HumanMessage(f"Go. {result[:2000]}")]}
    asks = calls(("ask_human", {"inquire": "Which?"}), prefix="a")
    tools = [add, note, look, ask_human]
    async with open_checkpointer(database_url()) as saver:
        graph: Any = build_manus_graph(tools=tools, checkpointer=saver)
        reply = calls(("look", {}), prefix="l")
        await run_graph(graph, reply, asks, task=task, config=CONFIG, policy="auto")
    async with open_checkpointer(database_url()) as saver:
        graph = build_manus_graph(tools=tools, checkpointer=saver)
        answer: Any = Command(resume=result)
        ran = await run_graph(graph, "done", task=answer, config=CONFIG, policy="auto")
        assert ran.values["status"] == "finished"
    async with open_checkpointer(database_url()) as saver:
        graph = build_manus_graph(tools=tools, checkpointer=saver)
        again = await run_graph(graph, "The end.", task="And now?", config=CONFIG)
    assert again.values["status"] == "finished"


@pytest.mark.parametrize(
    "answer",
    [f'{{"n": {deep(150)}}}', f'{{"n": {deep(5000)}}}', '{"n": 1e999}', '{"n": %s}' % 2**64],
)
async def test_a_structured_answer_that_is_odd_is_asked_for_again(answer: str) -> None:
    wanted: dict[str, Any] = {"type": "object", "properties": {"n": {}}, "required": ["n"]}
    async with open_checkpointer(database_url()) as saver:
        graph = build_manus_graph(tools=[add], checkpointer=saver)
        ran = await run_graph(graph, answer, '{"n": 3}', config=CONFIG, response_format=wanted)
    assert ran.values["structured"] == {"n": 3}


def test_the_generator_draws_what_it_is_for() -> None:
    drawn = random.Random(1)
    texts = repr([wire_reply(drawn) for _ in range(300)])
    for odd in ("18446744073709551616", "NaN", "1e400", "[[[[[[[[", "1111111111"):
        assert odd in texts
