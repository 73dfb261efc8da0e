"""Tool calls as servers stream them, put in their places."""

import json
from typing import Any

from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from openmanus_graph.backends.models.openai_fields import Fields, fields, items


class _Slot:
    """One tool call, as far as it was streamed."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def is_complete(self) -> bool:
        """Whether the arguments are a whole object, to which nothing can be added."""
        text = "".join(self.arguments).strip()
        if not text.endswith("}"):
            return False
        try:
            json.loads(text, strict=False)
        except ValueError:
            return False
        return True


class CallSlots:
    """Puts the pieces of tool calls in their places.

    Servers leave out the index, repeat id and name in every piece, number all calls 0, split a
    name, or send arguments as an object.
    """

    def __init__(self) -> None:
        self.extras: dict[str, dict[str, Any]] = {}
        self._slots: list[_Slot] = []
        self._slot_of: dict[int, int] = {}

    def read(self, pieces: object) -> None:
        """Take the pieces of one event."""
        for position, piece in enumerate(items(pieces)):
            if found := fields(piece):
                self._take(found, position)

    def calls(self) -> list[ToolCallChunk]:
        """Return the calls, whole, as the model made them."""
        return [
            tool_call_chunk(
                name=slot.name or None,
                args="".join(slot.arguments),
                id=slot.id or None,
                index=index,
            )
            for index, slot in enumerate(self._slots)
        ]

    def _take(self, piece: Fields, position: int) -> None:
        function = fields(piece.get("function"))
        call_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
        arguments = _argument_text(function.get("arguments"))
        given = piece.get("index")
        number = given if isinstance(given, int) else position
        slot = self._slots[self._place(number, call_id, name, arguments, given)]
        slot.id = slot.id or call_id
        if name != slot.name:
            slot.name += name
        if arguments:
            slot.arguments.append(arguments)
        if piece.get("extra_content") and slot.id:  # Gemini's thought signature
            self.extras[slot.id] = {"extra_content": piece["extra_content"]}

    def _place(self, number: int, call_id: str, name: str, arguments: str, given: object) -> int:
        """Return the index of the call that a piece belongs to, a new one if need be."""
        index = self._slot_of.get(number)
        if index is None and given is None and self._slots and not (call_id or name):
            return len(self._slots) - 1  # a piece without any mark continues the last call
        if index is None or _is_another(self._slots[index], call_id, name, arguments):
            index = len(self._slots)
            self._slots.append(_Slot())
            self._slot_of[number] = index
        return index


def _is_another(slot: _Slot, call_id: str, name: str, arguments: str) -> bool:
    """Whether a piece with a slot's number begins another call."""
    if not name:
        return False
    if call_id and slot.id and call_id != slot.id:
        return True
    if not slot.name or not slot.arguments:
        return False  # the name itself comes in pieces, or again
    return name != slot.name or (arguments.lstrip().startswith("{") and slot.is_complete())


def _argument_text(arguments: object) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
