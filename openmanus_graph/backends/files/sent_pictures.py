"""Pictures as every model server takes them: small, upright, whole, one frame, PNG or JPEG.

A server that refuses one picture refuses the whole conversation that holds it. The limits are the
lowest of the big providers (Anthropic's with more than 20 pictures), so that a picture is the same
bytes at every step, for every model, which prompt caches need.
"""

import importlib
import io
import threading
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from openmanus_graph.backends.files.file_kinds import data_url, image_type
from openmanus_graph.errors import ToolError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE = 2000
MAX_BYTES = 3_750_000
"""As base64 these are 5 MB."""
MAX_PIXELS = 80_000_000
"""Of a picture that is decoded: as many take a third of a gigabyte."""
_SHRINK = 0.75
"""What each side is multiplied by as long as a file is too large."""
_QUALITY = 85
_ORIENTATION, _UPRIGHT = 0x0112, 1
_MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}
"""Ways to keep colours that all servers read; CMYK and 16 bits are not among them."""
_DRAWN = {"PNG", "GIF", "BMP"}
"""Kinds for drawings and screenshots, whose edges a JPEG would blur."""
_one_at_a_time = threading.Lock()
"""Held while a picture is decoded: each takes much memory."""


@dataclass(frozen=True)
class Picture:
    """A whole picture."""

    media_type: str
    """Of the file that was read."""
    width: int
    height: int
    url: str
    """What is sent of it, as a data URL."""


def read_picture(data: bytes) -> Picture:
    """Read a picture, and scale and convert it where servers might not take it. Blocks.

    A small PNG or JPEG without faults is sent byte for byte.

    Raises:
        ToolError: It is no picture or cannot be decoded; the text is a clause with `it`.
    """
    from PIL import Image

    media_type = image_type(data)
    if media_type is None:
        raise ToolError("it is no picture of a known kind (PNG, JPEG, GIF, WebP, BMP, TIFF, HEIC)")
    if media_type == "image/heic":
        if find_spec("pillow_heif") is None:
            raise ToolError("it is a HEIC picture, which needs a package: pip install pillow-heif")
        importlib.import_module("pillow_heif").register_heif_opener()
    with _one_at_a_time:
        try:
            return _read(data, media_type)
        except ToolError:
            raise
        except (MemoryError, Image.DecompressionBombError) as error:
            raise ToolError("it has too many pixels") from error
        except Exception as error:  # decoders raise anything at hostile bytes
            raise ToolError("it is cut off or broken") from error


def _read(data: bytes, media_type: str) -> Picture:
    from PIL import Image, ImageOps

    # Pixels are counted below; the warning would be shown to the person.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    formats = (media_type.partition("/")[2].upper().replace("HEIC", "HEIF"),)
    with Image.open(io.BytesIO(data), formats=formats) as opened:
        width, height = opened.size
        kind = opened.format or ""
        if not width * height or (kind == "PNG" and b"IEND" not in data):  # decoded without it
            raise ToolError("it is cut off or broken")
        opened.draft("", (MAX_SIDE, MAX_SIDE))  # large JPEGs are decoded smaller than they are
        if opened.width * opened.height > MAX_PIXELS:
            raise ToolError(f"it has too many pixels ({width} x {height})")
        opened.load()
        good = (
            kind in ("PNG", "JPEG")
            and opened.mode in _MODES
            and _is_upright(opened)
            and not getattr(opened, "is_animated", False)
            and max(width, height) <= MAX_SIDE
            and len(data) <= MAX_BYTES
        )
        if not _is_upright(opened):
            ImageOps.exif_transpose(opened, in_place=True)
        sent = (media_type, data) if good else _encoded(opened, drawn=kind in _DRAWN)
    return Picture(media_type, width, height, data_url(sent[1], sent[0]))


def _is_upright(image: "Image") -> bool:
    """Return True if no readable EXIF data tell that a picture is turned."""
    try:
        return bool(image.getexif().get(_ORIENTATION, _UPRIGHT) == _UPRIGHT)
    except Exception:  # noqa: BLE001  # the pixels were read; broken notes do no harm
        return True


def _encoded(image: "Image", *, drawn: bool) -> tuple[str, bytes]:
    """Return a picture as a file that is small enough, and its media type."""
    if image.mode.startswith(("I", "F")):
        image = _with_8_bits(image)
    transparent = image.has_transparency_data
    mode = "RGBA" if transparent else "RGB"
    if image.mode in ("1", "P", "PA"):  # which cannot be scaled
        image = image.convert(mode)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    image = image.convert(mode)
    as_png = drawn or transparent
    while True:
        out = io.BytesIO()
        if as_png:
            image.save(out, "PNG")
        else:
            image.save(out, "JPEG", quality=_QUALITY)
        if out.tell() <= MAX_BYTES:
            return f"image/{'png' if as_png else 'jpeg'}", out.getvalue()
        if as_png and not transparent:
            as_png = False  # it is a photo
        else:
            image.thumbnail((image.width * _SHRINK, image.height * _SHRINK))


def _with_8_bits(image: "Image") -> "Image":
    """Return a grey picture of 16 bits or more; its darkest and lightest parts are kept apart."""
    wide = image.convert("F")
    low, high = cast("tuple[float, float]", wide.getextrema())  # one band has one pair
    scale = 255 / (high - low or 1)
    return wide.point(lambda level: level * scale - low * scale).convert("L")
