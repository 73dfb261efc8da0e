"""The recording: what models were sent and what they replied, of each thread."""

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.backends.persistence import database_thread
from openmanus_graph.backends.persistence.backend import DamagedRowError
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.recording import RecordedCall, open_model_call_records
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.service.threads import forget_thread
from openmanus_graph.model_calls.recorder import (
    ProviderRequest,
    Recorder,
    recorded_answer,
    request_parts,
)
from openmanus_graph.runtime.session_registry import close_session, open_session
from openmanus_graph.state.model_settings import ModelSettings
from tests.graphs.test_compaction import answering, asks_for_summary, note
from tests.support.graphs import Ran, add, calls, run_graph, scripted

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def record(thread: str = "t") -> list[RecordedCall]:
    return open_model_call_records(database_url()).of(thread)


def rows(columns: str) -> list[tuple[Any, ...]]:
    return open_database(database_url()).run(f"SELECT {columns} FROM model_calls ORDER BY number")


def parts_of(messages: list[BaseMessage]) -> list[dict[str, Any]]:
    chosen = ModelSettings(scripted())
    return request_parts(ProviderRequest(messages, (), instance_model(scripted(), chosen)))[2:]


def check_record(ran: Ran, thread: str = "t") -> list[RecordedCall]:
    """Check that the record holds each request whole, and return it."""
    found = record(thread)
    assert [one.request[2:] for one in found] == [parts_of(sent) for sent in ran.model.requests]
    return found


async def test_each_request_and_reply_is_recorded_as_it_was() -> None:
    replies = (calls(("add", {"a": 1, "b": 2}), text="I add."), "3")
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    ran = await run_graph(graph, *replies, config=CONFIG)
    first, second = check_record(ran)
    made = recorded_answer(first.facts)
    assert isinstance(made, AIMessage)
    assert (made.text, made.tool_calls, made.id) == (
        "I add.", calls(("add", {"a": 1, "b": 2})).tool_calls, ran.messages[1].id,
    )  # fmt: skip
    assert made.usage_metadata == {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    assert (second.caller, second.facts["step"]) == ("think", 2)
    named = [tool["function"]["name"] for tool in first.request[1]["tools"]]
    assert named == ran.model.tool_names(0)
    assert first.request[0]["name"] == "scripted"


async def test_a_row_holds_only_what_is_new_in_its_request() -> None:
    replies = [calls(("add", {"a": n, "b": 1}), prefix=f"c{n}-") for n in range(40)]
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    ran = await run_graph(graph, *replies, "done", config=CONFIG)
    check_record(ran)
    sizes = [size for (size,) in rows("length(parts)")]
    assert max(sizes[1:]) < min(sizes[1:]) + 20
    assert sizes[0] > max(sizes[1:]), "the system prompt and the tools"


async def test_the_next_run_of_a_thread_goes_on_from_its_record() -> None:
    graph, model = build_manus_graph(tools=[add], checkpointer=InMemorySaver()), scripted("a", "b")
    async with open_session("t"):
        await run_graph(graph, model=model, task="one", config=CONFIG)
        ran = await run_graph(graph, model=model, task="two", config=CONFIG)
    check_record(ran)
    assert [base is None for (base,) in rows("base")] == [True, False]


async def test_a_call_that_follows_at_once_holds_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database_thread, "LATER_S", 3600.0)
    recorder = Recorder(open_model_call_records(database_url()), "t", {})
    chosen = ModelSettings(model="openai:scripted")
    messages: list[BaseMessage] = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
    for count in (1, 2, 3):
        request = ProviderRequest(messages[:count], (), instance_model(scripted(), chosen))
        await recorder.record("think", request, AIMessage("reply"), {})
    await recorder.record_fact("name", "value")
    assert rows("base, shared") == [(None, 0), (1, 3), (2, 4)]


async def test_another_process_records_a_whole_request_first() -> None:
    graph, model = build_manus_graph(tools=[add], checkpointer=InMemorySaver()), scripted("a", "b")
    await run_graph(graph, model=model, task="one", config=CONFIG)
    close_session("t")
    ran = await run_graph(graph, model=model, task="two", config=CONFIG)
    check_record(ran)
    assert rows("base, shared") == [(None, 0), (None, 0)]


async def test_the_models_internal_replies_are_recorded() -> None:
    model = scripted(*[answering(60)] * 100)
    model.usage = None
    model.profile = {"max_input_tokens": 4000}
    graph = build_manus_graph(tools=[note], checkpointer=InMemorySaver())
    ran = await run_graph(graph, model=model, task="Count.", config=CONFIG, max_steps=200)
    notes = [one for one in check_record(ran) if "compaction" in one.caller]
    assert len(notes) == sum(map(asks_for_summary, ran.model.requests)) >= 2
    assert notes[0].facts["reply"]["data"]["content"].startswith("- the numbers so far")


async def test_the_final_summary_is_recorded_with_its_suffix() -> None:
    replies = [calls(("add", {"a": n, "b": 1}), prefix=f"c{n}-") for n in range(2)]
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    ran = await run_graph(graph, *replies, "That is done.", config=CONFIG, max_steps=2)
    closing = check_record(ran)[-1]
    assert "2 steps" in closing.request[-1]["content"]
    assert closing.facts["reply"]["data"]["content"] == "That is done."


async def test_a_failure_is_recorded_with_its_kind() -> None:
    refused = ModelError("bad_request", "The server refuses the request.")
    graph = build_manus_graph(checkpointer=InMemorySaver())
    ran = await run_graph(graph, refused, config=CONFIG)
    (only,) = check_record(ran)
    failure = recorded_answer(only.facts)
    assert isinstance(failure, ModelError)
    assert (failure.kind, failure.sentence) == ("bad_request", "The server refuses the request.")


async def test_nothing_is_recorded_without_a_thread() -> None:
    await run_graph(build_manus_graph(), "done")
    assert not database_url().file.exists()


async def test_the_record_is_deleted_with_its_thread() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    for thread in ("t", "other"):
        await run_graph(graph, "done", config={"configurable": {"thread_id": thread}})
    forget_thread("t")
    assert record("t") == []
    assert len(record("other")) == 1


async def test_a_thread_that_was_deleted_begins_a_record_anew() -> None:
    graph, model = build_manus_graph(checkpointer=InMemorySaver()), scripted("a", "b")
    async with open_session("t"):
        await run_graph(graph, model=model, task="one", config=CONFIG)
        forget_thread("t")
        await run_graph(graph, model=model, task="two", config=CONFIG)
    assert rows("base") == [(None,)]


async def test_a_record_that_cannot_be_written_does_not_end_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    open_database(database_url()).run("DROP TABLE model_calls")
    graph = build_manus_graph(checkpointer=InMemorySaver())
    with caplog.at_level(logging.INFO):
        ran = await run_graph(graph, "done", config=CONFIG)
    assert ran.values["answer"] == "done"
    assert "A model call of thread t was not recorded: The database in" in caplog.text


async def test_a_damaged_row_is_told_not_replayed() -> None:
    graph, model = build_manus_graph(tools=[add], checkpointer=InMemorySaver()), scripted("a", "b")
    async with open_session("t"):
        await run_graph(graph, model=model, task="one", config=CONFIG)
        await run_graph(graph, model=model, task="two", config=CONFIG)
    open_database(database_url()).run(
        "UPDATE model_calls SET facts = replace(facts, 'b', 'c') WHERE base IS NOT NULL"
    )
    with pytest.raises(DamagedRowError, match="thread t the record of model call 2 is damaged"):
        record()


def test_pictures_are_recorded_as_digests() -> None:
    def parts(picture: str) -> list[dict[str, Any]]:
        address = f"data:image/png;base64,{picture * 4000}"
        block: Any = {"type": "image_url", "image_url": {"url": address}}
        return parts_of([SystemMessage("s"), HumanMessage([{"type": "text", "text": "t"}, block])])

    (_, seen), (_, other) = parts("A"), parts("B")
    assert seen["content"][0] == {"type": "text", "text": "t"}
    assert seen["content"][1]["image_url"]["url"].startswith("4022 characters, sha256 ")
    assert seen != other
