"""The interactive page of a chart: self-contained, without network access."""

import html
import json
from typing import Any, BinaryIO, cast

_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data: blob:;
  style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'">
<style>
body {{ margin: 2rem; font-family: system-ui, "Noto Sans CJK SC", "PingFang SC", sans-serif; }}
</style>
<script>{library}</script></head><body><div id="chart"></div>
<script type="application/json" id="spec">{spec}</script>
<script>
const spec = JSON.parse(document.getElementById("spec").textContent);
const actions = {{export: true, source: false, compiled: false, editor: false}};
vegaEmbed("#chart", spec, {{renderer: "svg", actions}}).catch(console.error);
</script></body></html>
"""


def library(file: BinaryIO, request: dict[str, Any]) -> str:
    """Return Vega with all that it needs, as one script; in a child, since V8 packs it."""
    import vl_convert

    untyped = cast("Any", vl_convert)  # its stub wants an argument that it does not need
    return str(untyped.javascript_bundle())


def chart_page(spec: dict[str, Any], title: str, packed: str, language: str) -> str:
    """Make the page.

    Args:
        spec: The specification with its data, of which nothing is ever read as a script.
        title: Of the page.
        packed: What `library` returned.
        language: `zh` or `en`.
    """
    shown = json.dumps(spec, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        shown = shown.replace(sign, f"\\u{ord(sign):04x}")
    return _PAGE.format(language=language, title=html.escape(title), library=packed, spec=shown)
