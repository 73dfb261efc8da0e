"""Checkpoints with a checksum: SQLite notices a damaged page only where its own structure is."""

import sqlite3
import zlib
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import override

_CHECKED = "+crc32"
_DIGITS = 4


class CheckedSerializer(JsonPlusSerializer):
    """LangGraph's serializer; a value that is not as it was written raises sqlite3.Error."""

    @override
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, content = super().dumps_typed(obj)
        return kind + _CHECKED, content + _sum_of(content)

    @override
    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, content = data
        if not kind.endswith(_CHECKED):
            return super().loads_typed(data)  # written by another saver
        content, known = content[:-_DIGITS], content[-_DIGITS:]
        if _sum_of(content) != known:
            raise sqlite3.DatabaseError("a checkpoint is not as it was written")
        return super().loads_typed((kind.removesuffix(_CHECKED), content))


def _sum_of(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_DIGITS, "big")
