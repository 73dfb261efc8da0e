"""Files are opened beneath a folder, by the kernel or part by part, and nothing else is opened."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmanus_graph.safety import open_beneath
from openmanus_graph.safety.open_beneath import (
    Identity,
    UnsafeFileError,
    identity,
    located,
    open_entry,
    open_to_read,
    read_beneath,
    read_whole,
)
from openmanus_graph.safety.open_beneath import open_beneath as opened

LIMIT = 1000


@pytest.fixture(params=["openat2", "part by part"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the kernel's call, and as where it is missing."""
    if request.param == "part by part":
        monkeypatch.setattr(open_beneath, "_openat2", lambda: None)
    elif sys.platform == "linux":
        open_folder = open_beneath._openat2()  # pyright: ignore[reportPrivateUsage]  # both ways are tested
        assert open_folder is not None
        top = os.open("/", os.O_RDONLY)
        opened = open_folder(top, b".")
        os.close(top)
        assert opened is not None, "this kernel has it"
        os.close(opened)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "rooted").mkdir()
    (tmp_path / "rooted" / "x").write_text("secret")
    return root


@pytest.fixture(autouse=True)
def no_descriptor_stays_open(tmp_path: Path) -> Iterator[None]:
    """None to this test's own files: what other tests left is closed whenever it is collected."""
    yield
    if sys.platform == "linux":
        opened = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
        assert not [path for path in opened if path.startswith(os.path.realpath(tmp_path))]


@pytest.mark.parametrize(
    "path",
    [
        "a/b/file.txt",
        "./a//b/./file.txt",
        "a/../a/b/../b/file.txt",
        "{root}/a/b/file.txt",
        "../root/a/b/file.txt",
        "to-file",
        "to-folder/file.txt",
        "to-folder/../b/file.txt",
        "absolute/file.txt",
        "a/up/a/b/file.txt",
        "out-and-in/b/file.txt",
        "chain",
        "alias/b/file.txt",
    ],
)
def test_what_stays_inside_is_read(root: Path, path: str) -> None:
    (root / "to-file").symlink_to("a/b/file.txt")
    (root / "to-folder").symlink_to("a/b")
    (root / "absolute").symlink_to(root / "a" / "b")
    (root / "a" / "up").symlink_to("..")
    (root / "out-and-in").symlink_to("../root/a")
    (root / "chain").symlink_to("absolute/../b/../../to-file")
    (root.parent / "other-name").symlink_to(root)
    (root / "alias").symlink_to(root.parent / "other-name" / "a")
    assert read_beneath(root, path.format(root=root), LIMIT) == b"inside"
    with located(root, path.format(root=root)) as place:
        assert (place.name, place.path) == ("file.txt", "a/b/file.txt")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "{root}/../secret.txt",
        "{root}ed/x",
        "/etc/passwd",
        "a/../../secret.txt",
        "to-file",
        "to-folder/secret.txt",
        "a/b/absolute",
        "chain",
        "proc/self/root/etc/passwd",
        "magic/secret.txt",
    ],
)
def test_what_leads_out_is_refused(root: Path, path: str) -> None:
    (root / "to-file").symlink_to("../secret.txt")
    (root / "to-folder").symlink_to("..")
    (root / "a" / "b" / "absolute").symlink_to(root.parent / "secret.txt")
    (root / "chain").symlink_to("a/b/absolute")
    (root / "proc").symlink_to("/proc")
    outside = os.open(root.parent, os.O_RDONLY)
    (root / "magic").symlink_to(f"/proc/{os.getpid()}/fd/{outside}")
    try:
        with pytest.raises(UnsafeFileError, match="outside") as raised:
            read_beneath(root, path.format(root=root), LIMIT)
        assert raised.value.errno == errno.EXDEV
        with pytest.raises(UnsafeFileError), located(root, path.format(root=root), create=True):
            pass
    finally:
        os.close(outside)


def test_links_are_not_followed_where_none_may_be(root: Path) -> None:
    (root / "to-file").symlink_to("a/b/file.txt")
    (root / "to-folder").symlink_to("a")
    with pytest.raises(UnsafeFileError, match="to-file is a symbolic link"):
        opened(root, "to-file", follow=False)
    with pytest.raises(NotADirectoryError):
        opened(root, "to-folder/b/file.txt", follow=False)
    assert read_beneath(root, "a/b/file.txt", LIMIT, follow=False) == b"inside"


@pytest.mark.parametrize("path", ["loop", "loop/x", "/".join(["a", ".."] * 60)])
def test_loops_end(root: Path, path: str) -> None:
    (root / "loop").symlink_to("a/pool")
    (root / "a" / "pool").symlink_to("../loop")
    with pytest.raises(OSError, match="Too many levels"):
        opened(root, path)


def test_a_missing_entry_has_a_place_and_folders_are_created_inside_only(root: Path) -> None:
    with located(root, "a/new.txt") as place:
        assert place.path == "a/new.txt"
        os.close(os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=place.folder))
    assert (root / "a" / "new.txt").exists()
    with pytest.raises(FileNotFoundError), located(root, "new/folder/x"):
        pass
    (root / "later").symlink_to("made/by/a/link")
    with located(root, "later/x", create=True) as place:
        assert place.path == "made/by/a/link/x"
    (root / "out").symlink_to("../elsewhere")
    for path in ("out/x", "../elsewhere/x", "new/../../elsewhere/x"):
        with pytest.raises(UnsafeFileError), located(root, path, create=True):
            pass
    assert not (root.parent / "elsewhere").exists()


@pytest.mark.parametrize("path", ["", ".", "a/..", "{root}", "a/b/../..", "up"])
def test_the_root_is_an_entry_of_itself(root: Path, path: str) -> None:
    (root / "up").symlink_to("../root")
    with located(root, path.format(root=root)) as place:
        assert (place.name, place.path) == (".", "")
        assert sorted(os.listdir(place.folder)) == ["a", "up"]  # noqa: PTH208  # a descriptor
    with pytest.raises(UnsafeFileError, match="is a folder, not a file"):
        opened(root, path.format(root=root))


@pytest.mark.parametrize("kind", ["FIFO", "socket", "folder", "device"])
@pytest.mark.parametrize("by_link", [False, True])
def test_only_regular_files_are_opened_and_at_once(root: Path, kind: str, by_link: bool) -> None:
    thing = root / "thing"
    if kind == "FIFO":
        os.mkfifo(thing)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.relpath(thing))
    elif kind == "folder":
        thing.mkdir()
    elif os.geteuid() != 0 or not _makes_device(thing):
        root, thing = Path("/dev"), Path("/dev/zero")
    if by_link and root != Path("/dev"):
        (root / "link").symlink_to("thing")
    name = "link" if by_link and root != Path("/dev") else thing.name
    with pytest.raises(UnsafeFileError, match=f"{name} is a {kind}, not a file"):
        read_beneath(root, name, LIMIT)


def _makes_device(place: Path) -> bool:
    try:
        os.mknod(place, 0o600 | 0o020000, os.makedev(1, 5))
    except OSError:
        return False
    return True


def test_a_read_has_a_limit_also_where_the_file_grows(root: Path) -> None:
    (root / "sparse").touch()
    os.truncate(root / "sparse", 10 * 1024**4)
    with pytest.raises(UnsafeFileError, match=r"sparse has 10\.0 TB; at most 1000 bytes can be"):
        read_beneath(root, "sparse", LIMIT)
    with pytest.raises(UnsafeFileError, match=r"10\.0 TB"):
        opened(root, "sparse", limit=LIMIT)
    with opened(root, "a/b/file.txt", limit=LIMIT) as file:
        (root / "a" / "b" / "file.txt").write_bytes(b"x" * (LIMIT + 1))
        with pytest.raises(UnsafeFileError, match="at most 1000 bytes"):
            read_whole(file, "file.txt", LIMIT)
    (root / "full").write_bytes(b"x" * LIMIT)
    assert read_beneath(root, "full", LIMIT) == b"x" * LIMIT


def read_unless_hidden(root: Path, path: str, hidden: set[Identity]) -> bytes:
    with (
        located(root, path, hidden=hidden) as place,
        open_to_read(place.folder, place.name, path, hidden=hidden) as file,
    ):
        return file.read()


def test_what_is_hidden_is_found_by_what_it_is_and_not_by_its_name(root: Path) -> None:
    (root / "keys").write_text("secret")
    (root / "home" / "deep").mkdir(parents=True)
    (root / "home" / "deep" / "x").write_text("secret")
    hidden = {identity(root / "keys"), identity(root / "home")}
    os.link(root / "keys", root / "other")
    (root / "link").symlink_to("home/deep")
    for path in ("keys", "other", "home/deep/x", "link/x", "a/../home/deep/x"):
        with pytest.raises(UnsafeFileError, match="belongs to OpenManus itself"):
            read_unless_hidden(root, path, hidden)
    (root / "home").rename(root / "a" / "moved")
    (root / "home").mkdir()
    with pytest.raises(UnsafeFileError, match="belongs to OpenManus itself"):
        read_unless_hidden(root, "a/moved/deep/x", hidden)
    assert read_unless_hidden(root, "a/b/file.txt", hidden) == b"inside"


def test_odd_names_are_files_or_errors(root: Path) -> None:
    (root / "a\nb").write_text("odd")
    (root / "\udcff").write_text("odd")
    for name in ("a\nb", "\udcff"):
        assert read_beneath(root, name, LIMIT) == b"odd"
    for name in ("a\0b", "\ud800", "a/\udfff/b"):
        with pytest.raises(UnsafeFileError, match="No file can have the name"):
            opened(root, name)
    with pytest.raises(OSError, match="too long"):
        opened(root, "x" * 300)
    with pytest.raises(NotADirectoryError):
        opened(root, "a/b/file.txt/x")


SWAPPER = """
import os, sys
root = sys.argv[1]
os.chdir(root)
os.symlink("../secret.txt", "link")
os.symlink("..", "folder-link")
print("ready", flush=True)
while True:
    for one, other in (("file", "link"), ("folder", "folder-link"), ("fifo", "file")):
        os.rename(one, "spare")
        os.rename(other, one)
        os.rename("spare", other)
"""


def test_a_program_that_swaps_entries_for_links_never_leads_out(root: Path) -> None:
    (root / "file").write_text("inside")
    (root / "folder").mkdir()
    (root / "folder" / "secret.txt").write_text("inside")
    os.mkfifo(root / "fifo")
    program = [sys.executable, "-c", SWAPPER, str(root)]
    seen = set[bytes]()
    with subprocess.Popen(program, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout
        assert swapper.stdout.readline() == b"ready\n"
        try:
            for turn in range(2000):
                try:
                    seen.add(read_beneath(root, ("file", "folder/secret.txt")[turn % 2], LIMIT))
                except OSError as error:
                    seen.add(type(error).__name__.encode())
        finally:
            swapper.kill()
    assert b"secret" not in seen
    assert {b"inside", b"UnsafeFileError"} <= seen


def test_an_entry_can_be_opened_to_append(root: Path) -> None:
    with located(root, "a/b/file.txt") as place:
        how = os.O_WRONLY | os.O_APPEND
        with os.fdopen(open_entry(place.folder, place.name, place.path, flags=how), "ab") as file:
            file.write(b" and more")
    assert read_beneath(root, "a/b/file.txt", LIMIT) == b"inside and more"
