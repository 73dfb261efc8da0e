"""Reads documents in this process, as the child process does."""

from typing import BinaryIO

from openmanus_graph.backends.files.documents import render_request
from openmanus_graph.backends.files.text_file import Lines
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS


def rendered(
    file: BinaryIO,
    kind: str,
    pages: str | None = None,
    lines: Lines | None = None,
    max_chars: int = MIN_OBSERVATION_CHARS,
    password: str | None = None,
) -> str:
    """Return an excerpt; raise whatever a parser raises."""
    request = {"kind": kind, "pages": pages, "max_chars": max_chars, "password": password}
    return str(render_request(file, request | vars(lines or Lines()))["text"])
