"""Makes one HTML file that plays a run, with the page's scripts and styles and without a server.

It loads nothing. Its policy allows one script, by its digest, and the modules that this script
makes: the page's, which the file has as text. Texts of models, tools and sites are data, and shown
as text, as on the page.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from openmanus_graph.interfaces.server import STATIC

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
"""Makes modules from the texts, each after those that it imports."""
_PAGE = Path(__file__).with_name("player.html")


def player_page(title: str, events: Iterable[str]) -> str:
    """Make the file of a run, from its events as a server streams them, each as JSON. Blocks."""
    style = "\n".join((STATIC / "css" / f"{name}.css").read_text("utf-8") for name in _STYLES)
    sprite = _SPRITE.search((STATIC / "index.html").read_text("utf-8"))
    run = f'{{"title": {json.dumps(title)}, "events": [{",".join(events)}]}}'
    # Only a script makes blobs.
    policy = (
        f"default-src 'none'; script-src '{_digest(_START)}' blob:; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )
    return Template(_PAGE.read_text("utf-8")).substitute(
        policy=policy,
        title=escape(title),
        style=style,
        sprite=sprite[0] if sprite else "",
        run=_in_script(run),
        code=_in_script(json.dumps(_modules())),
        start=_START,
    )


def _in_script(text: str) -> str:
    """Escape JSON so that it cannot end the element around it, or start a comment."""
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return escaped.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _modules() -> Mapping[str, str]:
    """Return the scripts that the player imports, each after those that it imports itself.

    `import:` and the name of a module replace an address.
    """
    found: dict[str, str] = {}

    def add(name: str, around: tuple[str, ...] = ()) -> None:
        if name in around:
            raise ValueError(f"The page's scripts import each other in a circle: {name}.")
        if name in found:
            return
        source = (STATIC / name).read_text("utf-8")
        for one in _IMPORT.finditer(source):
            add(_resolve(name, one[3]), (*around, name))
        found[name] = _IMPORT.sub(lambda one: f'{one[1]}"import:{_resolve(name, one[3])}"', source)

    add("js/player.js")
    return found


def _resolve(name: str, address: str) -> str:
    path = (STATIC / Path(name).parent / address).resolve()
    return path.relative_to(STATIC.resolve()).as_posix()
