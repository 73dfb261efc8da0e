"""Steps that fail: executors of any kind, checks that do not hold, files that two steps write."""

import asyncio
import operator
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from typing_extensions import TypedDict

from openmanus_graph import build_manus_graph
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.planning.executor_run import WrittenFiles
from openmanus_graph.runtime.workspace import Workspace
from tests.support.graphs import Ran, run_graph
from tests.support.planning import PlanBrain, plan_call, plans_shown, use

pytestmark = pytest.mark.slow

SIDE_BY_SIDE: dict[str, Any] = {"text": "x", "depends_on": []}


def graph_of(node: Any, state: Any = MessagesState, **compiling: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(**compiling)


async def run(brain: PlanBrain, executors: Any = None, **context: Any) -> Ran:
    graph = build_planning_graph(executors=executors or {"manus": build_manus_graph()})
    return await run_graph(graph, model=brain.model(), **context)


def statuses(ran: Ran) -> dict[str, str]:
    return {step["id"]: step["status"] for step in plans_shown(ran.events)[-1]}


def warnings(ran: Ran) -> str:
    return "\n".join(event["text"] for event in ran.events if event["type"] == "notice")


class OwnState(TypedDict):
    """Somebody else's, with words that mean something of their own."""

    messages: Annotated[list[Any], operator.add]
    status: str
    usage: float
    answer: int


async def trusted_text(state: OwnState) -> dict[str, Any]:
    said = [{"role": "assistant", "content": "it is done"}]
    return {"messages": said, "status": "ok", "usage": 1.5, "answer": 7}


async def test_a_state_of_ones_own_is_no_trouble() -> None:
    brain = PlanBrain([plan_call("x")])
    ran = await run(brain, graph_of(trusted_text, OwnState))
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "it is done")


class NoList(TypedDict):
    """Keeps what it likes under the name of messages."""

    messages: Any


@pytest.mark.parametrize("kept", ["a text", 7, {"role": "user"}, [7], [{"nothing": 1}], None])
async def test_messages_that_are_none_fail_the_step_alone(kept: Any) -> None:
    async def keep(state: NoList) -> dict[str, Any]:
        return {"messages": kept}

    brain = PlanBrain([plan_call("x"), "No other way."])
    ran = await run(brain, graph_of(keep, NoList))
    assert statuses(ran) == {"0": "blocked"}
    assert "without an answer" in brain.requests("summary")[0][-1].text


async def test_the_tokens_of_somebody_elses_graph_are_on_the_bill() -> None:
    async def reply(state: MessagesState) -> dict[str, Any]:
        used = UsageMetadata(input_tokens=7, output_tokens=5, total_tokens=12)
        return {"messages": [AIMessage("done", usage_metadata=used)]}

    ran = await run(PlanBrain([plan_call("x")]), graph_of(reply))
    assert ran.values["usage"]["model_calls"] == 2
    assert ran.values["usage"]["input_tokens"] == 107


async def silent(state: MessagesState) -> dict[str, Any]:
    return {}


async def own_question(state: MessagesState) -> dict[str, Any]:
    return {"messages": [HumanMessage("and now?")]}


async def cancels(state: MessagesState) -> dict[str, Any]:
    raise asyncio.CancelledError


async def raises(state: MessagesState) -> dict[str, Any]:
    raise KeyError("missing")


def leaves(state: MessagesState) -> dict[str, Any]:
    sys.exit("bye")


def calls_what_leaves() -> Any:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [use("leave"), use("leave")]}

    def leave() -> str:
        """Leave."""
        sys.exit(3)

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("tools", ToolNode([leave]))
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "tools")
    return builder.compile()


async def hands_over(state: MessagesState) -> Any:
    return Command(graph=Command.PARENT, goto="somebody")


async def no_state(state: MessagesState) -> Any:
    return ["nonsense"]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (silent, "without an answer"),
        (own_question, "without an answer"),
        (cancels, "Cancel"),
        (raises, "KeyError: 'missing'"),
        (leaves, "SystemExit: bye"),
        (graph_of(leaves), "SystemExit: bye"),
        (calls_what_leaves(), "SystemExit: 3"),
        (no_state, "InvalidUpdateError"),
        (hands_over, "handed over to somebody"),
    ],
)
async def test_an_executor_that_comes_to_nothing_fails_its_step_alone(node: Any, why: str) -> None:
    async def fine(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("fine")]}

    brain = PlanBrain(
        [plan_call({"text": "[bad] x", "depends_on": []}, {"text": "[fine] y", "depends_on": []}),
         "No other way."]
    )  # fmt: skip
    ran = await run(brain, {"bad": graph_of(node), "fine": graph_of(fine)})
    assert statuses(ran) == {"0": "blocked", "1": "completed"}
    assert why in brain.requests("summary")[0][-1].text
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "terminate")


async def test_an_executor_with_a_checkpointer_of_its_own_works() -> None:
    async def fine(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("fine")]}

    executor = graph_of(fine, checkpointer=InMemorySaver())
    ran = await run(PlanBrain([plan_call("x")]), executor)
    assert ran.values["status"] == "finished"


@pytest.mark.parametrize(
    ("done_when", "problem"),
    [
        ("`file: missing.txt`", "missing.txt does not exist"),
        ("file: `made.txt`", None),
        ("file: made.txt", None),
        ("file: empty.txt", "is empty"),
        ("file: ../made.txt", "outside the workspace"),
        ("file:", "names no file"),
        ("command: `grep -q yes made.txt`", None),
        ("Command: grep -q no made.txt", "`grep -q no made.txt` failed"),
        ("command: echo why >&2; exit 3", "why"),
        ("command:", "names no command"),
        ("command: sleep 60", "failed"),
    ],
)
async def test_a_check_holds_or_fails(done_when: str, problem: str | None) -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "tool":
            return "done"
        return use("bash", command="echo yes > made.txt; touch empty.txt")

    await asyncio.to_thread(Path("openmanus.toml").write_text, "[sandbox]\ntimeout_s = 1\n")
    brain = PlanBrain(
        [plan_call({"id": "s", "text": "x", "done_when": done_when}), "No other way."], work
    )
    ran = await run(brain)
    assert statuses(ran) == {"s": "blocked" if problem else "completed"}
    if problem:
        tries = {asked[1].text for asked in brain.requests("s")}
        assert len(tries) == 2
        assert any(problem in text for text in tries), "the second try is told"
        assert problem in brain.requests("summary")[0][-1].text


async def test_a_question_is_answered_by_what_the_files_hold() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "tool":
            return "written"
        return use("bash", command="echo three sources > report.md")

    brain = PlanBrain(
        [plan_call({"text": "x", "done_when": "Does report.md name three sources?"})],
        work,
        verdicts=[use("verdict", done=True, reason="it does")],
    )
    ran = await run(brain)
    assert ran.values["status"] == "finished"
    (asked,) = brain.requests("check")
    assert "report.md (14 bytes)\nthree sources" in asked[-1].text


def writing(commands: dict[str, str]) -> Any:
    def work(step: str, messages: list[Any]) -> Any:
        done = sum(message.type == "tool" for message in messages)
        script = commands[step].split(" THEN ")
        return use("bash", command=script[done]) if done < len(script) else "done"

    return work


async def test_reading_one_file_is_not_reported_as_writing_it() -> None:
    steps: list[dict[str, Any]] = [
        {"id": "make", "text": "x", "depends_on": []},
        {"id": "a", "text": "x", "depends_on": ["make"]},
        {"id": "b", "text": "x", "depends_on": ["make"]},
    ]
    brain = PlanBrain(
        [plan_call(*steps)],
        writing({"make": "echo 1 > data.csv", "a": "cat data.csv THEN cat data.csv > a.txt",
                 "b": "cat data.csv THEN wc -l data.csv > b.txt"}),
    )  # fmt: skip
    assert "same file" not in warnings(await run(brain))


async def test_a_step_that_goes_on_with_the_file_of_the_one_before_is_not_reported() -> None:
    brain = PlanBrain([plan_call("a", "b")], writing({"0": "echo 1 > log", "1": "echo 2 >> log"}))
    assert "same file" not in warnings(await run(brain))


@pytest.mark.parametrize("at_once", [1, 2])
async def test_steps_that_do_not_know_of_each_other_and_write_one_file_are_reported(
    at_once: int,
) -> None:
    name = "'the out.txt'"
    brain = PlanBrain(
        [plan_call(SIDE_BY_SIDE, SIDE_BY_SIDE, {"text": "join", "depends_on": [0, 1]})],
        writing({"0": f"echo 1 > {name}", "1": f"echo 22 > {name}", "2": f"echo 3 >> {name}"}),
    )
    reported = warnings(await run(brain, max_parallel_steps=at_once))
    assert reported.count("same file") == 1
    assert "Steps 0 and 1 wrote the same file: the out.txt" in reported


def test_files_written_by_other_tools_are_seen(tmp_path: Path) -> None:
    written_files = WrittenFiles(Workspace(tmp_path, tmp_path / "private"))
    code = "p = 'out.txt'\nopen(p, 'w').write('text')"
    for number, call in enumerate(
        (use("python_execute", code=code), use("str_replace_editor", path="new.txt"))
    ):
        said: list[Any] = [HumanMessage("x")] * number * 2 + [call]
        written_files.follow(said)
        (tmp_path / ("out.txt", "new.txt")[number]).write_text("text")
        written_files.follow([*said, ToolMessage("done", tool_call_id="x")])
    assert written_files.written_files == ["new.txt", "out.txt"]


async def test_each_step_has_a_folder_of_its_own_whatever_it_is_called() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        if messages[-1].type == "tool":
            return messages[-1].text
        folder = messages[-1].text.partition("in the folder ")[2].partition(". When")[0]
        return use("bash", command=f"echo {step} > '{folder}/notes' && ls '{folder}'")

    steps: list[Any] = [{"id": name, "text": "x", "depends_on": []} for name in ("../../a b", "c")]
    brain = PlanBrain([plan_call(*steps)], work)
    ran = await run(brain)
    assert ran.values["status"] == "finished"
    assert brain.requests("summary")[0][-1].text.count("notes") == 2
    assert [file["path"] for file in ran.values["artifacts"]] == ["plan.md"]
