"""Self-contained HTML pages: of one interactive chart, and of a Markdown report with its charts."""

import base64
import hashlib
import html
import json
import mimetypes
import re
from collections.abc import Callable
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from openmanus_graph.backends.files.file_kinds import data_url
from openmanus_graph.errors import ToolError

MAX_PICTURE_BYTES = 20 * 1024**2
_PICTURE = re.compile(r'<img src="([^"]+)"')
_CHART_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data: blob:;
  style-src 'unsafe-inline'; script-src '{library_digest}' '{start_digest}'">
<style>
body {{ margin: 2rem; font-family: system-ui, "Noto Sans CJK SC", "PingFang SC", sans-serif; }}
</style>
<script>{library}</script></head><body><div id="chart"></div>
<script type="application/json" id="spec">{spec}</script>
<script>{start}</script></body></html>
"""
_START = """
const spec = JSON.parse(document.getElementById("spec").textContent);
const refuse = () => Promise.reject(new Error("A chart loads nothing."));
const sanitize = (href) => (/^data:image\\//.test(href) ? Promise.resolve({ href }) : refuse());
const loader = { load: refuse, http: refuse, file: refuse, sanitize };
const actions = { export: true, source: false, compiled: false, editor: false };
vegaEmbed("#chart", spec, { renderer: "svg", ast: true, loader, actions }).catch(console.error);
"""
"""Only this script and the library run, by their digests. Expressions of the specification, which
may be anybody's, are interpreted (`ast`) and never compiled; its links lead nowhere."""
_REPORT_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body {{ font: 16px/1.55 system-ui, "Noto Sans CJK SC", "PingFang SC", sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; color: #1b1f24; background: #fff; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #ccd; padding: .3rem .6rem; }}
pre {{ background: #f4f5f7; padding: .8rem; overflow: auto; }}
</style></head><body>
{body}
</body></html>
"""


def vega_script(file: BinaryIO, request: dict[str, Any]) -> str:
    """Return Vega with all that it needs, as one script; in a child, since V8 packs it."""
    import vl_convert

    untyped = cast("Any", vl_convert)  # its stub wants an argument that it does not need
    return str(untyped.javascript_bundle())


def chart_page(spec: dict[str, Any], title: str, packed: str, language: str) -> str:
    """Make the page.

    Args:
        spec: The specification with its data, of which nothing is ever read as a script.
        title: Of the page.
        packed: What `vega_script` returned.
        language: `zh` or `en`.
    """
    plain = {key: value for key, value in spec.items() if key != "usermeta"}  # sets options
    shown = json.dumps(plain, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        shown = shown.replace(sign, f"\\u{ord(sign):04x}")
    return _CHART_PAGE.format(
        language=language,
        title=html.escape(title),
        library=packed,
        spec=shown,
        start=_START,
        library_digest=_digest(packed),
        start_digest=_digest(_START),
    )


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def report_page(markdown: str, read: Callable[[str], bytes], language: str) -> str:
    """Make a page of a report. Blocks; reads the pictures.

    Args:
        markdown: The report. HTML in it is shown as text.
        read: Returns the content of the picture at an address, or raises ToolError.
        language: `zh` or `en`.

    Raises:
        ToolError: A picture cannot be found.
    """
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    shown = _PICTURE.sub(lambda match: f'<img src="{_embedded_picture(match[1], read)}"', body)
    heading = re.search(r"^#+\s+(.+)$", markdown, re.MULTILINE)
    title = html.escape(heading[1].strip() if heading else "Report")
    return _REPORT_PAGE.format(language=language, title=title, body=shown)


def _embedded_picture(address: str, read: Callable[[str], bytes]) -> str:
    address = html.unescape(address)
    if address.startswith("data:image/"):
        return html.escape(address)
    if "://" in address:
        raise ToolError(f"The report shows {address}: it can show only files of the workspace.")
    address = unquote(address)  # as Markdown writes the address of a file with a Chinese name
    kind = mimetypes.guess_type(address)[0] or ""
    if not kind.startswith("image/"):
        raise ToolError(f"{address} is no picture. Show charts by their PNG.")
    return data_url(read(address), kind)
