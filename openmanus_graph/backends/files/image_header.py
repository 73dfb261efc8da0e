"""Detects image formats by their first bytes, and broken images."""

import struct
from dataclasses import dataclass

_JPEG_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = {0x01, *range(0xD0, 0xD9)}


@dataclass(frozen=True)
class Image:
    """Facts from an image's header."""

    media_type: str
    width: int
    height: int


def image_type(data: bytes) -> str | None:
    """Name the kind of picture that a file begins like."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def read_image(data: bytes) -> Image | None:
    """Read a whole picture's header.

    None if it is no picture, is cut off or broken: providers refuse a request that holds such
    a picture, and with it the whole conversation.
    """
    media_type = image_type(data)
    readers = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
    if media_type is None:
        return None
    try:
        size = readers[media_type](data)
    except (struct.error, IndexError):
        return None
    if size is None or not all(size):
        return None
    return Image(media_type, *size)


def _png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or b"IEND" not in data[16:]:
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int] | None:
    if b";" not in data[-1024:]:
        return None
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if b"\xff\xd9" not in data[4:]:
        return None
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _JPEG_BARE:
            position += 2
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    if struct.unpack_from("<I", data, 4)[0] + 8 > len(data):
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return _three(data, 24) + 1, _three(data, 27) + 1
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _three(data: bytes, position: int) -> int:
    if len(data) < position + 3:
        raise IndexError
    return int.from_bytes(data[position : position + 3], "little")
