"""Take the pictures of `docs/images`: `uv run --with nbconvert python -m docs.pictures`.

What is shown really runs; the model's replies are a recording or a script.
"""

import importlib
import io
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image
from playwright.sync_api import Browser

from docs.page_pictures import take_pictures
from docs.recording import svg, watch
from tests.e2e.terminal import ROWS, Terminal
from tests.support.cli import Cli
from tests.support.page import chromium

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100


def terminal(folder: Path) -> None:
    """Record the demo on a terminal."""
    cli = Cli(folder / "terminal")
    with Terminal(cli, "demo", columns=COLUMNS) as shown:
        frames = watch(shown.emulated, lambda: shown.running)
    title = "openmanus demo: data is cleaned, analysed and drawn, and a report is written"
    (chart,) = cli.cwd.rglob("penguins.png")
    small = Image.open(chart).convert("RGB")
    small.thumbnail((1000, 1000))
    made = io.BytesIO()
    small.quantize(64).save(made, "PNG", optimize=True)
    drawn = svg(frames, COLUMNS, ROWS, title, made.getvalue())
    (IMAGES / "demo.svg").write_text(drawn, encoding="utf-8")


def notebook(browser: Browser, folder: Path) -> None:
    """Photograph the first notebook, as JupyterLab prints it."""
    exporters: Any = importlib.import_module("nbconvert")  # not among our dependencies
    path = ROOT / "notebooks" / "01_first_run.ipynb"
    book: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    clients: Any = NotebookClient  # its types are half known
    clients(book, resources={"metadata": {"path": str(folder)}}).execute()
    html: str = exporters.HTMLExporter(template_name="lab").from_notebook_node(book)[0]
    printed = folder / "notebook.html"
    printed.write_text(html, "utf-8")
    shown = browser.new_page(viewport={"width": 1000, "height": 1200})
    shown.goto(printed.as_uri())
    shown.screenshot(path=IMAGES / "notebook.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        terminal(Path(made))
        take_pictures()
        with chromium() as browser:
            notebook(browser, Path(made))
