"""Writes `docs/events.md` from the types of the events."""

import json
from typing import Any

from openmanus_graph.runtime.events import event_schema


def events_page() -> str:
    """Write `docs/events.md`."""
    schema = json.dumps(event_schema(), indent=2, ensure_ascii=False)
    kinds = event_schema()["$defs"].values()
    rows = [_row(kind) for kind in kinds if "ts" in kind.get("properties", {})]
    return _PAGE.format(rows="\n".join(rows), schema=schema)


def _row(kind: dict[str, Any]) -> str:
    properties = kind["properties"]
    names = properties["type"].get("enum") or [properties["type"]["const"]]
    fields = [name for name in properties if name not in ("type", "thread", "ts")]
    return f"| {_code(names)} | {_code(fields)} | {' '.join(kind['description'].split())} |"


def _code(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


_PAGE = """\
# Events

To read the events of a run, use `openmanus run --json`. The command writes one JSON object per line
to stdout. Each object is an event with `type`, `thread` and `ts` (ISO 8601, UTC). The table lists
all types. `final` is the last event of every run, also of a run that waits or was cancelled.

`uv run python docs/make.py` generates this page.

| type | fields | meaning |
| --- | --- | --- |
{rows}

## JSON schema of one event

```json
{schema}
```
"""
