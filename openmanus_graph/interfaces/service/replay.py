"""Replays threads and bundles, to compare their requests with those that we would send now."""

import asyncio
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import override

from openmanus_graph.backends.persistence.bundles import load_bundle, save_bundle
from openmanus_graph.backends.persistence.recording import Recording, read_recording
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError, RefusedDataError
from openmanus_graph.graphs.catalog import FLOW, build_agent
from openmanus_graph.interfaces.service.threads import holding_thread
from openmanus_graph.model_calls.replay import WhatIf
from openmanus_graph.runtime.atomic_files import write_own_file
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.context import Context
from openmanus_graph.testing.replays import Replayed, replay

if TYPE_CHECKING:
    from openmanus_graph.backends.persistence.threads import Thread


__all__ = ["Replayed", "record_of", "replay_bundle", "replay_graph", "replay_thread"]
_HOME_VARIABLE = "OPENMANUS_HOME"


async def record_of(known: "Thread") -> Recording:
    """Return the record of a thread on which no run works.

    ConfigError if it is not sufficient, RunError if a run works on the thread, StorageError if the
    database is damaged or cannot be used.
    """
    async with holding_thread(openmanus_home(), known.id):
        return await read_recording(database_url(), known)


async def replay_thread(
    known: "Thread", context: Context, what_if: WhatIf | None = None, graph: Any = None
) -> Replayed:
    """Do a thread's runs again, answered by its record; writes nothing, and calls no model.

    `graph` is from `replay_graph`, for callers that look at where it stopped. Raises as
    `record_of`, and ConfigError if the settings are wrong.
    """
    async with holding_thread(openmanus_home(), known.id):
        record = await read_recording(database_url(), known)
        graph = graph or replay_graph(record.agent)
        return await replay(record, graph, context, elsewhere=False, what_if=what_if)


async def replay_bundle(
    record: Recording, context: Context, what_if: WhatIf | None = None, graph: Any = None
) -> Replayed:
    """Replay what was recorded elsewhere, in empty folders. ConfigError if a setting is wrong."""
    with _empty_home() as folder:
        within = dataclasses.replace(context, workspace=str(folder / "workspace"))
        graph = graph or replay_graph(record.agent)
        try:
            return await replay(record, graph, within, what_if=what_if)
        except ConfigError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError, RefusedDataError) as error:
            what = str(error).partition("\n")[0]  # then come links to the libraries' documentation
            raise ConfigError(
                f"The bundle cannot be replayed: it was not written by openmanus export, or was "
                f"changed ({type(error).__name__}: {what})."
            ) from error


@contextmanager
def _empty_home() -> Generator[Path]:
    before = {name: value for name, value in os.environ.items() if name == _HOME_VARIABLE}
    with tempfile.TemporaryDirectory(prefix="openmanus-replay-") as folder:
        os.environ[_HOME_VARIABLE] = str(Path(folder, "home"))
        try:
            yield Path(folder)
        finally:
            del os.environ[_HOME_VARIABLE]
            os.environ.update(before)


def replay_graph(agent: str) -> Any:
    """Build the graph that a replay runs on; it keeps its checkpoints in memory."""
    return build_agent(agent, checkpointer=_NumberingSaver(serde=StrictSerializer()))


class _NumberingSaver(InMemorySaver):
    """Numbers versions as our databases' savers do, so that they can load its checkpoints."""

    @override
    def get_next_version(self, current: Any, channel: None) -> Any:
        return (current or 0) + 1


_CONTEXT = {"model", "max_steps", "max_cost_usd", "policy", "network"}
_RENAMED = {"max_tokens": "max_total_tokens", "timeout": "timeout_s"}
"""Options that shape requests, and what `Context` calls them."""
_TEMPLATE = Path(__file__).with_name("recorded_test.txt")
"""Texts of the record go into it as literals only: anybody may have written them."""


async def write_test(record: Recording, path: Path) -> Replayed:
    """Write the test, and its bundle next to it, if the bundle's replay equals the record.

    The test has the calls and answers of the bundle, which holds no secrets. Returns the result of
    the bundle's replay. ConfigError if the path is not a Python file, or the settings are wrong.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file. Give one, as --to-test tests/test_run.py.")
    bundle = bundle_of(path)
    await asyncio.to_thread(save_bundle, record, bundle)
    kept = await asyncio.to_thread(load_bundle, bundle)
    known = {_RENAMED.get(name, name): value for name, value in kept.options.items()}
    chosen = sorted({*_CONTEXT, *_RENAMED.values()} & known.keys())
    options: dict[str, Any] = {one: known[one] for one in chosen if known[one] is not None}
    replayed = await replay_bundle(kept, Context(**options))
    if not replayed.is_equal:
        await asyncio.to_thread(bundle.unlink)
        return replayed
    side_by_side = kept.agent == FLOW
    calls = sorted(replayed.tool_calls) if side_by_side else replayed.tool_calls
    template = await asyncio.to_thread(_TEMPLATE.read_text, "utf-8")
    text = template.format(
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
    return test.with_suffix(".zip")


def _listed(texts: list[str]) -> str:
    rows = "".join(f"    {json.dumps(text, ensure_ascii=True)},\n" for text in texts)
    return f"[\n{rows}]" if rows else "[]"
