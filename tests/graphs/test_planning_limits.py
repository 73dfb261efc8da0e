"""Limits of a whole plan: what they bound, and how a step that one ended goes on."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from openmanus_graph import build_manus_graph
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import Ran, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.planning import PlanBrain, plan_call, use

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
AGAIN: Command[Any] = Command(goto="schedule")
TRIES = 2
"""Of the planner: on a busy machine a limit of time may meet it, and it is asked again."""


def flow(**executors: Any) -> Any:
    return build_planning_graph(
        executors=executors or {"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )


async def run(graph: Any, brain: PlanBrain, task: Any = "the task", **context: Any) -> Ran:
    model = brain.model(usage=(1000, 100))
    return await run_graph(graph, model=model, task=task, config=CONFIG, **context)


def three_calls(step: str, messages: list[Any]) -> Any:
    """Do three different calls that each leave a line, then answer."""
    done = sum(message.type == "tool" for message in messages)
    if done == 3:
        return f"result of {step}"
    return use("bash", command=f"echo {step}.{done} >> log")


async def lines() -> list[str]:
    return sorted((await asyncio.to_thread(Path("work/log").read_text)).split())


LIMITS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("budget", {"max_total_tokens": 5000}, {"max_total_tokens": 100_000}, "max_total_tokens"),
    ("max_steps", {"max_steps": 4}, {"max_steps": 30}, "limit of 4 model calls"),
]


@pytest.mark.parametrize(("reason", "low", "high", "said"), LIMITS)
@pytest.mark.parametrize("steps", [["one"], [{"text": "one", "depends_on": []},
                                             {"text": "two", "depends_on": []}]])  # fmt: skip
async def test_a_step_that_a_limit_ended_goes_on_with_its_own_conversation(
    reason: str, low: dict[str, Any], high: dict[str, Any], said: str, steps: list[Any]
) -> None:
    graph, brain = flow(), PlanBrain([plan_call(*steps)], three_calls)
    stopped = await run(graph, brain, **low)
    assert (stopped.values["status"], stopped.values["stop_reason"]) == ("stopped", reason)
    assert said in stopped.values["answer"]
    asked = len(brain.requests("0"))
    assert asked
    ran = await run(graph, brain, AGAIN, **high)
    assert ran.values["status"] == "finished"
    assert await lines() == [f"{step}.{n}" for step in range(len(steps)) for n in range(3)]
    first = brain.requests("0")[asked]
    assert sum(message.type == "tool" for message in first) == asked
    assert not [m for _, request in brain.asked for m in request if "another way" in m.text]
    assert ran.values["usage"]["model_calls"] == len(brain.asked)
    assert ran.values["step_count"] == len(brain.asked) - len(brain.requests("summary"))


async def test_a_step_may_be_halted_many_times() -> None:
    graph, brain = flow(), PlanBrain([plan_call("one")], three_calls)
    ran = await run(graph, brain, max_steps=2)
    for limit in range(3, 6):
        assert ran.values["stop_reason"] == "max_steps"
        ran = await run(graph, brain, AGAIN, max_steps=limit)
    assert ran.values["status"] == "finished"
    assert await lines() == ["0.0", "0.1", "0.2"]
    assert len(brain.asked) == 5


async def test_the_time_of_the_whole_run_is_a_limit_and_no_failure_of_the_step() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        done = sum(message.type == "tool" for message in messages)
        wait = "until [ -e go ]; do sleep 0.02; done" if done else "true"
        return use("bash", command=f"echo {done} >> log; {wait}") if done < 2 else "done"

    graph, brain = flow(), PlanBrain([plan_call("one")] * TRIES, work)
    stopped = await run(graph, brain, timeout_s=2)
    assert (stopped.values["status"], stopped.values["stop_reason"]) == ("stopped", "timeout")
    assert "limit of 2 seconds" in stopped.values["answer"]
    await asyncio.to_thread(Path("work/go").touch)
    ran = await run(graph, brain, AGAIN, timeout_s=BACKSTOP_S)
    assert ran.values["status"] == "finished"
    assert (await lines()).count("1") == 1  # the first may be what the limit met


async def test_somebody_elses_graph_goes_on_with_its_messages_after_the_time_limit() -> None:
    release = asyncio.Event()

    async def first(state: MessagesState) -> dict[str, Any]:
        return {} if len(state["messages"]) > 1 else {"messages": [AIMessage("half")]}

    async def second(state: MessagesState) -> dict[str, Any]:
        await release.wait()
        return {"messages": [AIMessage(f"whole after {len(state['messages'])}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    graph, brain = flow(other=builder.compile()), PlanBrain([plan_call("one")] * TRIES)
    stopped = await run(graph, brain, timeout_s=0.5)
    assert stopped.values["stop_reason"] == "timeout"
    release.set()
    ran = await run(graph, brain, AGAIN, timeout_s=BACKSTOP_S)
    assert ran.values["status"] == "finished"
    assert ran.values["answer"] == "whole after 2"


async def test_a_limit_that_nobody_set_is_the_steps_own_and_it_fails_by_it() -> None:
    def endless(step: str, messages: list[Any]) -> Any:
        return use("bash", command=f"echo {len(messages)} >> log")

    brain = PlanBrain([plan_call({"id": "long", "text": "x"}), "No other way."], endless)
    ran = await run(flow(), brain, max_cost_usd=100)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "terminate")
    assert len(brain.requests("long")) == 200
    assert "after 100 model calls" in brain.requests("summary")[0][-1].text
    assert "stop_reason" not in brain.requests("summary")[0][-1].text


async def test_steps_side_by_side_stay_within_a_budget() -> None:
    def slow(step: str, messages: list[Any]) -> Any:
        return use("bash", command=f"echo {step} {len(messages)} >> log")

    steps: list[Any] = [{"text": str(n), "depends_on": []} for n in range(4)]
    brain = PlanBrain([plan_call(*steps)], slow)
    model = brain.model(latency_s=0.05, usage=(1000, 100))
    ran = await run_graph(
        flow(), model=model, config=CONFIG, max_total_tokens=20_000, max_cost_usd=100
    )
    used = ran.values["usage"]["input_tokens"] + ran.values["usage"]["output_tokens"]
    assert ran.values["stop_reason"] == "budget"
    assert 18_000 <= used <= 20_000


async def test_steps_side_by_side_never_take_more_steps_than_there_are() -> None:
    steps: list[Any] = [{"text": str(n), "depends_on": []} for n in range(4)]
    brain = PlanBrain([plan_call(*steps)], three_calls)
    ran = await run_graph(flow(), model=brain.model(latency_s=0.02), config=CONFIG, max_steps=8)
    assert ran.values["stop_reason"] == "max_steps"
    assert len(brain.asked) == ran.values["step_count"] == 8


async def test_what_a_step_beside_had_spent_counts_after_a_question() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if step == "1" or len(messages) > 3:
            return three_calls(step, messages)
        return use("ask_human", inquire="which?")

    steps: list[Any] = [{"text": "asks", "depends_on": []}, {"text": "works", "depends_on": []}]
    graph, brain = flow(), PlanBrain([plan_call(*steps)], work)
    await run(graph, brain, max_steps=7)  # plan, one of `asks`, four of `works`
    ran = await run(graph, brain, Command(resume="red"), max_steps=7)
    assert ran.values["stop_reason"] == "max_steps"
    assert len(brain.asked) == 7


async def test_a_new_message_after_a_limit_begins_anew() -> None:
    graph, brain = flow(), PlanBrain([plan_call("one"), plan_call("two")], three_calls)
    await run(graph, brain, max_steps=3)
    given = {"messages": [HumanMessage("another task")]}
    ran = await run(graph, brain, given, max_steps=6)
    assert ran.values["status"] == "finished"
    assert ran.values["step_count"] == 5
    assert (await lines()).count("0.0") == 2


async def test_what_broke_beside_a_halted_step_is_mended_when_the_run_goes_on() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        return use("terminate", status="failure") if step == "bad" else three_calls(step, messages)

    steps: list[Any] = [{"id": "long", "text": "x", "depends_on": []},
                        {"id": "bad", "text": "y", "depends_on": []},
                        {"id": "end", "text": "z", "depends_on": ["long", "bad"]}]  # fmt: skip
    again: list[Any] = [{"id": "good", "text": "y", "depends_on": []},
                        {"id": "end2", "text": "z", "depends_on": ["long", "good"]}]  # fmt: skip
    graph, brain = flow(), PlanBrain([plan_call(*steps), plan_call(*again)], work)
    ran = await run(graph, brain, max_steps=3)
    for limit in range(4, 20):
        if ran.values["status"] == "finished":
            break
        ran = await run(graph, brain, AGAIN, max_steps=limit)
    assert ran.values["status"] == "finished"
    assert await lines() == [f"{step}.{n}" for step in ("end2", "good", "long") for n in range(3)]
    assert len(brain.requests("plan")) == 2


async def test_fewer_steps_at_once_may_go_on_than_were_halted() -> None:
    steps: list[Any] = [{"text": str(n), "depends_on": []} for n in range(3)]
    graph, brain = flow(), PlanBrain([plan_call(*steps)], three_calls)
    stopped = await run(graph, brain, max_steps=6)
    assert stopped.values["stop_reason"] == "max_steps"
    ran = await run(graph, brain, AGAIN, max_steps=40, max_parallel_steps=1)
    assert ran.values["status"] == "finished"
    assert await lines() == [f"{step}.{n}" for step in range(3) for n in range(3)]
    assert len(brain.asked) == 14, "nobody was asked twice"


async def test_a_limit_before_the_judge_of_a_check_leaves_it_to_the_next_run() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if any(message.type == "tool" for message in messages):
            return "The check is wrong."
        return use("bash", command="echo x >> log")

    wrong, right = "command: grep -q y log", "command: grep -q x log"
    ruling = use("judgement", check_is_wrong=True, reason="it is x", corrected_check=right)
    graph = flow()
    brain = PlanBrain(
        [plan_call({"id": "s", "text": "x", "done_when": wrong})], work, judgements=[ruling]
    )
    stopped = await run(graph, brain, max_total_tokens=6000)
    assert (stopped.values["status"], stopped.values["stop_reason"]) == ("stopped", "budget")
    assert [len(brain.requests(kind)) for kind in ("s", "judge")] == [4, 0]
    done = await run(graph, brain, AGAIN, max_total_tokens=100_000)
    assert done.values["status"] == "finished"
    assert done.values["steps"]["s"]["done_when"] == right
    assert [len(brain.requests(kind)) for kind in ("s", "judge")] == [4, 1]
    assert await lines() == ["x", "x"]


class Priced(ScriptedChatModel):
    """Calls itself a model whose price is known: $0.0035 a call of 1,100 tokens."""

    model_name: str = "gpt-4o"

    def __init__(self, *answers: Any, **fields: Any) -> None:
        super().__init__(list(answers), **fields)


ENDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("budget", {"max_total_tokens": 8200}, {"max_total_tokens": 100_000}),
    ("budget", {"max_cost_usd": 0.03}, {"max_cost_usd": 1.0}),
    ("max_steps", {"max_steps": 7}, {"max_steps": 60}),
    ("timeout", {"timeout_s": 4}, {"timeout_s": BACKSTOP_S}),
]


@pytest.mark.parametrize(("reason", "low", "high"), ENDS)
async def test_a_limit_in_the_middle_of_three_steps_loses_nothing_and_asks_nobody_again(
    reason: str, low: dict[str, Any], high: dict[str, Any]
) -> None:
    def work(step: str, messages: list[Any]) -> Any:
        reported = [message.text for message in messages if message.type == "tool"]
        # One may have been cut off, and the note that its shell ended stands before the next.
        done = sum(bool(re.search(rf"^{step}\.\d$", text, re.MULTILINE)) for text in reported)
        if step in ("quick", "end") or done == 3:
            return f"result of {step}"
        wait = "until [ -e go ]; do sleep 0.02; done" if reason == "timeout" and done else "true"
        return use("bash", command=f"{wait}; echo {step}.{done} | tee -a log")

    middle: list[dict[str, Any]] = [
        {"id": name, "text": name, "depends_on": ["quick"]} for name in "abc"
    ]
    quick: dict[str, Any] = {"id": "quick", "text": "quick", "depends_on": []}
    end = {"id": "end", "text": "end", "depends_on": [*"abc"]}
    graph, brain = flow(), PlanBrain([plan_call(quick, *middle, end)] * TRIES, work)
    model = Priced(*[brain.answer] * 100, usage=(1000, 100))
    stopped = await run_graph(graph, model=model, config=CONFIG, **low)
    assert (stopped.values["status"], stopped.values["stop_reason"]) == ("stopped", reason)
    await asyncio.to_thread(Path("work/go").touch)
    ran = await run_graph(graph, model=model, task=AGAIN, config=CONFIG, **high)
    assert ran.values["status"] == "finished"
    assert await lines() == [f"{name}.{number}" for name in "abc" for number in range(3)]
    if reason != "timeout":  # which takes along the calls that run
        asked = [len(brain.requests(name)) for name in ("plan", "quick", *"abc", "end")]
        assert asked == [1, 1, 4, 4, 4, 1]
    assert ran.values["usage"]["model_calls"] == len(brain.asked)
