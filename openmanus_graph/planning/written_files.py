"""Finds the files that a step's own calls changed, while other steps use the same folder.

A file counts if one of the step's calls so far named it, and it changed while the step's calls
ran. A change alone is not enough, because parallel steps share the workspace.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import OWN_FOLDER, Workspace
from openmanus_graph.safety.provenance import strings_in

_PATH = re.compile(r"(?<![\w./+@%-])[\w./+@%-]*\w")
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,200})[\"']")
_MAX_CHARS = 200
_MAX_NAMES = 500
"""Limit of the names read from one reply's calls."""
_Stamp = tuple[int, int]


class WrittenFiles:
    """Watches the files named in one step's conversation. Blocks: call it off the event loop."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen = 0
        self._stamps: dict[Path, _Stamp | None] = {}
        self._changed: set[str] = set()

    @property
    def written_files(self) -> list[str]:
        """The files, relative to the workspace."""
        return sorted(self._changed)

    def follow(self, messages: Sequence[AnyMessage]) -> None:
        """Read the new messages of the conversation; call it as soon as there are any."""
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
                self._changed.add(self._workspace.relative(path))
        self._stamps = {path: _stamp(path) for path in self._stamps}

    def _watch(self, arguments: Sequence[Any]) -> None:
        names = dict.fromkeys(name for text in strings_in(arguments) for name in _names_in(text))
        for name in islice(names, _MAX_NAMES):
            try:
                path = self._workspace.resolve(name)
            except ToolError:
                continue
            if OWN_FOLDER not in path.relative_to(self._workspace.root).parts:
                self._stamps.setdefault(path, _stamp(path))


def _names_in(text: str) -> Iterator[str]:
    """Yield possible file names, one by one: a single long regex search would block threads."""
    if len(text) < _MAX_CHARS and "\n" not in text:
        yield text
    yield from (found[1] for found in _QUOTED.finditer(text))
    yield from (found[0] for found in _PATH.finditer(text))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return None if path.is_dir() else (found.st_size, found.st_mtime_ns)
