import json

import pytest

from openmanus_graph.sandbox.kernel_messages import Messages


def test_what_one_side_writes_the_other_reads() -> None:
    sent, frames = Messages(b"key").write("execute_request", {"code": "print('ä')"})
    message = Messages(b"key").read([b"route", *frames])
    assert message is not None
    assert message["header"]["msg_id"] == sent
    assert message["header"]["msg_type"] == "execute_request"
    assert message["content"] == {"code": "print('ä')"}


def test_another_key_is_refused() -> None:
    _, frames = Messages(b"other").write("execute_reply", {"status": "ok"})
    assert Messages(b"key").read(frames) is None


def test_a_changed_message_is_refused() -> None:
    _, frames = Messages(b"key").write("execute_reply", {"status": "error"})
    frames[-1] = json.dumps({"status": "ok"}).encode()
    assert Messages(b"key").read(frames) is None


@pytest.mark.parametrize("frames", [[], [b"x"], [b"<IDS|MSG>"], [b"<IDS|MSG>", b"", b"{"]])
def test_what_is_no_message_is_none(frames: list[bytes]) -> None:
    assert Messages(b"key").read(frames) is None


def test_signed_parts_that_are_no_objects_are_none() -> None:
    messages = Messages(b"key")
    _, frames = messages.write("a", {})
    frames[2:] = [b"[]", b"1", b"null", b"{}"]
    frames[1] = messages._signature(frames[2:])  # pyright: ignore[reportPrivateUsage]
    assert messages.read(frames) is None
