"""Writes a recorded run as a pytest, with the record as a bundle beside it."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openmanus_graph.backends.persistence.bundles import load_bundle, save_bundle
from openmanus_graph.backends.persistence.flight_record import FlightRecord
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import FLOW
from openmanus_graph.interfaces.service.replay import Replayed, replay_bundle
from openmanus_graph.runtime.own_files import write_own_file
from openmanus_graph.state.context import Context

_CONTEXT = {"model", "max_steps", "max_cost_usd", "policy", "network"}
_RENAMED = {"max_tokens": "max_total_tokens", "timeout": "timeout_s"}
"""Options that shape requests, and what `Context` calls them."""
_TEMPLATE = '''"""Replays a recorded run: no model is asked, and no tool runs.

The record lies beside this file. If the test fails after a change that is meant, record the run
anew: openmanus replay THREAD --to-test FILE
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
"""What comes from the record is put in as literals only: it may be anybody's."""


async def write_test(record: FlightRecord, path: Path) -> Replayed:
    """Write the test and its bundle, if the bundle's replay goes as it was recorded.

    The calls and answers that the test names are those of the bundle, which holds no secrets.

    Args:
        record: Of the run.
        path: Of the test; the bundle lies beside it.

    Returns:
        What the bundle's replay found.

    Raises:
        ConfigError: The path is no Python file, or the settings are wrong.
        OSError: A file cannot be written.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path} is no Python file. Give one, as --to-test tests/test_run.py.")
    bundle = bundle_of(path)
    await asyncio.to_thread(save_bundle, record, bundle)
    kept = await asyncio.to_thread(load_bundle, bundle)
    options = _options(kept.options)
    replayed = await replay_bundle(kept, Context(**options))
    if not replayed.is_equal:
        await asyncio.to_thread(bundle.unlink)
        return replayed
    side_by_side = kept.agent == FLOW
    calls = sorted(replayed.tool_calls) if side_by_side else replayed.tool_calls
    text = _TEMPLATE.format(
        name=re.sub(r"\W+", "_", path.stem.removeprefix("test_")),
        agent=kept.agent,
        options="".join(f", {name}={value!r}" for name, value in options.items()),
        tool_calls=_listed(calls),
        answers=_listed(replayed.answers),
        made="sorted(replayed.tool_calls)" if side_by_side else "replayed.tool_calls",
    )
    await asyncio.to_thread(write_own_file, path, text)
    return replayed


def bundle_of(test: Path) -> Path:
    """Return where the bundle of a test lies."""
    return test.with_suffix(".zip")


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    known = {_RENAMED.get(name, name): value for name, value in options.items()}
    chosen = sorted({*_CONTEXT, *_RENAMED.values()} & known.keys())
    return {name: known[name] for name in chosen if known[name] is not None}


def _listed(texts: list[str]) -> str:
    """Write texts as a Python list, one a line."""
    rows = "".join(f"    {json.dumps(text, ensure_ascii=True)},\n" for text in texts)
    return f"[\n{rows}]" if rows else "[]"
