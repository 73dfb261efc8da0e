"""The strict serializer: a list of types, for what is read and for what is written."""

import datetime
import decimal
import pathlib
import pickle
import uuid
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel, SecretStr

from openmanus_graph.errors import ConfigError, RefusedDataError
from openmanus_graph.runtime import serializer as module
from openmanus_graph.runtime.serializer import MAX_DEPTH, StrictSerializer
from openmanus_graph.state.manus import DeltaSnapshot
from tests.support.hostile import of_kind, packed, payloads

pytestmark = pytest.mark.slow

NAMES = [*payloads(pathlib.Path("/nowhere"))]


class Money(BaseModel):
    amount: decimal.Decimal
    at: datetime.date


@dataclass(frozen=True)
class Point:
    x: int
    inner: "Point | None" = None


class Colour(Enum):
    RED = "red"


class Level(StrEnum):
    LOW = "low"


class Pair(NamedTuple):
    a: int
    b: Any


class Other:
    """A class that cannot be registered."""


OWN = (Money, Point, Colour, Level, Pair)
VALUES = [
    Money(amount=decimal.Decimal("1.10"), at=datetime.date(2024, 2, 29)),
    Point(1, Point(2)),
    Colour.RED,
    Level.LOW,
    Pair(1, Point(3)),
]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_on_the_list_is_refused_and_nothing_of_it_is_run(
    name: str, tmp_path: pathlib.Path
) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(RefusedDataError, match="Stored data was refused: it holds") as refused:
        StrictSerializer(OWN).loads_typed(payloads(marker)[name])
    assert len(str(refused.value)) < 500
    assert not marker.exists()


@pytest.mark.parametrize("name", NAMES)
def test_text_that_holds_it_is_refused_as_well(name: str, tmp_path: pathlib.Path) -> None:
    import base64
    import json

    kind, content = payloads(tmp_path / "marker")[name]
    with pytest.raises(RefusedDataError):
        StrictSerializer().from_text(json.dumps([kind, base64.b64encode(content).decode()]))
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '["msgpack"]', "[" * 100_000, '["a", "!"]', "7"])
def test_text_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(RefusedDataError):
        StrictSerializer().from_text(text)


READ_AS_WRITTEN: list[Any] = [
    None,
    {"a": [1, -1, 1.5, "é", b"\0", True, {"b": {}}], 3: "x", None: 1},
    2**63,
    2**64,
    -(2**63) - 1,
    10**4000,
    {"deep": {"in": [2**70]}},
    float("inf"),
    HumanMessage("hi", id="1", additional_kwargs={"openmanus_task": "x"}),
    AIMessage(
        "a",
        id="2",
        tool_calls=[{"name": "f", "args": {"n": 2**70}, "id": "c", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"finish_reason": "stop"},
    ),
    AIMessageChunk(content="a", id="3"),
    SystemMessage("s"),
    ToolMessage("t", tool_call_id="c", artifact={"said": ["x"]}, status="error"),
    RemoveMessage(id="1"),
    Document("text", metadata={"a": 1}),
    [Send("act", {"calls": [HumanMessage("x")]}, timeout=TimeoutPolicy(run_timeout=3))],
    Command(update={"a": [HumanMessage("x")]}, goto=["b"]),
    Overwrite([1]),
    Interrupt({"question": "?"}, id="i"),
    DeltaSnapshot([HumanMessage("x")]),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.UTC),
    datetime.datetime(2024, 2, 29),
    datetime.date(2024, 2, 29),
    datetime.time(1, 2, 3),
    datetime.timedelta(days=-1, microseconds=5),
    datetime.timezone(datetime.timedelta(hours=2)),
    uuid.UUID(int=5),
    decimal.Decimal("1e-30"),
    {1, "a", (2, 3)},
    frozenset({1}),
    deque([1, {"a": 2}]),
    pathlib.Path("/a/b"),
    *VALUES,
    {"all": VALUES},
    "x" * 100_000,
]


@pytest.mark.parametrize("value", READ_AS_WRITTEN, ids=lambda value: type(value).__name__)
def test_what_is_on_the_list_is_read_as_it_was_written(value: Any) -> None:
    serializer = StrictSerializer(OWN)
    read = serializer.loads_typed(serializer.dumps_typed(value))
    assert (read, type(read)) == (value, type(value))
    assert serializer.from_text(serializer.to_text(value)) == value


def test_subclasses_of_plain_types_tuples_and_exceptions_become_plain() -> None:
    class Text(str):
        __slots__ = ()

    value: list[Any] = [
        Text("a"),
        OrderedDict(a=1),
        (1, 2),
        bytearray(b"x"),
        ValueError("no"),
        "\ud800",
    ]
    read = StrictSerializer().loads_typed(StrictSerializer().dumps_typed(value))
    assert read == ["a", {"a": 1}, [1, 2], b"x", "ValueError('no')", "?"]
    assert type(read[0]) is str


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        *VALUES,
        {"deep": [[VALUES[0]]]},
        Send("act", {"money": VALUES[1]}),
        ToolMessage("t", tool_call_id="c", artifact={"other": Other()}),
        AIMessage("a", additional_kwargs={"x": SecretStr("s").get_secret_value}),
        Other(),
        Other,
        len,
        SecretStr("x"),
        1j,
        {(1, 2): 3},
        {Colour.RED: 1},
        nested(MAX_DEPTH + 1),
        nested(100_000),
        {"x": nested(MAX_DEPTH)},
        AIMessage("a", additional_kwargs={"x": nested(1000)}),
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_could_not_be_read_is_not_written(value: Any) -> None:
    with pytest.raises(ConfigError, match="stored"):
        StrictSerializer().dumps_typed(value)


def test_a_message_that_was_changed_to_be_none_is_not_written() -> None:
    message = AIMessage("a")
    vars(message)["content"] = 5
    with pytest.raises(ConfigError), pytest.warns(UserWarning, match="Pydantic"):
        StrictSerializer().dumps_typed(message)


@pytest.mark.parametrize("kind", [Other, int, "os.system", print, SecretStr, Callable])
def test_only_types_without_code_of_their_own_in_reading_can_be_registered(kind: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be a stored type"):
        StrictSerializer([kind])


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_type_is_only_known_to_the_serializer_that_it_was_given_to(value: Any) -> None:
    written = StrictSerializer(OWN).dumps_typed(value)
    with pytest.raises(RefusedDataError, match=type(value).__name__):
        StrictSerializer().loads_typed(written)
    later = StrictSerializer()
    later.allow(OWN)
    assert later.loads_typed(written) == value


def test_a_value_that_grows_when_it_is_unpacked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    bomb = zlib.compress(packed("x" * (50 << 20)))
    assert len(bomb) < 60_000
    typed = "msgpack+zlib+crc32", bomb + zlib.crc32(bomb).to_bytes(4, "big")
    with pytest.raises(RefusedDataError, match="more than 1 MB"):
        StrictSerializer().loads_typed(typed)
    with pytest.raises(ConfigError, match="limit is 1 MB"):
        StrictSerializer().dumps_typed("x" * (2 << 20))


def test_the_payloads_of_these_tests_would_run_code(tmp_path: pathlib.Path) -> None:
    """Else no reader that refuses them has shown anything."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    for form in ("single", "positional"):
        marker = tmp_path / form
        kind, content = payloads(marker)[f"{form}, alone"]
        assert kind == "msgpack+crc32"
        JsonPlusSerializer(allowed_msgpack_modules=True).loads_typed(("msgpack", content[:-4]))
        assert marker.exists()
    pickle.loads(payloads(tmp_path / "pickled")["pickle"][1])
    assert (tmp_path / "pickled").exists()
    assert of_kind(ormsgpack.packb(1), "msgpack+crc32") == StrictSerializer().dumps_typed(1)


def stored(content: bytes, *, compressed: bool) -> tuple[str, bytes]:
    content = zlib.compress(content, 9) if compressed else content
    kind = "msgpack+zlib+crc32" if compressed else "msgpack+crc32"
    return kind, content + zlib.crc32(content).to_bytes(4, "big")


def many(head: bytes, one: bytes, count: int) -> bytes:
    return head + count.to_bytes(4, "big") + one * count


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        many(b"\xdd", b"\x90", 5_000_000),
        many(b"\xdd", b"\x80", 5_000_000),
        many(b"\xdd", b"\xa0", 5_000_000),
        many(b"\xdf", b"\x01\x90", 3_000_000),
        many(b"\xdd", ormsgpack.packb(ormsgpack.Ext(100, many(b"\xdd", b"\x90", 99_000))), 40),
        many(b"\xdd", b"\xd4\x64\xdb", 1) + many(b"\xdd", b"\x90", 5_000_000),
    ],
    ids=["lists", "objects", "texts", "keys", "extensions", "misleading"],
)
def test_small_data_does_not_become_many_values(content: bytes, compressed: bool) -> None:
    with pytest.raises(RefusedDataError, match="holds more than 2,000,000|grows to more than"):
        StrictSerializer().loads_typed(stored(content, compressed=compressed))


def test_a_few_bytes_do_not_become_a_large_text() -> None:
    content = ormsgpack.packb("a" * (60 << 20))
    with pytest.raises(RefusedDataError, match="grows to more than"):
        StrictSerializer().loads_typed(stored(content, compressed=True))


@pytest.mark.parametrize("size", [1 << 20, 3 << 20, 8 << 20, 40 << 20])
def test_a_long_text_of_one_letter_is_a_value_as_any(size: int) -> None:
    serializer = StrictSerializer()
    assert serializer.loads_typed(serializer.dumps_typed("a" * size)) == "a" * size


def test_values_up_to_the_limit_are_counted_right() -> None:
    serializer = StrictSerializer()
    rows = [{"text": "é" * 40, "n": -7, "big": 1 << 70, "f": 0.5, "raw": b"x" * 300}] * 20_000
    assert serializer.loads_typed(serializer.dumps_typed(rows)) == rows
    assert len(serializer.loads_typed(serializer.dumps_typed([0] * 1_999_999))) == 1_999_999
    with pytest.raises(ConfigError, match="holds more than"):
        serializer.dumps_typed([[]] * 2_000_001)


def test_numbers_that_collide_do_not_take_for_ever() -> None:
    numbers = [
        ormsgpack.Ext(100, ormsgpack.packb(["int", f"{((1 << 61) - 1) * n:x}"]))
        for n in range(1, 20_000)
    ]
    content = ormsgpack.packb(ormsgpack.Ext(100, ormsgpack.packb(["set", numbers])))
    with pytest.raises(RefusedDataError, match="set"):
        StrictSerializer().loads_typed(stored(content, compressed=False))
    with pytest.raises(ConfigError, match="10,000"):
        StrictSerializer().dumps_typed(set(range(10_001)))
