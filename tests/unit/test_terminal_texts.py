"""What a terminal shows: calls in a line, edits as diffs, Markdown by blocks, nothing raw."""

import io
from typing import Any

import pytest

from openmanus_graph.interfaces.cli.call_view import edit_diff
from openmanus_graph.interfaces.cli.console import MarkdownBlocks, Rendered, SafeConsole
from openmanus_graph.interfaces.cli.terminal import SHOWN_FILES, TerminalSink, file_lines
from openmanus_graph.interfaces.service.call_titles import MAX_CHARS, describe_call
from openmanus_graph.interfaces.service.run_view import step_line
from openmanus_graph.interfaces.service.threads import short_ids

EDITOR = "str_replace_editor"

CALLS: list[tuple[str, dict[str, Any], str]] = [
    (
        "reach_host",
        {"address": "https://a.example", "why": "POST https://a.example/b"},
        "allow programs to reach https://a.example (refused before: POST https://a.example/b)",
    ),
    ("bash", {"command": "pytest -q"}, "$ pytest -q"),
    ("bash", {"command": "cd a\nmake\n"}, "$ cd a (… 2 lines)"),
    ("bash", {"restart": True}, "a new shell"),
    ("bash", {}, "look at the background commands"),
    ("python_execute", {"code": "import os\n# why\nprint(1)"}, "python: print(1) (… 3 lines)"),
    ("python_execute", {"code": "import os"}, "python: import os"),
    (EDITOR, {"command": "create", "path": "a.py", "file_text": "1\n2\n"}, "write a.py, 2 lines"),
    (EDITOR, {"command": "view", "path": "a", "view_range": [1, -1]}, "look at a, lines 1--1"),
    (EDITOR, {"command": "str_replace", "path": "a.py", "old_str": "x"}, "edit a.py"),
    (EDITOR, {"command": "insert", "path": "a", "insert_line": 3}, "insert into a after line 3"),
    (EDITOR, {"command": "undo_edit", "path": "a"}, "undo the last edit of a"),
    ("read_file", {"path": "a.pdf", "pages": "1-3"}, "read a.pdf, pages 1-3"),
    ("browser_use", {"action": "click_element", "index": 5}, "browser: click_element 5"),
    ("web_search", {"query": "blue mugs"}, "search: blue mugs"),
    ("fetch_page", {"url": "https://a.example"}, "read https://a.example"),
    ("crawl4ai", {"urls": ["https://a.example", "b"]}, "read https://a.example b"),
    ("ask_human", {"inquire": "Which?"}, "ask you: Which?"),
    ("terminate", {"status": "success"}, "end: success"),
    (EDITOR, {"command": "create", "path": "a.py", "file_text": "1"}, "write a.py, 1 line"),
    (EDITOR, {"command": "view", "path": "a"}, "look at a"),
    ("read_file", {"path": "a.txt", "lines": "1-9"}, "read a.txt, lines 1-9"),
    ("read_file", {"path": "a.txt"}, "read a.txt"),
    ("create_chat_completion", {}, "write the answer"),
    ("planning", {"command": "create", "title": "T"}, "plan: create T"),
    ("delegate", {"agent": "manus", "task": "Look {x}."}, "ask manus: Look {x}."),
    ("mcp_mail_send", {"to": "a@b.example"}, 'mcp_mail_send(to="a@b.example")'),
    ("bash", {"command": ["a", "list"]}, "$ ['a', 'list']"),
    ("python_execute", {"wrong": 1}, "python_execute(wrong=1)"),
]


@pytest.mark.parametrize(("tool", "args", "line"), CALLS)
def test_a_call_is_one_line_that_says_what_it_does(
    tool: str, args: dict[str, Any], line: str
) -> None:
    assert describe_call(tool, args) == line


def test_a_calls_line_is_bounded() -> None:
    assert len(describe_call("bash", {"command": "x" * 10_000})) == MAX_CHARS


def test_of_many_files_some_are_named_and_the_rest_is_counted() -> None:
    files = [{"path": f"{number}.txt", "size": 1200} for number in range(2000)]
    *named, rest = file_lines(files)
    assert (named[0], len(named), rest) == ("0.txt (1,200 bytes)", SHOWN_FILES, "and 1,980 more")
    assert file_lines(files[:SHOWN_FILES]) == named


def test_an_edit_is_a_diff_with_some_lines_around() -> None:
    old = "".join(f"{n}\n" for n in range(9))
    args = {"command": "str_replace", "old_str": old, "new_str": old.replace("4\n", "--four\n")}
    shown = list(edit_diff(EDITOR, args, 40))
    assert shown == [(" ", "2"), (" ", "3"), ("-", "4"), ("+", "--four"), (" ", "5"), (" ", "6")]
    assert list(edit_diff(EDITOR, {"command": "view", "path": "a"}, 40)) == []
    assert list(edit_diff("bash", args, 40)) == []


def test_a_long_diff_says_how_much_more_there_is() -> None:
    args = {"command": "create", "file_text": "x\n" * 50}
    assert list(edit_diff(EDITOR, args, 2)) == [
        ("+", "   1 x"), ("+", "   2 x"), ("…", "48 more lines")
    ]  # fmt: skip


def blocks_of(text: str, size: int) -> list[str]:
    blocks = MarkdownBlocks()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    whole = [block for piece in pieces for block in blocks.feed(piece)]
    last = blocks.finish()
    assert blocks.rest == ""
    return [*whole, *([last] if last else [])]


CODE = "```python\na = 1\n\nb = 2\n```"
TABLE = "| a |\n|---|\n| 1 |"
LIST = "1. one\n\n   more of one\n2. two"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_markdown_is_divided_where_a_block_is_whole(size: int) -> None:
    text = (
        f"# Title\n\nSome text\nin two lines.\n\n{CODE}\nAfter.\n\n{LIST}\n\n| a |\n|---|\n| 1 |\n"
    )
    assert blocks_of(text, size) == [
        "# Title", "Some text\nin two lines.", CODE, "After.", LIST, "| a |\n|---|\n| 1 |",
    ]  # fmt: skip


def test_a_longer_fence_is_ended_by_one_as_long() -> None:
    text = "````\n```\n\nstill code\n````\n\nafter\n"
    assert blocks_of(text, 3) == ["````\n```\n\nstill code\n````", "after"]


def rendered(text: str, width: int = 40) -> str:
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, width=width, color_system="truecolor")
    console.print(Rendered(text))
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "a \x1b]0;title\x07 b",
        "a \x1b[2J b",
        "&#x202e;abc &#155;31m &#7;",
        "`\x1b[31m`",
        "```\n\x1b]52;c;aGk=\x07\n```",
        "[text](http://a.example/\x1b]8;;x\x07)",
        "| \x9b31m |\n|---|\n| \r\x08 |",
        "```\x1b[2J\ncode\n```",
    ],
)
def test_no_control_character_of_a_text_reaches_the_terminal(text: str) -> None:
    shown = rendered(text)
    for bad in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\r", "\x08"):
        assert bad not in shown


def test_markdown_has_no_blank_lines_around_it_and_no_spaces_at_line_ends() -> None:
    lines = rendered("- one\n- two").splitlines()
    assert len(lines) == 2
    assert [line.rstrip() for line in lines] == lines


def test_words_wrap_at_words_and_links_show_where_they_lead() -> None:
    shown = rendered("[bank](https://evil.example) and a long sentence of words", width=30)
    assert "https://evil.example" in shown
    assert "\x1b]8" not in shown
    assert "sente\n" not in shown


def test_short_ids_are_unique_beginnings() -> None:
    ids = ["20260101-1200-aa", "20260101-1200-ab", "20260102-0900-cc", "name"]
    assert short_ids(ids, 8) == ["20260101-1200-aa", "20260101-1200-ab", "20260102", "name"]
    assert short_ids([], 8) == []
    assert short_ids(["ab", "abc"], 1) == ["ab", "abc"]


def test_lines_of_a_subagent_bear_its_name_and_its_steps_are_not_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = TerminalSink()
    name = "swe-3f2a"
    events: list[dict[str, Any]] = [
        {"type": "think_start", "step": 2},
        {"type": "step_start", "id": name, "namespace": "act:1", "status": "in_progress"},
        {"type": "think_start", "step": 7, "plan_step": name},
        {"type": "tool_start", "call_id": "c", "tool": "bash", "args": {}, "plan_step": name},
        {"type": "interrupt", "id": "i", "question": "Which?", "calls": [], "plan_step": name},
    ]
    for event in events:
        view.show(event)
    assert capsys.readouterr().err.splitlines() == ["[swe-3f2a] bash {}", "[swe-3f2a] ? Which?"]
    assert view.step == 2


def test_a_call_that_is_asked_about_is_shown_as_it_was_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {
        "tool": "pay",
        "args": {"to": "李[/]", "sums": [1, "é"], "note": "a\n\\n b", "hidden": "\x1b[2J"},
    }
    edit = {"tool": "edit", "args": {"old_str": "x = 1", "new_str": "x = 2\n\ny = 3"}}
    TerminalSink().show(
        {"type": "interrupt", "id": "i", "question": "Pay?", "calls": [asked, edit]}
    )
    assert capsys.readouterr().err.splitlines() == [
        "? Pay?", "  pay", "    to: 李[/]", '    sums: [1, "é"]', "    note:", "      a",
        "      \\n b", '    hidden: "\\u001b[2J"',
        "  edit", "    old_str:", "      - x = 1", "    new_str:", "      + x = 2", "      + ",
        "      + y = 3",
    ]  # fmt: skip


def test_a_sentence_about_a_step_says_whether_it_is_of_a_plan_or_a_subagent() -> None:
    ended = {"type": "step_end", "id": "a", "status": "completed"}
    assert step_line(ended) == "Plan step a: completed."
    assert step_line({**ended, "namespace": "act:1"}) == "Subagent a: completed."
