"""Thoughts in a model's text are not an answer anywhere, and code in a fence is run as a call."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.conversation.history import reasoning_of
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.safety.unquoted_text import mark_untrusted
from tests.graphs.test_delegate import ADDED, Brain, delegating
from tests.support.graphs import Ran, add, calls, run_graph
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.planning import PlanBrain, plan_call

pytestmark = pytest.mark.usefixtures("no_blocking")
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
WANTED = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}}
CODE = "total = 2 + 40"


@tool
def python_execute(code: str) -> str:
    """Run Python."""
    if "open" in code:
        raise ValueError("there is no such file")
    return f"ran {code}"


def fence(code: str = CODE) -> str:
    return f"I add them.\n```python\n{code}\n```\nThe result is 41."


async def manus(*answers: Any, **context: Any) -> Ran:
    graph = build_manus_graph(tools=[add, python_execute], checkpointer=InMemorySaver())
    return await run_graph(graph, *answers, config=CONFIG, **{"policy": "auto", **context})


def shown(ran: Ran) -> str:
    return "".join(event["text"] for event in ran.events if event["type"] == "token")


@pytest.mark.parametrize(
    "text",
    ["<think>I add.</think>\nThe sum is 2.", "[THINK]I add.[/THINK]The sum is 2.",
     "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>final<|message|>"
     "The sum is 2."],
)  # fmt: skip
async def test_only_what_is_said_is_the_answer_and_is_shown(text: str) -> None:
    ran = await manus(text)
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "The sum is 2.")
    assert ran.messages[-1].additional_kwargs["reasoning_content"] == "I add."
    assert shown(ran) == "The sum is 2."


def thought(ran: Ran) -> list[str]:
    return [event["text"] for event in ran.events if event["type"] == "reasoning"]


async def test_reasoning_is_streamed_in_whatever_form_it_comes() -> None:
    ran = await manus("<think>I add the first.</think>\nThe sum is 2.")
    assert "".join(thought(ran)).startswith("I add the first")
    assert len(thought(ran)) > 1, "while the model thinks"
    for name in ("reasoning_content", "reasoning"):
        reply = Reply(text="2", reasoning="I add the first.", reasoning_field=name)
        with OpenAIServer([reply]) as server:
            graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
            ran = await run_graph(graph, model="openai:m", base_url=server.base_url, config=CONFIG)
        assert "".join(thought(ran)) == "I add the first."
        assert len(thought(ran)) > 1
        kinds = ran.kinds()
        assert kinds.index("reasoning") < kinds.index("token") < kinds.index("think_end")


def test_reasoning_in_blocks_is_read() -> None:
    thinking = {"type": "thinking", "thinking": "I add.", "signature": "x"}
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I add."}]}
    for provider, block in (("anthropic", thinking), ("openai", summary)):
        content: Any = [block, {"type": "text", "text": "2"}]
        reply = AIMessage(content, response_metadata={"model_provider": provider})
        assert reasoning_of(reply) == "I add."


async def test_a_thought_without_its_beginning_is_no_answer() -> None:
    ran = await manus("I add.\n</think>\n\nThe sum is 2.")
    assert ran.values["answer"] == "The sum is 2."


async def test_half_a_thought_is_no_answer() -> None:
    ran = await manus("<think>I add the first", "The sum is 2.")
    assert ran.values["answer"] == "The sum is 2."


async def test_a_thought_before_an_object_that_the_caller_wants() -> None:
    ran = await manus('<think>It is {"sum": 1}?</think>\n{"sum": 2}', response_format=WANTED)
    assert ran.values["structured"] == {"sum": 2}
    ran = await manus('so 2</think>```json\n{"sum": 2}\n```', response_format=WANTED)
    assert ran.values["structured"] == {"sum": 2}


async def test_thoughts_of_a_plan_stay_out_of_results_and_summary() -> None:
    def step(number: str, messages: list[BaseMessage]) -> str:
        return f"<think>secret {number}</think>Done {number}."

    plan = plan_call(*({"text": text, "depends_on": []} for text in ("one", "two")))
    plan.content = "<think>secret plan</think>"
    brain = PlanBrain([plan], step, summary="secret summary</think>Both are done.")
    graph = build_planning_graph(
        executors={"manus": build_manus_graph(tools=[add])}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert ran.values["answer"] == "Both are done."
    asked = brain.requests("summary")[0][-1].text
    assert "Done" in asked
    assert "secret" not in asked


async def test_a_subagent_s_thoughts_stay_with_it() -> None:
    def main(messages: list[BaseMessage]) -> Any:
        results = [one.text for one in messages if one.type == "tool"]
        return f"<think>secret</think>It says: {results[0]}" if results else delegating("look")

    brain = Brain(main=main, look="<think>secret</think>It is blue.")
    graph = build_manus_graph(checkpointer=InMemorySaver())
    ran = await run_graph(graph, model=brain.model(), config=CONFIG, **ADDED)
    assert "It is blue." in ran.values["answer"]
    assert "secret" not in ran.values["answer"]


async def test_thoughts_over_http_are_parted_and_come_back_as_reasoning() -> None:
    script = [Reply(text="<think>I add.</think>The sum is 2."), Reply(text="3")]
    with OpenAIServer(script) as server:
        graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
        options: dict[str, Any] = {"model": "openai:m", "base_url": server.base_url}
        ran = await run_graph(graph, config=CONFIG, **options)
        assert ran.values["answer"] == "The sum is 2."
        await run_graph(graph, task="And then?", config=CONFIG, **options)
        assert "<think>" not in json.dumps(server.requests[1].body["messages"])


async def test_a_copied_mark_of_untrusted_text_is_not_in_the_answer() -> None:
    ran = await manus(f"It says: {mark_untrusted('blue')}")
    assert ran.values["answer"] == "It says: blue"


async def test_code_in_a_fence_is_run_and_stands_in_the_history_as_a_native_call() -> None:
    ran = await manus(fence(), "The total is 42.", task="Add 2 and 40")
    assert ran.results() == [f"ran {CODE}"]
    assert ran.values["answer"] == "The total is 42."
    made: Any = ran.model.requests[1][-2]
    assert (made.text, made.tool_calls[0]["args"]) == ("I add them.", {"code": CODE})
    assert "tool interface" not in str(ran.model.requests[1]), "no hint follows"


async def test_a_model_that_only_writes_fences_goes_on_until_it_answers() -> None:
    answer = f"The total is 42. I ran:\n```python\n{CODE}\n```"
    ran = await manus(fence("open('x')"), fence(CODE), fence("y = 1"), answer, task="Add them")
    assert len(ran.results()) == 3
    assert ran.values["answer"] == answer


@pytest.mark.parametrize(
    ("around", "answers"),
    [
        ("I run it.", False),
        ("To add them, we can use this code:", False),
        ("The total is 42:", True),
        ("They were added, as ran shows:", True),
    ],
)
async def test_code_that_was_run_is_an_answer_only_with_what_came_of_it(
    around: str, answers: bool
) -> None:
    again = f"{around}\n```python\n{CODE}\n```"
    ran = await manus(fence(), again, "The total is 42.", task="Add them")
    assert len(ran.results()) == (1 if answers else 2)
    assert ran.values["answer"] == (again if answers else "The total is 42.")


async def test_code_that_was_asked_for_or_comes_after_work_is_an_answer() -> None:
    ran = await manus(fence(), task="Show me a script that adds 2 and 40")
    assert (ran.results(), ran.values["answer"]) == ([], fence())
    ran = await manus(calls(("add", {"a": 1, "b": 40})), fence(), task="Add 1 and 40")
    assert (ran.results(), ran.values["answer"]) == (["41"], fence())


async def test_a_fence_is_subject_to_the_policy() -> None:
    external = python_execute.model_copy(update={"metadata": {"approval": True}})
    graph = build_manus_graph(tools=[external], checkpointer=InMemorySaver())
    ran = await run_graph(graph, fence(), task="Add 2 and 40", config=CONFIG, policy="ask")
    assert ran.results() == []
    assert (await graph.aget_state(CONFIG)).interrupts[0].value["calls"]
