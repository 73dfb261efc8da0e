"""Folders inside one another, thousands deep: each is opened a fixed number of times, or not."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.backends.snapshots.restore import restore_snapshot
from openmanus_graph.backends.snapshots.take import TOO_DEEP, Extent, Index, scan, take_snapshot
from openmanus_graph.backends.snapshots.thread_snapshots import changes_between
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.atomic_files import copy_entry
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety import open_beneath
from openmanus_graph.safety.folder_walk import walk
from openmanus_graph.safety.open_beneath import MOST_PARTS, UnsafeFileError, located

pytestmark = pytest.mark.slow

DEPTH = 3000
EXTENT = Extent(1 << 30, ())


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def nest(folder: Path, depth: int, name: str = "d") -> None:
    """Make folders inside one another, with a file at both ends."""
    (folder / "top.txt").write_text("top")
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    root = tmp_path / "w"
    root.mkdir()
    (tmp_path / "private").mkdir()
    nest(root, DEPTH)
    yield Workspace(root, tmp_path / "private")
    remove_folder(root)
    assert not root.exists()


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is opened; the kernel's quick way counts as one."""
    counted, real = Counter[str](), os.open

    def counting(*arguments: Any, **words: Any) -> int:
        counted["open"] += 1
        return real(*arguments, **words)

    monkeypatch.setattr(os, "open", counting)
    return counted


def _list(workspace: Workspace) -> None:
    list(files_in(workspace))


def _scan(workspace: Workspace) -> None:
    scan(workspace, ())


@pytest.mark.parametrize("look", [_list, _scan])
def test_each_folder_is_opened_once(
    workspace: Workspace, opens: Counter[str], look: Callable[[Workspace], object]
) -> None:
    look(workspace)
    assert opens["open"] <= MOST_PARTS + 10


def test_what_is_too_deep_is_named_once(workspace: Workspace) -> None:
    assert [path for path, _ in files_in(workspace)] == ["top.txt"]
    found = scan(workspace, ())
    assert [path.count("d") for path in found.too_deep] == [MOST_PARTS]
    assert len(found.stamps) == MOST_PARTS + 1


def test_files_above_the_limit_are_held_and_come_back(workspace: Workspace, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "home")
    index = take_snapshot(store, "t", workspace, EXTENT, Index(workspace.root))
    assert list(index.left_out.values()) == [TOO_DEEP]
    changes = changes_between(store, "", index.snapshot)
    assert len(changes) == MOST_PARTS + 1
    (workspace.root / "top.txt").write_text("changed")
    done = restore_snapshot(store, index.snapshot, workspace, EXTENT, index, tmp_path / "aside")
    assert (workspace.root / "top.txt").read_text() == "top"
    assert done.missing == {}
    assert [path.count("d") for path in done.left_alone] == [MOST_PARTS] * len(done.left_alone)


def test_going_back_to_before_leaves_what_is_too_deep(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (tmp_path / "private").mkdir()
    workspace, store = Workspace(root, tmp_path / "private"), SnapshotStore(tmp_path / "home")
    before = take_snapshot(store, "t", workspace, EXTENT, Index(root))
    nest(root, DEPTH)
    newest = take_snapshot(store, "t", workspace, EXTENT, before)
    done = restore_snapshot(store, before.snapshot, workspace, EXTENT, newest, tmp_path / "aside")
    assert done.removed == ["top.txt"]
    assert len(done.left_alone) == 1
    remove_folder(root)


def test_a_copy_ends_where_the_walk_does(workspace: Workspace, tmp_path: Path) -> None:
    folder = os.open(workspace.root, os.O_RDONLY)
    copy_entry(folder, ".", tmp_path / "copy")
    os.close(folder)
    assert (tmp_path / "copy" / "top.txt").read_text() == "top"
    assert sum(1 for _ in (tmp_path / "copy").rglob("d")) == MOST_PARTS
    remove_folder(tmp_path / "copy")


def test_a_copy_keeps_folders_that_forbid_to_write(tmp_path: Path) -> None:
    (tmp_path / "s" / "a" / "b").mkdir(parents=True)
    (tmp_path / "s" / "a" / "b" / "f").write_text("x")
    (tmp_path / "s" / "a").chmod(0o500)
    folder = os.open(tmp_path / "s", os.O_RDONLY)
    copy_entry(folder, ".", tmp_path / "t")
    os.close(folder)
    assert (tmp_path / "t" / "a" / "b" / "f").read_text() == "x"
    assert (tmp_path / "t" / "a").stat().st_mode & 0o777 == 0o500
    for one in ("s", "t"):
        remove_folder(tmp_path / one)
        assert not (tmp_path / one).exists()


def test_long_names_end_a_walk_before_the_kernel_does(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    nest(root, 60, "n" * 250)
    found = scan(Workspace(root, tmp_path), ())
    assert len(found.too_deep) == 1
    assert not found.unreadable
    remove_folder(root)
    assert not root.exists()


def test_a_wide_tree_takes_few_descriptors(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number) / "a" / "b").mkdir(parents=True)
    top, before, most = os.open(tmp_path, os.O_RDONLY), open_descriptors(), 0
    for folder in walk(top):
        with os.scandir(folder.descriptor) as entries:
            folder.below += [one.name for one in entries]
        most = max(most, open_descriptors())
    assert most - before <= 5
    os.close(top)


@pytest.mark.parametrize(
    "path", ["d/" * 3000 + "f", "d/" * (MOST_PARTS + 1), "a" * 4097, "x/" * 1500 + ".." + "/f"]
)
@pytest.mark.parametrize("kernel", [True, False])
def test_long_paths_are_refused_at_once(
    tmp_path: Path, opens: Counter[str], path: str, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        monkeypatch.setattr(open_beneath, "_openat2", lambda: None)
    for one in (path, f"{tmp_path}/{path}"):
        with pytest.raises(UnsafeFileError, match="too long"), located(tmp_path, one):
            pass
    assert opens["open"] == 0, "nothing is looked for"


def test_links_cannot_make_a_path_long(tmp_path: Path, opens: Counter[str]) -> None:
    (tmp_path / "d").mkdir()
    for number in range(30):
        (tmp_path / f"l{number}").symlink_to(f"l{number + 1}/" + "d/../" * 90)
    with pytest.raises(UnsafeFileError, match="too long"), located(tmp_path, "l0/f"):
        pass
    assert opens["open"] < 300
