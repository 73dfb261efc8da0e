"""Render the slides of a deck to pictures, and name what does not fit.

LibreOffice draws them if it is installed. If not, this program draws texts, tables, pictures, fills
and simple charts, which is enough to see what is cut off or crowded.
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
from pptx.enum.dml import MSO_COLOR_TYPE, MSO_FILL
from pptx.enum.shapes import MSO_SHAPE_TYPE
from pptx.enum.shapes import PP_PLACEHOLDER as KIND
from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
from pptx.util import Inches, Pt

WIDTH = 1280
USUAL_POINTS = 18.0
LINE_SPACING = 1.2
INSET_X, INSET_Y = Inches(0.1), Inches(0.05)
"""What PowerPoint leaves free between a box and its text."""
TOLERANCE = 0.02
"""Share of the slide by which shapes may overlap or leave it."""
TITLES = (KIND.TITLE, KIND.CENTER_TITLE)
CENTERED = (*TITLES, KIND.SUBTITLE)
COLOURS = ("#4472c4", "#ed7d31", "#7f7f7f", "#ffc000", "#5b9bd5", "#70ad47")


class Drawing:
    """One slide as a picture."""

    def __init__(self, slide: Any, width: int, height: int) -> None:
        """Begin a picture of the slide's background. The slide's width and height are in EMU."""
        self.slide, self.width, self.height = slide, width, height
        self.scale = WIDTH / width
        self.ground = filled_with(slide.background) or "#ffffff"
        size = (WIDTH, round(height * self.scale))
        self.picture = Image.new("RGB", size, self.ground)
        self.draw = ImageDraw.Draw(self.picture)

    def pixels(self, length: float) -> float:
        """Return a length in EMU as pixels."""
        return length * self.scale

    def box(self, shape: Any) -> tuple[float, float, float, float]:
        """Return a shape's edges in pixels."""
        edges = (shape.left, shape.top, shape.left + shape.width, shape.top + shape.height)
        left, top, right, bottom = map(self.pixels, edges)
        return left, top, max(right, left + 1), max(bottom, top + 1)

    def shapes(self) -> Iterator[Any]:
        """Yield the shapes that have a position."""
        yield from (one for one in self.slide.shapes if one.left is not None and one.width)

    def paint(self) -> Iterator[str]:
        """Draw all shapes, and yield what does not fit."""
        for shape in self.shapes():
            if getattr(shape, "image", None) is not None:
                left, top, right, bottom = map(round, self.box(shape))
                with Image.open(BytesIO(shape.image.blob)) as image:
                    fitted = image.convert("RGB").resize((right - left, bottom - top))
                self.picture.paste(fitted, (left, top))
            elif shape.has_chart:
                self._chart(shape)
            elif shape.has_table:
                yield from self._table(shape)
            elif shape.has_text_frame:
                yield from self._shape(shape)
        yield from self._out_of_place()

    def _chart(self, shape: Any) -> None:
        """Draw a chart of categories as bars or lines; another one as a frame."""
        left, top, right, bottom = self.box(shape)
        chart = shape.chart
        title = chart.chart_title.text_frame.text if chart.has_title else ""
        plot = chart.plots[0]
        names = [str(name) for name in plot.categories]
        series = [[value or 0.0 for value in one.values] for one in plot.series]
        self._line_of_text(title, left, top, right, 16)
        if not names or any(len(values) != len(names) for values in series):
            self.draw.rectangle((left, top, right, bottom), outline="gray")
            return
        floor, ceiling = bottom - 24, top + 48
        low, high = min(0.0, *map(min, series)), max(0.0, *map(max, series))
        unit = (floor - ceiling) / ((high - low) or 1.0)
        zero = floor + low * unit
        step = (right - left) / len(names)
        self.draw.line((left, zero, right, zero), fill="gray")
        for place, name in enumerate(names):
            self._line_of_text(name, left + place * step, floor + 4, left + (place + 1) * step, 14)
        for number, values in enumerate(series):
            colour = COLOURS[number % len(COLOURS)]
            label = (left + number * (right - left) / len(series), top + 24)
            self.draw.text(label, plot.series[number].name, fill=colour, font=font(14))
            if "LINE" in str(chart.chart_type):
                xs = [left + (place + 0.5) * step for place in range(len(names))]
                points = [(x, zero - value * unit) for x, value in zip(xs, values, strict=True)]
                self.draw.line(points, fill=colour, width=3)
                continue
            wide = 0.7 * step / len(series)
            for place, value in enumerate(values):
                x = left + place * step + 0.15 * step + number * wide
                y = zero - value * unit
                self.draw.rectangle((x, min(y, zero), x + wide, max(y, zero)), fill=colour)

    def _line_of_text(self, text: str, left: float, top: float, right: float, size: int) -> None:
        middle = (left + right) / 2
        fill = readable_on(self.ground)
        self.draw.text((middle, top), text, fill=fill, font=font(size), anchor="ma")

    def _table(self, shape: Any) -> Iterator[str]:
        left, top, _, _ = self.box(shape)
        for number, row in enumerate(shape.table.rows):
            height, x = self.pixels(row.height), left
            widths = [column.width for column in shape.table.columns]
            for place, cell in enumerate(row.cells):
                if cell.is_spanned:
                    continue
                width = self.pixels(sum(widths[place : place + cell.span_width]))
                head = "#4472c4" if number == 0 and shape.table.first_row else "#ffffff"
                fill = filled_with(cell) or head
                area = (x, top, x + width, top + height)
                self.draw.rectangle(area, outline="gray", fill=fill)
                if self._text(cell.text_frame, area, cell.vertical_anchor, fill) > height + 2:
                    yield f"the table's cell {cell.text[:30]!r} is longer than its row is high"
                x += width
            top += height

    def _shape(self, shape: Any) -> Iterator[str]:
        area = self.box(shape)
        colour = filled_with(shape)
        if not colour and shape.shape_type == MSO_SHAPE_TYPE.AUTO_SHAPE:
            colour = None if shape.fill.type == MSO_FILL.BACKGROUND else COLOURS[0]
        if colour:
            self.draw.rectangle(area, fill=colour)
        if not shape.text_frame.text.strip():
            if shape.is_placeholder:
                self.draw.rectangle(area, outline="red")
                yield f"the placeholder {shape.name!r} is empty"
            return
        kind = shape.placeholder_format.type if shape.is_placeholder else None
        middle = kind in TITLES or shape.shape_type == MSO_SHAPE_TYPE.AUTO_SHAPE
        anchor = shape.text_frame.vertical_anchor or (MSO_ANCHOR.MIDDLE if middle else None)
        height = self._text(shape.text_frame, area, anchor, colour or self.ground, shape)
        if height > area[3] - area[1] + TOLERANCE * self.picture.height:
            self.draw.rectangle(area, outline="red")
            yield f"the text {shape.text_frame.text[:40]!r} is longer than its box is high"

    def _text(
        self,
        frame: Any,
        area: tuple[float, float, float, float],
        anchor: Any,
        ground: str,
        shape: Any = None,
    ) -> float:
        """Draw a text into a box, and return the height that it needs."""
        left, top, right, bottom = area
        left, right = left + self.pixels(INSET_X), right - self.pixels(INSET_X)
        lines: list[tuple[str, Any, float, Any, str]] = []
        for paragraph in frame.paragraphs:
            size = max(6, round(self.pixels(Pt(1)) * points_of(paragraph, shape)))
            face, indent = font(size), size * (paragraph.level + is_listed(shape))
            sign = "- " if is_listed(shape) and paragraph.text.strip() else ""
            colour = colour_of(paragraph) or readable_on(ground)
            width = right - left - indent
            for line in wrapped(paragraph.text, face, width):
                shown = (sign + line, face, indent, alignment_of(paragraph, shape), colour)
                lines.append(shown)
                sign = "  " if sign else ""
        height: float = sum(face.size * LINE_SPACING for _, face, *_ in lines)
        y = top + self.pixels(INSET_Y)
        if anchor in (MSO_ANCHOR.MIDDLE, MSO_ANCHOR.BOTTOM):
            spare = bottom - top - 2 * self.pixels(INSET_Y) - height
            y += max(0.0, spare / (2 if anchor == MSO_ANCHOR.MIDDLE else 1))
        for line, face, indent, alignment, colour in lines:
            spare = right - left - indent - face.getlength(line)
            share = {PP_ALIGN.CENTER: 0.5, PP_ALIGN.RIGHT: 1.0}.get(alignment, 0.0)
            self.draw.text((left + indent + share * spare, y), line, fill=colour, font=face)
            y += face.size * LINE_SPACING
        return height + 2 * self.pixels(INSET_Y)

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


def filled_with(thing: Any) -> str | None:
    """Return the one colour that a shape, a cell or a background is filled with; else None."""
    fill = getattr(thing, "fill", None)
    if fill is None or fill.type != MSO_FILL.SOLID:
        return None
    return f"#{fill.fore_color.rgb}" if fill.fore_color.type == MSO_COLOR_TYPE.RGB else None


def readable_on(ground: str) -> str:
    """Return black or white, whichever can be read on a colour."""
    red, green, blue = (int(ground[start : start + 2], 16) for start in (1, 3, 5))
    return "#000000" if 0.3 * red + 0.6 * green + 0.1 * blue > 128 else "#ffffff"


def colour_of(paragraph: Any) -> str | None:
    """Return the colour of a paragraph's text, if one is set."""
    fonts = [paragraph.font, *(run.font for run in paragraph.runs)]
    given = [one.color.rgb for one in fonts if one.color and one.color.type == MSO_COLOR_TYPE.RGB]
    return f"#{given[-1]}" if given else None


def alignment_of(paragraph: Any, shape: Any) -> Any:
    """Return a paragraph's own alignment, or the usual one of its shape."""
    usual = None
    if shape is not None and shape.is_placeholder:
        usual = PP_ALIGN.CENTER if shape.placeholder_format.type in CENTERED else None
    elif shape is not None and shape.shape_type == MSO_SHAPE_TYPE.AUTO_SHAPE:
        usual = PP_ALIGN.CENTER
    return paragraph.alignment or usual


def is_listed(shape: Any) -> bool:
    """Return True if a shape's paragraphs are the items of a list, as in a layout's body."""
    if shape is None or not shape.is_placeholder:
        return False
    return shape.placeholder_format.type in (KIND.BODY, KIND.OBJECT)


def points_of(paragraph: Any, shape: Any) -> float:
    """Return the size of a paragraph's text: its own, or that of its layout or master."""
    sizes = [run.font.size for run in paragraph.runs if run.font.size]
    size = (sizes or [paragraph.font.size])[0]
    if size:
        return float(size.pt)
    if shape is None or not shape.is_placeholder:
        return USUAL_POINTS
    layout, index = shape.part.slide.slide_layout, shape.placeholder_format.idx
    level = f"a:lvl{paragraph.level + 1}pPr/a:defRPr/@sz"
    found = [
        size
        for one in layout.placeholders
        if one.placeholder_format.idx == index
        for size in one.element.xpath(f".//a:lstStyle/{level}")
    ]
    style = "titleStyle" if shape.placeholder_format.type in TITLES else "bodyStyle"
    found += layout.slide_master.element.xpath(f"p:txStyles/p:{style}/{level}")
    return int(found[0]) / 100 if found else USUAL_POINTS


def font(pixels: int) -> Any:
    return ImageFont.load_default(pixels)


def wrapped(text: str, face: Any, width: float) -> list[str]:
    """Break a text into lines of at most `width` pixels, at spaces if possible."""
    lines: list[str] = []
    for whole in text.replace("\v", "\n").split("\n"):
        line = ""
        for word in whole.split():
            longer = f"{line} {word}".strip()
            if line and face.getlength(longer) > width:
                lines.append(line)
                longer = word
            while len(longer) > 1 and face.getlength(longer) > width:
                fits = len(longer) - 1
                while fits > 1 and face.getlength(longer[:fits]) > width:
                    fits -= 1
                lines.append(longer[:fits])
                longer = longer[fits:]
            line = longer
        lines.append(line)
    return lines


def drawn_by_libreoffice(deck: Path, target: Path) -> bool:
    """Draw the slides with LibreOffice; return False if it is not installed or fails."""
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
            size = (WIDTH, round(WIDTH * page.get_height() / page.get_width()))
            image.crop((0, 0, *size)).save(target / f"slide-{number:02}.png")
    return True


def main() -> int:
    """Render the deck that the command line names to a folder; 1 if something does not fit."""
    deck, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("slide-*.png"):
        old.unlink()
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
    how = "by LibreOffice" if by_office else "plainly, without LibreOffice"
    fits = f"{wrong} things do not fit." if wrong else "Everything fits."
    sys.stdout.write(f"{slides} slides are drawn in {target}, {how}. {fits}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
