"""`openmanus replay`: runs again from their record, to see what would differ now."""

import asyncio
import sys
import zipfile
from collections.abc import Coroutine
from pathlib import Path

from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.persistence.bundles import load_bundle, save_bundle
from openmanus_graph.backends.persistence.flight_record import FlightRecord
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.replay import (
    Replayed,
    record_of,
    replay_bundle,
    replay_thread,
)
from openmanus_graph.interfaces.service.replay_test import write_test
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.interfaces.service.threads import thread_id, whole_thread
from openmanus_graph.runtime.output import printable


def replay(source: str, to_test: str | None) -> int:
    """Replay a thread or a bundle, and return the exit code: 1 if something differs.

    Args:
        source: A thread's id, or a bundle's file.
        to_test: File to write the run to as a test.
    """
    path = Path(source)
    if path.suffix == ".zip" or zipfile.is_zipfile(path):
        record = load_bundle(path)
        found = _awaited(replay_bundle(record, to_context(_options_of(record))))
    else:
        known = whole_thread(thread_id(source))
        context = to_context(RunOptions().over(known.options))
        found = _awaited(replay_thread(known, context))
        record = asyncio.run(record_of(known))
    _print(found)
    if to_test is not None:
        _write_test(record, found, Path(to_test))
    return 0 if found.is_equal else 1


def export_bundle(thread: str, file: str) -> int:
    """Write a thread's record to one file, and return the exit code."""
    record = asyncio.run(record_of(whole_thread(thread)))
    try:
        save_bundle(record, Path(file))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from error
    sys.stderr.write(f"{printable(file)} holds thread {thread}. Replay it: openmanus replay FILE\n")
    return 0


def _write_test(record: FlightRecord, found: Replayed, path: Path) -> None:
    if not found.is_equal:
        raise ConfigError(
            "No test was written, because the run does not go as it was recorded: the test would "
            "fail. Undo the change, or run the task anew and make the test from that."
        )
    try:
        bundle = write_test(record, found, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    sys.stderr.write(f"{path} and {bundle} are written. Run it: pytest {path}\n")


def _options_of(record: FlightRecord) -> RunOptions:
    return RunOptions().over(dict(record.options))


def _awaited(replaying: Coroutine[None, None, Replayed]) -> Replayed:
    async def and_close_models() -> Replayed:
        try:
            return await replaying
        finally:
            await close_models()

    return asyncio.run(and_close_models())


def _print(found: Replayed) -> None:
    if found.differences:
        sys.stdout.write(printable(found.differences[0].diff()) + "\n")
    sys.stderr.write(f"{printable(_summary(found))}\n")


def _summary(found: Replayed) -> str:
    if found.is_equal:
        return f"All {found.model_calls} requests are as they were recorded."
    told = [found.ended] if found.ended else []
    if found.differences:
        first = found.differences[0]
        told.insert(
            0,
            f"{len(found.differences)} of {found.model_calls} requests differ. The first one is "
            f"model call {first.position}, of step {first.call.facts['step']}.",
        )
    return " ".join(told)
