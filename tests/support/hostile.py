"""Stored data that would run code if a reader did what it says; each makes a file."""

import json
import pickle
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage
from langgraph.types import Send

from openmanus_graph.runtime.serializer import StrictSerializer

Typed = tuple[str, bytes]
OBJECT = 100
"""Code of our own extension."""
OPTION = ormsgpack.OPT_NON_STR_KEYS


def packed(value: Any) -> bytes:
    return ormsgpack.packb(value, option=OPTION)


def of_kind(content: bytes, kind: str) -> Typed:
    """Return content as a value of a kind that may be compressed and have a checksum."""
    if "+zlib" in kind:
        content = zlib.compress(content)
    if kind.endswith("+crc32"):
        content += zlib.crc32(content).to_bytes(4, "big")
    return kind, content


class Marks:
    """Pickled, it makes a file when it is loaded."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        import os

        run: Any = getattr(os, "system")  # noqa: B009  # pyright calls it deprecated
        return run, (self._command,)


def extensions(command: str) -> Iterator[tuple[str, Any]]:
    """Yield objects that name what is to be called, in every form that LangGraph's reader knows."""
    yield "single", ormsgpack.Ext(0, packed(["posix", "system", command]))
    yield "positional", ormsgpack.Ext(1, packed(["os", "system", [command]]))
    yield "keywords", ormsgpack.Ext(2, packed(["os", "system", {"command": command}]))
    yield "method", ormsgpack.Ext(3, packed(["os", "system", command, "__call__"]))
    yield "pydantic 1", ormsgpack.Ext(4, packed(["subprocess", "Popen", {"args": command}]))
    shell = {"args": command, "shell": True}
    yield "pydantic 2", ormsgpack.Ext(5, packed(["subprocess", "Popen", shell, "model_validate"]))
    yield "numpy", ormsgpack.Ext(6, packed(["|O", [1], "C", b"12345678"]))
    yield "ours, unknown", ormsgpack.Ext(OBJECT, packed(["posix.system", command]))
    yield "ours, no name", ormsgpack.Ext(OBJECT, packed([["posix", "system"], command]))
    yield "ours, no list", ormsgpack.Ext(OBJECT, packed({"posix": "system"}))
    yield "unknown code", ormsgpack.Ext(99, packed(command))


def _nested(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value where a reader may not look: deep, and as fields of types that are allowed."""
    yield "alone", value
    yield "deep", {"a": [[{"b": [value]}]]}
    message = {"content": value, "type": "ai"}
    yield "in a message", ormsgpack.Ext(OBJECT, packed(["AIMessage", message]))
    extra = {"content": "", "type": "ai", "additional_kwargs": {"x": [value]}}
    yield "in a message's extras", ormsgpack.Ext(OBJECT, packed(["AIMessage", extra]))
    yield "in a task", ormsgpack.Ext(OBJECT, packed(["Send", ["act", {"calls": [value]}, None]]))
    yield "in a set", ormsgpack.Ext(OBJECT, packed(["set", [value]]))


def payloads(marker: Path) -> dict[str, Typed]:
    """Return hostile values as a saver stores them, by what they are."""
    command = f"touch {marker}"
    found: dict[str, Typed] = {}
    for form, extension in extensions(command):
        for place, value in _nested(extension):
            if place == "alone" or form in ("single", "positional", "ours, unknown"):
                found[f"{form}, {place}"] = of_kind(packed(value), "msgpack+crc32")
    single = dict(extensions(command))["single"]
    found["without a checksum"] = ("msgpack", packed(single))
    found["compressed"] = of_kind(packed([single, "x" * 2000]), "msgpack+zlib+crc32")
    constructor: dict[str, Any] = {"type": "constructor", "id": ["os", "system"]}
    for version in (1, 2):
        text = json.dumps({"lc": version, **constructor, "args": [command], "kwargs": {}}).encode()
        found[f"json {version}"] = ("json", text)
        found[f"json {version}, with a checksum"] = of_kind(text, "json+crc32")
    pickled = pickle.dumps(Marks(command))
    found["pickle"] = ("pickle", pickled)
    found["pickle, with a checksum"] = of_kind(pickled, "pickle+crc32")
    return found | malformed()


def malformed() -> dict[str, Typed]:
    """Return values that would take all memory, or the stack, or are damaged."""

    def plain(content: bytes) -> Typed:
        return of_kind(content, "msgpack+crc32")

    def of(name: str, fields: Any) -> Typed:
        return plain(packed(ormsgpack.Ext(OBJECT, packed([name, fields]))))

    nested = b"\x01"
    for _ in range(3000):
        nested = packed(ormsgpack.Ext(OBJECT, nested))
    in_objects: Any = 1
    for _ in range(250):
        in_objects = ormsgpack.Ext(OBJECT, packed(["set", [in_objects]]))
    half = zlib.compress(packed("x" * 5000))[:-6]
    half_a_stream = "msgpack+zlib+crc32", of_kind(half, "msgpack+crc32")[1]
    kind, content = StrictSerializer().dumps_typed([AIMessage("x" * 2000), Send("a", 1)])
    return {
        "deep": plain(b"\x91" * 100_000 + b"\x01"),
        "quite deep": plain(b"\x91" * 300 + b"\x01"),
        "deep extensions": plain(nested),
        "deep objects": plain(packed(in_objects)),
        "a list that is said to be long": plain(b"\xdd\xff\xff\xff\xff"),
        "bytes that are said to be long": plain(b"\xc6\xff\xff\xff\xff"),
        "a long number": of("int", "1" * 100_000),
        "no number": of("int", "__import__"),
        "a number that is a list": of("int", [1]),
        "a key that is a list": plain(b"\x81\x91\x01\x01"),
        "a wrong message": of("AIMessage", {"content": 7}),
        "a message of no object": of("AIMessage", [1, 2]),
        "a wrong date": of("datetime", "never"),
        "a wrong command": of("Command", {"nothing": "such"}),
        "nothing": plain(b""),
        "cut off": (kind, content[:-20]),
        "no bytes at all": (kind, b""),
        "unknown kind": ("yaml", b"x"),
        "half a stream": half_a_stream,
    }
