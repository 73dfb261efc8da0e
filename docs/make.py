"""Write what is made from the code: drawings, events, tools, and all that settings declare."""

from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from docs.configuration_page import configuration_page
from docs.events_page import events_page
from docs.rooms import rooms_drawing
from docs.settings_source import sources
from docs.tools_page import tools_page
from openmanus_graph.graphs.manus import graph
from openmanus_graph.graphs.planning import graph as planning

ROOT = Path(__file__).parent.parent


DRAWINGS: dict[str, tuple[str, Pregel[Any, Any, Any, Any] | None]] = {
    "README.md": ("drawing", graph),
    "README.zh-CN.md": ("drawing", graph),
    "docs/plans.md": ("planning", planning),
    "docs/architecture.md": ("rooms", None),
}
"""Where each graph is drawn, and between which marks; None is the rooms of the package."""


def drawn(page: str, text: str) -> str:
    """Return a page with its drawing as it is now."""
    name, shown = DRAWINGS[page]
    drawing = rooms_drawing() if shown is None else shown.get_graph().draw_mermaid().strip()
    before, _, rest = text.partition(f"<!-- {name} -->")
    after = rest.partition(f"<!-- /{name} -->")[2]
    return f"{before}<!-- {name} -->\n```mermaid\n{drawing}\n```\n<!-- /{name} -->{after}"


if __name__ == "__main__":
    for page in DRAWINGS:
        path = ROOT / page
        path.write_text(drawn(page, path.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "events.md").write_text(events_page(), encoding="utf-8")
    (ROOT / "docs" / "tools.md").write_text(tools_page(), encoding="utf-8")
    configuration = ROOT / "docs" / "configuration.md"
    renewed = configuration_page(configuration.read_text(encoding="utf-8"))
    configuration.write_text(renewed, encoding="utf-8")
    for path, source in sources():
        path.write_text(source, encoding="utf-8")
