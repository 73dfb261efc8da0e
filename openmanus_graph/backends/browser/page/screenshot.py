"""The window as a picture, with the indices of its elements drawn on it."""

import asyncio
import io
from typing import TYPE_CHECKING

from openmanus_graph.backends.browser.page.snapshot import Element, Snapshot
from openmanus_graph.backends.browser.page.view import PageView

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

QUALITY = 60
MAX_BOXES = 150
COLOURS = ("#c2185b", "#1565c0", "#2e7d32", "#e65100", "#6a1b9a", "#00838f")


async def marked_screenshot(view: PageView, snapshot: Snapshot, max_side: int = 1280) -> bytes:
    """Photograph the window and draw a numbered box around each element in it (JPEG).

    Args:
        view: The tab's page.
        snapshot: The look whose indices are drawn; take it right before.
        max_side: The picture's longer side at most, in pixels.
    """
    plain = await view.frames.unless_dialog(
        view.page.screenshot(type="jpeg", quality=85, scale="css", caret="initial")
    )
    shown = [one for index, one in snapshot.elements.items() if snapshot.in_view(index)]
    return await asyncio.to_thread(_marked, plain, shown[:MAX_BOXES], max_side)


def _marked(plain: bytes, elements: list[Element], max_side: int) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    with Image.open(io.BytesIO(plain)) as picture:
        image = picture.convert("RGB")
    scale = min(1.0, max_side / max(image.size))
    if scale < 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)))
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for element in elements:
        _draw(drawing, font, image, element, scale)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def _draw(
    drawing: "ImageDraw",
    font: "FreeTypeFont | ImageFont",
    image: "Image",
    element: Element,
    scale: float,
) -> None:
    """Draw one box, its number above it where there is room, inside it otherwise."""
    left, top, width, height = (side * scale for side in element.box)
    right, bottom = min(left + width, image.width - 1), min(top + height, image.height - 1)
    left, top = max(left, 0.0), max(top, 0.0)
    if right - left < 1 or bottom - top < 1:
        return
    colour, text = COLOURS[element.index % len(COLOURS)], str(element.index)
    drawing.rectangle((left, top, right, bottom), outline=colour)
    wide = drawing.textlength(text, font=font) + 4
    y = top - 14 if top >= 14 else top
    drawing.rectangle((left, y, left + wide, y + 14), fill=colour)
    drawing.text((left + 2, y), text, fill="white", font=font)
