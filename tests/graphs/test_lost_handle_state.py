"""What went with the processes of tools is told to the model once, exactly."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.context import PolicyRule
from openmanus_graph.state.manus import HandleState, merge_handle_states
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import Answer, Ran, calls, run_graph, scripted
from tests.support.limits import BACKSTOP_S

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
FILL = calls(
    ("python_execute", {"code": "import math\nx = 1\ndef f(): ..."}),
    ("bash", {"command": "mkdir d; cd d; pwd; A=1; sleep 100 &"}),
)
BEGUN, MADE = Path("work/begun"), Path("work/d")
TOLD = "The processes of the tools have ended"


def reported(model: ScriptedChatModel) -> list[str]:
    """Return what each request says of lost things; nothing for one that says nothing."""
    texts = [request[-1].text for request in model.requests]
    return [text[text.index(TOLD) :] if TOLD in text else "" for text in texts]


def is_there(path: Path) -> bool:
    return path.exists()


def folder_of(ran: Ran) -> str:
    """Return the folder that the shell was left in."""
    return next(text for text in ran.results() if text.startswith("/")).partition("\n")[0]


async def fill(graph: Any, first: Answer = FILL) -> Ran:
    """Run once, leave things in memory, and end all processes."""
    async with open_session("t"):
        return await run_graph(graph, first, "done", config=CONFIG)


async def test_what_the_closed_handles_held_is_reported_once() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    first = await fill(graph)
    assert reported(first.model) == ["", ""]
    async with open_session("t"):
        again = await run_graph(graph, calls(("bash", {"command": "pwd"})), "done", config=CONFIG)
        third = await run_graph(graph, "done", config=CONFIG)
    lost = mark_untrusted(
        f"- Shell: its folder {folder_of(first)}; variables A; "
        "running in the background: sleep 100.\n"
        "- Python: variables x; functions and classes f; imports math."
    )
    assert reported(again.model) == [
        f"{TOLD} since your last step. Gone with them, because it was in their memory only:\n"
        f"{lost}\n"
        "The files in the workspace are still there. Make again what you still need of the rest.",
        "",
    ]
    assert reported(third.model) == [""]
    assert TOLD not in str(third.messages)


async def test_nothing_is_reported_while_the_handles_stay_open() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    async with open_session("t"):
        await run_graph(graph, FILL, "done", config=CONFIG)
        see = calls(("python_execute", {"code": "x"}))
        again = await run_graph(graph, see, "done", config=CONFIG)
    assert reported(again.model) == ["", ""]
    assert again.results()[-1] == "1"


async def test_nothing_is_reported_when_nothing_was_held() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    plain = calls(("python_execute", {"code": "print(1)"}), ("bash", {"command": "ls"}))
    await fill(graph, plain)
    again = await run_graph(graph, "done", config=CONFIG)
    assert reported(again.model) == [""]


async def test_what_was_let_go_is_not_reported() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    empty = calls(
        ("python_execute", {"code": "del x, f, math"}),
        ("bash", {"command": "cd ..; unset A; kill %1; wait"}),
    )
    async with open_session("t"):
        await run_graph(graph, FILL, empty, "done", config=CONFIG)
    again = await run_graph(graph, "done", config=CONFIG)
    assert reported(again.model) == [""]


async def test_what_a_tool_has_reported_itself_is_not_reported_again() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    die = calls(
        ("python_execute", {"code": "y = 2; import os; os._exit(1)"}),
        ("bash", {"command": "exit 3"}),
    )
    restart = calls(("bash", {"command": "cd d; B=1"}), ("bash", {"restart": True}))
    async with open_session("t"):
        ran = await run_graph(graph, FILL, die, restart, "done", config=CONFIG)
    assert "All variables are lost" in ran.results()[2]
    again = await run_graph(graph, "done", config=CONFIG)
    assert reported(ran.model) + reported(again.model) == [""] * 5


async def test_changed_settings_that_end_the_processes_are_reported() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    async with open_session("t"):
        await run_graph(graph, FILL, "done", config=CONFIG)
        again = await run_graph(graph, "done", config=CONFIG, sandbox="none")
    assert "variables x;" in reported(again.model)[0]


async def test_a_failed_request_has_reported_nothing() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    await fill(graph)
    failed = await run_graph(graph, ModelError("bad_request", "No."), config=CONFIG)
    assert failed.values["status"] == "failed"
    model = scripted("done")
    await run_graph(graph, model=model, config=CONFIG, task=Command(goto="think"))
    assert "variables x;" in reported(model)[0]


async def test_a_compaction_does_not_lose_it() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    await fill(graph)
    refused = ModelError("context_length", "The request is too long.")
    ran = await run_graph(graph, refused, "the notes", "done", config=CONFIG)
    assert [bool(text) for text in reported(ran.model)] == [True, False, True]


async def cut_off(graph: Any, *answers: Answer) -> None:
    """Run until the file `begun` appears in the workspace, and end the run and its processes."""
    async with open_session("t"):
        run = asyncio.ensure_future(run_graph(graph, *answers, config=CONFIG))
        async with asyncio.timeout(BACKSTOP_S):
            while not is_there(BEGUN):  # noqa: ASYNC110  # a file tells nobody
                await asyncio.sleep(0.02)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def test_calls_that_finished_before_a_crash_count_even_without_a_checkpoint() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    chain = calls(
        ("python_execute", {"code": "z = 1"}),
        ("bash", {"command": "mkdir d; cd d; A=1"}),
        ("bash", {"command": "touch ../begun; sleep 1000"}),
        ("bash", {"command": "rm -rf ./*; echo wiped"}),
    )
    await cut_off(graph, chain)
    ran = await run_graph(graph, "done", config=CONFIG, task=None)
    results = ran.results()
    assert "may have run in part" in results[2]
    assert "bash was not run: the process it was meant for has ended" in results[3]
    assert is_there(BEGUN), "the folder that `cd` chose is gone, so rm must not run"
    (text,) = reported(ran.model)
    assert "variables A." in text
    assert "- Python: variables z." in text


async def test_a_planned_call_does_not_run_in_a_new_process_unnoticed() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    wipe = calls(("bash", {"command": "rm -rf ./*; echo wiped"}), prefix="w")
    model = scripted(FILL, wipe, "done")
    context = Context(model=model, workspace="work")
    async with open_session("t"):
        begin: Any = {"messages": [HumanMessage("the task")]}
        for given in (begin, None):
            await graph.ainvoke(given, CONFIG, context=context, interrupt_after=["think"])
    ran = await run_graph(graph, model=model, config=CONFIG, task=None)
    assert "bash was not run" in ran.results()[-1]
    assert is_there(MADE)
    assert [bool(text) for text in reported(model)] == [False, False, True]


ASKS = PolicyRule(tool="bash", args={"command": "touch *"}, decision="ask")
TOUCH = ("bash", {"command": "touch made; pwd"})


@pytest.mark.parametrize(
    ("answers", "ran_at_last"),
    [(("approve", "approve"), True), (("approve", "reject"), False), (("reject",), False)],
)
@pytest.mark.parametrize("count", [1, 2])
async def test_an_approval_after_the_process_has_ended_is_asked_for_again(
    answers: tuple[str, ...], ran_at_last: bool, count: int
) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    model = scripted(FILL, calls(*[TOUCH] * count, prefix="w"), "done")
    async with open_session("t"):
        await run_graph(graph, model=model, config=CONFIG, policy_rules=(ASKS,))
    questions, ran = list[str](), None
    for answer in answers * 2:
        waiting = (await graph.aget_state(CONFIG)).interrupts
        if not waiting:
            break
        questions += [one.value["question"] for one in waiting]
        task: Any = Command(resume={one.id: answer for one in waiting})
        ran = await run_graph(graph, model=model, config=CONFIG, task=task, policy_rules=(ASKS,))
    assert ran is not None
    assert ran.values["answer"] == "done"
    ended = [question for question in questions if "would run in a new process" in question]
    assert len(ended) == (count if len(answers) > 1 else 0)
    assert all("its folder" in question for question in ended)
    assert is_there(Path("work/made")) == ran_at_last
    assert not is_there(MADE / "made")


async def test_a_question_first_asked_in_a_new_process_is_asked_once() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    await fill(graph)
    ran = await run_graph(graph, calls(TOUCH), "done", config=CONFIG, policy_rules=(ASKS,))
    (waiting,) = (await graph.aget_state(CONFIG)).interrupts
    assert "would run in a new process" not in waiting.value["question"]
    task: Any = Command(resume="approve")
    ran = await run_graph(graph, "done", config=CONFIG, task=task, policy_rules=(ASKS,))
    assert ran.values["answer"] == "done"
    assert is_there(Path("work/made"))


def test_the_newest_look_at_a_handle_counts_whatever_the_order() -> None:
    old, new = HandleState(what="x", at=1), HandleState(what="", at=2)
    assert merge_handle_states({"python:a": old}, {"python:a": new}) == {"python:a": new}
    assert merge_handle_states({"python:a": new}, {"python:a": old, "bash:b": old}) == {
        "python:a": new,
        "bash:b": old,
    }
