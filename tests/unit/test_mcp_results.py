"""Results of MCP servers as servers send them, whole or bent."""

import base64
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage
from PIL import Image

from openmanus_graph.backends.mcp.results import repair_message, to_observation
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.tool_traits import Observation


def observed(result: dict[str, Any], folder: Path) -> Observation:
    """Return what a model is shown of a result that came over the wire."""
    response = types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result)
    repaired = repair_message(SessionMessage(response)).message.result
    called = types.CallToolResult.model_validate(repaired)
    return to_observation(called, (), "mcp_server_tool", Workspace(folder, folder.parent))


def picture(seed: int) -> bytes:
    made = io.BytesIO()
    Image.frombytes("RGB", (7, 5), random.Random(seed).randbytes(105)).save(made, "PNG")
    return made.getvalue()


def block(data: str, kind: str = "image", media_type: str = "image/png") -> dict[str, Any]:
    return {"type": kind, "data": data, "mimeType": media_type}


FORMS: dict[str, Callable[[bytes], str]] = {
    "plain": lambda data: base64.b64encode(data).decode(),
    "URL-safe": lambda data: base64.urlsafe_b64encode(data).decode(),
    "URL-safe without padding": lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    "without padding": lambda data: base64.b64encode(data).decode().rstrip("="),
    "in lines": lambda data: base64.encodebytes(data).decode(),
    "data URL": lambda data: f"data:image/png;base64,{base64.b64encode(data).decode()}",
    "data URL, quoted": lambda data: (
        f"data:image/png;base64,{quote(base64.b64encode(data), safe='')}"
    ),
    "data URL, URL-safe": lambda data: (
        f"data:image/png;base64,{base64.urlsafe_b64encode(data).decode()}"
    ),
    "data URL, percent-encoded": lambda data: f"data:image/png,{quote(data)}",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_is_saved_whole_in_whatever_form_it_is_sent(form: str, tmp_path: Path) -> None:
    for seed in range(20):
        data = picture(seed)
        [saved] = observed({"content": [block(FORMS[form](data))]}, tmp_path).images
        assert (tmp_path / saved).read_bytes() == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("not base64 at all!", "not base64"),
        ("data:image/png;base64,%%%", "not base64"),
        ("A", "not base64"),
        ("", "no picture"),
        (base64.b64encode(b"<html>Not found</html>").decode(), "no picture"),
        ("https://example.com/a.png", "not base64"),
        (base64.b64encode(picture(0)[:-20]).decode(), "cut off"),
        (base64.b64encode(picture(0)[:60]).decode(), "cut off"),
    ],
)
def test_what_is_no_picture_is_reported_and_not_saved(
    data: str, reason: str, tmp_path: Path
) -> None:
    seen = observed({"content": [block(data), {"type": "text", "text": "after"}]}, tmp_path)
    assert reason in seen.text
    assert "after" in seen.text
    assert not seen.images
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize("said", ["image/jpeg", "application/octet-stream", "", None])
def test_a_picture_is_what_its_bytes_are(said: str | None, tmp_path: Path) -> None:
    sent = block(FORMS["plain"](picture(0)), media_type=said or "")
    if said is None:
        del sent["mimeType"]
    [saved] = observed({"content": [sent]}, tmp_path).images
    assert saved.endswith(".png")


def test_a_data_url_says_the_type_of_a_sound(tmp_path: Path) -> None:
    sound = "data:audio/wav;base64," + base64.b64encode(b"RIFF0000WAVE").decode()
    seen = observed({"content": [block(sound, "audio", "application/octet-stream")]}, tmp_path)
    assert "audio/wav" in seen.text
    [saved] = tmp_path.rglob("*.wav")
    assert saved.read_bytes() == b"RIFF0000WAVE"


@pytest.mark.parametrize(
    ("structured", "shown"),
    [
        ([{"a": 1}, {"a": 2}], '"a": 2'),
        ([], "[]"),
        ("plain", "plain"),
        (17, "17"),
        ({"rows": "not what the schema says"}, "not what the schema says"),
    ],
)
def test_a_structure_of_any_kind_is_shown_beside_the_text(
    structured: Any, shown: str, tmp_path: Path
) -> None:
    text = {"type": "text", "text": "2 rows"}
    seen = observed({"content": [text], "structuredContent": structured}, tmp_path)
    assert seen.text.startswith("2 rows\n")
    assert shown in seen.text


def test_a_structure_that_the_text_has_is_not_shown_twice(tmp_path: Path) -> None:
    text = {"type": "text", "text": '[{"a": 1}]'}
    seen = observed({"content": [text], "structuredContent": [{"a": 1}]}, tmp_path)
    assert seen.text == '[{"a": 1}]'
