"""The serializer for everything that is read from disk, a database or a bundle.

LangGraph's own imports any module and calls any class that the data names. This one uses a table
of types that our code, or the app's, has registered. Data with other types is refused at any depth,
and nothing is imported. Written types must be in the table as well.
"""

import base64
import dataclasses
import datetime
import decimal
import json
import pathlib
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, cast

import ormsgpack
from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel
from typing_extensions import override

from openmanus_graph.errors import ConfigError, RefusedDataError
from openmanus_graph.state.manus import DeltaSnapshot

MAX_DEPTH = 200
"""Nested containers and objects."""
MAX_BYTES = 64 << 20
"""Of one value, decompressed."""
MAX_VALUES = 2_000_000
"""In one value: an empty list takes one byte here, and more than 60 in memory."""
MAX_SET = 10_000
"""Elements of a set: an attacker can choose numbers that are all compared with one another."""
_MAX_RATIO, _ANY_RATIO_BYTES = 200, 4 << 20
"""Highest compression ratio of a value, and the size up to which any ratio is allowed."""
_COMPRESSED_FROM = 800
"""Bytes from which a value is compressed."""
_CHECKSUM_BYTES = 4
_PLAIN, _COMPRESSED = "msgpack+crc32", "msgpack+zlib+crc32"
_OBJECT = 100
"""Code of our msgpack extension: an object of a type in the table. LangGraph's are lower."""
_MAX_DIGITS = 3500
"""Hexadecimal digits of a number beyond 64 bits: Python prints at most 4300 decimal digits."""
_OPTION = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_REPLACE_SURROGATES


@dataclasses.dataclass(frozen=True)
class _Codec:
    """How objects of one type are stored."""

    name: str
    kind: type[Any]
    fields: Callable[[Any], Any]
    """Returns an object's content."""
    make: Callable[[Any], Any]
    """Returns the object with that content."""


class StrictSerializer(SerializerProtocol):
    """Stores plain values, messages, LangGraph's own objects and a few standard types.

    Tuples are read as lists, exceptions as texts. A checksum detects damage; the table of types
    protects against attackers.

    Args:
        types: Further types that may be stored and read: pydantic models, dataclasses, enums and
            named tuples.

    Raises:
        ConfigError: One of them is a different kind of type.
    """

    def __init__(self, types: Iterable[type[Any]] = ()) -> None:
        self._by_type, self._by_name = _BY_TYPE, _BY_NAME
        self.allow(types)

    def allow(self, types: Iterable[type[Any]]) -> None:
        """Add types to those that may be stored and read. ConfigError as for the constructor."""
        if codecs := [_codec_of(kind) for kind in types]:
            self._by_type = {**self._by_type, **{one.kind: one for one in codecs}}
            self._by_name = {**self._by_name, **{one.name: one for one in codecs}}

    def to_text(self, value: Any) -> str:
        """Return what `dumps_typed` returns as one text, for a column of a database."""
        kind, content = self.dumps_typed(value)
        return json.dumps([kind, base64.b64encode(content).decode()])

    def from_text(self, text: str) -> Any:
        """Return the value that was passed to `to_text`. RefusedDataError as for `loads_typed`."""
        try:
            kind, content = json.loads(text)
            data = kind, base64.b64decode(content, validate=True)
        except (ValueError, TypeError, RecursionError) as error:
            raise RefusedDataError("a value that is damaged") from error
        return self.loads_typed(data)

    @override
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialise a value.

        ConfigError: It holds a type that is not in the table, or is too deep or too large.
        """
        try:
            content = ormsgpack.packb(self._lowered(obj, 0), option=_OPTION)
        except ConfigError:
            raise
        except (TypeError, ValueError, RecursionError) as error:  # of pydantic's, of ormsgpack
            raise ConfigError(f"A value cannot be stored: {error}.") from error
        if len(content) > MAX_BYTES:
            raise ConfigError(
                f"A value of {len(content) >> 20} MB cannot be stored: the limit is "
                f"{MAX_BYTES >> 20} MB. Keep large data in files."
            )
        if _has_too_many(content):
            raise ConfigError(
                f"A value cannot be stored: it holds more than {MAX_VALUES:,} others. Keep large "
                "data in files."
            )
        kind = _PLAIN
        if len(content) >= _COMPRESSED_FROM:
            compressed = zlib.compress(content, level=1)
            if len(content) <= _most_from(compressed):
                kind, content = _COMPRESSED, compressed
        return kind, content + _checksum(content)

    @override
    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read what `dumps_typed` returned.

        RefusedDataError: It has another format, is damaged, or contains what may not be read.
        """
        kind, content = data
        if kind not in (_PLAIN, _COMPRESSED):
            raise RefusedDataError(f"a value of the unknown format {str(kind)[:40]!r}")
        content, known = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        if _checksum(content) != known:
            raise RefusedDataError("a value that was changed after it was written")
        if kind == _COMPRESSED:
            content = _decompressed(content)
        if len(content) > MAX_BYTES:
            raise RefusedDataError(f"a value of more than {MAX_BYTES >> 20} MB")
        if _has_too_many(content):
            raise RefusedDataError(f"a value that holds more than {MAX_VALUES:,} others")
        return self._raised(_unpacked(content), 0)

    def _lowered(self, value: Any, depth: int) -> Any:
        """Return a value as plain data, with our extensions for objects."""
        kind = cast("type[Any]", type(value))
        if kind in _SCALARS:
            return value
        if kind is int and -(1 << 63) <= value < 1 << 64:
            return value
        if depth >= MAX_DEPTH:
            raise ConfigError(
                f"A value cannot be stored: it is nested more than {MAX_DEPTH} levels deep."
            )
        if kind is dict:
            return {
                _key(name): self._lowered(one, depth + 1)
                for name, one in cast("dict[Any, Any]", value).items()
            }
        if kind is list or kind is tuple:
            return [self._lowered(one, depth + 1) for one in cast("list[Any]", value)]
        if (codec := self._by_type.get(kind)) is not None:
            fields = self._lowered(codec.fields(value), depth + 1)
            return ormsgpack.Ext(_OBJECT, ormsgpack.packb([codec.name, fields], option=_OPTION))
        return self._lowered(_base_of(value), depth)

    def _raised(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        if kind in _SCALARS or kind is int:
            return value
        if depth >= MAX_DEPTH:
            raise RefusedDataError(f"a value that is nested more than {MAX_DEPTH} levels deep")
        if kind is dict:
            entries = cast("dict[Any, Any]", value)
            if any(type(name) not in _SCALARS and type(name) is not int for name in entries):
                raise RefusedDataError("an object whose keys are not texts")
            return {name: self._raised(one, depth + 1) for name, one in entries.items()}
        if kind is list:
            return [self._raised(one, depth + 1) for one in cast("list[Any]", value)]
        if kind is not _Extension:
            raise RefusedDataError("a value that was not written by this program")
        return self._object(cast("_Extension", value), depth)

    def _object(self, stored: "_Extension", depth: int) -> Any:
        parts = _unpacked(stored.content) if stored.code == _OBJECT else None
        if not isinstance(parts, list) or len(cast("list[Any]", parts)) != 2:
            raise RefusedDataError("an object that was not written by this program")
        name, fields = cast("list[Any]", parts)
        codec = self._by_name.get(name) if isinstance(name, str) else None
        if codec is None:
            raise RefusedDataError(f"an object of the type {str(name)[:100]!r}")
        made = self._raised(fields, depth + 1)
        try:
            return codec.make(made)
        except Exception as error:  # damaged fields may make a constructor raise anything
            raise RefusedDataError(f"a damaged object of the type {codec.name!r}") from error


class _Extension(NamedTuple):
    """An extension of msgpack that is not decoded yet."""

    code: int
    content: bytes


_SCALARS = frozenset({str, float, bool, type(None), bytes})


def _unpacked(content: bytes) -> Any:
    try:
        return ormsgpack.unpackb(content, ext_hook=_Extension, option=ormsgpack.OPT_NON_STR_KEYS)
    except ValueError as error:
        raise RefusedDataError("a value that is damaged, or nested too deeply") from error


def _decompressed(content: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        most = _most_from(content)
        found = stream.decompress(content, most + 1)
    except zlib.error as error:
        raise RefusedDataError("a value that is damaged") from error
    if len(found) > most:
        raise RefusedDataError(
            f"a value of {len(content):,} bytes that grows to more than {most >> 20} MB"
        )
    if not stream.eof or stream.unused_data:
        raise RefusedDataError("a value that is damaged")
    return found


def _most_from(compressed: bytes) -> int:
    return min(MAX_BYTES, max(_ANY_RATIO_BYTES, _MAX_RATIO * len(compressed)))


def _has_too_many(content: bytes) -> bool:
    """Return True if msgpack contains too many values, by its heads, before any is built."""
    if len(content) <= MAX_VALUES:  # each takes a byte at least
        return False
    found, parts = 0, [(0, len(content))]
    while parts:
        at, end = parts.pop()
        while at < end:
            found += 1
            if found > MAX_VALUES:
                return True
            width, fixed, is_extension = _HEADS[content[at]]
            start = at + 1 + width + is_extension
            at = start + fixed + int.from_bytes(content[at + 1 : at + 1 + width], "big")
            if is_extension and start <= end and content[start - 1] == _OBJECT:
                parts.append((start, min(at, end)))
    return False


def _head(first: int) -> tuple[int, int, bool]:
    """Return for a value's first byte: bytes of its length, further bytes, if an extension."""
    if 0xA0 <= first <= 0xBF:
        return 0, first - 0xA0, False
    if 0xD4 <= first <= 0xD8:
        return 0, 1 << first - 0xD4, True
    lengths = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    numbers = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
    numbers |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    return lengths.get(first, 0), numbers.get(first, 0), 0xC7 <= first <= 0xC9


_HEADS = [_head(first) for first in range(256)]


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


def _digits(value: int) -> str:
    digits = f"{value:x}"
    if len(digits) > _MAX_DIGITS:
        raise ConfigError(
            f"A number of more than {_MAX_DIGITS} hexadecimal digits cannot be stored."
        )
    return digits


def _number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return int(digits, 16)


def _key(name: Any) -> Any:
    kind = cast("type[Any]", type(name))
    if kind is str:
        return name if name.isascii() else name.encode("utf-8", "replace").decode()
    if kind in _SCALARS or (kind is int and -(1 << 63) <= name < 1 << 64):
        return name
    if isinstance(name, str) and not isinstance(name, Enum):
        return _key(str(name))
    raise ConfigError(
        f"An object whose keys are of the type {kind.__name__} cannot be stored. Use texts as keys."
    )


def _base_of(value: Any) -> Any:
    """Return a value of an unknown type as one of the table. ConfigError: that is not possible."""
    if isinstance(value, BaseException):
        return repr(value)  # LangGraph stores why a task failed
    if not isinstance(value, Enum) and not hasattr(value, "_fields"):
        bases: tuple[Any, ...] = (str, int, float, dict, list, bytes)
        for base in bases:
            if isinstance(value, base):
                return base(value)
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, pathlib.PurePath):
            return pathlib.Path(value)
    kind = cast("type[Any]", type(value))
    raise ConfigError(
        f"A value of the type {kind.__module__}.{kind.__qualname__} cannot be stored. Store plain "
        "values, or register the type: stored_types=[...] (docs/embedding.md#your-own-types)."
    )


def _codec_of(kind: Any) -> _Codec:
    """Return how an app's type is stored. ConfigError: it cannot be stored."""
    if isinstance(kind, type):
        made: Any = kind
        name = f"{made.__module__}.{made.__qualname__}"
        if issubclass(kind, Enum):
            return _Codec(name, made, lambda value: value.value, made)
        if issubclass(kind, BaseModel):
            return _model(kind, name)
        if dataclasses.is_dataclass(made):
            return _dataclass(cast("type[Any]", made), name)
        if issubclass(kind, tuple) and hasattr(made, "_fields"):
            return _Codec(name, made, list, lambda fields: made(*fields))
    raise ConfigError(
        f"{kind!r} cannot be a stored type. Pydantic models, dataclasses, enums and named tuples "
        "can."
    )


def _model(kind: type[BaseModel], name: str) -> _Codec:
    def fields(value: BaseModel) -> dict[str, Any]:
        found = value.model_dump()
        kind(**found)  # else it could be written, but not read again
        return found

    return _Codec(name, kind, fields, lambda found: kind(**found))


def _dataclass(kind: type[Any], name: str) -> _Codec:
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    return _Codec(
        name,
        kind,
        lambda value: {each: getattr(value, each) for each in names},
        lambda found: kind(**found),
    )


def _several(kind: Any) -> _Codec:
    is_set = kind is not deque

    def make(found: list[Any]) -> Any:
        if is_set and len(found) > MAX_SET:
            raise ValueError("too many elements")
        # A list was a tuple when it was stored.
        return kind(tuple(cast("list[Any]", one)) if type(one) is list else one for one in found)

    def fields(value: Any) -> list[Any]:
        if is_set and len(value) > MAX_SET:
            raise ConfigError(
                f"A set of more than {MAX_SET:,} elements cannot be stored. Use a list."
            )
        return list(value)

    return _Codec(kind.__name__, kind, fields, make)


def _table() -> Iterable[_Codec]:
    for one in (
        messages.HumanMessage, messages.AIMessage, messages.SystemMessage, messages.ToolMessage,
        messages.ChatMessage, messages.FunctionMessage,
        messages.HumanMessageChunk, messages.AIMessageChunk, messages.SystemMessageChunk,
        messages.ToolMessageChunk, messages.ChatMessageChunk, messages.FunctionMessageChunk,
        messages.RemoveMessage, Document,
    ):  # fmt: skip
        yield _model(one, one.__name__)
    for kind in (Command, Overwrite, TimeoutPolicy):
        yield _dataclass(kind, kind.__name__)
    yield _Codec(
        "Interrupt",
        Interrupt,
        lambda value: [value.value, value.id],
        lambda found: Interrupt(found[0], id=found[1]),
    )
    yield _Codec(
        "Send",
        Send,
        lambda value: [value.node, value.arg, value.timeout],
        lambda found: Send(found[0], found[1], timeout=found[2]),
    )
    yield _Codec("int", int, _digits, _number)
    yield _Codec("Snapshot", DeltaSnapshot, lambda value: value.value, DeltaSnapshot)
    for time in (datetime.datetime, datetime.date, datetime.time):
        yield _Codec(time.__name__, time, time.isoformat, time.fromisoformat)
    yield _Codec(
        "timedelta",
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda found: datetime.timedelta(*found),
    )
    timezone = datetime.timezone
    yield _Codec("timezone", timezone, lambda value: value.utcoffset(None), timezone)
    yield _Codec("UUID", uuid.UUID, str, uuid.UUID)
    yield _Codec("Decimal", decimal.Decimal, str, decimal.Decimal)
    yield _Codec("Path", type(pathlib.Path()), str, pathlib.Path)
    yield from map(_several, (set, frozenset, deque))


_BY_TYPE: Mapping[type[Any], _Codec] = {one.kind: one for one in _table()}
_BY_NAME: Mapping[str, _Codec] = {one.name: one for one in _BY_TYPE.values()}
