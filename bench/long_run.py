"""What a long run remembers and sends: each result holds one fact, and the notes are perfect.

What is lost is lost by the harness. Nothing depends on the machine, so each case is run once.
"""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

from tests.support.long_run import CHARS_PER_TOKEN, LongRun

TASK = "Read all pages, and name the fact of each."
CONFIG: Any = {"recursion_limit": 10**6}
LEAST = {32_000: 280 / 300, 128_000: 1.0}
"""Windows, and the share of the facts that is to be kept in each."""


async def _openmanus(run: LongRun, folder: Path) -> None:
    from openmanus_graph import Context, build_manus_graph

    settings = folder / "bench.toml"
    settings.write_text("")
    context = Context(
        model=run.model, workspace=str(folder / "work"), max_steps=10**6, config=str(settings)
    )
    graph = build_manus_graph(tools=[run.tool])
    await graph.ainvoke({"messages": [HumanMessage(TASK)]}, CONFIG, context=context)


async def _deepagents(run: LongRun, folder: Path) -> None:
    from deepagents import create_deep_agent  # pyright: ignore[reportUnknownVariableType]

    agent: Any = create_deep_agent(run.model, [run.tool])  # pyright: ignore[reportUnknownVariableType]
    await agent.ainvoke({"messages": [HumanMessage(TASK)]}, CONFIG)


SUBJECTS: dict[str, Callable[[LongRun, Path], Coroutine[Any, Any, None]]] = {
    "openmanus": _openmanus,
    "deepagents": _deepagents,
}


def measure_long_runs(*, quick: bool) -> list[list[str]]:
    """Run every subject in every window and return the rows of a table."""
    steps = 60 if quick else 300
    rows: list[list[str]] = []
    for window, least in LEAST.items():
        for subject, work in SUBJECTS.items():
            run = LongRun(steps, window)
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(work(run, Path(folder)))
            facts = f"{run.kept()} of {steps}, at least {round(least * steps)}"
            rows.append([f"{subject}, {window // 1000}k", facts, *_figures(run)])
    return rows


def _figures(run: LongRun) -> list[str]:
    sent = run.sent
    total, fresh = sent.total / CHARS_PER_TOKEN, (sent.total - sent.same) / CHARS_PER_TOKEN
    return [
        f"{sent.requests} ({sent.notes_requests})",
        f"{total / 1e6:.2f}",
        f"{100 * sent.same / sent.total:.1f}",
        f"{fresh / 1e6:.2f}",
    ]
