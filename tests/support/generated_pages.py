"""Small pages with everything that a person can act on, in many environment, and their oracle.

Each control carries a mark of its own (`data-mark`), which is its text, title or label as well. The
oracle knows by tags, roles, listeners, cursors and visibility which of them can be acted on; it
shares nothing with the code that it judges.
"""

import re

from tests.support.static_site import SITES

PARTS = SITES / "generated"
KINDS = tuple(sorted(path.stem for path in PARTS.glob("*.html")))
SURROUNDINGS = {
    "plain": "<div>CONTENT</div>",
    "open root": "<div id=host data-root=open></div>",
    "closed root": "<div id=host data-root=closed></div>",
    "frame": '<iframe width=600 height=500 srcdoc="FRAME"></iframe>',
    "scrolled area": "<div id=area style='height:120px; overflow:auto'>CONTENT"
    "<p style='height:300px'>end</p></div>",
    "floats": "<div style='height:0'><div style='float:left; width:500px'>CONTENT</div></div>",
    "right to left": "<div dir=rtl style='transform:translateX(-20px)'>CONTENT</div>",
    "vertical": "<div style='writing-mode:vertical-rl; height:400px'>CONTENT</div>",
    "placed": "<div style='position:fixed; top:40px; left:40px; width:500px'>CONTENT</div>",
}


def generated_page(kind: str, surrounding: str) -> str:
    """Return a page with all controls of a kind within a surrounding."""
    content = _marked((PARTS / f"{kind}.html").read_text(encoding="utf-8"))
    style = f"<style>{(PARTS / 'style.css').read_text(encoding='utf-8')}</style>"
    oracle = (PARTS / "oracle.js").read_text(encoding="utf-8")
    head = f"<!doctype html><meta charset=utf-8><title>{kind}</title>{style}"
    begin = f"{head}<script>{oracle}</script><body>"
    frame = f"{begin}{content}<script>listen(document)</script>".replace('"', "&quot;")
    placed = SURROUNDINGS[surrounding].replace("CONTENT", content).replace("FRAME", frame)
    return f"{begin}<template>{style}{content}</template>{placed}<script>begin()</script>"


def _marked(pieces: str) -> str:
    """Write the marks: `@` is where the attributes of the next control go, `%` its mark as text."""
    number = 0
    parts: list[str] = []
    for part in re.split("([@%])", pieces):
        number += part == "@"
        mark = f"mark{number}x"
        parts.append({"@": f'data-mark="{mark}"', "%": mark}.get(part, part))
    return "".join(parts)
