"""Records the runs of a notebook from within its kernel, and replays them elsewhere and later."""

import contextlib
import copy
import dataclasses
import datetime
import os
import time
from pathlib import Path
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel

from openmanus_graph import Context, close
from openmanus_graph.backends.persistence.bundles import load_bundle, save_bundle
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.recording import read_recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.testing import replay

LATER = datetime.timedelta(days=400, hours=5)
NODES = {"think", "create_plan"}
"""One of them is in each of our graphs."""
_runs: dict[str, tuple[Any, Context]] = {}
"""The graph of each thread, and the context of its newest run."""
_open = contextlib.AsyncExitStack()
"""Holds the checkpoints open; the kernel's end closes them."""
graphs: Any = Pregel
"""Patched in this kernel alone."""
_astream = graphs.astream


async def record() -> None:
    """Have all runs of our graphs keep checkpoints in the database, and so a record."""
    saver = await _open.enter_async_context(open_checkpointer(database_url()))

    def astream(self: Any, given: Any, config: Any = None, **more: Any) -> Any:
        settings: dict[str, Any] = dict(config or {})
        where: dict[str, Any] = dict(settings.get("configurable", {}))
        if var_child_runnable_config.get() is None and NODES & self.nodes.keys():
            self.checkpointer = saver
            where.setdefault("thread_id", f"run-{len(_runs)}")
            _runs[where["thread_id"]] = self, more.get("context") or Context()
            config = settings | {"configurable": where}
        return _astream(self, given, config, **more)

    graphs.astream = astream


async def replay_all(folder: str) -> dict[str, str]:
    """Replay all threads in another folder, with another home, on another day.

    Returns:
        By thread `equal`, or what differs.
    """
    graphs.astream = _astream
    await close()
    found: dict[str, str] = {}
    for number, (thread, (graph, context)) in enumerate(_runs.items()):
        known = Thread(thread, "manus", "the task", {}, "finished", "", "")
        bundle = Path(folder) / f"{number}.zip"
        try:
            save_bundle(await read_recording(database_url(), known), bundle)
        except ConfigError as error:
            found[thread] = f"refused: {error}"
            continue
        found[thread] = await _replay_elsewhere(bundle, graph, context, Path(folder, str(number)))
    return found


async def _replay_elsewhere(bundle: Path, graph: Any, context: Context, folder: Path) -> str:
    import openmanus_graph.nodes.think as think

    before, cwd, clock, today = dict(os.environ), Path.cwd(), time.time, think.today
    (folder / "cwd").mkdir(parents=True)
    os.environ |= {"HOME": str(folder / "home"), "OPENMANUS_HOME": str(folder / "openmanus")}
    os.chdir(folder / "cwd")
    time.time = lambda: clock() + LATER.total_seconds()
    think.today = lambda: (datetime.date.today() + LATER).isoformat()
    elsewhere = copy.copy(graph)
    elsewhere.checkpointer = InMemorySaver()
    within = dataclasses.replace(context, workspace=str(folder / "workspace"))
    try:
        result = await replay(load_bundle(bundle), elsewhere, within)
    finally:
        os.environ.clear()
        os.environ |= before
        os.chdir(cwd)
        time.time, think.today = clock, today
    changed = [str(path) for path in (folder / "cwd").iterdir()]
    if result.is_equal and not changed:
        return "equal"
    return f"{len(result.differences)} differ: {result.first_difference()} {result.ended} {changed}"
