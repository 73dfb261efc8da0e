"""Take the pictures of `docs/images`: `uv run --with nbconvert python -m docs.pictures`.

What is shown really runs; the model's replies are a recording or a script.
"""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Browser

from docs.recording import svg, watch
from tests.e2e.terminal import ROWS, Terminal
from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab, chromium, desk

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100
CHART = """import matplotlib.pyplot as plt
months, euros = ["Jan", "Feb", "Mar", "Apr"], [120, 180, 150, 210]
plt.bar(months, euros)
plt.ylabel("euros")
plt.savefig("sales.png")
print(dict(zip(months, euros)))
"""
REPORT = "# Sales\n\nApril was best with **210** euros.\n\n![](sales.png)\n"


def terminal(folder: Path) -> None:
    """Record the demo on a terminal."""
    cli = Cli(folder / "terminal")
    with Terminal(cli, "demo", columns=COLUMNS) as shown:
        frames = watch(shown.emulated, lambda: shown.running)
    title = "openmanus demo: data is cleaned, analysed and drawn, and a report is written"
    (IMAGES / "demo.svg").write_text(svg(frames, COLUMNS, ROWS, title), encoding="utf-8")


def page(folder: Path) -> None:
    """Photograph the page."""
    with desk(folder) as at:
        tab = at.tab()
        tab.page.get_by_role("textbox", name="Task", exact=True).wait_for()
        _photograph(tab, "page-start")
        at.model.add(
            Reply(
                text="I look at the figures and draw them.",
                calls=(Call("python_execute", {"code": CHART}),),
            ),
            Reply(calls=(_write("report.md", REPORT), _write("total.py", "print(660)\n"))),
            Reply(text="April was the best month, with **210** euros: see `report.md`."),
        )
        done = tab.start("Which month sold best? Draw it and write a report.")
        tab.until("Finished")
        tab.page.get_by_role("button", name="sales.png").last.click()
        tab.page.locator("img").last.wait_for()
        _photograph(tab, "page-report")
        tab.page.keyboard.press("Escape")
        at.model.add(
            Reply(
                text="Two invoices are due.",
                calls=(
                    Call("send_invoice", {"customer": "17", "amount": 120.0}),
                    Call("send_invoice", {"customer": "23", "amount": 80.5}),
                ),
            )
        )
        tab.start("Send the invoices that are due.", agent="clerk")
        tab.until("Waiting for you")
        _photograph(tab, "page-approval")
        tab.close()
        _elsewhere(at, done)


def _write(path: str, text: str) -> Call:
    return Call("str_replace_editor", {"command": "create", "path": path, "file_text": text})


def _elsewhere(at: Desk, thread: str) -> None:
    """Show a thread on a phone, in the dark, and in Chinese."""
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}
    for name, options in {
        "page-phone": phone,
        "page-dark": {"color_scheme": "dark"},
        "page-chinese": {"locale": "zh-CN"},
    }.items():
        tab = at.tab(thread, **options)
        tab.page.locator(".row-think").last.wait_for()
        _photograph(tab, name)
        tab.close()


def _photograph(tab: Tab, name: str) -> None:
    tab.page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


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
        (Path(made) / "page").mkdir()
        page(Path(made) / "page")
        with chromium() as browser:
            notebook(browser, Path(made))
