"""The child process that reads documents."""

import os
import tempfile
from typing import Any, BinaryIO

from openmanus_graph.backends.files.child import run_in_child


def group(file: BinaryIO, request: dict[str, Any]) -> int:
    """Return the process group that the child is in."""
    return os.getpgrp()


def test_ctrl_c_in_the_terminal_is_not_for_it() -> None:
    with tempfile.TemporaryFile() as file:
        found = run_in_child(f"{__name__}:group", file, {}, what="The test")
    assert found != os.getpgrp()
