"""How a plan is made: the model sees the workspace, may look at files, and then has to plan."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_data_analysis_graph, build_manus_graph
from openmanus_graph.backends.models.prices import estimate_request_tokens
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.planning.drafting import MAX_DRAFTS, MAX_LOOK_CALLS, MAX_LOOKS
from openmanus_graph.prompts import render
from tests.support.graphs import Ran, calls, own_text, run_graph, scripted
from tests.support.planning import PlanBrain, Reply, plan_call, use

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
LOOK = use("read_file", path="sales.csv")
LOOK_AGAIN = calls(("read_file", {"path": "sales.csv"}), prefix="again")
TWO: list[Any] = [{"id": "a", "text": "x", "depends_on": []},
                  {"id": "b", "text": "y", "depends_on": []}]  # fmt: skip


@pytest.fixture(autouse=True)
async def sales() -> None:
    work = Path("work")
    await asyncio.to_thread(work.mkdir, exist_ok=True)
    await asyncio.to_thread((work / "sales.csv").write_text, "month,net\n2024-01,3\n2024-02,4\n")


def flow(**compiling: Any) -> Any:
    return build_planning_graph(executors={"manus": build_manus_graph()}, **compiling)


async def run(brain: PlanBrain, graph: Any = None, task: Any = "the task", **context: Any) -> Ran:
    graph = graph or flow()
    config = CONFIG if graph.checkpointer else None
    return await run_graph(graph, model=brain.model(), task=task, config=config, **context)


def said(request: list[Any]) -> str:
    return "\n".join(message.text for message in request[1:])


async def test_the_model_sees_the_workspace_marked_as_text_from_outside() -> None:
    brain = PlanBrain(["no plan", plan_call("one")])
    await run(brain)
    first, second = brain.requests("plan")
    system, task, shown = first
    assert isinstance(system, SystemMessage)
    assert "<untrusted-" in system.text
    assert own_text(task) == "the task"
    assert "columns: month, net" in shown.text.partition("<untrusted-")[2]
    assert second[:3] == first, "what a provider has in its cache stays as it was"


async def test_an_empty_workspace_costs_nothing() -> None:
    await asyncio.to_thread((Path("work") / "sales.csv").unlink)
    brain = PlanBrain([plan_call("one")])
    await run(brain)
    assert [message.type for message in brain.requests("plan")[0]] == ["system", "human"]


async def test_the_model_may_look_before_it_plans_and_that_is_on_the_bill() -> None:
    brain = PlanBrain([LOOK, plan_call("one")])
    ran = await run(brain)
    looked = brain.requests("plan")[1]
    assert [message.type for message in looked][-2:] == ["ai", "tool"]
    assert "2024-02,4" in looked[-1].text
    assert ran.kinds().count("tool_start") == 1
    assert ran.nodes[:3] == ["create_plan"] * 3
    assert ran.values["usage"]["model_calls"] == ran.values["step_count"] == 3
    assert not ran.values["drafts"]


async def test_only_tools_that_change_nothing_are_there_and_bad_calls_are_answered() -> None:
    bad = AIMessage(
        "",
        tool_calls=calls(
            ("read_file", {"path": "nowhere.csv"}), ("read_file", {"file": [3]}),
            ("bash", {"command": "touch made"}), ("str_replace_editor", {"command": "view"}),
        ).tool_calls,
        invalid_tool_calls=[
            invalid_tool_call(name="read_file", args="{", id="broken", error="no JSON")
        ],
    )  # fmt: skip
    brain = PlanBrain([bad, plan_call("one")])
    ran = await run(brain)
    answers = {m.tool_call_id: m for m in brain.requests("plan")[1] if isinstance(m, ToolMessage)}
    assert {answer.status for answer in answers.values()} == {"error"}
    assert "does not exist" in answers["c1"].text
    assert "read_file was not run. path: " in answers["c2"].text
    assert "there is no tool 'bash' here" in answers["c3"].text
    assert "there is no tool 'str_replace_editor' here" in answers["c4"].text
    assert "are not a JSON object" in answers["broken"].text
    assert set(ran.model.tool_names(0)) == {"planning", "read_file"}
    assert not await asyncio.to_thread(Path("work/made").exists)


@pytest.mark.parametrize("more", [[LOOK], ["I would rather look."], ["", LOOK, "words"]])
async def test_a_model_that_only_looks_has_the_task_done_in_one_step(more: list[Reply]) -> None:
    replies = [*[LOOK] * MAX_LOOKS, *(more * MAX_DRAFTS)[:MAX_DRAFTS]]
    brain = PlanBrain([*replies])
    ran = await run(brain)
    assert len(brain.requests("plan")) == MAX_LOOKS + MAX_DRAFTS
    assert ran.kinds().count("tool_start") == MAX_LOOKS, "no further look is run"
    assert "often enough" in said(brain.requests("plan")[MAX_LOOKS])
    assert "often enough" not in said(brain.requests("plan")[MAX_LOOKS - 1])
    assert ran.values["answer"] == "result of 0"


async def test_looks_and_bad_plans_are_counted_apart() -> None:
    nonsense = plan_call({"text": "x", "depends_on": ["0"]})
    brain = PlanBrain([LOOK, nonsense, LOOK_AGAIN, "words", LOOK, plan_call("good")])
    ran = await run(brain)
    assert ran.values["answer"] == "result of 0"
    assert [step["text"] for step in ran.values["steps"].values()] == ["good"]


async def test_one_reply_looks_at_no_more_than_fits_into_a_request() -> None:
    many = calls(*[("read_file", {"path": "sales.csv"})] * (MAX_LOOK_CALLS + 3))
    brain = PlanBrain([many, plan_call("one")])
    ran = await run(brain)
    assert ran.kinds().count("tool_start") == MAX_LOOK_CALLS
    answers = [m for m in brain.requests("plan")[1] if m.type == "tool"]
    assert len(answers) == MAX_LOOK_CALLS + 3
    assert sum("looked at files often enough" in answer.text for answer in answers) == 3


async def test_a_plan_beside_a_look_is_taken() -> None:
    both = AIMessage("", tool_calls=[*LOOK.tool_calls, *plan_call("one").tool_calls])
    ran = await run(PlanBrain([both]))
    assert ran.values["answer"] == "result of 0"


async def test_a_person_who_chose_the_tools_left_out_looking() -> None:
    brain = PlanBrain([LOOK, plan_call("one")])
    ran = await run(brain, tools=("bash",))
    assert ran.model.tool_names(0) == ["planning"]
    assert "there is no tool 'read_file' here" in brain.requests("plan")[1][-1].text


async def test_a_person_who_only_added_a_tool_did_not() -> None:
    ran = await run(PlanBrain([plan_call("one")]), tools=("+read_untrusted",))
    assert set(ran.model.tool_names(0)) == {"planning", "read_file"}


async def test_the_policy_holds_for_looking_and_the_model_is_not_asked_again() -> None:
    graph, brain = flow(checkpointer=InMemorySaver()), PlanBrain([LOOK, plan_call("one")])
    rule = {"tool": "read_file", "decision": "ask"}
    await run(brain, graph, policy_rules=(rule,))
    (waiting,) = (await graph.aget_state(CONFIG)).interrupts
    assert waiting.value["calls"][0]["tool"] == "read_file"
    ran = await run(brain, graph, Command(resume="approve"), policy_rules=(rule,))
    assert "2024-02,4" in brain.requests("plan")[1][-1].text
    assert ran.values["answer"] == "result of 0"
    denied = PlanBrain([LOOK, plan_call("one")])
    await run(denied, policy_rules=({"tool": "read_file", "decision": "deny"},))
    assert "was not run" in denied.requests("plan")[1][-1].text


async def test_a_crash_repeats_no_more_than_the_turn_under_way() -> None:
    graph = flow(checkpointer=InMemorySaver())
    brain = PlanBrain([LOOK, RuntimeError("the process ends"), plan_call("one")])
    with pytest.raises(RuntimeError, match="the process ends"):
        await run(brain, graph)
    assert len((await graph.aget_state(CONFIG)).values["drafts"]) == 3  # workspace, look, result
    ran = await run(brain, graph, task=None)
    assert len(brain.requests("plan")) == 3
    assert ran.kinds().count("tool_start") == 0
    assert ran.values["usage"]["model_calls"] == 3
    assert ran.values["answer"] == "result of 0"


async def test_a_limit_in_the_middle_keeps_what_was_said() -> None:
    graph, brain = flow(checkpointer=InMemorySaver()), PlanBrain([LOOK, plan_call("one")])
    stopped = await run(brain, graph, max_steps=1)
    assert stopped.values["stop_reason"] == "max_steps"
    ran = await run(brain, graph, Command(goto="schedule"), max_steps=10)
    assert ran.values["answer"] == "result of 0"
    assert len(brain.requests("plan")) == 2


async def test_a_part_is_planned_anew_by_the_same_turns() -> None:
    fails = [use("terminate", status="failure")] * 2
    brain = PlanBrain(
        [plan_call(*TWO), LOOK, "", plan_call({"id": "c", "text": "z"})], {"a": list(fails)}
    )
    graph = flow(checkpointer=InMemorySaver())
    ran = await run(brain, graph)
    _, asked, looked, again = brain.requests("plan")
    assert "columns: month, net" in asked[-2].text
    assert "Step a failed:" in asked[-1].text
    assert "2024-02,4" in looked[-1].text
    assert "no call of planning" in again[-1].text
    assert set(ran.values["steps"]) == {"b", "c"}
    assert ran.values["usage"]["model_calls"] == len(brain.asked)


async def test_who_plans_anew_sees_files_as_they_are_now() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "tool":
            return use("terminate", status="failure")
        return use("bash", command="echo 2024-03,5 >> sales.csv") if step == "a" else "done"

    brain = PlanBrain([LOOK, plan_call(*TWO), LOOK, "There is no other way."], work)
    await run(brain, flow(checkpointer=InMemorySaver()))
    before, after = (brain.requests("plan")[n][-1].text for n in (1, 3))
    assert ("2024-03,5" in before, "2024-03,5" in after) == (False, True)


async def test_a_person_may_be_asked_while_a_part_is_planned_anew() -> None:
    fails = [use("terminate", status="failure")] * 2
    brain = PlanBrain([plan_call(*TWO), LOOK, "There is no other way."], {"a": list(fails)})
    graph, rule = flow(checkpointer=InMemorySaver()), {"tool": "read_file", "decision": "ask"}
    await run(brain, graph, policy_rules=(rule,))
    (waiting,) = (await graph.aget_state(CONFIG)).interrupts
    assert waiting.value["calls"][0]["tool"] == "read_file"
    ran = await run(brain, graph, Command(resume="approve"), policy_rules=(rule,))
    assert "2024-02,4" in brain.requests("plan")[2][-1].text
    assert ran.values["steps"]["a"]["status"] == "blocked"


async def test_our_own_plan_file_is_not_shown_and_the_persons_is() -> None:
    work = Path("work")
    await asyncio.to_thread((work / "sales.csv").unlink)
    graph = flow(checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("one"), plan_call("two"), plan_call("three")])
    await run(brain, graph)
    await run(brain, graph, {"messages": [HumanMessage("more")]})
    assert (work / "plan.md").is_file()  # a test
    assert "plan.md" not in said(brain.requests("plan")[1])
    await asyncio.to_thread((work / "plan.md").write_text, "mine")
    await run(brain, graph, {"messages": [HumanMessage("more still")]})
    assert "plan.md  4 bytes\n    mine" in said(brain.requests("plan")[2])


async def test_a_crash_while_a_part_is_planned_anew_loses_one_turn() -> None:
    fails = [use("terminate", status="failure")] * 2
    brain = PlanBrain(
        [plan_call(*TWO), LOOK, RuntimeError("the process ends"), "There is no other way."],
        {"a": list(fails)},
    )
    graph = flow(checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError, match="the process ends"):
        await run(brain, graph)
    ran = await run(brain, graph, task=None)
    assert len(brain.requests("plan")) == 4
    assert ran.kinds().count("tool_start") == 0
    assert ran.values["steps"]["a"]["status"] == "blocked"


def origins(brain: PlanBrain, step: str) -> list[bool]:
    """Return whether the run of a step was told that something may have been read."""
    asked = [m for request in brain.requests(step) for m in request if m.type == "human"]
    return [m.additional_kwargs["openmanus_origin"]["tainted"] for m in asked]


@pytest.mark.parametrize("files", [True, False])
async def test_what_a_file_may_have_had_the_planner_write_verifies_no_address(files: bool) -> None:
    if not files:
        await asyncio.to_thread((Path("work") / "sales.csv").unlink)
    graph, brain = flow(checkpointer=InMemorySaver()), PlanBrain([plan_call(*TWO)])
    ran = await run(brain, graph)
    assert ran.values["planned_from_files"] is files
    assert origins(brain, "a") == [files]


async def test_what_failed_may_have_had_the_planner_write_an_address() -> None:
    await asyncio.to_thread((Path("work") / "sales.csv").unlink)
    brain = PlanBrain(
        [plan_call("x"), plan_call({"id": "again", "text": "open it"})],
        {"0": [use("terminate", status="failure")] * 2},
    )
    await run(brain)
    assert origins(brain, "0") == [False, True]
    assert origins(brain, "again") == [True]


def tokens(requests: list[list[Any]], options: list[dict[str, Any]]) -> int:
    return sum(
        estimate_request_tokens(request[1:], request[0].text, "", chosen["tools"])
        for request, chosen in zip(requests, options, strict=True)
    )


@pytest.mark.parametrize("done_when", ["", "file: out.txt", "command: test -s out.txt"])
async def test_a_plan_of_one_step_costs_its_planning_and_no_more_than_a_plain_run(
    done_when: str,
) -> None:
    def work(messages: list[Any]) -> Any:
        done = sum(message.type == "tool" for message in messages)
        return use("bash", command="echo 7 > out.txt") if done < 3 else "It is 7, in out.txt."

    task = "Add up the net of sales.csv and write it to out.txt."
    plain = await run_graph(build_manus_graph(), model=scripted(*[work] * 9), task=task)
    step = {"text": "Use the column net.", "done_when": done_when}
    brain = PlanBrain([plan_call(step)], lambda _, messages: work(messages))
    ran = await run(brain, task=task)
    assert ran.values["answer"] == plain.values["answer"] == "It is 7, in out.txt."
    usual = plain.model.requests
    assert len(ran.model.requests) == len(usual) + 1
    spent = tokens(ran.model.requests[1:], ran.model.options[1:])
    assert spent <= 1.15 * tokens(usual, plain.model.options)
    assert render("ending") in ran.model.requests[1][0].text


async def test_steps_have_a_prompt_without_the_agents_usual_ending() -> None:
    graph = build_planning_graph(executors={"data_analysis": build_data_analysis_graph()})
    brain = PlanBrain([plan_call(*TWO), plan_call("one")])
    for _ in range(2):
        await run(brain, graph)
    (step,), (only,) = brain.requests("a"), brain.requests("0")
    assert "It says what to hand over" in step[0].text
    assert "report.md" not in said(step) + step[0].text
    assert "report.md" in only[0].text


async def test_the_answer_of_one_step_is_whole() -> None:
    long = "It is done: " + "x" * 20_000
    ran = await run(PlanBrain([plan_call("one")], {"0": [long]}))
    assert ran.values["answer"] == ran.messages[-1].text == long


async def test_a_step_that_could_not_be_done_is_summed_up() -> None:
    brain = PlanBrain(
        [plan_call("one"), "No way."], {"0": [use("terminate", status="failure")] * 2}
    )
    ran = await run(brain)
    assert (ran.values["status"], ran.values["answer"]) == ("failed", "the summary")


async def test_of_earlier_runs_the_planner_knows_the_conversation() -> None:
    graph = flow(checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("one"), plan_call("two")])
    await run(brain, graph)
    await run(brain, graph, {"messages": [HumanMessage("more")]})
    assert [own_text(m) for m in brain.requests("plan")[1]][1:4] == [
        "the task",
        "result of 0",
        "more",
    ]
