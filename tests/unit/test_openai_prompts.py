"""What OpenAI's clients send, read as a run takes it."""

import base64
from typing import Any

import pytest

from openmanus_graph.interfaces.server.openai_chat import (
    conversation_key,
    read_content,
    read_prompt,
)
from openmanus_graph.interfaces.server.runs import Turn
from openmanus_graph.interfaces.service.accounts import Refused

DATA = base64.b64encode(b"xyz").decode()


@pytest.mark.parametrize(
    ("part", "name", "media_type"),
    [
        ({"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{DATA}"}},
         "image-1.jpg", "image/jpeg"),
        ({"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
         "image-1.png", "image/png"),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}},
         "a.pdf", "application/pdf"),
        ({"type": "input_file", "file_data": f"data:text/csv;base64,{DATA}"},
         "file-1.csv", "text/csv"),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}},
         "audio-1.mp3", "audio/mp3"),
    ],
)  # fmt: skip
def test_files_of_both_interfaces(part: dict[str, Any], name: str, media_type: str) -> None:
    texts, (file,) = read_content([part, {"type": "input_text", "text": "Look."}], "messages[0]")
    assert texts == ["Look."]
    assert (file.name, file.media_type, file.data) == (name, media_type, b"xyz")


@pytest.mark.parametrize(
    "content",
    [
        7,
        ["x"],
        [{"type": "video"}],
        [{"type": "input_file", "file_url": "https://x/y"}],
        [{"type": "image_url"}],
        [{"type": "file", "file": "a.pdf"}],
        [{"type": "input_audio", "input_audio": "x"}],
    ],
)
def test_what_is_not_taken_is_named(content: Any) -> None:
    with pytest.raises(Refused) as refused:
        read_content(content, "messages[3]")
    assert refused.value.status == 400
    assert str(refused.value.param).startswith("messages[3]")


def test_instructions_and_earlier_files_go_to_a_new_thread_only() -> None:
    file = {"type": "file", "file": {"filename": "a.txt", "file_data": DATA}}
    prompt = read_prompt(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [file]},
            {"role": "assistant", "content": "Read."},
            {"role": "user", "content": "Now?"},
        ],
        "Be kind.",
    )
    new, known = prompt.message(begins=True), prompt.message(begins=False)
    assert new.text == "Instructions for this conversation:\nBe kind.\n\nBe brief.\n\nNow?"
    assert [one.name for one in new.files] == ["a.txt"]
    assert (known.text, known.files) == ("Now?", ())
    assert prompt.history() == [{"type": "ai", "content": "Read."}]


def test_a_conversation_is_known_by_what_was_said_and_not_by_white_space() -> None:
    asked = (Turn("user", "Hi  there"),)
    key = conversation_key(asked, "Hello.\n")
    assert key == conversation_key((Turn("user", "Hi there"), Turn("assistant", " Hello.")))
    assert key != conversation_key((Turn("user", "Hi there"), Turn("user", "Hello.")))
    assert key != conversation_key(asked)
