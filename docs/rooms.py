"""Draws the rooms of the package and their imports, for `docs/architecture.md`."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "openmanus_graph"
NAME = PACKAGE.name


def room_of(module: str) -> str | None:
    """Return the room that a module lives in; the interfaces are rooms each. None: outside."""
    parts = module.split(".")
    if parts[0] != NAME or len(parts) < 2:
        return None
    deep = parts[1] == "interfaces" and len(parts) > 2
    return ".".join(parts[1:3] if deep else parts[1:2])


def imported_by(path: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports, lazily or not."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def room_imports() -> dict[str, set[str]]:
    """Return for each room those that it imports."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        room = room_of(module)
        if room is None or path.parent == PACKAGE and path.name == "__init__.py":
            continue
        others = {room_of(name) for name in imported_by(path)} - {room, None}
        found.setdefault(room, set()).update(other for other in others if other)
    return {room: others for room, others in found.items() if room != "__init__"}


def without_detours(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out the arrows that a way over other rooms shows as well."""

    def reached(room: str) -> set[str]:
        below = imports.get(room, set())
        return below | {deep for other in below for deep in reached(other)}

    return {
        room: others - {deep for other in others for deep in reached(other)}
        for room, others in imports.items()
    }


def rooms_drawing() -> str:
    """Return the rooms and their arrows in Mermaid's language."""
    shown = without_detours(room_imports())
    arrows = [
        f"\t{_key(room)}[{room}] --> {_key(other)}[{other}];"
        for room in sorted(shown)
        for other in sorted(shown[room])
    ]
    return "\n".join(["graph TD;", *arrows])


def _key(room: str) -> str:
    return room.replace(".", "_")
