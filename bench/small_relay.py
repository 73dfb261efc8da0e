"""Runs a command in a sandbox without network, with the model's server on a port of the loopback.

    python small_relay.py SOCKET PORT COMMAND ...

What comes in on the port goes out by the Unix socket, and its answers back.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import threading


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with (
        contextlib.suppress(OSError),
        source.makefile("rb", 0) as begin,
        target.makefile("wb", 0) as end,
    ):
        shutil.copyfileobj(begin, end)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _serve(listener: socket.socket, path: str) -> None:
    while True:
        inside, _ = listener.accept()
        outside = socket.socket(socket.AF_UNIX)
        outside.connect(path)
        for pair in ((inside, outside), (outside, inside)):
            threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def main() -> None:
    """Relay until the command ends, and exit as it did."""
    path, port, *command = sys.argv[1:]
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        threading.Thread(target=_serve, args=(listener, path), daemon=True).start()
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
