"""Sound and video that a person gives with the task."""

import asyncio
import base64
import struct
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from pydantic import SecretStr

from openmanus_graph import ConfigError, Context, build_manus_graph
from openmanus_graph.backends.files.file_content import media_suffix
from openmanus_graph.backends.models.build import close_models, prepare_model
from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.interfaces.service.options import InputOptions
from openmanus_graph.interfaces.service.run_setup import prepare_input
from openmanus_graph.model_calls import projection
from openmanus_graph.state.model_settings import ModelSettings
from tests.support import google_wire
from tests.support.graphs import own_text, run_graph, scripted
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.wire_server import WireServer

WAV = b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + bytes(28)
MP4 = b"\0\0\0\x18ftypisom" + bytes(16)
TASK = "What is said?"


def given(*names: str) -> dict[str, Any]:
    """Return an input with files in the workspace, as `--image` makes it."""
    Path("work").mkdir(exist_ok=True)
    for name in names:
        (Path("work") / name).write_bytes(WAV if name.endswith(".wav") else MP4)
    extra = {"images": list(names)}
    return {"messages": [HumanMessage(TASK, id="task", additional_kwargs=extra)]}


async def test_a_model_that_hears_is_sent_the_sound_in_every_request() -> None:
    with OpenAIServer([Reply(text=""), Reply(text="Hello.")]) as server:
        settings = ModelSettings("openai:gpt-4o-audio-preview", base_url=server.base_url)
        model = await prepare_model(settings)
        task = await asyncio.to_thread(given, "a.wav")
        ran = await run_graph(build_manus_graph(), model=model, task=task)
        await close_models()
    assert ran.values["answer"] == "Hello."
    sent = [request.messages[1] for request in server.requests]
    assert sent[0] == sent[1]
    sound = {"data": base64.b64encode(WAV).decode(), "format": "wav"}
    reported, *others = sent[0]["content"]
    assert reported["text"].endswith(f"[The message:]\n{TASK}")
    assert others == [
        {"type": "input_audio", "input_audio": sound},
    ]


async def test_google_is_sent_sound_and_video() -> None:
    script = [google_wire.reply(google_wire.text("Hello."))]
    with WireServer(script, google_wire.complaint, google_wire.error_of) as server:
        settings = ModelSettings(
            "google:gemini-3-flash", base_url=server.address, api_key=SecretStr("k")
        )
        model = await prepare_model(settings)
        task = await asyncio.to_thread(given, "a.wav", "b.mp4")
        ran = await run_graph(build_manus_graph(), model=model, task=task)
        await close_models()
    assert ran.values["answer"] == "Hello."
    parts = server.bodies[0]["contents"][0]["parts"]
    assert [part.get("inlineData", {}).get("mime_type") for part in parts] == [
        None, "audio/wav", "video/mp4"
    ]  # fmt: skip
    assert base64.urlsafe_b64decode(parts[2]["inlineData"]["data"]) == MP4


async def test_a_compatible_server_is_sent_video_as_an_address() -> None:
    with OpenAIServer([Reply(text="A cat.")]) as server:
        settings = ModelSettings("openai:qwen2.5-omni-7b", base_url=server.base_url)
        model = await prepare_model(settings)
        task = await asyncio.to_thread(given, "b.mp4")
        await run_graph(build_manus_graph(), model=model, task=task)
        await close_models()
    block = server.requests[0].messages[1]["content"][1]
    assert block["video_url"]["url"].startswith("data:video/mp4;base64,")


async def test_sound_is_not_counted_by_its_length_where_no_usage_is_reported() -> None:
    task = await asyncio.to_thread(given, "a.wav")
    await asyncio.to_thread(Path("work/a.wav").write_bytes, WAV + bytes(1_000_000))
    model = scripted("done", usage=None)
    model.profile = {"audio_inputs": True}
    ran = await run_graph(build_manus_graph(), model=model, task=task)
    assert ran.values["answer"] == "done"
    assert ran.values["usage"]["input_tokens"] < 10_000


async def test_another_model_is_told_of_the_file() -> None:
    task = await asyncio.to_thread(given, "a.wav")
    ran = await run_graph(build_manus_graph(), "I read the file.", task=task)
    assert own_text(ran.model.requests[0][1]).startswith(TASK)
    assert ran.model.requests[0][1].content[1:] == [
        {
            "type": "text",
            "text": "[a.wav is not sent: this model takes no audio; work with the file by tools.]",
        },
    ]


async def test_a_file_that_is_gone_or_too_large_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "MAX_MEDIA_BYTES", 20)
    task = await asyncio.to_thread(given, "a.wav", "b.wav")
    await asyncio.to_thread(Path("work/b.wav").unlink)
    model = scripted("done")
    model.profile = {"audio_inputs": True}
    ran = await run_graph(build_manus_graph(), model=model, task=task)
    texts = [block["text"] for block in ran.model.requests[0][1].content]  # type: ignore[index]
    assert "a.wav is not sent: a.wav has 44 bytes; at most 20 bytes" in texts[1]
    assert "b.wav is not sent: " in texts[2]


async def test_sound_does_not_choose_the_model_for_pictures() -> None:
    task = await asyncio.to_thread(given, "a.wav")
    vision = scripted("never")
    ran = await run_graph(build_manus_graph(), "done", task=task, vision_model=vision)
    assert ran.values["answer"] == "done"
    assert vision.requests == []


@pytest.mark.parametrize(
    ("begins", "suffix"),
    [
        (WAV, ".wav"), (b"ID3\x04", ".mp3"), (b"\xff\xfb\x90", ".mp3"), (b"OggS", ".ogg"),
        (b"fLaC", ".flac"), (MP4, ".mp4"), (b"\0\0\0\x18ftypM4A ", ".m4a"),
        (b"\0\0\0\x18ftypqt  ", ".mov"), (b"\x1aE\xdf\xa3", ".webm"),
        (b"\0\0\0\x18ftypheic", None), (b"RIFF\0\0\0\0WEBP", None), (b"text", None),
    ],
)  # fmt: skip
def test_sounds_and_videos_are_known_by_their_content(begins: bytes, suffix: str | None) -> None:
    assert media_suffix(begins) == suffix


def test_what_a_model_takes_is_set_or_known_by_its_name() -> None:
    model = scripted()
    assert instance_model(model, ModelSettings("google:gemini-3-pro")).media == {"audio", "video"}
    assert instance_model(model, ModelSettings("openai:gpt-4o-audio-preview")).media == {"audio"}
    assert instance_model(model, ModelSettings("openai:gpt-5")).media == set()
    assert instance_model(model, ModelSettings("openai:x", takes_media=("video",))).media == {
        "video"
    }
    model.profile = {"audio_inputs": True, "video_inputs": False}
    assert instance_model(model, ModelSettings("openai:x")).media == {"audio"}


def test_the_option_takes_them_by_their_content() -> None:
    Path("talk.bin").write_bytes(WAV)
    context = Context(model="openai:x", base_url="http://m.test")
    made = prepare_input(TASK, InputOptions(image=["talk.bin"]), context, "t")
    (path,) = made["messages"][0].additional_kwargs["images"]
    assert path.endswith(".wav")
    Path("talk.bin").write_text("text")
    with pytest.raises(ConfigError, match="not a whole picture .* no sound or video"):
        prepare_input(TASK, InputOptions(image=["talk.bin"]), context, "t")
