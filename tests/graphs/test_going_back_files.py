"""Going back restores the files, by each way that LangGraph has."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import Context, build_manus_graph, manus_tool
from tests.support.graphs import scripted
from tests.support.planning import use

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}
WORK = Path("work")


def files() -> dict[str, str]:
    return {
        path.relative_to(WORK).as_posix(): path.read_text()
        for path in sorted(WORK.rglob("*"))
        if path.is_file()
    }


class Writer:
    """A graph on a thread whose model writes `1`, then `2`, and answers, in each run."""

    def __init__(self, *, approval: bool = False) -> None:
        @manus_tool(effect="workspace", approval=approval)
        def write(path: str, text: str) -> str:
            """Write a file.

            Args:
                path: Its name.
                text: Its content.
            """
            self.seen.append(files())
            (WORK / path).write_text(text)
            return f"wrote {path}"

        @manus_tool(effect="pure")
        def search() -> str:
            """Search."""
            return "found"

        self.saver = InMemorySaver()
        self.graph: Any = build_manus_graph(tools=[write, search], checkpointer=self.saver)
        self.events: list[dict[str, Any]] = []
        self.seen: list[dict[str, str]] = []
        """The files at each model and tool call."""
        self.replies: list[AIMessage | str] = []
        """The next ones, instead of those that it makes up."""

    def reply(self, messages: list[BaseMessage]) -> AIMessage | str:
        self.seen.append(files())
        if self.replies:
            return self.replies.pop(0)
        done = 0
        for message in messages:
            done = 0 if message.type == "human" else done + (message.type == "tool")
        asked = next(m.text for m in reversed(messages) if m.type == "human")
        if done > 1 or asked == "say nothing":
            return "done"
        return use("write", path=str(done + 1), text=asked)

    async def run(self, task: Any, config: RunnableConfig = THREAD) -> dict[str, Any]:
        given = {"messages": [HumanMessage(task)]} if isinstance(task, str) else task
        context = Context(model=scripted(*[self.reply] * 5), workspace=str(WORK))
        values: dict[str, Any] = {}
        async for mode, part in self.graph.astream(
            given, config, context=context, stream_mode=["values", "custom"], durability="sync"
        ):
            if mode == "custom":
                self.events.append(part)
            else:
                values = part
        return values

    async def place(self, *following: str, nth: int = 0) -> RunnableConfig:
        """Return a checkpoint after which these nodes are next, the oldest first."""
        states = [state async for state in self.graph.aget_state_history(THREAD)]
        found: list[RunnableConfig] = [one.config for one in states if one.next == following]
        return found[::-1][nth]

    def notices(self) -> list[str]:
        return [event["text"] for event in self.events if event["type"] == "notice"]


@pytest.fixture
def writer() -> Writer:
    WORK.mkdir()
    (WORK / "given").write_text("by the person")
    return Writer()


async def test_each_step_that_changed_files_names_another_snapshot(writer: Writer) -> None:
    await writer.run("a")
    states = [state async for state in writer.graph.aget_state_history(THREAD)][::-1]
    named = [state.values.get("workspace_snapshot") for state in states]
    assert len(dict.fromkeys(named)) == 4  # none, before the first call, after each step
    assert named[-1] == named[-2]


@pytest.mark.parametrize(
    ("following", "nth", "there"),
    [
        (("think",), 0, {}),
        (("act",), 0, {}),
        (("stuck_check",), 0, {"1": "a"}),
        (("think",), 1, {"1": "a"}),
        (("act",), 1, {"1": "a"}),
        (("stuck_check",), 1, {"1": "a", "2": "a"}),
        (("think",), 2, {"1": "a", "2": "a"}),
        (("terminate",), 0, {"1": "a", "2": "a"}),
    ],
)
async def test_a_run_from_an_earlier_checkpoint_finds_the_files_of_then(
    writer: Writer, following: tuple[str, ...], nth: int, there: dict[str, str]
) -> None:
    await writer.run("a")
    await writer.run("b")
    place = await writer.place(*following, nth=nth)
    writer.seen.clear()
    await writer.run(None, place)
    assert {"given": "by the person", **there} == next(iter(writer.seen), files())


async def test_a_new_message_in_the_past_finds_the_files_of_then(writer: Writer) -> None:
    await writer.run("a")
    end_of_first = await writer.place()
    (WORK / "given").write_text("changed by hand")
    await writer.run("b")
    await writer.run("say nothing", end_of_first)
    assert files() == {"given": "by the person", "1": "a", "2": "a"}
    before_second = await writer.place("think", nth=3)
    await writer.run("say nothing", before_second)
    assert files() == {"given": "changed by hand", "1": "a", "2": "a"}


async def test_a_point_before_the_first_snapshot_has_the_files_that_it_holds(
    writer: Writer,
) -> None:
    writer.replies = [use("search"), use("write", path="1", text="a"), "done"]
    await writer.run("a")
    first = await writer.place("think")
    writer.seen.clear()
    await writer.run(None, first)
    assert writer.seen[0] == {"given": "by the person"}


async def test_an_edited_past_finds_the_files_of_then(writer: Writer) -> None:
    await writer.run("a")
    place = await writer.place("think", nth=0)
    state = await writer.graph.aget_state(place)
    message = HumanMessage("z", id=state.values["messages"][0].id)
    edited = await writer.graph.aupdate_state(place, {"messages": [message]})
    edited = await writer.graph.aupdate_state(edited, {"hint": "look"})  # edited twice
    (WORK / "2").unlink()
    await writer.run(None)
    assert files() == {"given": "by the person", "1": "z", "2": "z"}


async def test_editing_the_newest_checkpoint_restores_nothing(writer: Writer) -> None:
    await writer.run("a")
    (WORK / "1").write_text("changed by hand")
    await writer.graph.aupdate_state(THREAD, {"hint": "look"}, as_node="stuck_check")
    await writer.run(None)
    assert files()["1"] == "changed by hand"
