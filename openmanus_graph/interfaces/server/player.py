"""Makes one HTML file that plays a run, with the page's scripts and styles and without a server.

It loads nothing. Its policy allows one script, by its digest, and the modules that this script
makes: the page's, which the file has as text. Texts of models, tools and sites are data, and shown
as text, as on the page. The run's pictures, tables and pages are in the file too. A page is shown
in a frame, without its scripts.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server import STATIC
from openmanus_graph.interfaces.server.file_views import still_html, view_of
from openmanus_graph.runtime.workspace import Workspace, read_file

MAX_FILE = 5 << 20
MAX_FILES = 20 << 20
"""Bytes of one file of the run that the page holds, and of all together."""
_STYLES = ("base", "controls", "frame", "timeline", "panes", "code", "math", "player")
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


def player_page(
    title: str,
    events: Iterable[str],
    clean: Callable[[str], str],
    workspace: Workspace | None = None,
) -> str:
    """Make the file of a run, from its events as a server streams them, each as JSON. Blocks.

    `clean` takes secrets out of a text. The files that the run made are shown if there is a
    workspace.
    """
    shown = [clean(event) for event in events]
    files = [*_made_files(workspace, shown, clean)] if workspace else []
    style = "\n".join((STATIC / "css" / f"{name}.css").read_text("utf-8") for name in _STYLES)
    sprite = _SPRITE.search((STATIC / "index.html").read_text("utf-8"))
    line = clean(title.strip().partition("\n")[0][:200])
    run = f'{{"title": {json.dumps(line)}, "events": [{",".join(shown)}], '
    run += f'"files": {json.dumps(files)}}}'
    # Only a script makes blobs. Pages in frames have the same policy, and styles of their own.
    policy = (
        f"default-src 'none'; script-src '{_digest(_START)}' blob:; style-src 'unsafe-inline'; "
        "img-src data:; frame-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Template(_PAGE.read_text("utf-8")).substitute(
        policy=policy,
        title=escape(line),
        style=style,
        sprite=sprite[0] if sprite else "",
        run=_in_script(run),
        code=_in_script(json.dumps(_modules())),
        start=_START,
    )


def _made_files(
    workspace: Workspace, events: Iterable[str], clean: Callable[[str], str]
) -> Iterator[dict[str, Any]]:
    """Yield the files of the run's results that a browser shows, each once, up to `MAX_FILES`."""
    results = (json.loads(event) for event in events if '"final"' in event)
    made = (file for event in results if event["type"] == "final" for file in event["artifacts"])
    room = MAX_FILES
    for path in dict.fromkeys(file["path"] for file in made):
        media_type, view = view_of(path)
        if view not in ("image", "html", "markdown", "text"):
            continue
        try:
            content = read_file(workspace, path, min(MAX_FILE, room))
        except (ToolError, OSError):  # gone, or too large
            continue
        room -= len(content)
        file = {"path": path, "size": len(content), "media_type": media_type, "view": view}
        if view != "image":
            content = still_html(content) if view == "html" else content
            file["text"] = clean(content.decode("utf-8", "replace"))
            content = file["text"].encode()
        yield {**file, "url": f"data:{media_type};base64,{base64.b64encode(content).decode()}"}


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
