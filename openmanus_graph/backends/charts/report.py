"""Self-contained HTML pages: of one interactive chart, and of a Markdown report with its charts."""

import base64
import hashlib
import html
import importlib.util
import json
import mimetypes
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from openmanus_graph.backends.charts.specs import ChartEntry, check_spec, make_spec, with_data
from openmanus_graph.backends.files.file_content import data_url
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import Workspace, put_file

MAX_PICTURE_BYTES = 20 * 1024**2
_PICTURE = re.compile(r'<img src="([^"]+)"')


def vega_script(file: BinaryIO, request: dict[str, Any]) -> str:
    """Return Vega with all that it needs, as one script; in a child, because V8 packs it."""
    import vl_convert

    untyped = cast("Any", vl_convert)  # its stub wants an argument that it does not need
    return str(untyped.javascript_bundle())


def chart_page(spec: dict[str, Any], title: str, packed: str, language: str) -> str:
    """Make the page of a chart, from its specification with data and the script of `vega_script`.

    Nothing of the specification is ever read as a script.
    """
    plain = {key: value for key, value in spec.items() if key != "usermeta"}  # sets options
    shown = json.dumps(plain, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        shown = shown.replace(sign, f"\\u{ord(sign):04x}")
    start = _template("chart.js")
    return Template(_template("chart.html")).substitute(
        language=language,
        title=html.escape(title),
        library=packed,
        spec=shown,
        start=start,
        library_digest=_digest(packed),
        start_digest=_digest(start),
    )


def _template(name: str) -> str:
    pages = files("openmanus_graph.backends.charts").joinpath("pages")
    return pages.joinpath(name).read_text("utf-8")


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def report_page(markdown: str, read: Callable[[str], bytes], language: str) -> str:
    """Make a page of a report, whose HTML is shown as text. Blocks: `read` reads the pictures."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    shown = _PICTURE.sub(lambda match: f'<img src="{_embedded_picture(match[1], read)}"', body)
    heading = re.search(r"^#+\s+(.+)$", markdown, re.MULTILINE)
    title = html.escape(heading[1].strip() if heading else "Report")
    page = Template(_template("report.html"))
    return page.substitute(language=language, title=title, body=shown)


def _embedded_picture(address: str, read: Callable[[str], bytes]) -> str:
    address = html.unescape(address)
    if address.startswith("data:image/"):
        return html.escape(address)
    if "://" in address:
        raise ToolError(f"The report shows {address}: it can show only files of the workspace.")
    address = unquote(address)  # as Markdown writes the address of a file with a Chinese name
    kind = mimetypes.guess_type(address)[0] or ""
    if not kind.startswith("image/"):
        raise ToolError(f"{address} is not a picture. Show charts by their PNG.")
    return data_url(read(address), kind)


SCALE = 2
_FONT_PACKAGE = "notojp_matplotlib"


def draw_table(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    """Read a table and draw it; return `png` (base64), `spec` with its data, `insights`, `notes`.

    The request has `entry` (of a `ChartEntry`), `name` of the file, and `language`.
    """
    from openmanus_graph.backends.charts.tables import find_insights, read_table

    entry = ChartEntry(**request["entry"])
    table, notes = read_table(file, request["name"])
    spec = make_spec(table, entry)
    insights = find_insights(table, *plotted_columns(spec), request["language"])
    return {**render(with_data(spec, table)), "insights": insights, "notes": notes}


def redraw(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(file.read())
    title: Any = spec.get("title")  # a text, or an object with one
    text: Any = cast("dict[str, Any]", title).get("text") if isinstance(title, dict) else title
    subtitle = {"text": text or "", "subtitle": request["lines"], "anchor": "start"}
    return render({**spec, "title": subtitle})


def render(spec: dict[str, Any]) -> dict[str, Any]:
    """Check a specification, whoever wrote it; return `png` in base64, and the `spec`."""
    import vl_convert

    check_spec(spec)
    fonts = importlib.util.find_spec(_FONT_PACKAGE)
    if fonts is not None and fonts.origin is not None:
        vl_convert.register_font_directory(str(Path(fonts.origin).parent / "fonts"))
    try:
        png = vl_convert.vegalite_to_png(spec, scale=SCALE, allowed_base_urls=[])
    except ValueError as error:
        why = str(error).partition("\n    at ")[0]  # where in Vega's own code is of no use
        raise ToolError(f"The chart cannot be drawn: {why[:300]}.") from error
    return {"png": base64.b64encode(png).decode(), "spec": spec}


def plotted_columns(spec: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the columns that a chart plots: of its x axis or categories, and of its values."""
    layers: list[Any] = [spec, *(spec.get("layer") or ())]
    encodings: list[dict[str, Any]] = [layer.get("encoding") or {} for layer in layers]
    encoding = next(filter(None, encodings), encodings[0])
    columns: list[str | None] = []
    for name in ("color", "theta") if "theta" in encoding else ("x", "y"):
        channel: Any = encoding.get(name)
        field = cast("dict[str, Any]", channel).get("field") if isinstance(channel, dict) else None
        columns.append(re.sub(r"\\(.)", r"\1", field) if isinstance(field, str) else None)
    return columns[0], columns[1]


FOLDER = "charts"
"""In the thread's private folder: an empty file for each page, named by its digest."""


def note_own_page(workspace: Workspace, page: bytes) -> None:
    """Note that we made a page. Blocks. Raises OSError."""
    put_file(workspace, workspace.private / FOLDER / digest_of(page), b"", synced=False)


def is_own_page(workspace: Workspace, digest: str) -> bool:
    """Return True if we made the page of this digest. Blocks."""
    return (workspace.private / FOLDER / digest).exists()


def inherit_own_pages(workspace: Workspace, older: Workspace) -> None:
    """Copy what is known of the charts of the thread that this one is forked from. Blocks."""
    known = older.private / FOLDER
    for one in known.iterdir() if known.is_dir() else ():
        put_file(workspace, workspace.private / FOLDER / one.name, b"", synced=False)


def digest_of(page: bytes) -> str:
    return hashlib.sha256(page).hexdigest()
