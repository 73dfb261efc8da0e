"""The kernels of a plan's steps: a chain goes on in one, steps side by side have their own."""

from typing import Any

import psutil

from openmanus_graph.graphs.planning import build_planning_graph
from tests.support.graphs import Ran, run_graph
from tests.support.planning import PlanBrain, plan_call, use
from tests.support.processes import line_of

REMEMBER = "import os\nmine = os.getpid(), {step!r}\nmine"
RECALL = "mine"


def working(cells: dict[str, list[str]]) -> Any:
    """Run the cells of each step, and answer with the last result."""

    def work(step: str, messages: list[Any]) -> Any:
        count = sum(message.type == "tool" for message in messages)
        if count < len(cells[step]):
            return use("python_execute", code=cells[step][count].format(step=step))
        return messages[-1].text.strip()

    return work


async def results(steps: list[Any], cells: dict[str, list[str]]) -> dict[str, str]:
    brain = PlanBrain([plan_call(*steps)], working(cells))
    ran: Ran = await run_graph(build_planning_graph(), model=brain.model())
    assert ran.values["status"] == "finished"
    return {name: one["result"] for name, one in ran.values["steps"].items()}


async def test_steps_of_a_group_go_on_in_one_kernel() -> None:
    steps = [{"id": name, "text": name, "depends_on": needs} for name, needs in
             (("a", []), ("b", ["a"]), ("c", ["b"]))]  # fmt: skip
    found = await results(steps, {"a": [REMEMBER], "b": [RECALL], "c": [RECALL]})
    assert found["a"] == found["b"] == found["c"]


async def test_steps_side_by_side_have_kernels_of_their_own() -> None:
    steps: list[Any] = [{"id": name, "text": name, "depends_on": []} for name in "abcd"]
    found = await results(steps, dict.fromkeys("abcd", [REMEMBER, RECALL]))
    for name, one in found.items():
        assert one.endswith(f"{name!r})")


async def test_a_step_that_runs_no_python_starts_no_kernel() -> None:
    before = psutil.Process().children(recursive=True)  # of sessions that other tests left open
    began: list[str] = []

    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "human":
            return use("bash", command="echo done")
        now = psutil.Process().children(recursive=True)
        began.extend(line_of(process) for process in now if process not in before)
        return "done"

    await run_graph(build_planning_graph(), model=PlanBrain([plan_call("one")], work).model())
    assert began
    assert not [line for line in began if "kernel_program" in line or "fork_server" in line]
