"""Long runs: the conversation is shortened, the task is not."""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.models.failures import ModelError
from tests.support.graphs import calls, run_graph, scripted
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


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
    ran = await run_graph(build_manus_graph(tools=[note]), refused, refused)
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


async def test_a_request_for_notes_that_is_too_long_itself_is_made_in_pieces() -> None:
    refused = ModelError("context_length", "The request is too long.")
    steps = [calls(("note", {"n": n}), prefix=f"c{n}-") for n in range(30)]
    asked: list[str] = []

    def short_notes(messages: list[BaseMessage]) -> str | Exception:
        if "Write the notes now" not in messages[-1].text:
            return "done"
        asked.append(messages[-1].text)
        return refused if len(messages[-1].text) > 2500 else f"part {len(asked)}"

    graph = build_manus_graph(tools=[note])
    ran = await run_graph(graph, *steps, refused, *[short_notes] * 40, max_steps=50)
    refusals = [text for text in asked if len(text) > 2500]
    assert refusals
    seen = "".join(text for text in asked if len(text) <= 2500)
    assert all(f"noted {n} yyy" in seen for n in range(20))
    assert f"part {len(asked)}" in ran.model.requests[-1][1].text
    assert ran.values["usage"]["model_calls"] == len(ran.model.requests) - len(refusals) - 1


async def test_what_notes_cost_counts_even_if_the_budget_ends_there() -> None:
    model = scripted(*["a part of the notes"] * 50)
    model.usage = (600, 20)
    model.profile = {"max_input_tokens": 2000}
    said = [HumanMessage("x" * 900), AIMessage("y " * 9000), HumanMessage("the task")]
    ran = await run_graph(
        build_manus_graph(tools=[note]), model=model, task={"messages": said}, max_total_tokens=1000
    )
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "budget")
    usage = ran.values["usage"]
    assert len(model.requests) == usage["model_calls"] == 2
    assert usage["input_tokens"] + usage["output_tokens"] == 1240


async def test_what_cannot_be_shortened_is_not_compacted_again_and_again() -> None:
    model = scripted(*[answering(20)] * 100)
    model.usage = None
    model.profile = {"max_input_tokens": 1200}
    long_prompt = {"system": "Be careful. " * 400}
    ran = await run_graph(
        build_manus_graph(tools=[note]), model=model, prompts=long_prompt, max_steps=50
    )
    assert ran.values["answer"] == "done"
    made = [request for request in model.requests if "Write the notes" in request[-1].text]
    assert len(made) < 15


async def test_a_reply_of_two_megabytes_is_cut_before_notes_are_made_of_it() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        asked = str(body["messages"][-1]["content"])
        return Reply("- the notes") if "Write the notes now" in asked else Reply("done")

    text = "The first words. " + "and so on " * 200_000 + "The last words."
    spent = {"prompt_tokens": 100, "completion_tokens": 500_000, "total_tokens": 500_100}
    huge = Reply(text, calls=(Call("note", {"n": 1}),), piece_size=200_000, usage=spent)
    with OpenAIServer([huge, *[answer] * 60]) as server:
        context = Context(model="openai:test-model", base_url=server.base_url, max_cost_usd=1000)
        given: Any = {"messages": [HumanMessage("Write a very long text.")]}
        ran = await build_manus_graph(tools=[note]).ainvoke(given, context=context)
        await close_models()
        asked = [str(request.messages[-1]["content"]) for request in server.requests]
    assert ran["answer"] == "done"
    notes = [request for request in asked if "Write the notes now" in request]
    assert 1 <= len(notes) <= 3, "each of them is paid for"
    assert "The first words." in notes[0]
    assert "The last words." in "".join(notes)
    assert "characters left out" in "".join(notes)


async def test_a_short_conversation_that_is_refused_keeps_what_was_done() -> None:
    refused = ModelError("context_length", "The request is too long.")
    step = calls(("bash", {"command": "echo hi"}))
    ran = await run_graph(build_manus_graph(), step, refused, "echo hi printed hi", "done")
    assert [message.type for message in ran.model.requests[3]] == ["system", "human"]
    assert "echo hi printed hi" in ran.model.requests[3][-1].text
    assert ran.values["status"] == "finished"
