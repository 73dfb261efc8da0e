"""The scripts of the shipped skills: what they draw, and what they find wrong."""

import datetime
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import openpyxl
import pytest
from openpyxl.chart import BarChart
from PIL import Image
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.dml.color import RGBColor
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches, Pt

from openmanus_graph.config.instructions import SHIPPED

RGB: Any = RGBColor  # python-pptx has no types
CATEGORIES: Any = CategoryChartData


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, SHIPPED / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(tmp_path: Path) -> Any:
    module = script("spreadsheet-report/scripts/check_workbook.py")

    def checked(book: Any) -> list[str]:
        book.save(tmp_path / "report.xlsx")
        return list(module.problems(openpyxl.load_workbook(tmp_path / "report.xlsx")))

    return checked


def report() -> Any:
    """Return a workbook in which nothing is wrong."""
    book: Any = openpyxl.Workbook()
    book.active.title = "Summary"
    data = book.create_sheet("Data")
    for row in (["day", "sales"], [datetime.datetime(2026, 3, 9), 1234.5]):
        data.append(row)
    data["A2"].number_format, data["B2"].number_format = "yyyy-mm-dd", "#,##0.00"
    data.freeze_panes = "A2"
    data.column_dimensions["A"].width = 10
    book["Summary"]["A1"], book["Summary"]["B1"] = "All sales", "=SUM(Data!B2:B2)"
    book.create_sheet("Chart").add_chart(BarChart(), "A1")
    return book


def test_a_date_needs_the_width_of_its_format(check: Any) -> None:
    book = report()
    assert check(book) == []
    book["Data"].column_dimensions["A"].width = 9
    assert check(book) == ["Column A of Data is 9 wide and needs 10."]


def test_a_figure_needs_the_width_of_its_format(check: Any) -> None:
    book = report()
    book["Data"]["B2"] = 1234567.891
    assert check(book) == ["Column B of Data is 8 wide and needs 12."]


def test_what_was_left_out_has_to_be_readable_too(check: Any) -> None:
    book = report()
    book.create_sheet("Left out").append(["2026-03-99", "no date"])
    assert check(book) == ["Column A of Left out is 8 wide and needs 10."]


def test_a_number_typed_among_formulas_is_named(check: Any) -> None:
    book = report()
    book["Summary"]["B2"], book["Summary"]["B3"], book["Summary"]["C2"] = 1234.5, 2026, 7
    assert check(book) == ["Summary!B2 is a typed number, 1234.5."]


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    module = script("slide-deck/scripts/render_slides.py")
    monkeypatch.setattr(module, "drawn_by_libreoffice", no_office)

    def rendered(deck: Any) -> tuple[str, list[Path]]:
        deck.save(str(tmp_path / "deck.pptx"))
        target = tmp_path / "pictures"
        monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "deck.pptx"), str(target)])
        module.main()
        return capsys.readouterr().out, sorted(target.iterdir())

    return rendered


def no_office(deck: Path, target: Path) -> bool:
    return False


def colours(path: Path) -> set[str]:
    with Image.open(path) as picture:
        found: Any = picture.getcolors(1 << 24)
    return {"#{:02x}{:02x}{:02x}".format(*rgb) for _, rgb in found}


def test_background_fill_and_text_have_their_colours(render: Any) -> None:
    deck: Any = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    slide.background.fill.solid()
    slide.background.fill.fore_color.rgb = RGB(0x10, 0x20, 0x40)
    box = slide.shapes.add_shape(1, Inches(1), Inches(1), Inches(3), Inches(1))
    box.fill.solid()
    box.fill.fore_color.rgb = RGB(0xFF, 0x80, 0x00)
    text = slide.shapes.add_textbox(Inches(1), Inches(4), Inches(3), Inches(1))
    text.text_frame.text = "Tea"
    said, (picture,) = render(deck)
    assert "1 slides are drawn" in said
    assert "plainly, without LibreOffice. Everything fits." in said
    assert {"#102040", "#ff8000", "#ffffff"} <= colours(picture)


@pytest.mark.parametrize("kind", [XL_CHART_TYPE.COLUMN_CLUSTERED, XL_CHART_TYPE.LINE])
def test_the_values_of_a_chart_are_drawn(render: Any, kind: Any) -> None:
    deck: Any = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    data = CATEGORIES()
    data.categories = ["a", "b"]
    data.add_series("one", (1, None))
    data.add_series("two", (-3, 4))
    slide.shapes.add_chart(kind, 0, 0, Inches(9), Inches(6), data)
    said, (picture,) = render(deck)
    assert "Everything fits." in said
    assert {"#4472c4", "#ed7d31"} <= colours(picture)


def test_a_cell_is_measured_in_its_own_size_and_column(render: Any) -> None:
    deck: Any = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    shape = slide.shapes.add_table(1, 2, 0, 0, Inches(8), Inches(0.5))
    shape.table.columns[0].width, shape.table.columns[1].width = Inches(7), Inches(1)
    for place in (0, 1):
        shape.table.cell(0, place).text = "Ask why orders fell"
        shape.table.cell(0, place).text_frame.paragraphs[0].runs[0].font.size = Pt(20)
    said, _ = render(deck)
    assert said.count("is longer than its row is high") == 1
    shape.table.cell(0, 0).merge(shape.table.cell(0, 1))
    shape.table.cell(0, 0).text = "Ask why"
    assert "Everything fits." in render(deck)[0]


def test_a_text_has_the_size_of_its_layout_and_breaks_within_long_words(render: Any) -> None:
    deck: Any = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Tea"
    slide.placeholders[1].text = "字" * 600
    said, _ = render(deck)
    assert "is longer than its box is high" in said


def test_pictures_of_slides_that_are_gone_go_too(render: Any) -> None:
    deck: Any = Presentation()
    for _ in (1, 2):
        deck.slides.add_slide(deck.slide_layouts[6])
    assert len(render(deck)[1]) == 2
    fewer: Any = Presentation()
    fewer.slides.add_slide(fewer.slide_layouts[6])
    assert len(render(fewer)[1]) == 1
