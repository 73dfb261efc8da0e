"""An S3 server that runs here: moto's, as a process of its own."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import s3fs

from tests.support.cli import until

BUCKET = "threads"
_KEY = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@dataclass
class S3:
    """A server with one bucket."""

    port: int
    process: "subprocess.Popen[bytes]"

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> "Generator[S3]":
        """Run a server with an empty bucket."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            server = cls(port, process)
            until(server._answers)
            server.files().mkdir(BUCKET)
            yield server
        finally:
            process.kill()
            process.wait()

    @property
    def env(self) -> dict[str, str]:
        """The environment by which processes reach it."""
        return {
            **_KEY,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def files(self) -> Any:
        """Return its files."""
        return s3fs.S3FileSystem(
            key="testing",
            secret="testing",
            endpoint_url=self.env["AWS_ENDPOINT_URL"],
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def _answers(self) -> bool:
        assert self.process.poll() is None, "moto's server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False
