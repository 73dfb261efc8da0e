import contextlib
import re
import resource
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from openmanus_graph.runtime import output
from openmanus_graph.runtime.output import (
    MIN_OBSERVATION_CHARS,
    max_observation_chars,
    plain,
    shorten,
)
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.files import read_file


def shorten_file(path: Path, workspace: Workspace, *, start: int = 0) -> str:
    with path.open("rb") as file:
        return output.shorten_file(file, workspace, start=start)


def test_money_is_shown_as_on_the_page() -> None:  # tests/page/units.test.js has the same
    shown = ["$0", "<$0.0001", "$0.0042", "$0.250", "$2.50"]
    assert [*map(output.money, (0, 0.00001, 0.0042, 0.25, 2.5))] == shown


def test_shorten_keeps_short_text(tmp_path: Path) -> None:
    assert shorten("all of it", Workspace(tmp_path, tmp_path / "private")) == "all of it"
    assert not (tmp_path / ".openmanus").exists()


def test_shorten_keeps_head_and_tail_and_says_where_the_whole_is(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path / "private")
    text = "".join(f"line {number}\n" for number in range(10000))

    short = shorten(text, workspace, max_chars=1000)

    assert short.startswith("line 0\n")
    assert short.endswith("line 9999\n")
    assert len(short) <= 1000
    assert "[... lines " in short
    [kept] = workspace.outputs.iterdir()
    assert workspace.relative(kept) in short
    assert kept.read_text() == text


def test_shorten_counts_what_it_left_out(tmp_path: Path) -> None:
    short = shorten(
        "a" * 1000 + "好" * 9000, Workspace(tmp_path, tmp_path / "private"), max_chars=300
    )
    note = short[short.index("[...") : short.index("...]")]  # has letters of its own
    shown = short.count("a") - note.count("a") + short.count("好")
    assert shown + int(note.split()[1]) == 10000


def test_same_output_gives_same_text(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path / "private")
    (tmp_path / "one").write_bytes(b"x" * 100_000)
    (tmp_path / "two").write_bytes(b"skipped" + b"x" * 100_000)

    first = shorten_file(tmp_path / "one", workspace)
    second = shorten_file(tmp_path / "two", workspace, start=7)

    assert first == second == shorten("x" * 100_000, workspace, MIN_OBSERVATION_CHARS)
    assert len(list(workspace.outputs.iterdir())) == 1


def test_shorten_file_replaces_invalid_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"a\xffb")
    assert shorten_file(path, Workspace(tmp_path, tmp_path / "private")) == "a�b"


def test_shorten_file_reads_all_while_a_program_prints_to_the_same_open_file(
    tmp_path: Path,
) -> None:
    workspace, content = Workspace(tmp_path, tmp_path / "private"), b"0123456789\n" * 400_000
    with (tmp_path / "spool").open("ab+") as file:
        file.write(content)
        file.flush()
        program = subprocess.Popen(["sh", "-c", "while :; do echo y; done"], stdout=file)
        try:
            shown = {output.shorten_file(file, workspace, end=len(content)) for _ in range(5)}
        finally:
            program.kill()
            program.wait()
    assert len(shown) == 1
    assert [kept.read_bytes() for kept in workspace.outputs.iterdir()] == [content]


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


@pytest.mark.parametrize(
    ("window_tokens", "max_chars"),
    [(4_000, 7_000), (32_000, 7_000), (128_000, 10_240), (10**6, 80_000)],
)
def test_an_observations_length_grows_with_the_window(window_tokens: int, max_chars: int) -> None:
    assert max_observation_chars(window_tokens) == max_chars


def lines(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.parametrize("from_file", [True, False])
def test_a_little_more_than_that_is_shown_whole(tmp_path: Path, *, from_file: bool) -> None:
    workspace = Workspace(tmp_path, tmp_path / "private")
    for text in ("好" * 8050, "x" * 8050):
        (tmp_path / "text").write_text(text)
        shown = (
            shorten_file(tmp_path / "text", workspace) if from_file else shorten(text, workspace)
        )
        assert shown == text
    assert not workspace.private.exists()


@pytest.mark.parametrize("ending", ["\n", "", "\r\n"])
@pytest.mark.parametrize("count", [2_000, 200_000])
def test_the_mark_names_the_lines_that_read_file_shows(
    tmp_path: Path, count: int, ending: str
) -> None:
    session = tool_session(tmp_path / "w")
    text = lines(count).removesuffix("\n") + ending
    (tmp_path / "text").write_bytes(text.encode())
    short = shorten_file(tmp_path / "text", session.workspace)
    head, mark, tail = re.split(r"^\[\.\.\. (.*) \.\.\.\]\n", short, flags=re.MULTILINE)
    first, last, total = map(int, re.findall(r"lines (\d+)-(\d+) of (\d+) left out", mark)[0])
    assert total == count
    assert head.splitlines()[-1] == f"line {first - 1}"
    assert tail.splitlines()[0] == f"line {last + 1}"
    named = re.findall(r'read_file\(path="(.*)", lines="(.*)"\) shows them', mark)[0]
    read = {"path": named[0], "lines": named[1], "runtime": tool_runtime(session)}
    call = {"type": "tool_call", "id": "call_1", "name": "read_file", "args": read}
    rest = str(read_file.invoke(call).content).splitlines()
    assert rest[1] == f"line {first}"
    session.close()


def test_progress_that_is_overwritten_does_not_change_line_numbers(tmp_path: Path) -> None:
    """For `read_file` as for the mark a carriage return ends no line."""
    session = tool_session(tmp_path / "w")
    (session.workspace.root / "log").write_bytes(b"10%\r50%\r100%\nsecond\r\nthird\n")
    read = {"path": "log", "lines": "2-3", "runtime": tool_runtime(session)}
    call = {"type": "tool_call", "id": "call_1", "name": "read_file", "args": read}
    assert str(read_file.invoke(call).content).split("\n")[1:] == ["second", "third"]
    session.close()
