"""Long runs: the conversation is shortened, the task is not."""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.models.failures import ModelError
from tests.support.graphs import calls, run_graph, scripted


@tool
def note(n: int) -> str:
    """Note a number."""
    return f"noted {n} " + "y" * 400


def answering(steps: int) -> Any:
    """Answer requests for notes with notes, and others with a call, up to a number of steps."""
    made = iter(range(steps))

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if "Write the notes now" in messages[-1].text:
            return "- the numbers so far were noted; the file is out.csv"
        number = next(made, None)
        return "done" if number is None else calls(("note", {"n": number}), prefix=f"c{number}-")

    return reply


async def test_a_full_conversation_becomes_notes_and_keeps_its_task() -> None:
    model = scripted(*[answering(60)] * 100)
    model.usage = None  # estimated from the texts
    model.profile = {"max_input_tokens": 4000}
    ran = await run_graph(
        build_manus_graph(tools=[note], checkpointer=InMemorySaver()),
        model=model,
        task="Count the apples in every basket.",
        config={"configurable": {"thread_id": "t"}},
        max_steps=200,
    )
    assert ran.values["answer"] == "done"
    assert ran.values["step_count"] == 61
    assert sum("compacted" in str(event.get("text")) for event in ran.events) >= 2
    asked = [request for request in model.requests if "Write the notes" not in request[-1].text]
    assert all("Count the apples in every basket." in request[1].text for request in asked)
    assert "out.csv" in asked[-1][1].text
    assert asked[-1][1].text.count("Count the apples") == 1
    assert max(len(request) for request in asked) < 60
    assert len([m for m in ran.messages if m.type == "human"]) == 1
    assert ran.values["usage"]["model_calls"] == len(model.requests)


async def test_a_refused_length_leads_to_compaction_and_one_more_try() -> None:
    refused = ModelError("context_length", "The request is too long.")
    ran = await run_graph(
        build_manus_graph(tools=[note]), calls(("note", {"n": 1})), refused, "the notes", "done"
    )
    assert ran.values["answer"] == "done"
    assert "the notes" in ran.model.requests[-1][1].text


async def test_a_length_refused_again_ends_the_run_with_its_reason() -> None:
    refused = ModelError("context_length", "The request is too long.")
    ran = await run_graph(build_manus_graph(tools=[note]), refused, "the notes", refused)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert "too long" in ran.values["answer"]


async def test_where_no_notes_can_be_had_a_digest_stands_in() -> None:
    refused = ModelError("context_length", "The request is too long.")
    broken = ModelError("bad_request", "No.")
    ran = await run_graph(
        build_manus_graph(tools=[note]), calls(("note", {"n": 7})), refused, broken, "done"
    )
    assert ran.values["answer"] == "done"
    assert "the task" in ran.model.requests[-1][1].text
