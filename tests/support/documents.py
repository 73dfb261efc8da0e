"""Reads documents: by the tool, or in this process as the child process does."""

from typing import BinaryIO

from openmanus_graph.backends.files.documents import render_request
from openmanus_graph.backends.files.text_file import Lines
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime
from openmanus_graph.tools.files import read_file


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


def read(session: Session, path: str, **arguments: str) -> Observation:
    """Return what the tool read_file answers."""
    args = {"path": path, "runtime": tool_runtime(session), **arguments}
    call = {"type": "tool_call", "id": "call_1", "name": "read_file", "args": args}
    observation = read_file.invoke(call).artifact
    assert isinstance(observation, Observation)
    return observation
