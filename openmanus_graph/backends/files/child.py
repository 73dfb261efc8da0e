"""Parses untrusted files in a child process, and the records of what its readers return.

A damaged document or page can crash a parser, eat all memory or never end. Here it only ends the
child, which has no network where the system allows that.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from openmanus_graph.errors import ToolError

TIMEOUT_S = 60
_MEMORY_BYTES = 2 * 1024**3
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_START = (
    "import json, sys; given = json.load(open(int(sys.argv[1]))); sys.path[:] = given.pop(0); "
    "from openmanus_graph.backends.files.child import main; main(*given)"
)


def run_in_child(
    entry: str,
    file: BinaryIO,
    request: dict[str, Any],
    *,
    what: str,
    reserves: bool = False,
    timeout_s: float | None = None,
) -> Any:
    """Call `module:function` of this package in a child with file and request; return its value.

    Blocks. The child gets the file from its start and no path, which could change. Errors begin
    with `what`, such as "The pdf parser". `reserves`: the function needs a library that reserves
    far more addresses than it uses. CPU time is limited as well. ToolError if the function raised
    one, or the child failed or took too long.
    """
    package = str(Path(__file__).parents[3])
    path = [entry for entry in sys.path if entry and entry != package]
    limit_s = timeout_s or TIMEOUT_S
    limits = {"RLIMIT_DATA" if reserves else "RLIMIT_AS": _MEMORY_BYTES, "RLIMIT_CPU": TIMEOUT_S}
    command = [sys.executable, "-I", "-X", "utf8", "-W", "ignore", "-c", _START]
    file.seek(0)
    try:
        with tempfile.TemporaryFile() as given:  # command arguments are limited in size
            given.write(json.dumps([[*path, package], entry, request, limits]).encode())
            given.seek(0)
            child = subprocess.run(
                [*command, str(given.fileno())], stdin=file, capture_output=True, timeout=limit_s,
                check=False, cwd="/", pass_fds=[given.fileno()],
                start_new_session=True,  # ctrl+c in the terminal must not reach it
                env={key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
            )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"{what} took longer than {limit_s:g} seconds. Take less, or use python_execute."
        ) from error
    if child.returncode:
        reason = child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise ToolError(
            f"{what} failed ({reason or f'signal {-child.returncode}'}). The file is "
            "probably damaged; get it again, or try python_execute."
        )
    answer: dict[str, Any] = json.loads(child.stdout)
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["value"]


def main(entry: str, request: dict[str, Any], limits: dict[str, int]) -> None:
    """Run in the child: read the file on stdin, write the answer to stdout as JSON."""
    for name, most in limits.items():
        _limit(getattr(resource, name), most)
    if sys.platform == "linux":  # to a network without a way out; not every system allows that
        import ctypes

        ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    module, _, name = entry.partition(":")
    answer: dict[str, Any]
    try:
        function = getattr(importlib.import_module(module), name)
        with sys.stdin.buffer as file:  # mammoth needs a name that is a text
            answer = {"value": function(file, request)}
    except ToolError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "It needs more memory than allowed (2 GB) to be read."}
    sys.stdout.write(json.dumps(answer))


def _limit(limit: int, most: int) -> None:
    soft, hard = resource.getrlimit(limit)
    known = [value for value in (soft, hard, most) if value != resource.RLIM_INFINITY]
    with suppress(ValueError, OSError):  # macOS refuses some; the time limit remains
        resource.setrlimit(limit, (min(known), hard))


@dataclass(frozen=True)
class File:
    """A file that comes with the text of a document, such as the picture of a page."""

    name: str
    suffix: str
    data: bytes
    seen: bool = False
    """Whether a model that sees is to look at it."""


@dataclass
class Extras:
    """What a reader may add to the text, as far as it was reached."""

    wanted: bool = False
    ocr: str | None = None
    """Path of the OCR engine of this machine, tesseract."""
    recognized: int = 0  # pages that the engine has read
    files: list[File] = field(default_factory=list[File])


@dataclass(frozen=True)
class Document:
    name: str
    unit: str  # what its parts are called; empty if it has none
    total: int
    page: Callable[[Any], Iterable[str]]  # returns the lines of a part that was chosen
    choose: Callable[[str | None], list[Any]] | None = None  # by number from 1, unless given
    contents: str = ""  # its parts, if they have names
