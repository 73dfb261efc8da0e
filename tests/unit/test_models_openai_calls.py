"""Pieces of calls and of characters, as servers cut them."""

import json
from typing import Any, cast

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from openmanus_graph.backends.models.chunks import SurrogateBuffer, merged_message
from openmanus_graph.backends.models.openai_replies import ReplyReader, ToolCallAssembler
from openmanus_graph.conversation.loose_json import first_surrogate, made_plain
from openmanus_graph.model_calls.normalized_reply import normalized_reply
from tests.support.work import calls_in

Piece = dict[str, Any]


def piece(arguments: str, name: str = "", call_id: str = "", **more: Any) -> Piece:
    return {"id": call_id, "function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("pieces", "made"),
    [
        ([piece("{}", "ba", index=0)], [("ba", "{}")]),
        ([piece("", "ba", "1", index=0), piece("", "sh", index=0), piece("{}")], [("bash", "{}")]),
        ([piece("", "ba", "1"), piece("{}", "sh", "1")], [("bash", "{}")]),
        ([piece("{", "a", "1"), piece("}", "a", "1")], [("a", "{}")]),
        ([piece('{"x":', "a"), piece('{"y":1}}', "a")], [("a", '{"x":{"y":1}}')]),
        ([piece("{}", "a"), piece('{"x":1}', "a")], [("a", "{}"), ("a", '{"x":1}')]),
        ([piece("{}", "a", "1"), piece("{}", "b", "1")], [("a", "{}"), ("b", "{}")]),
        ([piece("{}", "a", "1"), piece("{}", "a", "2")], [("a", "{}"), ("a", "{}")]),
        ([piece("{", "a"), piece("}")], [("a", "{}")]),
        ([{"function": "bash"}, {"function": None, "id": 7}, 3, None], [(None, "")]),
    ],
)
def test_pieces_find_their_call(pieces: list[Any], made: list[tuple[str | None, str]]) -> None:
    assembler = ToolCallAssembler()
    for one in pieces:
        assembler.read([one])
    assert [(call["name"], call["args"]) for call in assembler.calls()] == made


@pytest.mark.parametrize("call_id", ["", "c1"])
def test_a_signature_stays_with_its_call(call_id: str) -> None:
    signature = {"google": {"thought_signature": "abc"}}
    reader = ReplyReader()
    for sent in (piece("{}", "f", call_id, extra_content=signature), piece("{}", "g", "c2")):
        reader.read({"choices": [{"delta": {"tool_calls": [sent]}}]})
    reader.read({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    raw = merged_message([cast("AIMessageChunk", reader.finish().message)])
    taken = [AIMessage("", tool_calls=[{"id": "c1", "name": "f", "args": {}}])]
    for history in ([], taken):  # where its id was given before, it gets another
        reply = normalized_reply(raw, history)
        extras = reply.additional_kwargs["tool_call_extras"]
        assert extras == {reply.tool_calls[0]["id"]: {"extra_content": signature}}


def read_in_pieces(text: str) -> None:
    """Read the arguments of a call that are not JSON."""
    reader = ReplyReader()
    for start in range(0, len(text), 50):
        delta = {"tool_calls": [piece(text[start : start + 50], "bash", "1", index=0)]}
        reader.read({"choices": [{"delta": delta}]})
    reader.read({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert reader.finish().message.tool_call_chunks == []  # type: ignore[attr-defined]  # a chunk's


def test_small_pieces_of_a_call_cost_work_in_proportion_to_their_number() -> None:
    text = "no JSON " * 5000
    read_in_pieces(text)  # loads what is loaded once
    once, twice = calls_in(lambda: read_in_pieces(text)), calls_in(lambda: read_in_pieces(2 * text))
    assert twice < 2.2 * once, "four times as much, if all were read anew with each piece"


def test_pairs_are_joined_across_pieces_and_single_halves_marked() -> None:
    holder = SurrogateBuffer()
    pieces = ["a\ud83d", "\ude00b", "\ud83d", "c", "\ude00", "\ud83d"]
    read = [holder.add(one) for one in pieces] + [holder.rest()]
    assert read == ["a", "\U0001f600b", "", "\ufffdc", "\ufffd", "", "\ufffd"]


def test_halves_are_found_and_marked_in_plain_data() -> None:
    value = {"k\udce9": ["x", {"y": "\ud83d\ude00"}, 3]}
    assert first_surrogate(value) == "\\xe9"
    assert first_surrogate(["\ud83d"]) == "\\ud83d"
    assert first_surrogate(json.loads('{"a": [1, "\U0001f600"]}')) is None
    assert made_plain(value) == {"k\ufffd": ["x", {"y": "\U0001f600"}, 3]}
