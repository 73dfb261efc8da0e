"""Random sequences of runs, crashes and ways back: the files are always those of the snapshot that
the checkpoint, or the nearest earlier one, names.
"""

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.backends.snapshots import restore, take
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.backends.snapshots.take import Extent, Index, take_snapshot
from openmanus_graph.runtime.checkpoint_lineage import snapshot_at
from openmanus_graph.runtime.session_registry import close_all
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.server_settings import StorageSettings
from tests.support.graphs import scripted
from tests.support.planning import use

pytestmark = pytest.mark.slow

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}
WORK, OTHER_HOME = Path("work"), Path("other_home")
ACTIONS = 14


class Killed(Exception):
    """The process dies."""


def change_files(seed: int) -> None:
    """Change some files, folders and links, the same ones for the same number."""
    rng = random.Random(seed)
    for _ in range(rng.randint(0, 4)):
        folder = WORK / rng.choice(("", "a", "a/b", "c"))
        place = folder / rng.choice("xyz")
        remove(place) if rng.random() < 0.4 else None
        if folder.is_symlink() or folder.is_file() or place.is_symlink():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        what = rng.choice(("file", "file", "file", "folder", "link", "mode", "gone"))
        if what == "gone":
            remove(folder) if folder != WORK else None
        elif what == "link" and not place.exists():
            place.symlink_to(rng.choice(("x", "../y", "nowhere")))
        elif what == "folder" and not place.exists():
            place.mkdir()
        elif what == "mode" and place.exists():
            place.chmod(rng.choice((0o700, 0o755)))
        elif what == "file" and not place.is_dir():
            place.write_text(rng.choice(("one", "two", "three")))


def remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def tree_now() -> str:
    """Return the id of a snapshot of the files as they are, by reading them all."""
    OTHER_HOME.mkdir(exist_ok=True)
    workspace = Workspace(WORK.resolve(), OTHER_HOME.resolve())
    index = Index(workspace.root)
    store = SnapshotStore(OTHER_HOME.resolve())
    return take_snapshot(
        store, "any", workspace, Extent.of_snapshots(StorageSettings()), index
    ).snapshot


class Story:
    """A thread that lives through a random sequence of actions."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.saver = InMemorySaver()
        self.calls_left = 0
        self.expected = ""
        """The id of the snapshot that the next call of model or tool must find; empty for any."""
        self.dying = 0
        """So many more dangerous moments, and the process dies; 0 for never."""
        self.by_hand = False
        """Whether files were changed by hand, and nobody has looked at them since."""
        self.reported: list[str] = []

        @manus_tool(effect="workspace")
        def change(seed: int) -> str:
            """Change files.

            Args:
                seed: Which.
            """
            self.check_expected()
            self.by_hand = False  # a snapshot was taken before
            change_files(seed)
            return "changed"

        @manus_tool(effect="read_only")
        def look() -> str:
            """Look."""
            return "seen"

        self.graph: Any = build_manus_graph(tools=[change, look], checkpointer=self.saver)
        for module, name in ((take, "take_snapshot"), (restore, "status")):
            monkeypatch.setattr(module, name, self.dangerous(getattr(module, name)))

    def dangerous(self, function: Any) -> Any:
        def called(*args: Any) -> Any:
            self.dying -= 1
            if not self.dying:
                raise Killed
            return function(*args)

        return called

    def check_expected(self) -> None:
        if self.expected:
            assert tree_now() == self.expected, self.reported
        self.expected = ""

    def reply(self, messages: list[BaseMessage]) -> AIMessage | str:
        self.check_expected()
        if self.calls_left <= 0:
            return "done"
        self.calls_left -= 1
        if self.rng.random() < 0.2:
            return use("look")
        return use("change", seed=self.rng.randrange(10**6))

    async def run(self, given: Any, config: RunnableConfig = THREAD) -> None:
        self.calls_left = self.rng.randint(0, 3)
        self.dying = self.rng.choice((-1, -1, self.rng.randint(1, 12)))
        context = Context(model=scripted(*[self.reply] * 9), workspace=str(WORK))
        try:
            await self.graph.ainvoke(given, config, context=context, durability="sync")
        except Killed:
            self.reported.append("killed")
            close_all()  # another process goes on
            self.expected = ""
            return
        self.dying, tip = -1, await self.graph.aget_state(THREAD)
        snapshot, gap = await snapshot_at(
            self.saver, "t", tip.config["configurable"]["checkpoint_id"]
        )
        assert gap == ""
        if snapshot and not self.by_hand:
            assert tree_now() == snapshot, self.reported

    async def place_of_the_past(self, *, with_message: bool) -> RunnableConfig | None:
        """Choose a checkpoint, and expect its files."""
        states = [state async for state in self.graph.aget_state_history(THREAD)]
        past = [state for state in states[1:] if state.next or with_message]
        if not past:
            return None
        chosen = self.rng.choice(past)
        config: RunnableConfig = chosen.config
        checkpoint = config.get("configurable", {})["checkpoint_id"]
        self.expected, _ = await snapshot_at(self.saver, "t", checkpoint)
        self.by_hand = False
        self.reported.append(f"back to {chosen.metadata['step']}, before {chosen.next}")
        return config

    async def act(self) -> None:
        action = self.rng.choice(("message", "message", "back", "back", "edit", "past", "go on"))
        self.reported.append(action)
        message = {"messages": [HumanMessage(f"{action} {self.rng.random()}")]}
        if action == "message":
            change_files(self.rng.randrange(10**6))  # by hand
            self.by_hand = True
            await self.run(message)
        elif action == "go on":
            if (await self.graph.aget_state(THREAD)).next:
                await self.run(None)
        elif place := await self.place_of_the_past(with_message=action == "past"):
            if action == "past":
                await self.run(message, place)
            elif action == "back":
                await self.run(None, place)
            else:
                with suppress(InvalidUpdateError):  # nobody can tell whose update it is
                    edited = await self.graph.aupdate_state(place, {"hint": "look"})
                    if (await self.graph.aget_state(edited)).next:
                        await self.run(None, edited if self.rng.random() < 0.5 else THREAD)
        self.expected = ""


@pytest.fixture(autouse=True)
def _folder() -> Iterator[None]:
    WORK.mkdir()
    (WORK / "given").write_text("by the person")
    os.umask(0o022)
    yield
    close_all()


@pytest.mark.parametrize("seed", range(6))
async def test_files_are_those_that_the_checkpoint_names(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(seed, monkeypatch)
    for _ in range(ACTIONS):
        await story.act()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(6, 60))
async def test_files_are_those_that_the_checkpoint_names_in_more_stories(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await test_files_are_those_that_the_checkpoint_names(seed, monkeypatch)
