"""Going back restores the files, by each way that LangGraph has."""

import asyncio
import contextvars
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.backends.persistence.checkpoints import fork, open_checkpointer
from openmanus_graph.backends.snapshots import take, thread_snapshots
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.store import open_server_saver
from openmanus_graph.runtime.checkpoint_lineage import id_of, snapshot_at
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.cli import until
from tests.support.graphs import calls, own_text, run_graph, scripted
from tests.support.planning import use

pytestmark = pytest.mark.slow

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

    def __init__(self, *, approval: bool = False, saver: Any = None) -> None:
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

        @manus_tool(effect="read_only")
        def search() -> str:
            """Search."""
            return "found"

        self.saver = saver or InMemorySaver()
        self.graph: Any = build_manus_graph(tools=[write, search], checkpointer=self.saver)
        self.events: list[dict[str, Any]] = []
        self.seen: list[dict[str, str]] = []
        """The files at each model and tool call."""
        self.context: dict[str, Any] = {}
        self.durability = "sync"
        self.replies: list[AIMessage | str] = []
        """The next ones, instead of those that it makes up."""

    def reply(self, messages: list[BaseMessage]) -> AIMessage | str:
        self.seen.append(files())
        if self.replies:
            return self.replies.pop(0)
        done = 0
        for message in messages:
            done = 0 if message.type == "human" else done + (message.type == "tool")
        asked = next(own_text(m) for m in reversed(messages) if m.type == "human")
        if done > 1 or asked == "say nothing":
            return "done"
        return use("write", path=str(done + 1), text=asked)

    async def run(self, task: Any, config: RunnableConfig = THREAD) -> dict[str, Any]:
        given = {"messages": [HumanMessage(task)]} if isinstance(task, str) else task
        model = scripted(*[self.reply] * 5)
        context = Context(model=model, workspace=str(WORK), **self.context)
        values: dict[str, Any] = {}
        async for mode, part in self.graph.astream(
            given,
            config,
            context=context,
            stream_mode=["values", "custom"],
            durability=self.durability,
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
        texts = [event["text"] for event in self.events if event["type"] == "notice"]
        return [text for text in texts if "The price of" not in text]


def make_folder(name: str, **contents: str) -> None:
    Path(name).mkdir()
    for path, text in contents.items():
        (Path(name) / path).write_text(text)


def copy_thread(saver: Any) -> None:
    """Copy thread `t`, as savers do that can."""
    saver.storage["copy"] = saver.storage["t"]
    for kept in (saver.writes, saver.blobs):
        kept.update({("copy", *key[1:]): value for key, value in kept.items()})


def move_folder() -> None:
    WORK.rename("old")


@pytest.fixture
def writer() -> Writer:
    make_folder("work", given="by the person")
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


async def test_files_go_back_whatever_database_has_the_checkpoints(
    each_database: DatabaseUrl,
) -> None:
    make_folder("work")
    async with open_checkpointer(each_database) as saver:
        writer = Writer(saver=saver)
        await writer.run("a")
        place = await writer.place("think", nth=1)
        await writer.run("say nothing", place)
        assert files() == {"1": "a"}
        await writer.graph.aupdate_state(await writer.place("think"), None, as_node="__copy__")
        await writer.run("say nothing")
        assert files() == {}


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


async def test_after_going_back_the_state_names_the_snapshot_that_was_restored(
    writer: Writer,
) -> None:
    await writer.run("a")
    after_first = await writer.graph.aget_state(await writer.place("think", nth=1))
    before_check = await writer.place("stuck_check")
    await writer.run("say nothing", before_check)  # so that the check does not take place
    named = (await writer.graph.aget_state(THREAD)).values["workspace_snapshot"]
    assert named == after_first.values["workspace_snapshot"]


@pytest.mark.parametrize(
    ("following", "there"),
    [
        (("act",), {}),
        (("stuck_check",), {"1": "a"}),
        (("think",), {"1": "a"}),
    ],
)
async def test_a_copied_checkpoint_finds_the_files_of_its_original(
    writer: Writer, following: tuple[str, ...], there: dict[str, str]
) -> None:
    await writer.run("a")
    place = await writer.place(*following, nth=following == ("think",))
    await writer.graph.aupdate_state(place, None, as_node="__copy__")  # as Studio does
    writer.seen.clear()
    await writer.run(None)
    assert writer.seen[0] == {"given": "by the person", **there}


async def test_a_copy_of_the_newest_checkpoint_restores_nothing(writer: Writer) -> None:
    writer.graph.interrupt_before_nodes = ["stuck_check"]
    await writer.run("a")
    writer.graph.interrupt_before_nodes = []
    newest = await writer.place("stuck_check")
    (WORK / "1").write_text("changed by hand")
    await writer.graph.aupdate_state(newest, None, as_node="__copy__")
    writer.replies = ["done"]
    await writer.run(None)
    assert files()["1"] == "changed by hand"


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


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_new_message_after_an_edit_finds_the_files_of_then(
    writer: Writer, durability: str
) -> None:
    await writer.run("a")
    await writer.graph.aupdate_state(await writer.place("think", nth=1), {"hint": "look"})
    writer.durability = durability
    await writer.run("say nothing")
    assert files() == {"given": "by the person", "1": "a"}


async def test_editing_the_newest_checkpoint_restores_nothing(writer: Writer) -> None:
    await writer.run("a")
    (WORK / "1").write_text("changed by hand")
    await writer.graph.aupdate_state(THREAD, {"hint": "look"}, as_node="stuck_check")
    await writer.run(None)
    assert files()["1"] == "changed by hand"


async def test_what_was_changed_by_hand_is_put_aside_and_named(writer: Writer) -> None:
    await writer.run("a")
    (WORK / "1").write_text("changed by hand")
    (WORK / "mine").write_text("made by hand")
    await writer.run("b", await writer.place("think"))
    assert files() == {"given": "by the person", "1": "b", "2": "b"}
    aside = next(iter((openmanus_home() / "aside").iterdir()))
    assert (aside / "1").read_text() == "changed by hand"
    assert (aside / "mine").read_text() == "made by hand"
    turned_back, put_aside = writer.notices()
    assert turned_back == "Files were turned back: 0 written, 3 removed."
    assert put_aside == f"What no snapshot held lies in {aside} now: mine, 1."


async def test_going_back_twice_to_one_line_restores_once(writer: Writer) -> None:
    await writer.run("a")
    writer.graph.interrupt_before_nodes = ["think"]
    await writer.run(None, await writer.place("stuck_check"))
    (WORK / "mine").write_text("made by hand while it waits")
    writer.graph.interrupt_before_nodes = []
    await writer.run(None)
    assert files() == {
        "given": "by the person", "1": "a", "2": "a", "mine": "made by hand while it waits",
    }  # fmt: skip


async def test_an_answer_of_the_past_finds_the_files_of_its_question() -> None:
    make_folder("work")
    writer = Writer(approval=True)
    await writer.run("a")
    question = await writer.place("act")
    await writer.run(Command(resume="approve"))
    await writer.run(Command(resume="approve"))
    assert files() == {"1": "a", "2": "a"}
    await writer.run(Command(resume="reject"), question)
    assert files() == {}


async def test_a_step_whose_snapshot_failed_is_named(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take_snapshot = iter(range(2)), take.take_snapshot

    def full(*args: Any) -> Any:
        if next(taken, None) is None:
            raise OSError(28, "No space left on device")
        return take_snapshot(*args)

    with monkeypatch.context() as patched:
        patched.setattr(take, "take_snapshot", full)
        ran = await writer.run("a")
    assert (ran["answer"], writer.notices()) == (
        "done",
        [
            "No snapshot holds what changed now. Going back restores older files. It could not be "
            "stored: [Errno 28] No space left on device."
        ],
    )
    (WORK / "given").write_text("lost?")
    await writer.run("say nothing")
    writer.events.clear()
    end_of_a = await writer.place()
    await writer.run("say nothing", end_of_a)
    assert files() == {"given": "by the person", "1": "a"}
    assert writer.notices()[-1].startswith("The newest changes before that point are in no snap")
    aside = next(iter((openmanus_home() / "aside").iterdir()))
    assert sorted(path.name for path in aside.iterdir()) == ["2", "given"]


async def test_a_restore_that_was_cut_off_is_undone_where_the_run_goes_elsewhere(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.run("a")
    end = files()

    def cut_off(*args: Any) -> None:
        (WORK / "1").unlink()
        raise RuntimeError

    first = await writer.place("think")
    with monkeypatch.context() as patched:
        patched.setattr(thread_snapshots, "restore_snapshot", cut_off)
        with pytest.raises(RuntimeError):
            await writer.run(None, first)
    states = [state async for state in writer.graph.aget_state_history(THREAD)]
    for state in states:
        if state.metadata["source"] == "fork":  # as if the process had died before it was saved
            del writer.saver.storage["t"][""][state.config["configurable"]["checkpoint_id"]]
    await writer.run("say nothing")
    assert files() == end


async def test_no_run_goes_back_while_another_works_on_the_thread(writer: Writer) -> None:
    await writer.run("a")
    place = await writer.place("think")
    refused: list[str] = []

    async def meanwhile() -> None:
        try:
            await writer.run(None, place)
        except ConfigError as error:
            refused.append(str(error))

    @manus_tool(effect="workspace")
    async def wait() -> str:
        """Wait."""
        # Not within this tool's run: somebody else's.
        await asyncio.create_task(meanwhile(), context=contextvars.Context())
        return "waited"

    writer.graph = build_manus_graph(tools=[wait], checkpointer=writer.saver)
    writer.replies = [use("wait"), "done"]
    await writer.run("b")
    assert [text.partition(", whose")[0] for text in refused] == ["A run works on thread t"]
    assert files() == {"given": "by the person", "1": "a", "2": "a"}


async def test_a_copied_thread_gets_the_files_of_the_old_one(writer: Writer) -> None:
    await writer.run("a")
    copy_thread(writer.saver)
    move_folder()
    await writer.run("say nothing", {"configurable": {"thread_id": "copy"}})
    assert files() == {"given": "by the person", "1": "a", "2": "a"}, writer.notices()


async def test_a_fork_names_the_files_of_its_point_also_where_it_makes_no_call(
    each_database: DatabaseUrl,
) -> None:
    make_folder("work")
    new: RunnableConfig = {"configurable": {"thread_id": "new"}}
    async with open_checkpointer(each_database) as saver:
        writer = Writer(saver=saver)
        await writer.run("a")
        place = id_of(await writer.place("stuck_check", nth=1))
        of_the_point = await snapshot_at(saver, "t", place)
        await fork(saver, "t", place, "new")
        assert await snapshot_at(saver, "new", place) == of_the_point
        await writer.run("say nothing", new)
        tip = id_of((await writer.graph.aget_state(new)).config)
        assert await snapshot_at(saver, "new", tip) == of_the_point


async def test_a_thread_that_the_server_copied_gets_the_files_in_its_own_folder(
    each_database: DatabaseUrl,
) -> None:
    make_folder("work")
    async with open_checkpointer(each_database) as saver:
        await Writer(saver=saver).run("a")
    async with open_server_saver() as server:
        await server.acopy_thread("t", "copy")
        await server.adelete_thread("t")
    async with open_checkpointer(each_database) as saver:
        graph: Any = build_manus_graph(checkpointer=saver)
        context = Context(model=scripted("done"), workspace="own")
        copy: RunnableConfig = {"configurable": {"thread_id": "copy"}}
        await graph.ainvoke({"messages": [HumanMessage("go on")]}, copy, context=context)
        brought = sorted(await asyncio.to_thread(os.listdir, "own"))
        states = [state async for state in graph.aget_state_history(copy)]
        first = next(one.config for one in states[::-1] if one.next == ("think",))
        await graph.ainvoke(None, first, context=replace(context, model=scripted("done")))
    assert (brought, await asyncio.to_thread(os.listdir, "own")) == (["1", "2"], [])


async def test_another_folder_is_left_as_it_is(writer: Writer) -> None:
    await writer.run("a")
    move_folder()
    make_folder("elsewhere", other="project")
    await asyncio.to_thread(WORK.symlink_to, "elsewhere")
    await writer.run(None, await writer.place("think"))
    assert files()["other"] == "project"
    assert "Those in" in writer.notices()[0]


async def test_where_the_store_was_deleted_a_run_goes_back_without_files(writer: Writer) -> None:
    await writer.run("a")
    place = await writer.place("think")
    store = SnapshotStore(openmanus_home())
    store.forget_threads(["t"])
    ran = await writer.run("say nothing", place)
    assert (ran["answer"], "1" in files()) == ("done", True)
    assert "it was deleted, or taken on another machine" in writer.notices()[0]


async def test_without_snapshots_going_back_leaves_the_files(writer: Writer) -> None:
    make_folder("conf", toml="[storage]\nsnapshot_max_mb = 0\n")
    writer.context = {"config": "conf/toml"}
    ran = await writer.run("a")
    assert "workspace_snapshot" not in (await writer.graph.aget_state(THREAD)).values
    await writer.run("say nothing", await writer.place("think"))
    assert (files(), ran["answer"]) == ({"given": "by the person", "1": "a", "2": "a"}, "done")


async def test_the_handles_of_the_old_line_are_closed_and_the_model_is_told() -> None:
    make_folder("work")
    graph: Any = build_manus_graph(checkpointer=InMemorySaver())
    fill = calls(("python_execute", {"code": "x = 1"}), ("bash", {"command": "A=1"}))
    async with open_session("t"):
        await run_graph(graph, fill, "done", config=THREAD)
        states = [state async for state in graph.aget_state_history(THREAD)]
        thought = next(state.config for state in states if state.next == ("think",))
        again = await run_graph(graph, "done", config=thought, task=None)
    assert "Python: variables x" in again.model.requests[0][-1].text
    assert "Shell: variables A" in again.model.requests[0][-1].text


async def test_a_long_snapshot_is_shown_while_it_is_taken(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take, "FIRST_PROGRESS_S", 0.01)
    said = "A snapshot of the files is taken, to go back to: 3 MB so far."
    (WORK / "large").write_text(os.urandom(3 << 19).hex())
    names = SnapshotStore.name_snapshot

    def slowly(*args: Any) -> None:
        names(*args)
        until(lambda: said in writer.notices())

    monkeypatch.setattr(SnapshotStore, "name_snapshot", slowly)
    writer.replies = [use("write", path="1", text="a"), "done"]
    await writer.run("a")
    assert {*writer.notices()} <= {said.replace("3", str(size)) for size in (1, 2, 3)}
    assert writer.notices()[-1] == said


async def test_a_step_that_changed_nothing_costs_no_look_at_the_files(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []
    scan = take.scan

    def counting(*args: Any) -> Any:
        looked.append(None)
        return scan(*args)

    monkeypatch.setattr(take, "scan", counting)
    writer.replies = [use("search"), use("write", path="1", text="a"), use("search"), "done"]
    await writer.run("a")
    assert len(looked) == 2  # before and after the call that writes
    writer.replies = [use("search"), "done"]
    await writer.run("b")
    assert len(looked) == 2


async def test_a_chat_without_files_goes_back_without_a_word_of_files() -> None:
    writer = Writer()
    await writer.run("say nothing")
    await writer.run(None, await writer.place("think"))
    assert [one["text"] for one in writer.events if "snapshot" in one.get("text", "")] == []
