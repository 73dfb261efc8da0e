"""Pictures are sent as every server takes them, or left out with a reason."""

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from PIL import Image

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.files.file_content import MAX_BYTES, MAX_SIDE, read_picture
from openmanus_graph.errors import ToolError
from tests.support.graphs import scripted

pytestmark = pytest.mark.slow


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def noise(mode: str, size: tuple[int, int]) -> Image.Image:
    grey = Image.effect_noise(size, 200)
    return Image.merge(mode, [grey.rotate(90 * turn) for turn in range(len(mode))])


def sent(data: bytes) -> tuple[str, bytes, Image.Image]:
    """Return media type, bytes and picture of what a server is sent."""
    url = read_picture(data).url
    assert url == read_picture(data).url, "the same bytes each time"
    head, _, encoded = url.partition(",")
    raw = base64.b64decode(encoded)
    assert len(raw) <= MAX_BYTES
    image = Image.open(io.BytesIO(raw))
    assert max(image.size) <= MAX_SIDE
    return head, raw, image


def bomb(width: int, height: int) -> bytes:
    """Return a PNG whose pixels would fill the memory; most of them are missing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(1000))), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    "data",
    [
        saved(Image.new("RGB", (MAX_SIDE, 20), "red"), "PNG"),
        saved(Image.new("RGBA", (30, 20), (255, 0, 0, 9)), "PNG"),
        saved(Image.new("P", (3, 2)), "PNG"),
        saved(Image.new("L", (1, 1)), "JPEG", quality=31),
    ],
)
def test_a_small_good_picture_passes_byte_for_byte(data: bytes) -> None:
    assert sent(data)[1] == data


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "BMP", "TIFF", "AVIF"])
def test_other_kinds_become_png_or_jpeg(kind: str) -> None:
    head, _, image = sent(saved(Image.new("RGB", (40, 30), "red"), kind))
    assert head.startswith(("data:image/png", "data:image/jpeg"))
    assert image.size == (40, 30)
    shown = image.convert("RGB").getpixel((20, 15))
    assert isinstance(shown, tuple)
    assert shown[0] > 240 > 20 > shown[1]


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [
        (saved(Image.new("RGB", (4000, 1000), "red"), "PNG"), "PNG", (2000, 500)),
        (saved(Image.new("RGB", (1500, 6000), "red"), "JPEG"), "JPEG", (500, 2000)),
        (saved(Image.new("RGB", (9000, 2), "red"), "PNG"), "PNG", (2000, 1)),
        (saved(Image.new("1", (3000, 3000)), "PNG"), "PNG", (2000, 2000)),
        (saved(Image.new("CMYK", (30, 20)), "JPEG"), "JPEG", (30, 20)),
        (saved(noise("RGB", (1900, 1900)), "PNG"), "JPEG", (1900, 1900)),
    ],
)
def test_large_and_odd_ones_are_scaled_and_converted(
    data: bytes, kind: str, size: tuple[int, int]
) -> None:
    image = sent(data)[2]
    assert (image.format, image.mode, image.size) == (kind, "RGB", size)


def test_what_is_transparent_stays_a_png_however_large() -> None:
    image = sent(saved(noise("RGBA", (1600, 1600)), "PNG", compress_level=1))[2]
    assert (image.format, image.mode) == ("PNG", "RGBA")


def test_of_an_animation_the_first_frame_is_sent() -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "PNG", "WEBP"):
        data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
        image = sent(data)[2]
        assert not getattr(image, "is_animated", False)
        shown = image.convert("RGB").getpixel((5, 5))
        assert isinstance(shown, tuple)
        assert shown[0] > 200 > shown[2]


def test_a_photo_stands_upright() -> None:
    photo = Image.new("RGB", (60, 20), "red")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    image = sent(saved(photo, "JPEG", exif=exif))[2]
    assert image.size == (20, 60)
    assert not image.getexif()


def test_broken_notes_on_a_picture_do_no_harm() -> None:
    data = saved(Image.new("RGB", (30, 5)), "WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0")
    assert sent(data)[2].size == (30, 5)


def test_sixteen_bits_are_not_cut_off() -> None:
    grey = Image.new("I;16", (2, 1))
    grey.putpixel((0, 0), 1000)
    grey.putpixel((1, 0), 60_000)
    image = sent(saved(grey, "PNG"))[2]
    assert image.convert("L").getpixel((0, 0)) == 0
    assert image.convert("L").getpixel((1, 0)) == 255


GOOD = saved(noise("RGB", (90, 60)), "JPEG")
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a picture"),
        (b"<svg/>", "not a picture"),
        (GOOD[: len(GOOD) // 2], "cut off or broken"),
        (GOOD[:-1], "cut off or broken"),
        (saved(Image.new("RGB", (9, 9)), "PNG")[:-9], "cut off or broken"),
        (bomb(0, 0), "cut off or broken"),
        (bomb(3, 0), "cut off or broken"),
        (bomb(300, 300), "cut off or broken"),
        (bomb(9500, 9500), "too many pixels"),
        (bomb(60_000, 60_000), "too many pixels"),
        (GOOD[:3] + bytes(5000), "cut off or broken"),
        (HEIC, "pillow-heif"),
    ],
)
def test_what_cannot_be_sent_has_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        read_picture(data)


async def test_a_run_goes_on_without_pictures_that_cannot_be_sent(tmp_path: Path) -> None:
    large = base64.b64encode(saved(Image.new("RGB", (2400, 100)), "PNG")).decode()
    small = base64.b64encode(saved(Image.new("RGB", (24, 10)), "PNG")).decode()
    broken = base64.b64encode(GOOD[:-9]).decode()
    (tmp_path / "half.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    blocks: list[str | dict[str, Any]] = [{"type": "text", "text": "Compare them."}]
    blocks += [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{large}"}},
        {"type": "image", "base64": small, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{broken}"}},
    ]
    given: list[AnyMessage] = [
        HumanMessage(blocks, additional_kwargs={"images": ["half.png", "gone.png"]})
    ]
    model = scripted("They differ.", "Yes.")
    model.profile = {"image_inputs": True}
    graph = build_manus_graph()
    context = Context(model=model, workspace=str(tmp_path))
    values = await graph.ainvoke({"messages": given}, context=context)
    assert values["answer"] == "They differ."
    content: Any = model.requests[0][-1].content
    text = content[0]["text"]
    assert "A picture is not shown: it is cut off or broken." in text
    assert "half.png is not shown: it is cut off or broken." in text
    assert "gone.png is not shown" in text
    assert [block["type"] for block in content[1:]] == ["image_url", "image"]
    assert content[2] == blocks[2]
    assert large not in content[1]["image_url"]["url"]
