import json
from typing import Any

import pytest
from jupyter_client.session import Session

from openmanus_graph.backends.sandbox.kernel import read_message


def session(key: bytes = b"key") -> Session:
    return Session(key=key)


def written(key: bytes = b"key", **content: Any) -> list[bytes]:
    """Return the frames that somebody with a key sends."""
    sender = session(key)
    frames: list[bytes] = sender.serialize(sender.msg("execute_reply", content))
    return frames


def signed(*parts: bytes) -> list[bytes]:
    """Return frames of any content, with a signature that is right."""
    return [b"<IDS|MSG>", session().sign(list(parts)), *parts]


HEADER = json.dumps({"msg_id": "1", "msg_type": "a", "version": "5.3"}).encode()


def test_what_one_side_writes_the_other_reads() -> None:
    message = read_message(session(), [b"route", *written(text="ä")])
    assert message is not None
    assert message["header"]["msg_type"] == "execute_reply"
    assert message["content"] == {"text": "ä"}


def test_another_key_is_refused() -> None:
    assert read_message(session(), written(b"other", status="ok")) is None


def test_a_changed_message_is_refused() -> None:
    frames = written(status="error")
    frames[-1] = json.dumps({"status": "ok"}).encode()
    assert read_message(session(), frames) is None


def test_a_message_is_read_once() -> None:
    reader, frames = session(), written(status="ok")
    assert read_message(reader, frames) is not None
    assert read_message(reader, frames) is None


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"x"],
        [b"<IDS|MSG>"],
        [b"<IDS|MSG>", b"", b"{"],
        [b"<IDS|MSG>", b"", HEADER, b"{}", b"{}", b"{}"],
        signed(b"{", b"{}", b"{}", b"{}"),
        signed(HEADER, b"{}", b"{}"),
        signed(b"[]", b"1", b"null", b"{}"),
        signed(b"{}", b"{}", b"{}", b"{}"),
        signed(HEADER, b"[]", b"{}", b"{}"),
        signed(HEADER, b"{}", b"3", b"{}"),
        signed(HEADER, b"{}", b"{}", b"null"),
        signed(HEADER, b"{}", b"{}", b"[" * 100_000),
        signed(HEADER, b"{}", b"{}", b"\xff\xfe"),
        signed(HEADER.replace(b"5.3", b"much"), b"{}", b"{}", b"{}"),
    ],
)
def test_what_is_no_message_is_none(frames: list[bytes]) -> None:
    assert read_message(session(), frames) is None
