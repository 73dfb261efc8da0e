"""The child process that reads documents."""

import os
import socket
import subprocess
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


def connect(file: BinaryIO, request: dict[str, Any]) -> str:
    """Return what a connection to a server of this machine gives."""
    try:
        socket.create_connection(("127.0.0.1", request["port"]), 5).close()
    except OSError as error:
        return type(error).__name__
    return "connected"


def test_it_reaches_no_server_where_the_system_allows_that() -> None:
    apart = subprocess.run(["unshare", "-Un", "true"], capture_output=True, check=False)
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as file:
        request = {"port": server.getsockname()[1]}
        found = run_in_child(f"{__name__}:connect", file, request, what="The test")
    assert (found != "connected") == (apart.returncode == 0)


def size_of(file: BinaryIO, request: dict[str, Any]) -> int:
    """Return how much text of the request has arrived."""
    return len(request["text"])


def test_a_request_may_be_larger_than_a_command() -> None:
    request = {"text": "ä" * 1_000_000}
    with tempfile.TemporaryFile() as file:
        found = run_in_child(f"{__name__}:size_of", file, request, what="The test")
    assert found == 1_000_000
