"""The server's token, and links signed with it."""

import os
import stat
from collections.abc import Iterator

import pytest

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.files import VALID_S, read_ticket, write_ticket
from openmanus_graph.interfaces.server.guard import (
    TOKEN_VARIABLE,
    is_token,
    server_token,
    token_file,
    token_source,
)


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    server_token.cache_clear()
    yield
    server_token.cache_clear()


def test_a_token_is_made_once_and_kept_for_the_person_alone() -> None:
    token = server_token()
    server_token.cache_clear()
    assert server_token() == token
    assert stat.S_IMODE(token_file().stat().st_mode) == 0o600
    assert [path.name for path in token_file().parent.iterdir()] == [token_file().name]


def test_it_is_said_where_the_token_is(monkeypatch: pytest.MonkeyPatch) -> None:
    server_token()
    assert token_source() == str(token_file())
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 20)  # an older file holds another token
    assert token_source() == TOKEN_VARIABLE


def test_a_file_that_others_may_read_is_closed_to_them() -> None:
    server_token()
    token_file().chmod(0o644)
    server_token.cache_clear()
    server_token()
    assert stat.S_IMODE(token_file().stat().st_mode) == 0o600


def test_the_environment_names_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token-of-my-own")
    assert server_token() == "a-token-of-my-own"
    assert not token_file().exists()


@pytest.mark.parametrize("weak", ["short", "ümlaut-in-the-token-x", "a" * 15])
def test_a_token_that_is_no_secret_is_refused(weak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, weak)
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE):
        server_token()


def test_a_home_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMANUS_HOME", os.devnull)
    with pytest.raises(ConfigError, match="OPENMANUS_HOME"):
        server_token()


def test_only_the_whole_token_counts() -> None:
    token = server_token()
    assert is_token(token)
    for wrong in ("", token[:-1], f"{token}x", token.swapcase(), "\udc80ü"):
        assert not is_token(wrong)


def test_a_ticket_holds_for_one_file_and_some_hours() -> None:
    ticket = write_ticket("thread", "a/b.png", now=0)
    assert read_ticket(ticket, "a/b.png", now=1) == ("thread", None)
    allowed = write_ticket("thread", "a.html", "digest", now=0)
    assert read_ticket(allowed, "a.html", now=1) == ("thread", "digest")
    assert read_ticket(ticket, "a/c.png", now=1) is None
    assert read_ticket(ticket, "a/b.png", now=VALID_S) is None
    for broken in ("", "x", ticket[1:], ticket[:-1], ticket.swapcase(), "ü", "===="):
        assert read_ticket(broken, "a/b.png", now=1) is None


def test_a_new_token_voids_all_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = write_ticket("thread", "a")
    monkeypatch.setenv(TOKEN_VARIABLE, "another-token-0123")
    server_token.cache_clear()
    assert read_ticket(ticket, "a") is None
