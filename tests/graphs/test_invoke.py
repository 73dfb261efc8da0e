"""`invoke`: a run for code that cannot await."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, invoke
from openmanus_graph.runtime.process import run_loop
from tests.support.graphs import calls, scripted
from tests.support.limits import BACKSTOP_S

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def test_a_thread_keeps_its_kernel_between_two_blocking_runs(tmp_path: Path) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    for code, shown in (("x = 42", ""), ("print(x)", "42")):
        model = scripted(calls(("python_execute", {"code": code})), "done")
        context = Context(model=model, workspace=str(tmp_path))
        done = invoke(graph, {"messages": [HumanMessage("go")]}, THREAD, context=context)
        assert (done["status"], done["answer"]) == ("finished", "done")
        assert shown in done["messages"][-2].text


async def test_it_works_where_a_loop_runs_already(tmp_path: Path) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    context = Context(
        model=scripted(calls(("ask_human", {"inquire": "Which?"})), "done"), workspace=str(tmp_path)
    )
    waits = invoke(graph, {"messages": [HumanMessage("go")]}, THREAD, context=context)
    assert waits["__interrupt__"][0].value["question"] == "Which?"
    assert invoke(graph, Command(resume="That"), THREAD, context=context)["answer"] == "done"


async def test_it_does_not_wait_for_itself() -> None:
    async def inside() -> object:
        return invoke(build_manus_graph(), {"messages": []})

    with pytest.raises(RuntimeError, match="await the coroutine instead"):
        await asyncio.to_thread(run_loop.call, inside)


STOPPED = """
from langchain_core.runnables import RunnableLambda
from langgraph.graph import StateGraph
import asyncio, sys
from openmanus_graph import invoke

async def node(state):
    print("runs", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("cancelled", flush=True)

graph = StateGraph(dict).add_node("node", node).set_entry_point("node").compile()
try:
    invoke(graph, {"a": 1})
except KeyboardInterrupt:
    print("ended", flush=True)
"""


def test_ctrl_c_cancels_the_run() -> None:
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=BACKSTOP_S)[0].splitlines() == ["cancelled", "ended"]
