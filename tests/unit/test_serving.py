"""Who may talk to a server, and under which address."""

import socket
from collections.abc import MutableMapping
from typing import Any

import pytest

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.mcp_server.client import answer_schema, read_answer
from openmanus_graph.interfaces.mcp_server.server import offered_tools
from openmanus_graph.interfaces.service.http import (
    RequestGuard,
    bind,
    choose_token,
    is_own_host,
    require_token_off_loopback,
    url_of,
)

GOOD = {"host": "127.0.0.1:80", "authorization": "Bearer secret"}


async def ask(
    headers: dict[str, str], *, bound_to: str = "127.0.0.1", kind: str = "http", **options: Any
) -> int:
    """Send a request through a guard; 200 is what the app behind it answers."""
    sent: list[MutableMapping[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    given: dict[str, Any] = {"token": "secret", **options}
    guard = RequestGuard(app, bound_to=(bound_to,), **given)
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await guard({"type": kind, "path": "/card", "headers": raw}, receive, send)
    return int(sent[0].get("status") or sent[0]["code"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (GOOD, 200),
        ({**GOOD, "authorization": "bearer secret"}, 200),
        ({**GOOD, "authorization": "Bearer secre"}, 401),
        ({**GOOD, "authorization": "Bearer sécret"}, 401),
        ({**GOOD, "authorization": "secret"}, 401),
        ({"host": "localhost"}, 401),
        ({**GOOD, "host": "localhost:99"}, 200),
        ({**GOOD, "host": "[::1]:99"}, 200),
        ({**GOOD, "host": "127.0.0.1.evil.example"}, 421),
        ({**GOOD, "host": "evil@127.0.0.1"}, 200),
        ({**GOOD, "host": "127.0.0.1@evil.example"}, 421),
        ({**GOOD, "host": "[::1"}, 421),
        ({**GOOD, "host": ""}, 421),
        ({"authorization": "Bearer secret"}, 421),
        ({**GOOD, "origin": "http://127.0.0.1:80"}, 200),
        ({**GOOD, "origin": "http://localhost:80"}, 200),
        ({**GOOD, "origin": "http://localhost:81"}, 403),
        ({**GOOD, "origin": "http://evil.example:80"}, 403),
        ({**GOOD, "origin": "null"}, 403),
        ({**GOOD, "origin": "http://[bad:80"}, 403),
        ({**GOOD, "content-length": "11"}, 413),
        ({**GOOD, "content-length": "10"}, 200),
        ({**GOOD, "transfer-encoding": "chunked"}, 411),
        ({**GOOD, "transfer-encoding": "chunked", "content-length": "1"}, 411),
    ],
)
async def test_the_guard_lets_in_who_knows_the_token_and_the_host(
    headers: dict[str, str], status: int
) -> None:
    assert await ask(headers, max_body_bytes=10) == status


async def test_what_is_public_needs_no_token_but_the_right_host() -> None:
    assert await ask({"host": "localhost"}, public=("/card",)) == 200
    assert await ask({"host": "evil.example"}, public=("/card",)) == 421
    assert await ask({"host": "localhost"}, token=None) == 200
    own = {**GOOD, "origin": "https://app.example"}
    assert await ask(own, origins=("https://app.example",)) == 200
    assert await ask({"host": "localhost"}, kind="websocket") == 1008


@pytest.mark.parametrize(
    ("host", "bound_to", "ours"),
    [
        ("192.0.2.7:80", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("[2001:db8::1]:80", "::", True),
        ("my.example", "my.example", True),
        ("localhost", "192.0.2.7", False),
        ("127.0.0.2", "127.0.0.2", True),
        ("192.0.2.7", "127.0.0.1", False),
    ],
)
def test_a_server_knows_its_own_names(host: str, bound_to: str, ours: bool) -> None:
    assert is_own_host(host, bound_to) is ours


def test_a_token_is_given_taken_from_the_environment_or_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose_token("mine", "SOME_TOKEN").value == "mine"
    made = choose_token(None, "SOME_TOKEN")
    assert made.generated
    assert len(made.value) >= 32
    monkeypatch.setenv("SOME_TOKEN", "theirs")
    assert choose_token(None, "SOME_TOKEN").value == "theirs"
    for bad in ("", "a b", "é", "a\n"):
        with pytest.raises(ConfigError, match="token"):
            choose_token(bad, "SOME_TOKEN")
    require_token_off_loopback("127.0.0.1")
    with pytest.raises(ConfigError, match="everybody"):
        require_token_off_loopback("192.0.2.7")


def test_an_address_that_cannot_be_had_is_refused() -> None:
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening, "127.0.0.1") == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=str(port)):
            bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"203\.0\.113\.1"):
        bind("203.0.113.1", 0)
    with pytest.raises(ConfigError, match="no-such-host"):
        bind("no-such-host.invalid", 0)
    if socket.has_ipv6:
        with bind("::1", 0) as listening:
            assert url_of(listening, "::1").startswith("http://[::1]:")


def test_only_tools_that_make_sense_outside_the_loop_are_offered() -> None:
    every = [tool.name for tool in offered_tools(None, None)]
    assert {"bash", "browser_use", "planning", "data_visualization"} <= set(every)
    assert not {"ask_human", "terminate", "create_chat_completion"} & set(every)
    assert [tool.name for tool in offered_tools(["bash", "bash"], None)] == ["bash"]
    assert [tool.name for tool in offered_tools(None, ["bash", "terminate"])] == ["bash"]
    with pytest.raises(ConfigError, match="cannot be offered"):
        offered_tools(["terminate"], None)
    with pytest.raises(ConfigError, match="There is no tool 'bsh'"):
        offered_tools(["bsh"], None)


def test_a_filled_form_is_read_as_the_answer_to_its_question() -> None:
    from mcp_types import ElicitResult

    def accepted(**content: str) -> ElicitResult:
        return ElicitResult(action="accept", content={**content})

    assert read_answer("question", accepted(answer="blue")) == "blue"
    assert read_answer("question", ElicitResult(action="cancel")) is None
    assert "declined" in read_answer("question", ElicitResult(action="decline"))
    approved = read_answer("approval", accepted(decision="approve"))
    assert approved == {"type": "approve", "message": ""}
    assert read_answer("approval", ElicitResult(action="decline"))["type"] == "reject"
    assert read_answer("approval", accepted(decision="whatever")) is None
    known = read_answer("unknown_outcome", accepted(decision="answer", answer="it was sent"))
    assert known == {"type": "respond", "message": "it was sent"}
    assert answer_schema("approval")["properties"]["decision"]["enum"] == ["approve", "reject"]
