"""Snapshots of a folder: taken, compared, restored, and swept."""

import contextlib
import os
import shutil
import socket
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.persistence.database import close_databases
from openmanus_graph.backends.snapshots import take
from openmanus_graph.backends.snapshots.objects import PIECE, SnapshotStore
from openmanus_graph.backends.snapshots.restore import Restored, restore_snapshot
from openmanus_graph.backends.snapshots.take import (
    Extent,
    Index,
    read_index,
    take_snapshot,
    write_index,
)
from openmanus_graph.backends.snapshots.thread_snapshots import (
    change_as_json,
    changes_between,
    unified_diff,
)
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.server_settings import StorageSettings

NOT_UTF8 = os.fsdecode(b"caf\xe9")


class Folder:
    """A workspace with its snapshots."""

    def __init__(self, place: Path, limits: StorageSettings | None = None) -> None:
        self.root, self.home = place / "work", place / "home"
        self.root.mkdir(parents=True)
        self.home.mkdir()
        protected = (self.root / ".env",)
        self.workspace = Workspace(self.root, self.home / "threads" / "t", protected)
        self.extent = Extent.of_snapshots(limits or StorageSettings())
        self.store = SnapshotStore(self.home)
        self.index = Index(self.root)

    def take(self) -> str:
        self.index = take_snapshot(self.store, "t", self.workspace, self.extent, self.index)
        return self.index.snapshot

    def restore(self, snapshot: str) -> Restored:
        aside = self.home / "aside"
        done = restore_snapshot(
            self.store, snapshot, self.workspace, self.extent, self.index, aside
        )
        self.take()
        return done

    def put(self, name: str, text: str = "text") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def look(self) -> dict[str, Any]:
        """Return all that a person sees in the folder."""
        return {str(path.relative_to(self.root)): seen(path) for path in self.root.rglob("*")}


def seen(path: Path) -> Any:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return path.readlink()
    content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
    return stat.S_IMODE(status.st_mode), content


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_everything_comes_back_as_it_was(folder: Folder) -> None:
    folder.put("a.txt", "one")
    folder.put(NOT_UTF8 + "/ünï ✓\n", "two").chmod(0o640)
    folder.put("run.sh").chmod(0o755)
    (folder.root / "empty" / "deep").mkdir(parents=True)
    (folder.root / "empty").chmod(0o3750)
    (folder.root / "link").symlink_to("../outside")
    (folder.root / "to_folder").symlink_to("empty")
    (folder.root / "large").write_bytes(os.urandom(2 * PIECE + 17))
    before, snapshot = folder.look(), folder.take()
    folder.put("a.txt", "changed")
    folder.put("new/file")
    (folder.root / "run.sh").chmod(0o600)
    (folder.root / "link").unlink()
    folder.put("link", "a file now")
    (folder.root / "to_folder").unlink()
    (folder.root / "to_folder").mkdir()
    with (folder.root / "large").open("r+b") as file:
        file.seek(PIECE)
        file.write(b"x")
    (folder.root / "empty" / "deep").rmdir()
    (folder.root / "empty").chmod(0o750)
    (folder.root / NOT_UTF8 / "ünï ✓\n").unlink()
    (folder.root / NOT_UTF8).rmdir()
    after = folder.take()
    assert after != snapshot
    done = folder.restore(snapshot)
    assert folder.look() == before
    assert (folder.index.snapshot, done.put_aside, done.missing) == (snapshot, [], {})
    folder.restore(after)
    assert folder.index.snapshot == after


def test_equal_folders_have_equal_snapshots(tmp_path: Path) -> None:
    names = []
    for place in ("one", "two"):
        folder = Folder(tmp_path / place)
        folder.put("b/c", "text")
        (folder.root / "empty").mkdir()
        names.append(folder.take())
    assert names[0] == names[1]


def new_link(root: Path) -> None:
    (root / "l").unlink()
    (root / "l").symlink_to("elsewhere")


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: (root / "f").write_text("same size"[::-1]),
    "mode": lambda root: (root / "f").chmod(0o600),
    "gone": lambda root: (root / "f").unlink(),
    "mode of a folder": lambda root: (root / "d").chmod(0o700),
    "folder gone": lambda root: (root / "d").rmdir(),
    "link": new_link,
    "new": lambda root: (root / "n").touch(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_makes_another_snapshot(folder: Folder, change: str) -> None:
    folder.put("f", "same size")
    (folder.root / "d").mkdir(mode=0o755)
    (folder.root / "l").symlink_to("f")
    before = folder.take()
    CHANGES[change](folder.root)
    assert folder.take() != before


def test_a_file_rewritten_with_its_old_times_is_noticed(folder: Folder) -> None:
    path = folder.put("f", "one")
    before, times = folder.take(), path.stat()
    path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert folder.take() != before


def test_what_did_not_change_is_not_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take, "CLOCK_TICK_NS", -(10**12))  # nothing counts as just written
    folder.put("a")
    folder.put("b")
    before = folder.take()
    write_index(folder.workspace, folder.index)
    folder.index = read_index(folder.workspace)
    read: list[int] = []
    add = take.add_file

    def adding(file: Any, size: int, new: Any) -> str:
        read.append(size)
        return add(file, size, new)

    monkeypatch.setattr(take, "add_file", adding)
    assert folder.take() == before
    folder.put("b", "another")
    assert folder.take() != before
    assert read == [len("another")]


def test_a_just_written_file_is_read_again(folder: Folder) -> None:
    folder.put("a")
    folder.take()
    assert folder.index.stamps["a"] is None


def test_what_no_snapshot_holds_is_put_aside(folder: Folder) -> None:
    folder.put("kept", "one")
    folder.put("gone", "held")
    (folder.root / "mine").symlink_to("one")
    first = folder.take()
    folder.put("kept", "two")
    folder.put("held", "in the newest")
    folder.take()
    folder.put("kept", "by the person")
    folder.put("new/one", "by the person too")
    (folder.root / "mine").unlink()
    (folder.root / "mine").symlink_to("two")
    done = folder.restore(first)
    aside = folder.home / "aside"
    assert sorted(done.put_aside) == ["kept", "mine", "new/one"]
    assert (aside / "kept").read_text() == "by the person"
    assert (aside / "new/one").read_text() == "by the person too"
    assert (aside / "mine").readlink() == Path("two")
    assert not (folder.root / "held").exists()
    folder.put("kept", "written later")
    assert (aside / "kept").read_text() == "by the person"


def test_nothing_is_put_aside_through_a_link(folder: Folder, tmp_path: Path) -> None:
    """A folder that was swapped for a link while it was moved is a link there."""
    folder.put("d/a", "one")
    before = folder.take()
    folder.put("d/a", "by the user")
    host = tmp_path / "host"
    host.mkdir()
    (folder.home / "aside").mkdir()
    (folder.home / "aside" / "d").symlink_to(host)
    done = folder.restore(before)
    assert list(done.missing) == ["d/a"]
    assert list(host.iterdir()) == []
    assert (folder.root / "d/a").read_text() == "by the user"


def test_a_file_with_two_names_is_put_aside_as_a_copy(folder: Folder) -> None:
    folder.put("a", "one")
    first = folder.take()
    folder.put("a", "by the person")
    outside = folder.home / "other name"
    os.link(folder.root / "a", outside)
    folder.restore(first)
    outside.write_text("changed later")
    assert (folder.home / "aside" / "a").read_text() == "by the person"


def test_a_stored_object_is_never_a_file_of_the_workspace(folder: Folder) -> None:
    path = folder.put("a", "one")
    first = folder.take()
    with path.open("r+") as file:  # in place, by the same inode
        file.write("two")
    folder.take()
    folder.restore(first)
    assert path.read_text() == "one"
    with path.open("r+") as file:
        file.write("two")
    folder.take()
    folder.restore(first)
    assert path.read_text() == "one"


def test_histories_caches_sockets_and_protected_files_are_left_alone(folder: Folder) -> None:
    folder.extent = Extent.of_snapshots(StorageSettings(snapshot_ignore=("*.log",)))
    folder.put("code/.git/HEAD", "main")
    folder.put("code/__pycache__/x.pyc")
    folder.put(".env", "KEY=1")
    folder.put("big.log")
    os.mkfifo(folder.root / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder.root / "s"))
    first = folder.take()
    for name in ("code/.git/HEAD", ".env", "big.log"):
        folder.put(name, "changed")
    folder.put("code/file")
    assert folder.take() != first
    done = folder.restore(first)
    assert sorted(done.left_alone) == ["big.log", "code/.git", "code/__pycache__", "pipe", "s"]
    assert (folder.root / "code/.git/HEAD").read_text() == "changed"
    assert (folder.root / ".env").read_text() == "changed"
    assert not (folder.root / "code/file").exists()
    server.close()


def test_a_history_that_is_gone_is_missed(folder: Folder) -> None:
    folder.put("code/.git/HEAD", "main")
    folder.put("code/file")
    first = folder.take()
    assert folder.take() == first
    shutil.rmtree(folder.root / "code")
    assert folder.take() != first
    gone = unified_diff(
        folder.store, changes_between(folder.store, first, folder.index.snapshot)[1]
    )
    assert gone == "removed code/.git: a repository -> nothing\n"
    done = folder.restore(first)
    assert done.missing == {"code/.git": "no snapshot holds it (a repository)"}
    assert done.written == ["code", "code/file"]
    folder.put("code/.git/HEAD", "new")
    folder.take()
    done = folder.restore(first)
    assert (done.missing, done.left_alone) == ({}, ["code/.git"])


def test_a_folder_in_whose_place_a_file_was_keeps_its_git(folder: Folder) -> None:
    folder.put("code")
    first = folder.take()
    (folder.root / "code").unlink()
    folder.put("code/.git/HEAD", "main")
    folder.put("code/file")
    folder.take()
    done = folder.restore(first)
    assert (folder.root / "code").read_text() == "text"
    assert (folder.home / "aside/code/.git/HEAD").read_text() == "main"
    assert done.put_aside == ["code"]


def test_the_largest_files_are_left_out_and_named(folder: Folder) -> None:
    folder.extent = Extent.of_snapshots(StorageSettings(snapshot_max_mb=1))
    folder.put("a", "a" * 600_000)
    folder.put("b", "b" * 700_000)
    with (folder.root / "sparse").open("wb") as file:
        file.truncate(2 << 30)
    first = folder.take()
    assert folder.index.left_out == {"sparse": take.TOO_LARGE, "b": take.TOO_LARGE}
    folder.put("a", "changed")
    folder.put("b", "b" * 800_000)
    (folder.root / "sparse").unlink()
    folder.index = Index(folder.root)
    folder.extent = Extent.of_snapshots(StorageSettings())
    done = folder.restore(first)
    assert (folder.root / "a").stat().st_size == 600_000
    assert (folder.root / "b").stat().st_size == 800_000
    assert done.left_alone == ["b"]
    assert done.missing == {"sparse": "no snapshot holds it (too large)"}


def test_a_sparse_file_comes_back_sparse_and_its_holes_are_not_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path, StorageSettings(snapshot_max_mb=300))
    path, size = folder.root / "sparse", 200 * PIECE + 5
    with path.open("wb") as file:
        for start in (3 * PIECE - 2, 50 * PIECE, 51 * PIECE + 7):
            file.seek(start)
            file.write(b"data")
        file.truncate(size)
    content, before = path.read_bytes(), bytes_read()
    first = folder.take()
    assert bytes_read() - before < 20 * PIECE
    assert (folder.home / "snapshots.db").stat().st_size < 10 * PIECE
    path.unlink()
    folder.take()
    before = bytes_read()
    folder.restore(first)
    assert bytes_read() - before < 40 * PIECE
    assert (path.stat().st_size, path.stat().st_blocks * 512 < 10 * PIECE) == (size, True)
    assert path.read_bytes() == content
    assert folder.index.snapshot == first


def bytes_read() -> int:
    """Return how much this process has read from files, holes included."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_file_that_changes_while_it_is_read_is_named(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.put("log", "x")
    add = take.add_file

    def adding(file: Any, size: int, new: Any) -> str:
        path.write_text(path.read_text() + "more")
        return add(file, size, new)

    monkeypatch.setattr(take, "add_file", adding)
    folder.take()
    assert list(folder.index.torn) == ["log"]
    monkeypatch.undo()
    first = folder.take()
    assert not folder.index.torn
    path.unlink()
    folder.take()
    folder.restore(first)
    assert path.read_text() == "x" + "more" * take.READ_ATTEMPTS


def test_read_only_folders_are_restored_all_the_same(folder: Folder) -> None:
    folder.put("locked/inner/f", "one").chmod(0o444)
    (folder.root / "locked/inner").chmod(0o555)
    (folder.root / "locked").chmod(0o555)
    before, first = folder.look(), folder.take()
    for place in ("locked", "locked/inner"):
        (folder.root / place).chmod(0o755)
    (folder.root / "locked/inner/f").unlink()
    folder.put("locked/inner/g")
    (folder.root / "locked/inner").chmod(0o500)
    folder.take()
    folder.restore(first)
    assert folder.look() == before


def test_a_restore_that_was_cut_off_is_finished_by_the_next(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        folder.put(f"f{number}", "one")
    first = folder.take()
    for number in range(5):
        folder.put(f"f{number}", "two")
    folder.take()
    folder.put("mine")
    replace, left = os.replace, iter(range(2))

    def replacing(*args: Any, **kwargs: Any) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        replace(*args, **kwargs)

    monkeypatch.setattr(os, "replace", replacing)
    with pytest.raises(ConfigError, match=r"No space left on device.*is lost.*is in .*aside now"):
        folder.restore(first)
    monkeypatch.undo()
    assert (folder.home / "aside" / "mine").exists()
    assert {path.read_text() for path in folder.root.iterdir()} == {"one", "two"}
    folder.restore(first)
    assert {path.read_text() for path in folder.root.iterdir()} == {"one"}
    assert folder.index.snapshot == first


def test_what_a_killed_restore_had_half_written_is_removed_by_the_next(folder: Folder) -> None:
    folder.put("d/f", "one")
    first = folder.take()
    folder.put("d/.0123456789abcdef.part", "on")
    done = folder.restore(first)
    assert (done.missing, done.put_aside) == ({}, [])
    assert [path.name for path in (folder.root / "d").iterdir()] == ["f"]


def test_a_damaged_object_is_named_and_the_rest_restored(folder: Folder) -> None:
    folder.put("a", "one")
    folder.put("b", "two")
    first = folder.take()
    (folder.root / "a").unlink()
    (folder.root / "b").unlink()
    folder.take()
    run = folder.store._run  # pyright: ignore[reportPrivateUsage]
    run("UPDATE objects SET data = ? WHERE data = ?", (b"bad", b"one"))
    done = folder.restore(first)
    assert done.missing == {"a": "its content is gone from the store"}
    assert (folder.root / "b").read_text() == "two"
    run("DELETE FROM objects")
    with pytest.raises(ConfigError, match="gone, or damaged"):
        folder.restore(first)


def test_a_deleted_thread_takes_along_what_no_other_names(folder: Folder) -> None:
    folder.put("shared", "both")
    (folder.root / "large").write_bytes(os.urandom(2 * PIECE))
    shared = folder.take()
    folder.store.name_snapshot("other", shared, folder.root)
    folder.put("own", os.urandom(3 * PIECE).hex())
    own = folder.take()
    close_databases()
    size = (folder.home / "snapshots.db").stat().st_size
    folder.store = SnapshotStore(folder.home)
    folder.store.forget_threads(["t"])
    assert not folder.store.has(own)
    folder.index = Index(folder.root)
    folder.restore(shared)
    assert folder.index.snapshot == shared
    close_databases()
    assert (folder.home / "snapshots.db").stat().st_size < size - 5 * PIECE


def test_a_restore_follows_no_link_out_of_the_folder(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("not ours")
    folder.put("d/f", "one")
    first = folder.take()
    (folder.root / "d/f").unlink()
    (folder.root / "d").rmdir()
    (folder.root / "d").symlink_to(outside)
    folder.take()
    assert "d/f" not in folder.index.contents
    folder.restore(first)
    assert (folder.root / "d/f").read_text() == "one"
    assert (outside / "f").read_text() == "not ours"


def test_too_many_files_are_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take, "MAX_ENTRIES", 3)
    for number in range(5):
        folder.put(str(number))
    with pytest.raises(ConfigError, match="snapshot_ignore"):
        folder.take()


def test_changes_are_shown_as_a_unified_diff(folder: Folder) -> None:
    folder.put("a/text", "one\ntwo\n")
    folder.put("gone", "was here")
    (folder.root / "picture").write_bytes(b"\x89PNG\0" + bytes(20))
    first = folder.take()
    folder.put("a/text", "one\n2\n")
    folder.put("new/b", "new\n")
    (folder.root / "gone").unlink()
    (folder.root / "picture").write_bytes(b"\x89PNG\0")
    (folder.root / "link").symlink_to("a")
    (folder.root / "a").chmod(0o700)
    changes = changes_between(folder.store, first, folder.take())
    shown = "".join(unified_diff(folder.store, change) for change in changes)
    assert shown == (
        "changed a: folder, mode 755 -> folder, mode 700\n"
        "--- a/a/text\n+++ b/a/text\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-was here\n\\ No newline at end of file\n"
        "added link: nothing -> link to a\n"
        "added new: nothing -> folder, mode 755\n"
        "--- /dev/null\n+++ b/new/b\n@@ -0,0 +1 @@\n+new\n"
        "changed picture: file of 25 bytes, mode 644, d95ed5e214f9 -> file of 5 bytes, mode 644, "
        "ad91235e8822\n"
    )


def test_programs_read_what_a_path_was_and_is(folder: Folder) -> None:
    folder.put("f", "one")
    first = folder.take()
    (folder.root / "f").unlink()
    (folder.root / "f").symlink_to("elsewhere\n")
    (change,) = changes_between(folder.store, first, folder.take())
    read = change_as_json(folder.store, change)
    before = {"kind": "file", "mode": "644", "size": 3, "target": None}
    after = {"kind": "link", "mode": "0", "size": 0, "target": "$'elsewhere\\n'"}
    assert (read["change"], read["before"], read["after"]) == ("changed", before, after)


def test_a_store_of_a_later_version_is_refused(folder: Folder) -> None:
    close_databases()
    with contextlib.closing(sqlite3.connect(folder.home / "snapshots.db")) as later:
        later.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="later version of openmanus-graph"):
        SnapshotStore(folder.home)


def test_a_line_of_a_diff_ends_where_a_file_ends_it(folder: Folder) -> None:
    (folder.root / "f").write_bytes("a\rb\u2028c\n".encode())
    first = folder.take()
    (folder.root / "f").write_bytes("a\rb\u2028d\n".encode())
    (change,) = changes_between(folder.store, first, folder.take())
    lines = unified_diff(folder.store, change).split("\n")[3:]
    assert lines == ["-a\rb\u2028c", "+a\rb\u2028d", ""]


def test_what_cannot_be_read_is_named_and_left_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("theirs/f")
    folder.put("theirs/g")
    folder.put("own/f", "one")
    really_open = os.open

    def refused(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if path == "theirs":
            raise PermissionError(13, "Permission denied")
        return really_open(path, flags, mode, **more)

    with monkeypatch.context() as patched:  # the tests may run as root, who may read all
        patched.setattr(os, "open", refused)
        first = folder.take()
    assert folder.index.left_out == {"theirs": take.UNREADABLE}
    folder.put("theirs/f", "changed")
    folder.put("own/f", "two")
    folder.take()
    done = folder.restore(first)
    assert done.left_alone == ["theirs"]
    assert (folder.root / "theirs/f").read_text() == "changed"
    assert (folder.root / "own/f").read_text() == "one"

    def unreadable(descriptor: int, name: str, path: str) -> Any:
        raise PermissionError(13, f"{path} cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(take, "open_entry", unreadable)
        folder.put("own/f", "three")
        folder.take()
    assert folder.index.left_out["own/f"] == take.UNREADABLE


def test_a_nearly_full_disk_is_left_to_others(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("f", "x" * PIECE)
    usage = shutil.disk_usage(folder.home)._replace(free=2 * PIECE)

    def disk_usage(place: Path) -> Any:
        return usage

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", disk_usage)
        with pytest.raises(OSError, match="No space left"):
            folder.take()
    assert folder.take()
