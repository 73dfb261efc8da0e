import contextlib
import resource
from collections.abc import Generator
from pathlib import Path

from openmanus_graph.runtime import output
from openmanus_graph.runtime.observation_room import MIN_ROOM
from openmanus_graph.runtime.output import plain, shorten
from openmanus_graph.runtime.workspace import Workspace


def shorten_file(path: Path, workspace: Workspace, *, start: int = 0) -> str:
    with path.open("rb") as file:
        return output.shorten_file(file, workspace, start=start)


def test_shorten_keeps_short_text(tmp_path: Path) -> None:
    assert shorten("all of it", Workspace(tmp_path, tmp_path / "private")) == "all of it"
    assert not (tmp_path / ".openmanus").exists()


def test_shorten_keeps_head_and_tail_and_says_where_the_whole_is(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path / "private")
    text = "".join(f"line {number}\n" for number in range(10000))

    short = shorten(text, workspace, room=1000)

    assert short.startswith("line 0\n")
    assert short.endswith("line 9999\n")
    assert len(short) <= 1000
    assert "[... lines " in short
    [kept] = workspace.outputs.iterdir()
    assert workspace.relative(kept) in short
    assert kept.read_text() == text


def test_shorten_counts_what_it_left_out(tmp_path: Path) -> None:
    short = shorten("a" * 1000 + "好" * 9000, Workspace(tmp_path, tmp_path / "private"), room=300)
    note = short[short.index("[...") : short.index("...]")]  # has letters of its own
    shown = short.count("a") - note.count("a") + short.count("好")
    assert shown + int(note.split()[1]) == 10000


def test_same_output_gives_same_text(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path / "private")
    (tmp_path / "one").write_bytes(b"x" * 100_000)
    (tmp_path / "two").write_bytes(b"skipped" + b"x" * 100_000)

    first = shorten_file(tmp_path / "one", workspace)
    second = shorten_file(tmp_path / "two", workspace, start=7)

    assert first == second == shorten("x" * 100_000, workspace, MIN_ROOM)
    assert len(list(workspace.outputs.iterdir())) == 1


def test_shorten_file_replaces_invalid_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"a\xffb")
    assert shorten_file(path, Workspace(tmp_path, tmp_path / "private")) == "a�b"


def test_shorten_file_copies_long_streams_byte_for_byte(tmp_path: Path) -> None:
    workspace, path = Workspace(tmp_path, tmp_path / "private"), tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe" * 3_000_000)

    short = shorten_file(path, workspace)

    assert len(short) <= 7000
    [kept] = workspace.outputs.iterdir()
    assert kept.read_bytes() == path.read_bytes()


def test_plain_takes_out_colours_and_overwritten_progress() -> None:
    assert plain("\x1b[31mred\x1b[0m") == "red"
    assert plain(" 10%\r 50%\r100%\ndone\r\n") == "100%\ndone\n"


@contextlib.contextmanager
def no_room() -> Generator[None]:
    """Let this process write to no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_output_that_cannot_be_saved_still_shows_its_ends(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path / "private")
    text = "head" + "x" * 100_000 + "tail"
    (tmp_path / "stream").write_text(text)
    with no_room():
        shown = [shorten(text, workspace), shorten_file(tmp_path / "stream", workspace)]
    for short in shown:
        assert short.startswith("head")
        assert short.endswith("tail")
        assert "the whole could not be saved: File too large" in short
    assert list(workspace.outputs.iterdir()) == []
