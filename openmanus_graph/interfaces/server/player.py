"""Makes one HTML file that plays a run: with the page's own scripts and styles, and no server.

Nothing in it is fetched. Its policy lets one script run, by its digest, and the modules that this
one makes: the page's own, which stand in the file as text. Whatever a model, a tool or a site has
said is data, and is set as text, as on the page.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path

from openmanus_graph.interfaces.server.web_app import STATIC

_FIRST = "js/player.js"
_STYLES = ("base", "controls", "frame", "timeline", "panes", "code", "player")
_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(?\s*)(["'])(\.{1,2}/[^"']+)\2""")
_SPRITE = re.compile(r'<svg class="sprite".*?</svg>', re.DOTALL)
_START = """
const made = {};
const texts = JSON.parse(document.getElementById("code").textContent);
for (const [name, text] of Object.entries(texts)) {
  const source = text.replace(/"import:([^"]+)"/g, (_, one) => JSON.stringify(made[one]));
  made[name] = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
}
import(made["js/player.js"]);
"""
"""Makes modules of the texts, each after those that it imports."""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{sprite}
<a class="skip" href="#run-shown">Skip to the run</a>
<div id="app"></div>
<div id="live" class="sr-only" role="status" aria-live="polite"></div>
<noscript>This page needs JavaScript. 此页面需要 JavaScript。</noscript>
<script type="application/json" id="run">{run}</script>
<script type="application/json" id="code">{code}</script>
<script>{start}</script>
</body>
</html>
"""


def player_page(title: str, events: Iterable[str]) -> str:
    """Make the file. Blocks.

    Args:
        title: Of the run.
        events: As a server streams them, each as JSON.
    """
    style = "\n".join((STATIC / "css" / f"{name}.css").read_text("utf-8") for name in _STYLES)
    sprite = _SPRITE.search((STATIC / "index.html").read_text("utf-8"))
    run = f'{{"title": {json.dumps(title)}, "events": [{",".join(events)}]}}'
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(_START)}' blob:",  # which only a script makes
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return _PAGE.format(
        policy=policy,
        title=escape(title),
        style=style,
        sprite=sprite[0] if sprite else "",
        run=_in_script(run),
        code=_in_script(json.dumps(_modules())),
        start=_START,
    )


def _in_script(text: str) -> str:
    """Write JSON so that nothing in it ends the element that it stands in, or begins a comment."""
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return escaped.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _modules() -> Mapping[str, str]:
    """Return the scripts that the player imports, each after those that it imports itself.

    In the place of an address stands `import:` and the name of a module.
    """
    found: dict[str, str] = {}
    _add(_FIRST, found, ())
    return found


def _add(name: str, found: dict[str, str], around: tuple[str, ...]) -> None:
    if name in around:
        raise ValueError(f"The page's scripts import each other in a circle: {name}.")
    if name in found:
        return
    source = (STATIC / name).read_text("utf-8")
    for imported in _imported(name, source):
        _add(imported, found, (*around, name))
    found[name] = _IMPORT.sub(lambda one: f'{one[1]}"import:{_resolve(name, one[3])}"', source)


def _imported(name: str, source: str) -> Iterator[str]:
    for one in _IMPORT.finditer(source):
        yield _resolve(name, one[3])


def _resolve(name: str, address: str) -> str:
    """Return the name of the module that another one imports by a relative address."""
    path = (STATIC / Path(name).parent / address).resolve()
    return path.relative_to(STATIC.resolve()).as_posix()
