"""Writes a recorded run as a pytest, with the record as a bundle beside it."""

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openmanus_graph.backends.persistence.bundles import save_bundle
from openmanus_graph.backends.persistence.flight_record import FlightRecord
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import FLOW
from openmanus_graph.testing.replays import Replayed

_CONTEXT = {"model", "max_steps", "max_cost_usd", "policy", "network"}
_RENAMED = {"max_tokens": "max_total_tokens", "timeout": "timeout_s"}
"""Options that shape requests, and what `Context` calls them."""
_TEMPLATE = '''"""Replays the run of thread {thread}: no model is asked, and no tool runs.

{task}

The record lies beside this file. If the test fails after a change that is meant, record the run
anew: openmanus replay THREAD --to-test {file}
"""

import asyncio
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import Context
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.testing import load_bundle, replay

BUNDLE = Path(__file__).with_suffix(".zip")
TOOL_CALLS = {tool_calls}
ANSWERS = {answers}


def test_{name}_goes_as_it_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENMANUS_HOME", str(tmp_path / "home"))
    graph = build_agent({agent!r}, checkpointer=InMemorySaver())
    context = Context(workspace=str(tmp_path / "workspace"){options})
    replayed = asyncio.run(replay(load_bundle(BUNDLE), graph, context))
    assert replayed.is_equal, replayed.first_difference()
    assert {made} == TOOL_CALLS
    assert replayed.answers == ANSWERS
'''


def write_test(record: FlightRecord, replayed: Replayed, path: Path) -> Path:
    """Write the test and its bundle, and return the bundle's path. Blocks.

    Args:
        record: Of the run.
        replayed: What its replay found: that it goes as it was recorded.
        path: Of the test.

    Raises:
        ConfigError: The path is no Python file.
        OSError: A file cannot be written.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path} is no Python file. Give one, as --to-test tests/test_run.py.")
    side_by_side = record.agent == FLOW
    calls = sorted(replayed.tool_calls) if side_by_side else replayed.tool_calls
    path.write_text(
        _TEMPLATE.format(
            thread=record.thread,
            task=_quoted(record.task),
            file=path.name,
            name=re.sub(r"\W+", "_", path.stem.removeprefix("test_")),
            agent=record.agent,
            options=_options(record.options),
            tool_calls=_listed(calls),
            answers=_listed(replayed.answers),
            made="sorted(replayed.tool_calls)" if side_by_side else "replayed.tool_calls",
        ),
        "utf-8",
    )
    bundle = path.with_suffix(".zip")
    save_bundle(record, bundle)
    return bundle


def _quoted(task: str) -> str:
    text = textwrap.shorten(f"Task: {task}", 300, placeholder=" ...")
    return textwrap.fill(text.replace("\\", "/").replace('"', "'"), 98)


def _options(options: Mapping[str, Any]) -> str:
    known = {_RENAMED.get(name, name): value for name, value in options.items()}
    chosen = {name: known[name] for name in sorted({*_CONTEXT, *_RENAMED.values()} & known.keys())}
    return "".join(f", {name}={value!r}" for name, value in chosen.items() if value is not None)


def _listed(texts: list[str]) -> str:
    """Write texts as a Python list, one a line."""
    rows = "".join(f"    {json.dumps(text, ensure_ascii=True)},\n" for text in texts)
    return f"[\n{rows}]" if rows else "[]"
