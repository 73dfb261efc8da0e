"""Renew what the code knows best: the drawings, `docs/events.md` and `docs/tools.md`."""

from pathlib import Path

from docs.tools_page import tools_page
from openmanus_graph.events import events_page
from openmanus_graph.graphs.manus import graph
from openmanus_graph.graphs.planning import graph as planning

ROOT = Path(__file__).parent.parent


def readme(text: str) -> str:
    """Return the README with the graphs as they are now."""
    for name, drawn in (("drawing", graph), ("planning", planning)):
        drawing = drawn.get_graph().draw_mermaid().strip()
        before, _, rest = text.partition(f"<!-- {name} -->")
        after = rest.partition(f"<!-- /{name} -->")[2]
        block = f"<!-- {name} -->\n```mermaid\n{drawing}\n```\n<!-- /{name} -->"
        text = before + block + after
    return text


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "events.md").write_text(events_page(), encoding="utf-8")
    (ROOT / "docs" / "tools.md").write_text(tools_page(), encoding="utf-8")
