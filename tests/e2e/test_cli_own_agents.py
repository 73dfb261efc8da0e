"""Agents and flows that a package brings by entry points."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

CODE = '''
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from openmanus_graph import build_planning_graph


async def advise(state: MessagesState):
    if "vinegar" in state["messages"][-1].text:
        raise KeyError("corks")
    return {"messages": [AIMessage("Take the red one.")]}


def sommelier(*, checkpointer=None):
    """Knows wine."""
    builder = StateGraph(MessagesState)
    builder.add_node("advise", advise)
    builder.add_edge(START, "advise")
    builder.add_edge("advise", END)
    return builder.compile(checkpointer=checkpointer)


def crew(*, checkpointer=None):
    """Plans a tasting."""
    return build_planning_graph(executors={"som": sommelier()}, checkpointer=checkpointer)


def broken(**arguments):
    raise RuntimeError("half installed")


def nonsense(**arguments):
    return "no graph"
'''


ALONE = "sommelier-2"
BROKEN = {
    ALONE: "KeyError: 'corks'",
    "broken-2": "RuntimeError: half installed",
    "nonsense-2": "is not a compiled graph",
    "gone-2": "cannot be loaded",
}


def bring(cli: Cli, module: str, code: str, points: Sequence[str]) -> None:
    """Install a package with one module, which brings agents by entry points."""
    place = cli.root / "packages"
    info = place / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (place / f"{module}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[openmanus_graph.agents]", *points]))
    cli.env["PYTHONPATH"] = str(place)


def bring_agents(cli: Cli) -> None:
    names = ("sommelier", "crew", "broken", "nonsense")
    points = [f"{name}-2 = wine:{name}" for name in names]
    bring(cli, "wine", CODE, [*points, "gone-2 = wine:gone"])


def answer(body: dict[str, Any]) -> Reply:
    messages = body["messages"]
    system, asked = str(messages[0]["content"]), str(messages[-1]["content"])
    if system.startswith("You write the final"):
        return Reply(f"In the end: {asked.count('Take the red one.')} red.")
    inner = "Your step (0)" in asked or "plan tastings" in asked
    steps = ["taste"] if inner else ["[CREW-2] plan tastings", "[SOMMELIER-2] choose"]
    plan = {"command": "create", "title": "Wine", "steps": steps}
    return Reply(calls=(Call("planning", plan),))


def test_they_are_agents_executors_and_graphs_of_a_server(cli: Cli, model: OpenAIServer) -> None:
    bring_agents(cli)
    model.add(*[answer] * 20)
    alone = cli.run("run", "which?", "--agent", ALONE)
    assert (alone.code, alone.stdout) == (0, "Take the red one.\n")
    for agent, words in BROKEN.items():
        failed = cli.run("run", "vinegar?", "--agent", agent)
        assert words in failed.stderr
        assert (failed.code, "Traceback" in failed.stderr) == (1 if agent == ALONE else 2, False)
    done = cli.run("plan", "wine", "--json")
    assert (done.code, done.final["status"]) == (0, "finished")
    assert [e["executor"] for e in done.of("step_start")] == ["crew-2", "sommelier-2"]
    roster = str(model.requests[0].messages[0]["content"])
    assert "- sommelier-2: Knows wine.\n- crew-2: Plans a tasting." in roster
    assert "broken" not in roster
    flow = cli.run("run", "plan tastings", "--agent", "crew-2", "--thread", "c")
    assert (flow.code, flow.stdout) == (0, "Take the red one.\n")
    unknown = cli.run("run", "x", "--agent", "waiter")
    assert unknown.code == 2
    assert "crew-2" in unknown.stderr
    code = (
        "from openmanus_graph.graphs import registered as r;"
        "print(sorted(n for n in vars(r) if n.endswith('-2')))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env=cli.env, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "['crew-2', 'sommelier-2']"


ENDLESS = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph


def build(*, checkpointer=None):
    builder = StateGraph(MessagesState)
    builder.add_node("again", lambda state: {"messages": [AIMessage("Again.")]})
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    return builder.compile(checkpointer=checkpointer).with_config(recursion_limit=4)
"""


def test_a_graph_without_an_end_is_stopped_by_its_own_recursion_limit(cli: Cli) -> None:
    bring(cli, "endless", ENDLESS, ["endless = endless:build"])
    done = cli.run("run", "go", "--agent", "endless", "--thread", "t", "--json")
    assert (done.code, done.final["status"], done.final["stop_reason"]) == (
        3,
        "stopped",
        "max_steps",
    )
    assert "endless reached its recursion limit" in done.final["answer"]
    assert done.kinds[-2:] == ["limit", "final"]
    assert done.stderr == ""
    assert cli.run("resume", "t").code == 3
    rows = [json.loads(line) for line in cli.run("threads", "--json").stdout.splitlines()]
    assert [(row["id"], row["status"]) for row in rows] == [("t", "stopped")]
