"""What a plan costs beside one run that makes the same calls; each in a process of its own."""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Figures, medians, server
from bench.plan_model import CASES

LOOK_S = 0.1
TASK = "Add up the rows of each part, and write each total to a file of its own."


LATENCY_S = {"four independent parts and a summary": 5.0}
"""Of a model call, where it is not none."""
MOST = {
    "a chain of four": {"tokens": 1.15, "cpu_ms_a_call": 1.3},
    "four parts with long texts, and a report": {"tokens": 1.2},
    "four independent parts": {"cpu_ms_a_call": 1.3},
    "four independent parts and a summary": {"wall_s": 0.55},
}
"""How many times the plain run's a figure may be."""
FIGURES = {"model_calls": "{:.0f}", "tokens": "{:.0f}", "cpu_s": "{:.2f}",
           "cpu_ms_a_call": "{:.0f}", "wall_s": "{:.1f}", "memory_mb": "{:.0f}"}  # fmt: skip


def measure_plans(*, runs: int, quick: bool) -> list[list[str]]:
    """Measure every case both ways, in turn, and return the rows of a table."""
    rows: list[list[str]] = []
    for case in list(CASES)[:1] if quick else CASES:
        latency_s = LATENCY_S.get(case, 0.0)
        taken: dict[str, list[Figures]] = {"plan": [], "plain": []}
        for _ in range(1 if latency_s else runs):
            for way, figures in taken.items():
                figures.append(measure_case(case, way, latency_s))
        plan, plain = (medians(figures) for figures in taken.values())
        cells = [_cell(shown, plan[name], plain[name]) for name, shown in FIGURES.items()]
        limits = [f"{name} {most} x" for name, most in MOST.get(case, {}).items()]
        shown = f"{case}, {latency_s:g} s a model call" if latency_s else case
        rows.append([shown, *cells, ", ".join(limits)])
    return rows


def _cell(shown: str, plan: float, plain: float) -> str:
    return f"{shown.format(plan)} ({shown.format(plain)}) {plan / plain:.2f} x"


def measure_case(case: str, way: str, latency_s: float = 0.0) -> Figures:
    """Do a case's work as a `plan` or as a `plain` run, with a model of its own."""
    model = ("--case", case, "--latency", str(latency_s))
    with (
        server(*model, module="bench.plan_model") as base_url,
        tempfile.TemporaryDirectory() as folder,
    ):
        command = [sys.executable, "-m", "bench.plans", way, folder, "--base-url", base_url]
        memory_mb = 0.0
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            while running.poll() is None:
                memory_mb = max(memory_mb, _memory_mb(running.pid))
                time.sleep(LOOK_S)
            printed = running.communicate()[0]
    figures: Figures = json.loads(printed)
    return figures | {"memory_mb": memory_mb}


async def _do(way: str, folder: Path, base_url: str) -> Figures:
    """Do the work once, after a run that only answers: it loads what every run needs."""
    from openmanus_graph import Context, build_manus_graph, build_planning_graph
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.state.addresses import DatabaseUrl
    from openmanus_graph.testing import ScriptedChatModel

    context = Context(
        model="openai:bench",
        base_url=base_url,
        workspace=str(folder / "work"),
        policy="auto",
        model_options={"disable_streaming": True},
    )
    async with open_checkpointer(DatabaseUrl.in_folder(folder / "home")) as saver:
        build = build_planning_graph if way == "plan" else build_manus_graph
        graph = build(checkpointer=saver)
        warm = Context(model=ScriptedChatModel(["done"]), workspace=context.workspace)
        await _run(build_manus_graph(checkpointer=saver), {"messages": "go"}, "warm", warm)
        begun = time.perf_counter(), _cpu_s()
        result = await _run(graph, {"messages": TASK}, "t", context)
        while "__interrupt__" in result:
            from langgraph.types import Command

            answers = {asked.id: {"answer": "2025"} for asked in result["__interrupt__"]}
            result = await _run(graph, Command(resume=answers), "t", context)
        wall, cpu = time.perf_counter() - begun[0], _cpu_s() - begun[1]
    if result["status"] != "finished":
        raise RuntimeError(f"the {way} did not do its work: {result['answer']}")
    usage = result["usage"]
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "cpu_ms_a_call": cpu * 1000 / usage["model_calls"],
        "model_calls": usage["model_calls"],
        "tokens": usage["input_tokens"] + usage["output_tokens"],
    }


async def _run(graph: Any, given: Any, thread: str, context: Any) -> Any:
    config = {"configurable": {"thread_id": thread}, "recursion_limit": 10**6}
    return await graph.ainvoke(given, config, context=context, durability="sync")


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its children, those that still run too.

    To be asked before sandboxes are closed: nobody waits for what is killed with its namespace.
    """
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total = sum(one.ru_utime + one.ru_stime for one in used)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def _memory_mb(pid: int) -> float:
    """Return the memory that a process and its children have now; shared pages count once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        whole = psutil.Process(pid)
        for process in (whole, *whole.children(recursive=True)):
            with contextlib.suppress(psutil.Error, OSError):
                rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                total += int(rollup.partition("\nPss:")[2].split()[0])
    return total / 1024


def main() -> None:
    """Do one case one way and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("plan", "plain"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base-url", required=True)
    given = parser.parse_args()
    home: Path = given.folder / "home"  # beside the workspace: tools reach nothing in it
    home.mkdir(parents=True)
    os.environ["OPENMANUS_HOME"] = str(home)
    os.environ["OPENAI_API_KEY"] = "none"
    json.dump(asyncio.run(_do(given.way, given.folder, given.base_url)), sys.stdout)


if __name__ == "__main__":
    main()
