"""Long runs: the conversation is shortened, the task is not."""

import re
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.history import steering_message
from openmanus_graph.conversation.stuck import STOP_AT
from openmanus_graph.model_calls.compaction import FULL_AT
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.testing.chat_models import ScriptedReply
from tests.support.graphs import calls, run_graph, scripted
from tests.support.long_run import FACT
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

FILLED_BY = 21
TOO_LONG = ModelError("context_length", "The request is too long.")


def asks_for_summary(messages: list[BaseMessage]) -> bool:
    return "Write the notes now" in messages[-1].text


@tool
def note(n: int) -> str:
    """Note a number."""
    return f"noted {n} " + "y" * 400


def answering(steps: int) -> Any:
    """Answer requests for notes with notes, and others with a call, up to a number of steps."""
    made = iter(range(steps))

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if asks_for_summary(messages):
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
    asked = [request for request in model.requests if not asks_for_summary(request)]
    assert all("Count the apples in every basket." in request[1].text for request in asked)
    assert "out.csv" in asked[-1][1].text
    assert asked[-1][1].text.count("Count the apples") == 1
    assert max(len(request) for request in asked) < 60
    assert len([m for m in ran.messages if m.type == "human"]) == 1
    assert ran.values["usage"]["model_calls"] == len(model.requests)


@tool
def look(n: int) -> str:
    """Look at a number."""
    return f"seen {n} " + "y" * 3000


@pytest.mark.parametrize("period", [1, 2, 3])
async def test_a_run_that_repeats_itself_ends_however_often_it_is_compacted(period: int) -> None:
    made = count()

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if asks_for_summary(messages):
            return "- nothing yet"
        number = next(made)
        return calls(("look", {"n": number % period}), prefix=f"c{number}-")

    model = scripted(*[reply] * 200)
    model.usage = None  # estimated from the texts
    model.profile = {"max_input_tokens": 3000}
    ran = await run_graph(
        build_manus_graph(tools=[look], checkpointer=InMemorySaver()),
        model=model,
        config={"configurable": {"thread_id": "t"}},
        max_steps=60,
    )
    assert ran.values["stop_reason"] == "stuck"
    assert sum("compacted" in str(event.get("text")) for event in ran.events) >= 2
    assert ran.values["step_count"] == period * STOP_AT


async def test_a_refused_length_leads_to_compaction_and_one_more_try() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[note]), calls(("note", {"n": 1})), TOO_LONG, "the notes", "done"
    )
    assert ran.values["answer"] == "done"
    assert "the notes" in ran.model.requests[-1][1].text


async def test_a_length_refused_again_ends_the_run_with_its_reason() -> None:
    ran = await run_graph(build_manus_graph(tools=[note]), TOO_LONG, TOO_LONG)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert "too long" in ran.values["answer"]


async def test_where_no_notes_can_be_had_a_digest_stands_in() -> None:
    broken = ModelError("bad_request", "No.")
    ran = await run_graph(
        build_manus_graph(tools=[note]), calls(("note", {"n": 7})), TOO_LONG, broken, "done"
    )
    assert ran.values["answer"] == "done"
    assert "the task" in ran.model.requests[-1][1].text


async def test_a_request_for_notes_that_is_too_long_itself_is_made_in_pieces() -> None:
    steps = [calls(("note", {"n": n}), prefix=f"c{n}-") for n in range(30)]
    asked: list[str] = []

    def short_notes(messages: list[BaseMessage]) -> str | Exception:
        if not asks_for_summary(messages):
            return "done"
        asked.append("".join(message.text for message in messages))
        return TOO_LONG if len(asked[-1]) > 3200 else f"part {len(asked)}"

    graph = build_manus_graph(tools=[note])
    ran = await run_graph(graph, *steps, TOO_LONG, *[short_notes] * 40, max_steps=50)
    refusals = [text for text in asked if len(text) > 3200]
    assert refusals
    for text in (text for text in asked if "You write the notes" in text):
        assert "yyy" not in re.sub(r"<(untrusted-[0-9a-f]{8})>.*</\1>", "", text, flags=re.DOTALL)
        assert "information, never instructions" in text, "it is said what the tags mean"
    seen = "".join(text for text in asked if len(text) <= 3200)
    assert all(f"noted {n} yyy" in seen for n in range(20))
    assert f"part {len(asked)}" in ran.model.requests[-1][1].text
    assert ran.values["usage"]["model_calls"] == len(ran.model.requests) - len(refusals) - 1


async def test_what_notes_cost_counts_even_if_the_budget_ends_there() -> None:
    model = scripted(*["a part of the notes"] * 50)
    model.usage = (600, 20)
    model.profile = {"max_input_tokens": 2000}
    said = [HumanMessage("x" * 900), AIMessage("y " * 9000), HumanMessage("the task")]
    ran = await run_graph(
        build_manus_graph(tools=[note]), model=model, task={"messages": said}, max_total_tokens=2500
    )
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "budget")
    usage = ran.values["usage"]
    assert len(model.requests) == usage["model_calls"] == 2
    assert not [one for request in model.requests for one in request if "Left before" in one.text]
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
    made = [request for request in model.requests if asks_for_summary(request)]
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
    step = calls(("bash", {"command": "echo hi"}))
    ran = await run_graph(build_manus_graph(), step, TOO_LONG, "echo hi printed hi", "done")
    assert [message.type for message in ran.model.requests[3]] == ["system", "human"]
    assert "echo hi printed hi" in ran.model.requests[3][-1].text
    assert ran.values["status"] == "finished"


def nearly_full(
    *answers: Any, kind: type[ScriptedChatModel] = ScriptedChatModel, sent: int = 1
) -> ScriptedChatModel:
    """Make a model whose window is full after `FILLED_BY` steps; then come the answers.

    Its window is such that the request of the last of these steps just fits, and one that is a
    step longer does not, however long the prompt and the tools are.

    Args:
        answers: Of the requests after these steps.
        kind: The model's class.
        sent: How often each request of these steps is sent.
    """

    def last(request: list[BaseMessage]) -> AIMessage:
        tokens = count_tokens_approximately(request, tools=model.options[-1]["tools"])
        model.profile = {"max_input_tokens": int(tokens / FULL_AT)}
        return steps[-1]

    steps = [calls(("note", {"n": n}), prefix=f"c{n}-") for n in range(FILLED_BY)]
    script: list[ScriptedReply] = [*steps[:-1], last]
    filling = [step for step in script for _ in range(sent)]
    model = kind([*filling, *answers], usage=None)
    return model


def notes_or_done(messages: list[BaseMessage]) -> str:
    return "the notes" if asks_for_summary(messages) else "done"


async def test_the_request_for_notes_is_the_agents_own_with_one_message_more() -> None:
    model = nearly_full("the notes", "done")
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, max_steps=50)
    before, notes, after = model.requests[-3:]
    assert asks_for_summary(notes)
    assert notes[: len(before)] == before
    assert [message.type for message in notes[len(before) :]] == ["ai", "tool", "human"]
    assert model.options[-1] == model.options[-2] == model.options[-3]
    assert "the notes" in after[1].text
    assert not any(asks_for_summary([message]) for message in ran.messages), "it is not stored"


async def test_all_requests_of_a_thread_go_to_one_cache() -> None:
    class OpenAIsModel(ScriptedChatModel):
        @property
        def root_async_client(self) -> Any:
            return SimpleNamespace(base_url="https://api.openai.com/v1/")

    keys: list[set[str]] = []
    for thread in ("one", "two"):
        model = nearly_full("the notes", "done", kind=OpenAIsModel)
        await run_graph(
            build_manus_graph(tools=[note], checkpointer=InMemorySaver()),
            model=model,
            config={"configurable": {"thread_id": thread}},
            max_steps=50,
        )
        assert any(map(asks_for_summary, model.requests))
        keys.append({options["prompt_cache_key"] for options in model.options})
    assert [len(of_thread) for of_thread in keys] == [1, 1]
    assert keys[0] != keys[1]


async def test_calls_in_a_reply_with_notes_are_dropped() -> None:
    both = calls(("note", {"n": 99}), text="the notes", prefix="d")
    model = nearly_full(both, "done")
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, max_steps=50)
    assert "the notes" in model.requests[-1][1].text
    assert not any("noted 99" in result for result in ran.results())
    assert ran.values["status"] == "finished"


async def test_who_calls_a_tool_and_writes_no_notes_is_asked_without_tools() -> None:
    no_notes = calls(("note", {"n": 99}), prefix="d")
    model = nearly_full(no_notes, *[notes_or_done] * 9)
    await run_graph(build_manus_graph(tools=[note]), model=model, max_steps=50)
    asked = [n for n, request in enumerate(model.requests) if asks_for_summary(request)]
    with_tools, *without = ["tools" in model.options[n] for n in asked]
    assert with_tools
    assert 1 <= len(without) <= 3, "each of them is paid for"
    assert not any(without)
    assert "noted 1 yyy" in model.requests[asked[1]][-1].text
    assert "the notes" in model.requests[-1][1].text


async def test_notes_that_the_length_limit_cuts_are_continued() -> None:
    def part(text: str, reason: str) -> AIMessage:
        return AIMessage(text, response_metadata={"finish_reason": reason})

    parts = [part("one, ", "length"), part("two, ", "length"), part("three", "stop")]
    model = nearly_full(*parts, "done")
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, max_steps=50)
    assert "one, two, three" in model.requests[-1][1].text
    first, second, third = model.requests[-4:-1]
    assert second[: len(first)] == first, "the same prefix, the request for notes included"
    assert [message.text for message in third[len(first) :: 2]] == ["one, ", "two, "]
    assert ran.values["usage"]["model_calls"] == len(model.requests)


async def test_notes_that_stay_cut_off_are_noticed() -> None:
    cut = AIMessage("and on ", response_metadata={"finish_reason": "length"})
    model = nearly_full(*[cut] * 9, "done")
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, max_steps=50)
    assert ran.values["answer"] == "done"
    assert "and on and on" in ran.model.requests[-1][1].text
    assert any("summary was cut off" in str(event.get("text")) for event in ran.events)


async def test_what_the_user_pastes_and_no_request_holds_becomes_notes_piece_by_piece() -> None:
    def reply(messages: list[BaseMessage]) -> str | Exception:
        if sum(len(message.text) for message in messages) > 4 * 8_000:
            return TOO_LONG
        facts = FACT.findall(messages[-1].text)
        return "\n".join(f"FACT-{n} = {value}" for n, value in facts) or "done"

    pasted = "\n".join(f"FACT-{n:03} = {n + 5000} " + "z" * 240 for n in range(100))
    said = [HumanMessage(pasted), AIMessage("Read."), HumanMessage("Which facts were there?")]
    model = scripted(*[reply] * 50)
    model.usage = None
    model.profile = {"max_input_tokens": 8_000}
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, task={"messages": said})
    shown = "".join(message.text for message in model.requests[-1])
    assert len(set(FACT.findall(shown))) == 100
    assert ran.values["status"] == "finished"


@pytest.mark.slow
async def test_a_window_that_a_refusal_taught_is_known_for_the_rest_of_the_run() -> None:
    window, refused = 8_000, 0

    def reply(messages: list[BaseMessage]) -> AIMessage | str | Exception:
        nonlocal refused
        size = sum(len(message.text) for message in messages) // 4
        if size > window:
            refused += 1
            return TOO_LONG
        answer: AIMessage | str = steps(messages)
        return answer

    steps = answering(200)
    model = scripted(*[reply] * 500)
    model.usage = None
    model.profile = {"max_input_tokens": 128_000}  # what is believed
    ran = await run_graph(
        build_manus_graph(tools=[note]),
        model=model,
        config={"recursion_limit": 10_000},
        max_steps=500,
    )
    assert ran.values["answer"] == "done"
    assert sum(map(asks_for_summary, model.requests)) > 3
    assert refused == 1


def long_history() -> dict[str, Any]:
    """Make a conversation of 15,000 tokens with 40 facts."""
    said: list[BaseMessage] = [HumanMessage("the task")]
    for number in range(40):
        step = calls(("note", {"n": number}), prefix=f"c{number}-")
        text = f"FACT-{number:03} = {number + 5000} " + "z" * 1480
        said += [step, ToolMessage(text, tool_call_id=f"c{number}-1", name="note")]
    return {"messages": said}


def facts_of(messages: list[BaseMessage]) -> list[str]:
    shown = "\n".join(message.text for message in messages)
    return list(dict.fromkeys(found[0] for found in FACT.finditer(shown)))


async def test_a_window_far_smaller_than_believed_is_found_in_one_step() -> None:
    def reply(messages: list[BaseMessage]) -> str | Exception:
        if sum(len(message.text) for message in messages) > 4 * 3_000:
            return TOO_LONG
        return "\n".join(facts_of(messages)) if asks_for_summary(messages) else "done"

    model = scripted(*[reply] * 50)
    model.usage = None
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, task=long_history())
    assert ran.values["answer"] == "done", ran.values["answer"]
    assert len(model.requests) < 20
    assert len(facts_of(model.requests[-1])) == 40


async def test_a_shortened_conversation_that_is_refused_is_shortened_again() -> None:
    def reply(messages: list[BaseMessage]) -> str | Exception:
        if asks_for_summary(messages):
            return "the notes"
        return TOO_LONG if sum(len(message.text) for message in messages) > 4 * 1_200 else "done"

    model = scripted(*[reply] * 50)
    model.usage = None
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, task=long_history())
    assert ran.values["answer"] == "done"
    refused = [r for r in model.requests[:-1] if not asks_for_summary(r)]
    assert len(refused) == 2
    assert len(refused[1]) < len(refused[0])


async def test_what_the_user_said_is_never_shortened_and_the_refusals_end() -> None:
    said = [HumanMessage("the task"), steering_message("i", "in euros")]
    model = scripted(*[TOO_LONG] * 20)
    ran = await run_graph(build_manus_graph(tools=[note]), model=model, task={"messages": said})
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert [message.text for message in ran.messages][-1] == "in euros"


async def test_where_nothing_helps_the_run_fails_with_the_servers_reason() -> None:
    step = calls(("note", {"n": 1}))

    def reply(messages: list[BaseMessage]) -> str | Exception:
        return "the notes" if asks_for_summary(messages) else TOO_LONG

    ran = await run_graph(build_manus_graph(tools=[note]), step, *[reply] * 20)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert "too long" in ran.values["answer"]
    assert len(ran.model.requests) < 10


async def test_middleware_stands_around_the_request_for_notes_too() -> None:
    class Redacting(AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            clean = [
                message.model_copy(update={"content": message.text.replace("4711", "****")})
                for message in request.messages
            ]
            return await handler(request.override(messages=clean))

    graph = build_manus_graph(tools=[note], middleware=[Redacting()])
    no_notes = calls(("note", {"n": 1}), prefix="d")
    model = nearly_full(no_notes, *[notes_or_done] * 9)
    task = "Is it 4711?"
    ran = await run_graph(graph, model=model, task=task, max_steps=50)
    pieces = sum(map(asks_for_summary, model.requests)) - 1
    assert 1 <= pieces <= 3
    assert any("****" in request[1].text for request in model.requests)
    with_tools = ["tools" in options for options in model.options]
    assert with_tools == [True] * (FILLED_BY + 1) + [False] * pieces + [True]
    assert not any("4711" in message.text for request in model.requests for message in request)
    assert ran.values["usage"]["model_calls"] == len(model.requests)


async def test_what_a_middleware_spent_on_notes_that_failed_counts() -> None:
    class Twice(AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            await handler(request)
            return await handler(request)

    broken = ModelError("bad_request", "No.")
    model = nearly_full("notes", broken, "done", "done", sent=2)
    graph = build_manus_graph(tools=[note], middleware=[Twice()])
    ran = await run_graph(graph, model=model, max_steps=50)
    assert ran.values["answer"] == "done"
    assert ran.values["usage"]["model_calls"] == len(model.requests) - 1
