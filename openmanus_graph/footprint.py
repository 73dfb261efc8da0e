"""Which files a step's own calls changed, while others work in the same folder.

A file counts if one of the step's calls so far named it, and it changed while the step's calls
ran. What changed, alone, does not tell: steps side by side share the workspace.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.errors import ToolError
from openmanus_graph.provenance import strings_in
from openmanus_graph.workspace import OWN_FOLDER, Workspace

_PATH = re.compile(r"(?<![\w./+@%-])[\w./+@%-]*\w")
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,200})[\"']")
_MOST_CHARS = 200
_MOST_NAMES = 500
"""Looked at of one reply's calls."""
_Stamp = tuple[int, int]


class Footprint:
    """Follows one step's conversation. Blocks: call it off the event loop."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen = 0
        self._stamps: dict[Path, _Stamp | None] = {}
        self._wrote: set[str] = set()

    @property
    def wrote(self) -> list[str]:
        """The files, relative to the workspace."""
        return sorted(self._wrote)

    def follow(self, messages: Sequence[AnyMessage]) -> None:
        """Take in what is new in the conversation, as soon as it is there."""
        new = messages[self._seen :] if len(messages) >= self._seen else ()
        self._seen = len(messages)
        if any(isinstance(message, ToolMessage) for message in new):
            self._compare()
        for message in new:
            if isinstance(message, AIMessage):
                self._watch([call["args"] for call in message.tool_calls])

    def _compare(self) -> None:
        for path, before in self._stamps.items():
            now = _stamp(path)
            if now is not None and now != before:
                self._wrote.add(self._workspace.relative(path))
        self._stamps = {path: _stamp(path) for path in self._stamps}

    def _watch(self, arguments: Sequence[Any]) -> None:
        names = dict.fromkeys(name for text in strings_in(arguments) for name in _names_in(text))
        for name in islice(names, _MOST_NAMES):
            try:
                path = self._workspace.resolve(name)
            except ToolError:
                continue
            if OWN_FOLDER not in path.relative_to(self._workspace.root).parts:
                self._stamps.setdefault(path, _stamp(path))


def _names_in(text: str) -> Iterator[str]:
    """Yield what may be a file's name; one by one, as a search for all makes threads wait."""
    if len(text) < _MOST_CHARS and "\n" not in text:
        yield text
    yield from (found[1] for found in _QUOTED.finditer(text))
    yield from (found[0] for found in _PATH.finditer(text))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return None if path.is_dir() else (found.st_size, found.st_mtime_ns)
