"""Render the slides of a deck to pictures, and name what does not fit.

LibreOffice draws them if it is there; else they are drawn here: boxes, texts, tables and pictures
where they stand, charts as a frame with their title. That is enough to see what is cut off.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pptx.util import Pt

WIDTH = 1280
USUAL_POINTS = 18
LINE_SPACING = 1.2
TOLERANCE = 0.02
"""Share of the slide by which shapes may overlap or leave it."""


class Drawing:
    """One slide as a picture."""

    def __init__(self, slide: Any, width: int, height: int) -> None:
        """Begin an empty picture.

        Args:
            slide: Of python-pptx.
            width: Of the slide, in EMU.
            height: The same.
        """
        self.slide, self.width, self.height = slide, width, height
        self.scale = WIDTH / width
        self.picture = Image.new("RGB", (WIDTH, round(height * self.scale)), "white")
        self.draw = ImageDraw.Draw(self.picture)

    def box(self, shape: Any) -> tuple[int, int, int, int]:
        """Return where a shape stands, in pixels."""
        edges = (shape.left, shape.top, shape.left + shape.width, shape.top + shape.height)
        left, top, right, bottom = (round(edge * self.scale) for edge in edges)
        return left, top, max(right, left + 1), max(bottom, top + 1)

    def shapes(self) -> Iterator[Any]:
        """Yield the shapes that have a place."""
        yield from (one for one in self.slide.shapes if one.left is not None and one.width)

    def paint(self) -> Iterator[str]:
        """Draw all shapes, and yield what does not fit."""
        for shape in self.shapes():
            if getattr(shape, "image", None) is not None:
                self._paste(shape)
            elif getattr(shape, "has_chart", False):
                self._frame(shape, "chart")
            elif getattr(shape, "has_table", False):
                yield from self._table(shape)
            elif shape.has_text_frame:
                yield from self._text(shape)
        yield from self._out_of_place()

    def _paste(self, shape: Any) -> None:
        left, top, right, bottom = self.box(shape)
        with Image.open(BytesIO(shape.image.blob)) as image:
            fitted = image.convert("RGB").resize((right - left, bottom - top))
        self.picture.paste(fitted, (left, top))

    def _frame(self, shape: Any, kind: str) -> None:
        box = self.box(shape)
        self.draw.rectangle(box, outline="gray", fill="#eef2f7")
        self.draw.text((box[0] + 8, box[1] + 8), f"[{kind}]", fill="black", font=font(14))

    def _table(self, shape: Any) -> Iterator[str]:
        left, top, right, bottom = self.box(shape)
        rows, columns = len(shape.table.rows), len(shape.table.columns)
        high, wide = (bottom - top) / rows, (right - left) / columns
        for number, row in enumerate(shape.table.rows):
            for place, cell in enumerate(row.cells):
                corner = (left + place * wide, top + number * high)
                self.draw.rectangle((*corner, corner[0] + wide, corner[1] + high), outline="gray")
                lines = wrapped(cell.text, font(14), wide - 8)
                if len(lines) * 14 * LINE_SPACING > high:
                    yield f"the table's cell {cell.text[:30]!r} is longer than its row is high"
                text = "\n".join(lines)
                self.draw.text((corner[0] + 4, corner[1] + 2), text, fill="black", font=font(14))

    def _text(self, shape: Any) -> Iterator[str]:
        left, top, right, bottom = self.box(shape)
        if not shape.text_frame.text.strip():
            if shape.is_placeholder:
                self.draw.rectangle((left, top, right, bottom), outline="red")
                yield f"the placeholder {shape.name!r} is empty"
            return
        y = float(top)
        for paragraph in shape.text_frame.paragraphs:
            pixels = round(points_of(paragraph, shape) * Pt(1) * self.scale)
            face = font(pixels)
            indent = paragraph.level * pixels
            for line in wrapped(paragraph.text, face, right - left - indent - 8) or [""]:
                self.draw.text((left + indent + 4, y), line, fill="black", font=face)
                y += pixels * LINE_SPACING
        if y > bottom + TOLERANCE * self.picture.height:
            self.draw.rectangle((left, top, right, bottom), outline="red")
            yield f"the text {shape.text_frame.text[:40]!r} is longer than its box is high"

    def _out_of_place(self) -> Iterator[str]:
        spare_x, spare_y = TOLERANCE * self.width, TOLERANCE * self.height
        for shape in self.shapes():
            right, bottom = shape.left + shape.width, shape.top + shape.height
            if min(shape.left + spare_x, shape.top + spare_y) < 0 or (
                right > self.width + spare_x or bottom > self.height + spare_y
            ):
                yield f"{shape.name!r} leaves the slide"
        for one, other in combinations(self.shapes(), 2):
            wide = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
            high = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
            if wide > spare_x and high > spare_y:
                yield f"{one.name!r} and {other.name!r} lie on one another"


def points_of(paragraph: Any, shape: Any) -> float:
    """Return the size of a paragraph's text."""
    sizes = [run.font.size for run in paragraph.runs if run.font.size]
    size = (sizes or [paragraph.font.size])[0]
    if size:
        return float(size.pt)
    is_title = shape.is_placeholder and shape.placeholder_format.type in (1, 3)
    return 40 if is_title else USUAL_POINTS


def font(pixels: int) -> Any:
    """Return the font that texts are drawn and measured in."""
    return ImageFont.load_default(max(6, pixels))


def wrapped(text: str, face: Any, width: float) -> list[str]:
    """Break a text into lines that are no wider than so many pixels, at spaces."""
    lines: list[str] = []
    for whole in text.split("\n"):
        line = ""
        for word in whole.split():
            longer = f"{line} {word}".strip()
            if line and face.getlength(longer) > width:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return lines


def drawn_by_libreoffice(deck: Path, target: Path) -> bool:
    """Have LibreOffice draw the slides; False where it is not there, or cannot."""
    office = shutil.which("soffice") or shutil.which("libreoffice")
    if office is None:
        return False
    import pypdfium2

    with tempfile.TemporaryDirectory() as folder:
        command = [office, "--headless", "--convert-to", "pdf", "--outdir", folder, str(deck)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return False
        pages: Any = pypdfium2.PdfDocument(Path(folder) / f"{deck.stem}.pdf")
        for number, page in enumerate(pages, 1):
            image = page.render(scale=WIDTH / page.get_width()).to_pil()
            image.save(target / f"slide-{number:02}.png")
    return True


def main() -> int:
    """Render the deck that the command line names to a folder; 1 if something does not fit."""
    deck, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    presentation: Any = Presentation(str(deck))
    width, height = presentation.slide_width, presentation.slide_height
    by_office = drawn_by_libreoffice(deck, target)
    wrong = 0
    for number, slide in enumerate(presentation.slides, 1):
        drawing = Drawing(slide, width, height)
        for problem in drawing.paint():
            wrong += 1
            sys.stdout.write(f"slide {number}: {problem}\n")
        if not by_office:
            drawing.picture.save(target / f"slide-{number:02}.png")
    slides = len(presentation.slides)
    fits = f"{wrong} things do not fit." if wrong else "Everything fits."
    sys.stdout.write(f"{slides} slides are drawn in {target}. {fits}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
