"""Replays of threads that a person, a server, a limit or a crash had a hand in.

Each is replayed exactly, or refused in a sentence.
"""

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.checkpoints import fork, open_checkpointer, points_of
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.steering import tell
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.service.replay import (
    Replayed,
    record_of,
    replay_bundle,
    replay_thread,
)
from openmanus_graph.nodes import think
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session_registry import close_session
from openmanus_graph.state.context import PolicyRule
from openmanus_graph.state.manus import ManusState
from openmanus_graph.testing import ScriptedChatModel
from tests.graphs.test_compaction import answering, asks_for_summary, note
from tests.support.graphs import Ran, calls, run_graph, scripted
from tests.support.mcp_servers import raw
from tests.support.planning import PlanBrain, plan_call, use

pytestmark = pytest.mark.slow

made: list[int] = []
"""What the tool has done."""


@manus_tool(effect="workspace")
def put(number: int) -> str:
    """Put a number down."""
    made.append(number)
    return f"put {number} down as number {len(made)}"


def build(**arguments: Any) -> Any:
    return build_manus_graph(tools=[put, note], **arguments)


def build_all(**arguments: Any) -> Any:
    return build_manus_graph(extra_tools=[put], **arguments)


@pytest.fixture(autouse=True)
def _agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_registered", {"putting": build, "all": build_all})
    made.clear()


def config_of(thread: str, **more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, **more}}


async def run(
    *tasks: Any, model: ScriptedChatModel, thread: str = "t", agent: str = "putting", **context: Any
) -> Ran:
    """Give tasks, answers or restarts to a thread, one after another."""
    async with open_checkpointer(database_url()) as saver:
        graph = catalog.build_agent(agent, checkpointer=saver)
        ran = [
            await run_graph(graph, model=model, task=task, config=config_of(thread), **context)
            for task in tasks
        ]
    Threads(open_database(database_url())).begin(thread, agent, "the task", {}, None)
    close_session(thread)
    return ran[-1]


async def replayed(thread: str = "t", *, elsewhere: bool = False, **context: Any) -> Replayed:
    """Replay a thread, with models that have nothing to say."""
    made.clear()
    found = Threads(open_database(database_url())).find(thread)
    assert isinstance(found, Thread)
    if elsewhere:
        result = await replay_bundle(await record_of(found), Context(**context))
    else:
        given: dict[str, Any] = {"model": scripted(), "workspace": "work", **context}
        result = await replay_thread(found, Context(**given))
    assert made == [], "no call is run again"
    return result


def assert_equal(result: Replayed) -> None:
    assert (result.first_difference(), result.is_equal) == ("", True)


def putting(number: int) -> AIMessage:
    return calls(("put", {"number": number}), prefix=f"c{number}-")


async def fork_after(thread: str, what: str, new: str) -> None:
    async with open_checkpointer(database_url()) as saver:
        found = [point for point in await points_of(saver, thread) if what in point.what]
        await fork(saver, thread, found[-1].checkpoint, new)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_forks_are_replayed_from_where_they_began(*, elsewhere: bool) -> None:
    await run("the task", model=scripted(putting(1), putting(2), "done"))
    await fork_after("t", "put gave", "f")
    await run(None, model=scripted(putting(3), "other"), thread="f")
    await fork_after("f", "other", "g")
    await run("next", model=scripted(putting(4), "more"), thread="g")
    async with open_checkpointer(database_url()) as saver:
        await saver.adelete_thread("f")
    for thread, count, answers in (("t", 3, ["done"]), ("g", 2, ["more"])):
        result = await replayed(thread, elsewhere=elsewhere)
        assert_equal(result)
        assert (result.model_calls, result.answers) == (count, answers)


async def test_a_fork_of_nothing_but_the_task_is_replayed() -> None:
    await run("the task", model=scripted(putting(1), "done"))
    await fork_after("t", "you: the task", "f")
    await run(None, model=scripted(putting(3), "other"), thread="f")
    assert_equal(await replayed("f"))


async def test_a_copied_thread_is_replayed_from_its_copy_on() -> None:
    await run("the task", model=scripted("done"))
    async with open_checkpointer(database_url()) as saver:
        await saver.acopy_thread("t", "f")
    await run("next", model=scripted("other"), thread="f")
    assert_equal(await replayed("f"))


@pytest.mark.parametrize("task", ["another task", None])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_thread_that_went_back_is_replayed_from_there(
    task: str | None, *, elsewhere: bool
) -> None:
    await run("the task", model=scripted(putting(1), putting(2), "done"))
    async with open_checkpointer(database_url()) as saver:
        graph = build(checkpointer=saver)
        point = next(one for one in await points_of(saver, "t") if "put gave" in one.what)
        at = config_of("t", checkpoint_id=point.checkpoint)
        await run_graph(graph, putting(5), "again", task=task, config=at)
        await run_graph(graph, "that, too", task="next", config=config_of("t"))
    close_session("t")
    result = await replayed(elsewhere=elsewhere)
    assert_equal(result)
    assert (result.model_calls, result.answers) == (3, ["again", "that, too"])


async def test_a_question_that_was_answered_again_is_refused() -> None:
    rules = (PolicyRule(tool="put", decision="ask"),)
    await run("the task", model=scripted(putting(1)), policy_rules=rules)
    async with open_checkpointer(database_url()) as saver:
        graph = build(checkpointer=saver)
        asked = await graph.aget_state(config_of("t"))
        for decision, said in (("approve", "one"), ("reject", "asked again"), ("reject", "none")):
            decisions = [{"type": decision, "message": "no"}]
            answer: Command[Any] = Command(resume={"decisions": decisions})
            at = config_of("t", checkpoint_id=asked.config["configurable"]["checkpoint_id"])
            await run_graph(graph, said, task=answer, config=at, policy_rules=rules)
    close_session("t")
    with pytest.raises(ConfigError, match="answered an earlier question again"):
        await replayed()


async def test_a_plan_that_went_back_is_replayed_from_there() -> None:
    second = {"id": "b", "text": "second", "depends_on": ["a"]}
    brain = PlanBrain([plan_call({"id": "a", "text": "first"}, second)])
    await run("the task", model=brain.model(), agent=catalog.FLOW)
    async with open_checkpointer(database_url()) as saver:
        graph = catalog.build_agent(catalog.FLOW, checkpointer=saver)
        found = [one for one in await points_of(saver, "t") if "step a: completed" in one.what]
        at = config_of("t", checkpoint_id=found[0].checkpoint)
        again = brain.model()
        ran = await run_graph(graph, model=again, task=None, config=at)
    assert ran.values["status"] == "finished"
    close_session("t")
    result = await replayed(elsewhere=True)
    assert_equal(result)
    assert 0 < result.model_calls == len(again.requests)


DECISIONS: list[dict[str, Any]] = [
    {"type": "approve"},
    {"type": "edit", "args": {"number": 7}},
    {"type": "respond", "message": "it is seven"},
    {"type": "reject", "message": "no"},
]


async def test_what_was_decided_on_all_calls_of_a_reply_is_replayed() -> None:
    rules = (PolicyRule(tool="put", decision="ask"),)
    asked = calls(*[("put", {"number": number}) for number in range(len(DECISIONS))])
    model = scripted(asked, putting(9), "done")
    async with open_checkpointer(database_url()) as saver:
        graph = build(checkpointer=saver)
        await run_graph(graph, model=model, config=config_of("t"), policy_rules=rules)
        waiting = (await graph.aget_state(config_of("t"))).interrupts
    every = {one.id: decision for one, decision in zip(waiting, DECISIONS, strict=True)}
    edited = {"decisions": [DECISIONS[1]]}
    ran = await run(Command(resume=every), Command(resume=edited), model=model, policy_rules=rules)
    assert (ran.values["answer"], made) == ("done", [0, 7, 7])
    assert_equal(await replayed(policy_rules=rules))


async def test_a_run_that_went_on_after_a_limit_and_a_failure_is_replayed() -> None:
    fails = ModelError("auth", "The key is wrong.")
    model = scripted(putting(1), putting(2), "So far.", putting(3), fails, putting(4), "done")
    await run("the task", model=model, max_steps=2)
    ran = await run(*[Command(goto="think")] * 2, model=model, max_steps=9)
    assert ran.values["answer"] == "done"
    assert_equal(await replayed(max_steps=9))
    other = await replayed(max_steps=8)
    assert [one.position for one in other.differences] == [4, 5, 6, 7], "of the later runs"


async def test_a_run_that_its_time_limit_ended_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 5.0, 30.0, 96.0, 96.0, 96.0])

    def late(state: ManusState) -> Progress:
        return replace(
            Progress(state.get("step_count", 0), state["usage"], 0.0), elapsed_s=next(seconds)
        )

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "of", late)
        model = scripted(putting(1), putting(2), putting(3), "That is done.")
        ran = await run("the task", model=model, timeout_s=100)
    assert (ran.values["stop_reason"], made) == ("timeout", [1, 2, 3])
    assert_equal(await replayed(timeout_s=100))


async def test_a_reply_that_a_crash_took_back_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply_reply, crashes = think.apply_reply, iter([True])

    async def crashing(*args: Any) -> Any:
        if next(crashes, False):
            raise OSError("the machine fails")
        return await apply_reply(*args)

    model = scripted(putting(1), putting(2), "done")
    monkeypatch.setattr(think, "apply_reply", crashing)
    with pytest.raises(OSError, match="the machine fails"):
        await run("the task", model=model)
    await run(None, model=model)
    assert made == [2]
    assert_equal(await replayed())


async def test_what_was_said_while_the_answer_was_written_is_replayed() -> None:
    def saying(messages: list[BaseMessage]) -> str:
        person = threading.Thread(target=lambda: asyncio.run(tell("t", "And two?")))
        person.start()
        person.join()
        return "done"

    await run("the task", model=scripted(putting(1), saying, putting(2), "done, too"))
    assert made == [1, 2]
    assert_equal(await replayed())


async def test_another_model_that_stood_in_is_replayed() -> None:
    gone = ModelError("quota", "It is gone.")
    first = scripted(putting(1), gone, model_name="first")
    second = scripted(putting(2), "done", model_name="second")
    await run("the task", model=first, fallback=(second,))
    models: dict[str, Any] = {
        "model": scripted(model_name="first"),
        "fallback": (scripted(model_name="second"),),
    }
    assert_equal(await replayed(**models))


@pytest.mark.parametrize("reported", [True, False])
async def test_calls_that_were_written_as_text_are_replayed(*, reported: bool) -> None:
    written = f"<tool_call>{json.dumps({'name': 'put', 'arguments': {'number': 1}})}</tool_call>"
    refusal = ModelError("no_tools", "It does not support tools.")
    settings: dict[str, Any] = {"tool_calling": "text"} if reported else {}
    model = scripted(*([] if reported else [refusal]), written, "It is done.")
    await run("the task", model=model, **settings)
    assert made == [1]
    assert_equal(await replayed(**settings))


@pytest.mark.exhaustive
async def test_compacted_conversations_are_replayed() -> None:
    model = scripted(*[answering(60)] * 100)
    model.usage, model.profile = None, {"max_input_tokens": 4000}
    await run("the task", "the second task", model=model, max_steps=200)
    assert any(map(asks_for_summary, model.requests))
    assert_equal(await replayed(max_steps=200))


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_tools_of_servers_are_offered_again_and_no_server_is_started(
    *, elsewhere: bool
) -> None:
    wrong, right = ("mcp_raw_picky", {"a": "no number"}), ("mcp_raw_picky", {"a": 1})
    model = scripted(
        calls(wrong, right, ("mcp_raw_fail", {})), calls(("mcp_raw_add", {}), prefix="d"), "done"
    )
    server = raw()
    ran = await run("the task", model=model, agent="mcp", mcp_servers=(server,), policy="auto")
    assert "'no number'" in ran.results()[0]
    result = await replayed(elsewhere=elsewhere, policy="auto")
    assert_equal(result)
    assert [call.split()[0] for call in result.tool_calls] == ["mcp_raw_picky", "mcp_raw_fail"]


async def test_a_subagents_question_and_its_answer_are_replayed() -> None:
    added: dict[str, Any] = {"tools": ("+delegate",)}
    model = scripted(
        calls(("delegate", {"agent": "manus", "task": "Say it."})),
        calls(("ask_human", {"inquire": "Which colour?"}), prefix="h"),
        "It is blue.",
        "done",
    )
    answer: Command[Any] = Command(resume="blue")
    ran = await run("the task", answer, model=model, agent="all", **added)
    assert ran.values["answer"] == "done"
    assert_equal(await replayed(**added))


async def test_the_memory_is_replayed_as_it_was() -> None:
    added: dict[str, Any] = {"tools": ("+memory",)}
    create = {"command": "create", "path": "/memories/a.md", "file_text": "blue"}
    view = calls(("memory", {"command": "view", "path": "/memories"}), prefix="v")
    model = scripted(calls(("memory", create)), "done", view, "done, too")
    await run("the task", "the second task", model=model, agent="all", **added)
    assert_equal(await replayed(**added))


@pytest.mark.parametrize(
    "answers",
    [
        ("approve",),
        ("shorter please", "approve"),
        ("shorter please", '{"steps": 7}', {"steps": ["x", "y"]}),
    ],
)
async def test_what_was_said_of_a_plan_is_replayed(answers: tuple[Any, ...]) -> None:
    brain = PlanBrain([plan_call("one", "two"), plan_call("one")])
    resumed: list[Command[Any]] = [Command(resume=answer) for answer in answers]
    model = brain.model()
    ran = await run("the task", *resumed, model=model, agent=catalog.FLOW, review_plan=True)
    assert ran.values["status"] == "finished"
    assert_equal(await replayed(review_plan=True))


async def test_what_a_step_of_a_plan_asked_is_replayed() -> None:
    brain = PlanBrain([plan_call("one", "two")], {"0": [use("ask_human", inquire="?"), "blue"]})
    answer: Command[Any] = Command(resume="blue")
    ran = await run("the task", answer, model=brain.model(), agent=catalog.FLOW)
    assert ran.values["status"] == "finished"
    assert_equal(await replayed())


async def test_what_was_said_to_a_plan_is_replayed_to_its_planner() -> None:
    step = {"id": "a", "text": "make a", "done_when": "command: false"}
    brain = PlanBrain([plan_call(step), plan_call("other")], {"a": ["tried", "tried again"]})
    await tell("t", "Make it blue.")
    await run("the task", model=brain.model(), agent=catalog.FLOW)
    assert "Make it blue." in str(brain.requests("plan")[1])
    assert_equal(await replayed())
