from pathlib import Path

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call
from langchain_core.tools import tool

from openmanus_graph.backends.models.chunks import merged_message
from openmanus_graph.testing import (
    RecordedChatModel,
    RecordingError,
    ScriptedChatModel,
    ScriptExhaustedError,
    load_recording,
    recording_of,
    save_recording,
)

CALL = AIMessage(
    "Listing the folder.",
    tool_calls=[tool_call(name="bash", args={"command": "ls -la /tmp"}, id="c1")],
    additional_kwargs={"reasoning_content": "Look first."},
)


@tool
def bash(command: str) -> str:
    """Run a command."""
    return command


async def streamed(model: ScriptedChatModel, text: str = "Hello") -> AIMessage:
    chunks: list[AIMessageChunk] = [chunk async for chunk in model.astream(text)]
    assert len(chunks) > 1
    return merged_message(chunks)


async def test_plays_replies_in_order_and_records_requests() -> None:
    model = ScriptedChatModel(["one", CALL, lambda messages: f"{len(messages)} messages"])
    assert (await model.ainvoke("Hello")).content == "one"
    assert (await model.ainvoke("Go on")).tool_calls == CALL.tool_calls
    assert model.invoke([HumanMessage("a"), HumanMessage("b")]).content == "2 messages"
    assert [[m.content for m in request] for request in model.requests] == [
        ["Hello"],
        ["Go on"],
        ["a", "b"],
    ]
    assert model.remaining == 0


async def test_a_streamed_reply_is_the_same_as_a_whole_one() -> None:
    model = ScriptedChatModel([CALL, CALL])
    whole = await model.ainvoke("Hello")
    pieces = await streamed(model)
    assert pieces.content == whole.content
    assert pieces.tool_calls == whole.tool_calls
    assert pieces.usage_metadata == whole.usage_metadata
    assert pieces.additional_kwargs == whole.additional_kwargs


async def test_an_invalid_call_stays_invalid_when_streamed() -> None:
    broken = AIMessage(
        "",
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "name": "a", "args": '{"x', "id": "c", "error": None}
        ],
    )
    message = await streamed(ScriptedChatModel([broken]))
    assert [call["args"] for call in message.invalid_tool_calls] == ['{"x']
    assert message.tool_calls == []


async def test_raises_what_the_script_says() -> None:
    model = ScriptedChatModel([TimeoutError("late"), lambda _: ConnectionError("gone"), "fine"])
    with pytest.raises(TimeoutError, match="late"):
        await model.ainvoke("Hello")
    with pytest.raises(ConnectionError, match="gone"):
        await streamed(model)
    assert (await streamed(model)).content == "fine"


async def test_says_clearly_that_the_script_has_run_out() -> None:
    model = ScriptedChatModel(["only"])
    await model.ainvoke("Hello")
    with pytest.raises(ScriptExhaustedError, match="1 replies.*asked 2 times.*human: And now"):
        await model.ainvoke("And now?")


async def test_records_the_tools_and_options_that_were_bound() -> None:
    model = ScriptedChatModel(["x", "y"])
    await model.bind_tools([bash], tool_choice="auto").ainvoke("Hello", seed=1)
    assert model.tool_names() == ["bash"]
    assert model.options[0]["tool_choice"] == "auto"
    assert model.options[0]["seed"] == 1
    await model.ainvoke("Hello")
    assert model.tool_names() == []


async def test_reports_the_usage_it_was_given() -> None:
    reported = await ScriptedChatModel(["x"], usage=(7, 3)).ainvoke("Hello")
    assert reported.usage_metadata is not None
    assert reported.usage_metadata["total_tokens"] == 10
    silent = await ScriptedChatModel(["x"], usage=None).ainvoke("Hello")
    assert silent.usage_metadata is None


def conversation() -> list[BaseMessage]:
    return [
        HumanMessage("What is here?"),
        CALL,
        ToolMessage("a.txt", tool_call_id="c1"),
        AIMessage("One file: a.txt", id="x"),
    ]


async def test_a_recording_plays_after_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    recording = recording_of(conversation(), "demo", model="gpt-5", labels=["look", "answer"])
    save_recording(path, recording)
    assert load_recording(path) == recording
    model = RecordedChatModel(load_recording(path))
    first = await model.ainvoke(conversation()[:1])
    assert first.tool_calls == CALL.tool_calls
    assert first.additional_kwargs == CALL.additional_kwargs
    last = await model.ainvoke(conversation()[:3])
    assert last.content == "One file: a.txt"
    assert model.model_name == "gpt-5"


async def test_a_conversation_that_departs_from_the_recording_is_reported() -> None:
    model = RecordedChatModel(recording_of(conversation(), "demo", labels=["look", "answer"]))
    await model.ainvoke(conversation()[:1])
    with pytest.raises(
        RecordingError, match=r"'demo' at reply 2 \('answer'\): expected the results of bash"
    ):
        await model.ainvoke("something else")
    with pytest.raises(ScriptExhaustedError, match="'demo'.*2 replies, the last one 'answer'"):
        await model.ainvoke("and more")


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"name": "x"}')
    with pytest.raises(RecordingError, match=r"x\.json is not a recording"):
        load_recording(path)
