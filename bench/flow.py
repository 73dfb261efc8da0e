"""What a plan costs beside its steps; each case runs in a process of its own."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Figures = dict[str, float]
DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["a"], "e": ["a"], "f": ["b", "c", "d", "e"]}
STEP_S = 0.5
CRITICAL_S = 3 * STEP_S
KILLED_AT = "s50"


def run_case(case: str, folder: str, *, dies: bool = False) -> Figures:
    """Run a case in a process and read its figures; one that dies has none."""
    command = [sys.executable, "-m", "bench.flow", case, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=not dies)
    return {} if dies else json.loads(done.stdout)


def measure_flow(*, quick: bool) -> list[list[str]]:
    """Measure every case and return the rows of a table."""
    short, long = (5, 10) if quick else (50, 100)
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: run_case(name, f"{folder}/{name}")
            for name in ("diamond", f"manus-{long}", f"chain-{short}", f"chain-{long}")
        }
        resumed: Figures = {}
        if not quick:
            run_case("killed-100", f"{folder}/killed", dies=True)
            resumed = run_case("resumed-100", f"{folder}/killed")
    whole, chain, half = found["diamond"]["run_s"], found[f"chain-{long}"], found[f"chain-{short}"]
    manus = found[f"manus-{long}"]
    rows = [
        ["diamond of 6 steps of 0.5 s", f"{whole:.2f} s", f"{whole / CRITICAL_S:.2f} x", "1.3 x"],
        [
            "a step's overhead, CPU (a manus step's)",
            f"{chain['step_cpu_ms']:.1f} ms ({manus['step_cpu_ms']:.1f} ms)",
            f"{chain['step_cpu_ms'] / manus['step_cpu_ms']:.2f} x",
            "3 x",
        ],
        [
            "the same, wall time",
            f"{chain['step_ms']:.1f} ms ({manus['step_ms']:.1f} ms)",
            f"{chain['step_ms'] / manus['step_ms']:.2f} x",
            "3 x",
        ],
        [
            f"bytes on disk of a step, {long} steps ({short} steps)",
            f"{chain['step_bytes']:.0f} ({half['step_bytes']:.0f})",
            f"{chain['step_bytes'] / half['step_bytes']:.2f} x",
            "linear: about 1 x",
        ],
    ]
    if resumed:
        rows.append(
            [
                "100 steps, killed in the 51st: from resume to that step",
                f"{1000 * resumed['to_step_s']:.0f} ms",
                f"{resumed['repeated']:.0f} finished steps repeated",
                "none",
            ]
        )
    return rows


async def _measure(case: str, home: Path) -> Figures:
    """Run one case; what needs a second run is measured when all is warm."""
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.state.addresses import DatabaseUrl

    kind, _, count = case.partition("-")
    async with open_checkpointer(DatabaseUrl.in_folder(home)) as saver:
        if kind == "diamond":
            await _plan(saver, home, {"a": []}, "warm")
            return await _plan(saver, home, DIAMOND, "t", executors=_waiting())
        if kind == "manus":
            await _manus(saver, home, 2, "warm")
            return await _manus(saver, home, int(count), "t")
        chain = {f"s{n}": [f"s{n - 1}"] if n else [] for n in range(int(count))}
        if kind == "killed":
            return await _plan(saver, home, chain, "t", executors=_logging(home, dies=True))
        if kind == "resumed":
            return await _resumed(saver, home)
        await _plan(saver, home, {"a": []}, "warm")
        before = _bytes(home)
        found = await _plan(saver, home, chain, "t")
    return found | {"step_bytes": (_bytes(home) - before) / len(chain)}


async def _plan(
    saver: Any, home: Path, steps: Mapping[str, list[str]], thread: str, executors: Any = None
) -> Figures:
    from langchain_core.messages import HumanMessage

    graph, context = _planning(saver, home, steps, executors)
    begun = time.perf_counter(), time.process_time()
    result = await graph.ainvoke(
        {"messages": [HumanMessage("go")]}, _config(thread), context=context, durability="sync"
    )
    assert result["status"] == "finished", result
    return _spent(begun, len(steps))


def _planning(saver: Any, home: Path, steps: Mapping[str, list[str]], executors: Any) -> Any:
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.messages.tool import tool_call

    from openmanus_graph import Context, build_planning_graph
    from openmanus_graph.testing import ScriptedChatModel

    planned = [
        {"id": name, "text": f"Do {name}.", "depends_on": before} for name, before in steps.items()
    ]

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if not str(messages[0].text).startswith("You plan"):
            return AIMessage("All is done.")
        args = {"command": "create", "title": "Bench", "steps": planned}
        return AIMessage("", tool_calls=[tool_call(name="planning", args=args, id="p")])

    model = ScriptedChatModel([answer] * 10)
    graph = build_planning_graph(executors=executors or _quick(), checkpointer=saver)
    return graph, Context(model=model, workspace=str(home / "work"), max_steps=10**6)


async def _manus(saver: Any, home: Path, steps: int, thread: str) -> Figures:
    """Run manus for so many steps, each a call of an in-process tool."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.messages.tool import tool_call

    from openmanus_graph import Context, build_manus_graph, manus_tool
    from openmanus_graph.testing import ScriptedChatModel

    @manus_tool(effect="workspace")
    async def note(n: int) -> str:
        """Note.

        Args:
            n: Number.
        """
        return f"noted {n}"

    calls = [
        AIMessage("", tool_calls=[tool_call(name="note", args={"n": n}, id=f"c{n}")])
        for n in range(steps)
    ]
    model = ScriptedChatModel([*calls, "done"])
    graph = build_manus_graph(tools=[note], checkpointer=saver)
    context = Context(model=model, workspace=str(home / "work"), max_steps=10**6)
    begun = time.perf_counter(), time.process_time()
    await graph.ainvoke(
        {"messages": [HumanMessage("go")]}, _config(thread), context=context, durability="sync"
    )
    return _spent(begun, steps + 1)


async def _resumed(saver: Any, home: Path) -> Figures:
    log = home / "log"
    before = log.read_text().split()
    steps: dict[str, list[str]] = {}
    graph, context = _planning(saver, home, steps, _logging(home, dies=False))
    begun = time.perf_counter()
    await graph.ainvoke(None, _config("t"), context=context, durability="sync")
    after = log.read_text().split()[len(before) :]
    first = float((home / "first").read_text())
    repeated = len(set(after) & set(before[:-1]))  # the last one was under way
    return {"to_step_s": first - begun, "repeated": repeated}


def _executor(work: Any) -> Any:
    """Build a graph of one node, the least that can do a step."""
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    async def do(state: MessagesState) -> dict[str, Any]:
        await work(str(state["messages"][-1].content))
        return {"messages": [AIMessage("done")]}

    builder = StateGraph(MessagesState)
    builder.add_node("do", do)
    builder.add_edge(START, "do")
    builder.add_edge("do", END)
    return builder.compile()


def _quick() -> Any:
    async def nothing(prompt: str) -> None:
        pass

    return _executor(nothing)


def _waiting() -> Any:
    async def wait(prompt: str) -> None:
        await asyncio.sleep(STEP_S)

    return _executor(wait)


def _logging(home: Path, *, dies: bool) -> Any:
    async def note(prompt: str) -> None:
        step = prompt.partition("Your step (")[2].partition(")")[0]
        with (home / "log").open("a") as log:
            log.write(f"{step}\n")
        if not (home / "first").exists() and not dies:
            (home / "first").write_text(str(time.perf_counter()))
        if dies and step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    return _executor(note)


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": 10**6}


def _spent(begun: tuple[float, float], steps: int) -> Figures:
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return {"run_s": wall, "step_ms": 1000 * wall / steps, "step_cpu_ms": 1000 * cpu / steps}


def _bytes(home: Path) -> int:
    for path in home.glob("*.db"):  # how full their logs happen to be says nothing
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(path.stat().st_size for path in home.glob("*.db*"))


def main() -> None:
    """Run one case and print its figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    os.environ["OPENMANUS_HOME"] = str(given.folder)
    json.dump(asyncio.run(_measure(given.case, given.folder)), sys.stdout)


if __name__ == "__main__":
    main()
