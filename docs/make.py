"""Renew what the code knows best: the README's drawing and `docs/events.md`."""

import re
from pathlib import Path

from openmanus_graph.events import events_page
from openmanus_graph.graphs.manus import graph

ROOT = Path(__file__).parent.parent


def readme(text: str) -> str:
    """Return the README with the graph as it is now."""
    drawing = graph.get_graph().draw_mermaid().strip()
    block = f"<!-- drawing -->\n```mermaid\n{drawing}\n```\n<!-- /drawing -->"
    return re.sub(r"<!-- drawing -->.*<!-- /drawing -->", lambda _: block, text, flags=re.DOTALL)


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "events.md").write_text(events_page(), encoding="utf-8")
