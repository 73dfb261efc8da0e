"""The screen as a picture: read from the X server's memory, which is a file."""

import io
import os
import struct
from typing import TYPE_CHECKING

from openmanus_graph.backends.desktop.requirements import HEIGHT, WIDTH
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.safety.open_beneath import open_entry

if TYPE_CHECKING:
    from PIL.Image import Image

FILE = "Xvfb_screen0"
"""As Xvfb names it, in the folder of its option `-fbdir`."""
QUALITY = 75
_HEADER = struct.Struct(">20I")
"""Of the format XWD; here its size, the picture's, the bytes of a line and the colours count."""
_COLOUR_BYTES = 12
_BYTES_PER_PIXEL = 4
_CURSOR_PIXELS = 100
"""A change of so few pixels is a text cursor that blinks."""


class ScreenFile:
    """The open file with what the screen shows.

    It is read by the open file: programs of the sandbox may change what its name means.
    """

    def __init__(self, folder: int) -> None:
        """Open it.

        Args:
            folder: File descriptor of the folder that the X server writes it to.

        Raises:
            OSError: There is none, or it is no file.
        """
        self._file = open_entry(folder, FILE, FILE)

    def look(self) -> "Image":
        """Return what the screen shows. ToolError: a program of the sandbox has spoilt the file."""
        from PIL import Image

        try:
            fields = _HEADER.unpack(os.pread(self._file, _HEADER.size, 0))
        except struct.error:
            fields = (0,) * 20
        line = WIDTH * _BYTES_PER_PIXEL
        if (fields[4], fields[5], fields[12]) != (WIDTH, HEIGHT, line):
            raise TrustedToolError(_SPOILT)
        start = fields[0] + fields[19] * _COLOUR_BYTES
        pixels = os.pread(self._file, line * HEIGHT, start)
        if len(pixels) != line * HEIGHT:
            raise TrustedToolError(_SPOILT)
        return Image.frombuffer("RGB", (WIDTH, HEIGHT), pixels, "raw", "BGRX", line, 1).copy()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


_SPOILT = "The desktop shows no picture: a program has overwritten the screen's memory."


def as_jpeg(image: "Image") -> bytes:
    """Return a picture as a JPEG file."""
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def describe_change(before: "Image", after: "Image") -> str:
    """Say where the screen differs; a text cursor that blinks is no difference."""
    from PIL import ImageChops

    box = ImageChops.difference(before, after).getbbox()
    if box is None or (box[2] - box[0]) * (box[3] - box[1]) <= _CURSOR_PIXELS:
        return "Nothing on the screen changed."
    left, top, right, bottom = box
    return f"The screen changed between ({left}, {top}) and ({right - 1}, {bottom - 1})."
