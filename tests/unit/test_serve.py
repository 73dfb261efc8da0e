"""`openmanus serve` before the server starts: what is missing or wrong is told."""

import socket

import pytest

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli import servers as serving


def start(port: int | None = 0, modules: list[str] | None = None) -> int:
    code: int = serving.serve(port=port, no_open=True, modules=modules, jobs=1)
    return code


def test_a_server_that_listens_everywhere_is_opened_by_loopback() -> None:
    hosts = ("0.0.0.0", "::", "::1", "10.0.0.7", "localhost")
    assert [serving.own_address(host, 80) for host in hosts] == [
        "127.0.0.1:80", "[::1]:80", "[::1]:80", "10.0.0.7:80", "localhost:80",
    ]  # fmt: skip


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PAGE_PACKAGES", ("fastapi", "no_such_package"))
    with pytest.raises(
        ConfigError, match=r'no_such_package.*pip install "openmanus-graph\[studio\]"'
    ):
        start()


def test_a_module_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(ConfigError, match="--import no_such_module"):
        start(modules=["no_such_module"])


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port}"):
            start(port)
