import codecs
import io
import marshal
import os
import random
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from PIL import Image

from openmanus_graph.backends.files import file_edits
from openmanus_graph.backends.files.text_file import detect_encoding
from openmanus_graph.errors import NamesError, ToolError
from openmanus_graph.runtime.atomic_files import rewrite_file
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, as_tool_error, opened_folder
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools.files import str_replace_editor


class Editor(Protocol):
    def __call__(self, command: str, path: str | Path, **arguments: Any) -> Observation: ...


def editor_of(session: Session) -> Editor:
    def call(command: str, path: str | Path, **arguments: Any) -> Observation:
        message = str_replace_editor.invoke(
            {
                "type": "tool_call",
                "id": "call_1",
                "name": "str_replace_editor",
                "args": {
                    "command": command,
                    "path": str(path),
                    "runtime": tool_runtime(session),
                    **arguments,
                },
            }
        )
        assert isinstance(message, ToolMessage)
        observation = message.artifact
        assert isinstance(observation, Observation)
        assert message.content == observation.text
        return observation

    return call


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    opened = tool_session(tmp_path / "workspace")
    yield opened
    opened.close()


@pytest.fixture
def root(session: Session) -> Path:
    return session.workspace.root


@pytest.fixture
def edit(session: Session) -> Editor:
    return editor_of(session)


def numbered(*rows: tuple[int, str]) -> str:
    return "\n".join(f"{number:6}\t{text}" for number, text in rows)


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


# Staying inside


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "a/../../outside.txt"])
@pytest.mark.parametrize("command", ["view", "create", "str_replace", "insert", "undo_edit"])
def test_paths_out_of_the_workspace_are_refused(edit: Editor, command: str, path: str) -> None:
    with pytest.raises(ToolError, match="outside the workspace"):
        edit(command, path, file_text="x", old_str="a", new_str="b", insert_line=0)


def test_a_relative_and_an_absolute_path_name_the_same_file(edit: Editor, root: Path) -> None:
    edit("create", root / "a.txt", file_text="one\n")
    assert edit("view", "./x/../a.txt").text == numbered((1, "one"))


def test_links_out_of_the_workspace_are_refused(edit: Editor, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (root / "link").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)
    for path in ("link", "folder/outside.txt"):
        with pytest.raises(ToolError, match="outside the workspace"):
            edit("str_replace", path, old_str="mine", new_str="yours")
    assert outside.read_text() == "mine"


def test_a_link_within_the_workspace_stays_a_link(edit: Editor, root: Path) -> None:
    (root / "real.txt").write_text("one\n")
    (root / "link").symlink_to("real.txt")
    edit("str_replace", "link", old_str="one", new_str="two")
    assert (root / "link").is_symlink()
    assert (root / "real.txt").read_text() == "two\n"


def test_a_folder_replaced_by_a_link_after_the_check_is_not_entered(
    session: Session, tmp_path: Path
) -> None:
    workspace = session.workspace
    (workspace.root / "folder").mkdir()
    checked = workspace.root / "folder"
    checked.rmdir()
    (workspace.root / "folder").symlink_to(tmp_path)
    with (
        pytest.raises(OSError, match=r"Not a directory|symbolic"),
        opened_folder(workspace, checked),
    ):
        pass


def test_history_does_not_follow_a_planted_link(
    edit: Editor, session: Session, root: Path, tmp_path: Path
) -> None:
    (root / "a.txt").write_text("one\n")
    (tmp_path / "elsewhere").mkdir()
    (session.workspace.private / "edit_history").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolError, match="no file was changed"):
        edit("str_replace", "a.txt", old_str="one", new_str="two")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert (root / "a.txt").read_text() == "one\n"


def test_protected_files_are_out_of_reach(edit: Editor, session: Session, root: Path) -> None:
    (root / ".openmanus").mkdir()
    (root / ".openmanus/threads.db").write_text("secret")
    session.workspace = replace(session.workspace, protected=(root / ".openmanus",))
    with pytest.raises(ToolError, match="out of reach"):
        edit("view", ".openmanus/threads.db")


# View


def test_view_numbers_lines_like_cat(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("one\n\n\tthree")
    expected = subprocess.run(
        ["cat", "-n", root / "a.txt"], capture_output=True, text=True, check=True
    )
    assert edit("view", "a.txt").text == expected.stdout


@pytest.mark.parametrize(
    ("view_range", "rows"),
    [([2, 3], [2, 3]), ([2, -1], [2, 3, 4]), ([4, 4], [4]), ([3, 99], [3, 4])],
)
def test_view_range_selects_lines(
    edit: Editor, root: Path, view_range: list[int], rows: list[int]
) -> None:
    (root / "a.txt").write_text("l1\nl2\nl3\nl4\n")
    expected = numbered(*((row, f"l{row}") for row in rows))
    assert edit("view", "a.txt", view_range=view_range).text == expected


@pytest.mark.parametrize("view_range", [[0, 2], [5, 6], [3, 2], [1], [1, 2, 3], [-1, -1], [2, -5]])
def test_bad_view_ranges_are_refused(edit: Editor, root: Path, view_range: list[int]) -> None:
    (root / "a.txt").write_text("l1\nl2\nl3\nl4\n")
    with pytest.raises(ToolError, match="view_range"):
        edit("view", "a.txt", view_range=view_range)


def test_a_long_file_is_cut_in_the_middle_and_says_how_to_go_on(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 10_001)))
    text = edit("view", "a.txt").text
    assert len(text) < 17_000
    assert text.startswith(numbered((1, "line 1"), (2, "line 2")))
    assert text.endswith(numbered((9999, "line 9999"), (10_000, "line 10000")))
    notice = re.search(r"\[lines (\d+)-(\d+) of 10000 left out; .*=\[(\d+), (\d+)\]\]", text)
    assert notice
    first, last, begin, end = map(int, notice.groups())
    assert f"{first - 1:6}\t" in text
    assert f"{last + 1:6}\t" in text
    assert first == begin
    following = edit("view", "a.txt", view_range=[begin, end]).text
    assert following.startswith(numbered((begin, f"line {begin}")))
    assert "left out" not in following


def test_a_very_long_line_is_cut(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("x" * 1_000_000 + "\nnext\n")
    text = edit("view", "a.txt").text
    assert len(text) < 3000
    assert "[998000 more characters in this line]" in text
    assert text.endswith("     2\tnext")


def test_an_empty_file_says_so(edit: Editor, root: Path) -> None:
    (root / "a.txt").touch()
    assert "empty" in edit("view", "a.txt").text


def test_a_missing_file_says_so(edit: Editor) -> None:
    with pytest.raises(ToolError, match="does not exist"):
        edit("view", "none.txt")


def test_lone_cr_ends_lines(edit: Editor, root: Path) -> None:
    (root / "mac.txt").write_bytes(b"one\rtwo\r")
    text = edit("view", "mac.txt").text
    assert text.endswith(numbered((1, "one"), (2, "two")))
    assert "CR" in text


def test_form_feeds_and_unicode_separators_do_not_end_lines(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("a\x0cb\u2028c\x85d\n")
    assert edit("view", "a.txt").text == numbered((1, "a\x0cb\u2028c\x85d"))


def test_view_lists_two_levels_of_a_folder(edit: Editor, root: Path) -> None:
    (root / "b/deep/deeper").mkdir(parents=True)
    (root / "b/inner.txt").write_text("x" * 2048)
    (root / "b/deep/hidden_from_view.txt").touch()
    (root / "a.txt").write_text("hello")
    (root / ".git").mkdir()
    (root / "link").symlink_to("a.txt")
    assert edit("view", ".").text.split("\n") == [
        "./ (two levels, hidden entries left out)",
        "  a.txt  5 bytes",
        "  b/",
        "    deep/",
        "    inner.txt  2.0 KB",
        "  link -> a.txt",
    ]


def test_an_empty_folder_says_so(edit: Editor, root: Path) -> None:
    (root / "empty").mkdir()
    assert "(nothing)" in edit("view", "empty").text


def test_a_folder_of_5000_files_is_listed_in_part(edit: Editor, root: Path) -> None:
    (root / "many").mkdir()
    for number in range(5000):
        (root / f"many/{number:04}.txt").touch()
    text = edit("view", "many").text
    assert "  0299.txt  0 bytes\n  [4700 more entries left out" in text
    assert "0300" not in text
    from_above = edit("view", ".").text
    assert "    0049.txt  0 bytes\n    [4950 more entries left out]" in from_above


def test_strange_file_names_are_shown_safely(edit: Editor, root: Path) -> None:
    os.close(os.open(os.fsencode(root) + b"/bad\xff", os.O_CREAT))
    for name in ("new\nline", "\x1b[31mred", "it's $(rm -rf)", "rtl\u202etxt"):
        (root / name).touch()
    text = edit("view", ".").text
    assert "$'bad\\xff'" in text
    assert "$'new\\nline'" in text
    assert "$'\\x1b[31mred'" in text
    assert "it's $(rm -rf)" in text
    assert "$'rtl\\xe2\\x80\\xaetxt'" in text
    assert len(text.split("\n")) == 6
    quoted = next(row for row in text.split("\n") if "bad" in row).strip().split("  ")[0]
    found = subprocess.run(["bash", "-c", f"test -e {quoted}"], cwd=root, check=False)
    assert found.returncode == 0


def test_view_range_of_a_folder_is_ignored(edit: Editor) -> None:
    assert edit("view", ".", view_range=[1, 2]) == edit("view", ".")


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("view", {}),
        ("str_replace", {"old_str": "a", "new_str": "b"}),
        ("insert", {"insert_line": 0, "new_str": "b"}),
    ],
)
def test_a_missing_file_names_its_neighbours(
    edit: Editor, root: Path, command: str, more: dict[str, Any]
) -> None:
    (root / "report.md").write_text("a")
    for asked in ("Report.md", "/report.md", "/workspace/report.md"):
        with pytest.raises(NamesError, match=r"Did you mean report\.md\?"):
            edit(command, asked, **more)
    with pytest.raises(NamesError, match=r"There is: report\.md\."):
        edit(command, "raport.md", **more)
    assert (root / "report.md").read_text() == "a"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_view_shows_pictures(edit: Editor, root: Path, kind: str) -> None:
    (root / "pics").mkdir()
    path = root / "pics" / f"p.{kind.lower()}"
    Image.new("RGB", (37, 21), "red").save(path, kind)
    shown = edit("view", path)
    assert shown.images == (f"pics/{path.name}",)
    assert "37 x 21" in shown.text
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ToolError, match="cut off or broken"):
        edit("view", path)


@pytest.mark.parametrize("options", [{"lossless": True}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}])
def test_view_knows_every_kind_of_webp(edit: Editor, root: Path, options: dict[str, Any]) -> None:
    Image.new("RGB", (300, 5)).save(root / "p.webp", "WEBP", **options)
    assert "300 x 5" in edit("view", "p.webp").text


def test_a_picture_over_the_limit_is_refused(edit: Editor, root: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (9, 9)).save(picture, "PNG")
    (root / "p.png").write_bytes(picture.getvalue() + bytes(10 * 1024 * 1024))
    with pytest.raises(ToolError, match=r"limit is 10.0 MB"):
        edit("view", "p.png")


def test_text_named_like_a_picture_is_shown_as_text(edit: Editor, root: Path) -> None:
    (root / "p.png").write_text("404 not found\n")
    shown = edit("view", "p.png")
    assert shown.images == ()
    assert "named like a picture" in shown.text
    assert "404 not found" in shown.text


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.4\nplain ascii", "PDF document"),
        (b"PK\x03\x04\0\0", "zip archive"),
        (bytes(range(256)) * 8, "binary file"),
    ],
)
def test_binary_files_are_named_and_refused(
    edit: Editor, root: Path, content: bytes, kind: str
) -> None:
    (root / "f.bin").write_bytes(content)
    for command in ("view", "str_replace"):
        with pytest.raises(ToolError, match=f"{kind} of .* bytes|{kind} of .* KB") as error:
            edit(command, "f.bin", old_str="a", new_str="b")
        assert "read_file" in str(error.value)


def test_fifos_sockets_and_folders_are_refused(edit: Editor, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "folder").mkdir()
    here = os.open(root, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{here}/socket")
        for kind in ("fifo", "socket"):
            for command in ("view", "str_replace", "insert"):
                with pytest.raises(ToolError, match=rf"(?i){kind}, not a file"):
                    edit(command, kind, old_str="a", new_str="b", insert_line=0)
    os.close(here)
    with pytest.raises(ToolError, match="folder, not a file"):
        edit("str_replace", "folder", old_str="a", new_str="b")


def test_devices_are_refused(session: Session, edit: Editor) -> None:
    session.workspace = Workspace(Path("/dev"), session.workspace.private)
    with pytest.raises(ToolError, match="is a device, not a file"):
        edit("view", "zero")


# Create


def test_create_makes_folders_and_keeps_the_text_as_given(edit: Editor, root: Path) -> None:
    edit("create", "a/b/c.txt", file_text="tab\there\r\nend")
    assert (root / "a/b/c.txt").read_bytes() == b"tab\there\r\nend"
    assert not leftovers(root)


def test_create_refuses_an_existing_path_with_advice(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("old")
    with pytest.raises(ToolError, match=r"already exists.*overwrite=true.*str_replace"):
        edit("create", "a.txt", file_text="new")
    with pytest.raises(ToolError, match="already exists"):
        edit("create", ".", file_text="new")
    assert (root / "a.txt").read_text() == "old"


def test_create_replaces_a_file_when_it_is_told_to(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_bytes(b"old\r\n")
    (root / "a.txt").chmod(0o600)
    seen = edit("create", "a.txt", file_text="new\n", overwrite=True)
    assert seen.text == "Replaced a.txt (1 lines)."
    assert (root / "a.txt").read_text() == "new\n"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o600
    assert not leftovers(root)
    edit("undo_edit", "a.txt")
    assert (root / "a.txt").read_bytes() == b"old\r\n"


def test_overwrite_makes_a_new_file_as_well(edit: Editor, root: Path) -> None:
    assert edit("create", "a.txt", file_text="new", overwrite=True).text.startswith("Created a.txt")
    edit("undo_edit", "a.txt")
    assert not (root / "a.txt").exists()


def test_overwrite_takes_no_folder_and_no_link_out(
    edit: Editor, root: Path, tmp_path: Path
) -> None:
    (root / "folder").mkdir()
    outside = tmp_path.parent / f"{tmp_path.name}-outside.txt"
    outside.write_text("theirs")
    (root / "out.txt").symlink_to(outside)
    for path in ("folder", "out.txt"):
        with pytest.raises(ToolError):
            edit("create", path, file_text="new", overwrite=True)
    assert (root / "folder").is_dir()
    assert outside.read_text() == "theirs"


def test_create_below_a_file_is_an_error(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("old")
    with pytest.raises(ToolError, match="not a folder"):
        edit("create", "a.txt/b.txt", file_text="new")


def test_create_with_a_name_too_long_is_an_error(edit: Editor) -> None:
    with pytest.raises(ToolError, match="too long"):
        edit("create", "x" * 300, file_text="new")


def test_undo_removes_a_created_file_again(edit: Editor, root: Path) -> None:
    edit("create", "a.txt", file_text="new")
    assert "removed" in edit("undo_edit", "a.txt").text
    assert not (root / "a.txt").exists()


# Replace


def test_replace_shows_four_lines_around_the_change(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("".join(f"l{n}\n" for n in range(1, 21)))
    text = edit("str_replace", "a.txt", old_str="l10\n", new_str="X\nY\n").text
    rows = [(n, f"l{n}") for n in range(6, 10)] + [(10, "X"), (11, "Y")]
    rows += [(n + 1, f"l{n}") for n in range(11, 15)]
    assert text.split("\n", 1)[1] == numbered(*rows)


def test_replace_without_new_str_deletes(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("keep\ndrop\n")
    edit("str_replace", "a.txt", old_str="drop\n")
    assert (root / "a.txt").read_text() == "keep\n"


@pytest.mark.parametrize(("content", "lines"), [("ab\nx\nab\n", "1, 3"), ("aaa\n", "1, 1")])
def test_several_matches_are_refused_with_their_lines(
    edit: Editor, root: Path, content: str, lines: str
) -> None:
    (root / "a.txt").write_text(content)
    with pytest.raises(ToolError, match=f"more than once, at lines {lines};"):
        edit("str_replace", "a.txt", old_str=content[:2], new_str="c")
    assert (root / "a.txt").read_text() == content


@pytest.mark.parametrize(
    ("content", "old", "what", "rows"),
    [
        ("import os\n\ndef total(items):\n", "def totals(item):", "line 3, is",
         ["- def totals(item):", "+ def total(items):"]),
        ("if x:\n\tdo()\n\tend()\n", "    do()\n    end()",
         "lines 2-3, differs only in indentation",
         [r"- '    do()'", r"- '    end()'", r"+ '\tdo()'", r"+ '\tend()'"]),
        ("if x:\n\tdo()  # now\n", "if x:\n do() # now", "lines 1-2, differs only in whitespace",
         ["  'if x:'", "- ' do() # now'", r"+ '\tdo()  # now'"]),
        ("a = f(1,  2)\n", "f(1, 2)", "line 1, differs only in whitespace",
         ["- 'f(1, 2)'", "+ 'a = f(1,  2)'"]),
        ("a\u00a0b\n", "a b", "line 1, differs only in whitespace", ["- 'a b'", r"+ 'a\xa0b'"]),
        ("a\r\n\r\nb\r\n", "a\r\nb\r\n", "lines 1-3, differs only in whitespace",
         ["  'a'", "+ ''", "  'b'"]),
        ("say(“hi”)\n", 'say("hi")', "line 1, differs only in quotes or dashes",
         ["- 'say(\"hi\")'", "+ 'say(“hi”)'"]),
        ("Name: Foo\n", "name: foo", "line 1, differs only in upper and lower case",
         ["- 'name: foo'", "+ 'Name: Foo'"]),
        ("def f():\n    a = 1\n    b = 2\n    return a\n", "def f():\n    a = 1\n    return a",
         "lines 1-4, is", ["      a = 1", "+     b = 2", "      return a"]),
        ("x = 1\n" * 9 + "one\ntwo\nthree\n", "one\n2\nthree", "lines 10-12, is",
         ["  one", "- 2", "+ two", "  three"]),
        ("x" * 5000 + "one" + "y" * 5000, "x" * 5000 + "two" + "y" * 5000, "line 1, is",
         [f"- {'x' * 40}two{'y' * 157}", f"+ {'x' * 40}one{'y' * 157}"]),
        ("a\nb", "a\nb\n", "lines 1-2, is",
         ["(These lines are the same: the difference is after them.)"]),
        ("a\n" * 30, "b\n" * 30 + "a", "line 1, is",
         [*["- b"] * 8, "  a", "[22 more lines]"]),
    ],
)  # fmt: skip
def test_a_text_that_is_not_there_is_shown_beside_the_nearest(
    edit: Editor, root: Path, content: str, old: str, what: str, rows: list[str]
) -> None:
    (root / "a.txt").write_text(content, encoding="utf-8", newline="")
    with pytest.raises(ToolError, match="not found exactly; the file was not changed") as error:
        edit("str_replace", "a.txt", old_str=old, new_str="y")
    head, *shown = str(error.value).split("\n")
    assert f" The nearest text, {what} (- old_str, + file):" in head
    assert shown == rows
    assert (root / "a.txt").read_bytes().decode() == content


LINES = "".join(f"row {n} of it\n" for n in range(60_000))


@pytest.mark.parametrize(
    ("content", "old"),
    [
        ("a b " * 500_000, "a\tb " * 5000 + "c"),
        (LINES, LINES.replace("it", "i")),
        (LINES, "z" * 1_000_000),
        ("\n" * 1000, "\n q"),
        ("x\n", "\u00a0\t"),
    ],
    ids=["words", "lines", "one line", "blank", "spaces"],
)  # fmt: skip
def test_a_large_or_blank_text_that_is_not_there_is_answered_in_short(
    edit: Editor, root: Path, content: str, old: str
) -> None:
    (root / "a.txt").write_text(content)
    with pytest.raises(ToolError, match="not found exactly") as error:
        edit("str_replace", "a.txt", old_str=old, new_str="y")
    assert len(str(error.value)) < 1000


def test_a_large_edit_is_not_echoed_whole(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("".join(f"l{n}\n" for n in range(1, 21)))
    new = "".join(f"new {n}\n" for n in range(1, 301))
    text = edit("str_replace", "a.txt", old_str="l10\n", new_str=new).text
    assert "     9\tl9\n    10\tnew 1\n" in text
    assert "   309\tnew 300\n   310\tl11\n" in text
    assert "left out; see more with view_range=" in text
    assert len(text) < 1000
    inserted = edit("insert", "a.txt", insert_line=0, new_str="w" * 100_000).text
    assert len(inserted) < 3000


def test_copied_line_numbers_are_recognised(edit: Editor, root: Path) -> None:
    (root / "a.py").write_text("one\ntwo\n")
    with pytest.raises(ToolError, match="line numbers that view shows"):
        edit("str_replace", "a.py", old_str="     1\tone\n     2\ttwo", new_str="y")


def test_an_empty_or_unchanged_old_str_is_refused(edit: Editor, root: Path) -> None:
    (root / "a.py").write_text("one\n")
    with pytest.raises(ToolError, match="old_str is empty"):
        edit("str_replace", "a.py", old_str="", new_str="y")
    with pytest.raises(ToolError, match="are the same"):
        edit("str_replace", "a.py", old_str="one", new_str="one")


def test_tabs_of_the_whole_file_survive(edit: Editor, root: Path) -> None:
    (root / "Makefile").write_text("all:\n\tcc a.c\nclean:\n\trm a\n")
    edit("str_replace", "Makefile", old_str="\tcc a.c", new_str="\tcc -O2 a.c")
    assert (root / "Makefile").read_text() == "all:\n\tcc -O2 a.c\nclean:\n\trm a\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("given", ["\n", "\r\n"])
def test_line_ends_of_the_file_are_kept(edit: Editor, root: Path, end: str, given: str) -> None:
    (root / "a.txt").write_bytes(end.join(["a", "b", "c", "d"]).encode())
    edit("str_replace", "a.txt", old_str=f"b{given}c", new_str=f"b{given}new{given}C")
    assert (root / "a.txt").read_bytes() == end.join(["a", "b", "new", "C", "d"]).encode()


def test_mixed_line_ends_change_only_where_edited(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_bytes(b"a\r\nb\nc\r\nd\re\n")
    edit("str_replace", "a.txt", old_str="a\nb\nc\nd\ne\n", new_str="a\nb\nX\nY\nd\ne\n")
    assert (root / "a.txt").read_bytes() == b"a\r\nb\nX\r\nY\r\nd\re\n"


def test_old_str_may_begin_and_end_with_line_ends(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_bytes(b"a\r\n\r\nb\r\nc")
    edit("str_replace", "a.txt", old_str="\n\nb\n", new_str="\nB\n")
    assert (root / "a.txt").read_bytes() == b"a\r\nB\r\nc"


def test_an_edit_that_would_merge_cr_and_lf_is_refused(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_bytes(b"a\rb\nc\n")
    with pytest.raises(ToolError, match="join a lone CR and a LF"):
        edit("str_replace", "a.txt", old_str="b", new_str="")
    assert (root / "a.txt").read_bytes() == b"a\rb\nc\n"


FRENCH = "Le café est très bon, déjà vu à l'été.\n"
CHINESE = "编码检测测试文件，包含一些中文内容。\n第二行也有内容\n"


@pytest.mark.parametrize(
    ("text", "encoding", "bom", "new"),
    [
        (FRENCH, "utf-8", b"", "日本"),
        (FRENCH, "utf-8", codecs.BOM_UTF8, "日本"),
        (FRENCH, "utf-16-le", codecs.BOM_UTF16_LE, "日本"),
        (FRENCH, "utf-16-be", codecs.BOM_UTF16_BE, "日本"),
        (FRENCH, "utf-16-le", b"", "日本"),
        (FRENCH, "utf-32-le", codecs.BOM_UTF32_LE, "日本"),
        (FRENCH, "latin-1", b"", "thé"),
        ("# café\nprint('hello world')\n", "cp1252", b"", "thé"),
        (FRENCH + "“quoted” – 5 €\n", "cp1252", b"", "“thé”"),
        (CHINESE, "gbk", b"", "中国"),
        ("print('你好')\n", "gbk", b"", "再见"),
        ("これはテストです。漢字も少し。\n", "shift_jis", b"", "日本"),
        ("これはテストです。漢字も少し。\n", "euc_jp", b"", "日本"),
        ("Привет, мир! Это проверка кодировки текста.\n", "cp1251", b"", "слово"),
    ],
)
def test_the_encoding_is_kept_to_the_byte(
    edit: Editor, root: Path, text: str, encoding: str, bom: bytes, new: str
) -> None:
    before = text + "MARK\tend"
    (root / "a.txt").write_bytes(bom + before.encode(encoding))
    shown = edit("view", "a.txt").text
    assert text.split("\n")[0] in shown
    edit("str_replace", "a.txt", old_str="MARK", new_str=new)
    assert (root / "a.txt").read_bytes() == bom + before.replace("MARK", new).encode(encoding)
    edit("undo_edit", "a.txt")
    assert (root / "a.txt").read_bytes() == bom + before.encode(encoding)


def small_png() -> bytes:
    picture = io.BytesIO()
    Image.new("L", (3, 3), 200).save(picture, "PNG")
    return picture.getvalue()


def small_zip() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "a b\n")
    return archive.getvalue()


RUSSIAN = "Привет, мир! Это проверка.\nИ ещё строка.\n"
JAPANESE = "これはテストです。 漢字も少し。\n二行目\n"
HINDI = "नमस्ते दुनिया। यह एक परीक्षण है।\n"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (marshal.dumps(compile("x = 1\n", "a.py", "exec")) * 2, None),
        (b"\xa7\r\r\n" + bytes(12) + marshal.dumps(compile("", "a", "exec")), None),
        (small_png(), None),
        (small_zip(), None),
        (b"PK\x05\x06" + bytes(18), None),
        (b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQ", 1, 62, 1, 0, 0, 512), None),
        (struct.pack("<64H", *range(1, 65)), None),
        (struct.pack(">50H", *range(30, 80)), None),
        (struct.pack("<95H", *range(32, 127)), None),
        (struct.pack("<8H", *[65] * 8), None),
        (struct.pack("<20H", *[10, 33] * 10), None),
        (struct.pack("<100h", *((n * 37) % 200 - 100 for n in range(100))), None),
        (b"\0\1", None),
        (b"a\0", None),
        (b"\n\0", None),
        (bytes(10), None),
        *((random.Random(n).randbytes(20 + 2 * n) + b"\0\0", None) for n in range(40)),
        ("one\ntwo\n".encode("utf-16-le"), "utf-16-le"),
        ("one\ntwo\n".encode("utf-16-be"), "utf-16-be"),
        ("a,b\r\n1,2\r\n".encode("utf-16-le"), "utf-16-le"),
        ("x\n".encode("utf-16"), "utf-16-le"),
        *(
            (text.encode(name), name)
            for text in (FRENCH, RUSSIAN, CHINESE, JAPANESE, HINDI)
            for name in ("utf-16-le", "utf-16-be")
        ),
    ],
)
def test_only_what_is_plainly_utf16_is_read_as_such(data: bytes, name: str | None) -> None:
    found = detect_encoding(data)
    assert (found.name if found else None) == name


def test_a_small_binary_is_not_written_into(edit: Editor, root: Path) -> None:
    data = struct.pack("<64H", *range(1, 65))
    (root / "counts.bin").write_bytes(data)
    with pytest.raises(ToolError, match="not text but a binary file"):
        edit("insert", "counts.bin", insert_line=0, new_str="x")
    assert (root / "counts.bin").read_bytes() == data


def test_text_in_another_encoding_can_be_matched(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_bytes(FRENCH.encode("cp1252"))
    edit("str_replace", "a.txt", old_str="café", new_str="thé")
    assert (root / "a.txt").read_bytes() == FRENCH.replace("café", "thé").encode("cp1252")


def test_broken_bytes_in_utf8_are_kept(edit: Editor, root: Path) -> None:
    before = "été déjà\n".encode() + b"bad \xff byte \xc3\n" + b"MARK\n"
    (root / "a.txt").write_bytes(before)
    shown = edit("view", "a.txt").text
    assert "été" in shown
    assert "bad \ufffd byte \ufffd" in shown
    edit("str_replace", "a.txt", old_str="MARK", new_str="日本")
    assert (root / "a.txt").read_bytes() == before.replace(b"MARK", "日本".encode())


@pytest.mark.parametrize("command", ["str_replace", "insert", "create"])
def test_half_a_character_is_refused(edit: Editor, root: Path, command: str) -> None:
    (root / "a.txt").write_text("one\n")
    path = "b.txt" if command == "create" else "a.txt"
    for text in ("\ud800", "x\udcff"):
        with pytest.raises(ToolError, match="no file was changed"):
            edit(command, path, old_str="one", new_str=text, insert_line=0, file_text=text)
    assert (root / "a.txt").read_bytes() == b"one\n"
    assert not (root / "b.txt").exists()


def test_a_character_outside_the_encoding_is_refused(edit: Editor, root: Path) -> None:
    before = FRENCH.encode("cp1252")
    (root / "a.txt").write_bytes(before)
    with pytest.raises(ToolError, match="cp1252, the file's encoding"):
        edit("str_replace", "a.txt", old_str="café", new_str="日本")
    assert (root / "a.txt").read_bytes() == before


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o640])
def test_permissions_are_kept(edit: Editor, root: Path, mode: int) -> None:
    path = root / "run.sh"
    path.write_text("#!/bin/sh\necho one\n")
    path.chmod(mode)
    edit("str_replace", path, old_str="one", new_str="two")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    edit("undo_edit", path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


# Insert


@pytest.mark.parametrize(
    ("before", "line", "new", "after"),
    [
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\n", b"a\nx\nb\n"),
        (b"a\nb\n", 2, "x\ny", b"a\nb\nx\ny\n"),
        (b"a\r\nb\r\n", 1, "x\ny", b"a\r\nx\r\ny\r\nb\r\n"),
        (b"a\rb\r", 0, "x", b"x\ra\rb\r"),
        (b"a\nb", 2, "x", b"a\nb\nx"),
        (b"a\r\nb", 2, "x\ny", b"a\r\nb\r\nx\r\ny"),
        (b"a\nb", 2, "x\n", b"a\nb\nx\n"),
        (b"a\nb", 1, "x", b"a\nx\nb"),
        (b"", 0, "x", b"x\n"),
        (b"a\n", 1, "", b"a\n\n"),
    ],
)
def test_insert_adds_whole_lines(
    edit: Editor, root: Path, before: bytes, line: int, new: str, after: bytes
) -> None:
    (root / "a.txt").write_bytes(before)
    edit("insert", "a.txt", insert_line=line, new_str=new)
    assert (root / "a.txt").read_bytes() == after


def test_insert_shows_what_it_added(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("a\nb\n")
    text = edit("insert", "a.txt", insert_line=1, new_str="x").text
    assert text.endswith(numbered((1, "a"), (2, "x"), (3, "b")))


@pytest.mark.parametrize("line", [-1, 3])
def test_insert_outside_the_file_is_refused(edit: Editor, root: Path, line: int) -> None:
    (root / "a.txt").write_text("a\nb\n")
    with pytest.raises(ToolError, match="from 0 to 2"):
        edit("insert", "a.txt", insert_line=line, new_str="x")


# Missing parameters


@pytest.mark.parametrize(
    ("command", "arguments", "missing"),
    [
        ("create", {}, "file_text"),
        ("str_replace", {"new_str": "x"}, "old_str"),
        ("insert", {"new_str": "x"}, "insert_line"),
        ("insert", {"insert_line": 0}, "new_str"),
    ],
)
def test_missing_parameters_are_named(
    edit: Editor, command: str, arguments: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ToolError, match=f"{command} needs the parameter {missing}"):
        edit(command, "a.txt", **arguments)


# Undo


def test_undo_goes_back_many_levels_of_one_path_after_a_restart(tmp_path: Path) -> None:
    first = tool_session(tmp_path)
    edit = editor_of(first)
    edit("create", "a.txt", file_text="v0\n")
    edit("create", "b.txt", file_text="other\n")
    for number in range(10):
        edit("str_replace", "a.txt", old_str=f"v{number}", new_str=f"v{number + 1}")
    first.close()
    second = tool_session(tmp_path)
    edit = editor_of(second)
    for number in reversed(range(10)):
        edit("undo_edit", tmp_path.resolve() / "a.txt")
        assert (tmp_path / "a.txt").read_text() == f"v{number}\n"
    edit("undo_edit", "a.txt")
    assert not (tmp_path / "a.txt").exists()
    with pytest.raises(ToolError, match="no edit history"):
        edit("undo_edit", "a.txt")
    assert (tmp_path / "b.txt").read_text() == "other\n"
    second.close()


@pytest.mark.parametrize("path", ["never.txt", "here.txt"])
def test_undo_without_history_is_an_error(edit: Editor, root: Path, path: str) -> None:
    (root / "here.txt").write_text("x")
    with pytest.raises(ToolError, match="no edit history"):
        edit("undo_edit", path)


def test_undo_leaves_alone_what_something_else_changed(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("one\n")
    edit("str_replace", "a.txt", old_str="one", new_str="two")
    (root / "a.txt").write_text("by hand\n")
    with pytest.raises(ToolError, match="changed by something else") as error:
        edit("undo_edit", "a.txt")
    assert (root / "a.txt").read_text() == "by hand\n"
    stored = re.search(r"is in (\S+);", str(error.value))
    assert stored
    assert (root / stored[1]).read_text() == "one\n"
    (root / "a.txt").unlink()
    with pytest.raises(ToolError, match="was deleted"):
        edit("undo_edit", "a.txt")


def test_undo_of_an_edit_that_a_crash_prevented_does_nothing(
    session: Session, edit: Editor, root: Path
) -> None:
    (root / "a.txt").write_text("one\n")
    edit("str_replace", "a.txt", old_str="one", new_str="two")
    history = file_edits.EditHistory(session.workspace)
    history.add("a.txt", b"two\n", b"never written\n")
    assert "already is" in edit("undo_edit", "a.txt").text
    edit("undo_edit", "a.txt")
    assert (root / "a.txt").read_text() == "one\n"


def test_history_is_bounded(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    history = file_edits.EditHistory(session.workspace)
    for number in range(file_edits.MAX_EDITS + 5):
        history.add("a.txt", b"%d" % number, b"x")
    stored = list((session.workspace.private / "edit_history").rglob("*.before"))
    assert len(stored) == file_edits.MAX_EDITS
    newest = history.last("a.txt")
    assert newest is not None
    assert newest.before == b"%d" % (file_edits.MAX_EDITS + 4)
    monkeypatch.setattr(file_edits, "MAX_BYTES", 1000)
    history.add("b.txt", b"y" * 900, b"x")
    stored = list((session.workspace.private / "edit_history").rglob("*.before"))
    assert sum(path.stat().st_size for path in stored) <= 1000
    assert history.last("b.txt") is not None


def test_history_is_hidden_from_the_listing(edit: Editor) -> None:
    edit("create", "a.txt", file_text="x")
    assert edit("view", ".").text.split("\n")[1:] == ["  a.txt  1 bytes"]


# Writing safely

FULL_DISK = """
import resource, sys
from pathlib import Path
from openmanus_graph.errors import ToolError
from openmanus_graph.testing.replays import tool_session
from openmanus_graph.backends.files.file_edits import edit_file
from openmanus_graph.backends.files.file_edits import replace_once
session = tool_session(Path(sys.argv[1]))
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    edit_file(session.workspace, "a.txt", lambda text: replace_once(text, "MARK", "y" * 5000))
except ToolError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (1000, 1),
        (3000, 2),
        pytest.param(1000, 2, marks=pytest.mark.exhaustive),
        pytest.param(3000, 1, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.slow
def test_a_write_that_does_not_fit_leaves_the_file_intact(
    edit: Editor, root: Path, limit: int, names: int
) -> None:
    """The smaller limit already stops the history, the larger one the file itself."""
    (root / "a.txt").write_text("x" * 2000 + "MARK")
    if names == 2:
        (root / "b.txt").hardlink_to(root / "a.txt")
    command = [sys.executable, "-c", FULL_DISK, str(root), str(limit)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "no file was changed" in result.stdout
    assert (root / "a.txt").read_text() == "x" * 2000 + "MARK"
    assert not leftovers(root)
    with pytest.raises(ToolError, match="no edit history"):
        edit("undo_edit", "a.txt")


def test_a_full_disk_is_named(session: Session) -> None:
    with (
        pytest.raises(ToolError, match="disk is full"),
        as_tool_error("edit", "a.txt"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")


def test_read_only_files_and_folders_are_refused(edit: Editor, root: Path) -> None:
    (root / "folder").mkdir()
    for name in ("a.txt", "folder/b.txt"):
        (root / name).write_text("one\n")
    (root / "a.txt").chmod(0o444)
    (root / "folder").chmod(0o555)
    try:
        for path in ("a.txt", "folder/b.txt"):
            with pytest.raises(ToolError, match=r"read-only.*chmod u\+w"):
                edit("str_replace", path, old_str="one", new_str="two")
            assert (root / path).read_text() == "one\n"
        with pytest.raises(ToolError, match="read-only"):
            edit("create", "folder/new.txt", file_text="x")
    finally:
        (root / "folder").chmod(0o755)


def test_readers_see_the_old_or_the_new_file_only(edit: Editor, root: Path) -> None:
    path = root / "a.txt"
    versions = {letter: letter * 200_000 for letter in "ab"}
    path.write_text(versions["a"] + "MARK1")
    before = path.stat().st_ino
    with path.open() as reader:
        edit("str_replace", path, old_str="MARK1", new_str="MARK2")
        assert reader.read().endswith("MARK1")
    assert path.read_text().endswith("MARK2")
    assert path.stat().st_ino != before
    assert not leftovers(root)


def test_a_file_with_two_names_keeps_both(edit: Editor, root: Path) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "a.txt").chmod(0o640)
    (root / "b.txt").hardlink_to(root / "a.txt")
    before = (root / "a.txt").stat()
    for old, new in (("one", "longer than one"), ("two\n", "")):
        edit("str_replace", "a.txt", old_str=old, new_str=new)
    assert (root / "b.txt").read_text() == "longer than one\n"
    for content in ("longer than one\ntwo\n", "one\ntwo\n"):
        edit("undo_edit", "a.txt")
        assert (root / "b.txt").read_text() == content
    after = (root / "a.txt").stat()
    assert (after.st_ino, after.st_nlink, after.st_mode) == (before.st_ino, 2, before.st_mode)
    assert not leftovers(root)


def test_a_second_name_of_a_protected_file_is_out_of_reach(session: Session, edit: Editor) -> None:
    root = session.workspace.root
    (root / "openmanus.toml").write_text("mode = 1\n")
    (root / "b.txt").hardlink_to(root / "openmanus.toml")
    session.workspace = replace(session.workspace, protected=(root / "openmanus.toml",))
    with pytest.raises(ToolError, match="out of reach"):
        edit("str_replace", "b.txt", old_str="1", new_str="2")
    with pytest.raises(ToolError, match="out of reach"):
        edit("create", "b.txt", file_text="mode = 2\n", overwrite=True)
    assert (root / "openmanus.toml").read_text() == "mode = 1\n"


def test_a_file_that_was_replaced_meanwhile_is_not_written_into(root: Path) -> None:
    (root / "a.txt").write_text("one\n")
    entry = (root / "a.txt").stat()
    (root / "a.txt").rename(root / "old.txt")
    (root / "a.txt").write_text("other\n")
    folder = os.open(root, os.O_RDONLY)
    with pytest.raises(ToolError, match="replaced meanwhile"), as_tool_error("edit", "a.txt"):
        rewrite_file(folder, "a.txt", b"two\n", entry)
    os.close(folder)
    assert (root / "a.txt").read_text() == "other\n"


def test_edits_at_the_same_time_are_all_made(edit: Editor, root: Path) -> None:
    (root / "real.txt").write_text("".join(f"<{n}>\n" for n in range(16)))
    (root / "link").symlink_to("real.txt")

    def change(number: int) -> None:
        path = "link" if number % 2 else "real.txt"
        edit("str_replace", path, old_str=f"<{number}>", new_str=f"[{number}]")

    threads = [threading.Thread(target=change, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (root / "real.txt").read_text() == "".join(f"[{n}]\n" for n in range(16))


def test_large_files_are_refused_with_advice(edit: Editor, root: Path) -> None:
    with (root / "big.txt").open("wb") as file:
        file.truncate(file_edits.MAX_TEXT_BYTES + 1)
    for command in ("view", "str_replace", "insert"):
        with pytest.raises(ToolError, match=r"limit here is 20.0 MB.*read_file"):
            edit(command, "big.txt", old_str="a", new_str="b", insert_line=0)


@pytest.mark.slow
def test_a_file_just_under_the_limit_is_edited(edit: Editor, root: Path) -> None:
    line = "0123456789" * 9 + "\n"
    (root / "big.txt").write_text(line * 200_000 + "MARK\n" + line)
    assert "200001\tnew" in edit("str_replace", "big.txt", old_str="MARK", new_str="new").text


# Declaration


def test_calls_on_one_file_share_a_resource(root: Path) -> None:
    traits = traits_of(str_replace_editor)
    assert traits.effect == "workspace"
    names = ["a/b.txt", "./a/b.txt", "a//x/../b.txt", str(root / "a/b.txt")]
    assert len({traits.resource_of({"command": "view", "path": name}) for name in names}) == 1
    assert traits.resource_of({"path": "c.txt"}) != traits.resource_of({"path": "a/b.txt"})
    assert traits.resource_of({}) == "file:"


def test_the_schema_is_small_and_hides_the_runtime() -> None:
    schema: dict[str, Any] = convert_to_openai_tool(str_replace_editor)["function"]
    properties: dict[str, Any] = schema["parameters"]["properties"]
    assert list(properties) == [
        "command", "path", "file_text", "overwrite", "old_str", "new_str", "insert_line",
        "view_range",
    ]  # fmt: skip
    assert properties["command"]["enum"] == [
        "view", "create", "str_replace", "insert", "undo_edit",
    ]  # fmt: skip
    assert len(str(schema)) < 1000


def test_an_unfinished_file_lies_among_our_own(
    edit: Editor, session: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what a kill leaves of it is not in the workspace."""
    seen: list[Path] = []

    def look(folder: int) -> None:
        assert leftovers(root) == []
        seen.extend(leftovers(session.workspace.private))

    monkeypatch.setattr("os.fsync", look)
    edit("create", "a.txt", file_text="one\n")
    edit("str_replace", "a.txt", old_str="one", new_str="two")
    edit("undo_edit", "a.txt")
    assert len(seen) >= 3
    assert (root / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("view_range", "shown"),
    [
        ([2, 3], [2, 3]),
        ("[2, 3]", [2, 3]),
        ("2-3", [2, 3]),
        ("2:3", [2, 3]),
        ("(3, -1)", [3, 4]),
        ("3-", [3, 4]),
    ],
)
def test_the_lines_to_view_may_be_a_text(
    session: Session, root: Path, view_range: Any, shown: list[int]
) -> None:
    (root / "f.txt").write_text("a\nb\nc\nd\n")
    text = editor_of(session)("view", "f.txt", view_range=view_range).text
    assert [int(number) for number in re.findall(r"^ *(\d+)\t", text, re.MULTILINE)] == shown
