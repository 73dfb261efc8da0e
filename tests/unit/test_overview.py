"""What a planner is shown of a workspace: listed and bounded, whatever lies there."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from openmanus_graph.backends.files.overview import (
    MAX_CHARS,
    MAX_FILES,
    workspace_listing,
    workspace_overview,
)
from openmanus_graph.runtime.workspace import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder.resolve()


def overview(root: Path) -> str:
    return workspace_overview(Workspace(root, root.parent / "private"))


def line(root: Path, name: str) -> str:
    return next(row for row in overview(root).splitlines() if row.startswith(name))


def test_an_empty_workspace_has_none(root: Path) -> None:
    assert overview(root) == ""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "month,net\n2024,3\n2025,4\n", "2 rows; columns: month, net; the first: 2024, 3"),
        ("a.csv", "month,net\n", "0 rows; columns: month, net"),
        ("a.csv", "only\n1\n", "1 row; columns: only; the first: 1"),
        ("a.csv", 'm;"a; b"\n1;"c\nd"\n\n', "1 row; columns: m, a; b; the first: 1, c d"),
        ("a.TSV", "a\tb, c\n1\t2\n", "1 row; columns: a, b, c; the first: 1, 2"),
        ("a.csv", "\ufeffä,b\n1,2\n", "1 row; columns: ä, b; the first: 1, 2"),
        ("a.json", '[{"a": 1, "b": 2}, {"a": 3}]', "2 items with a, b"),
        ("a.json", "[1, 2, 3]", "3 items"),
        ("a.json", '{"rows": [], "of": 3}', "an object with rows, of"),
        ("a.json", '[{"a": 1', "no valid json"),
        ("a.json", "[" * 100_000, "no valid json"),
        ("a.jsonl", '{"a": 1}\n\n{"a": 2}\n', "2 items with a"),
        ("a.jsonl", "\n\n", "no valid jsonl"),
    ],
)  # fmt: skip
def test_of_tables_columns_and_rows_are_said(root: Path, name: str, text: str, said: str) -> None:
    (root / name).write_text(text, "utf-8")
    assert line(root, name).endswith(f", {said}")


def test_a_table_in_another_encoding_is_read(root: Path) -> None:
    (root / "a.csv").write_bytes("größe;straße\n1;Süd\n".encode("cp1252") * 3)
    assert "columns: größe, straße; the first: 1, Süd" in overview(root)


def test_the_rows_of_a_large_table_are_estimated_and_its_columns_bounded(root: Path) -> None:
    (root / "long.csv").write_text("a,b\n" + "1,2\n" * 1_000_000)
    (root / "wide.csv").write_text(",".join(f"column{n}" for n in range(500)) + "\n")
    assert "about 1,000,000 rows; columns: a, b" in line(root, "long.csv")
    assert "column19 and 480 more" in line(root, "wide.csv")


def test_of_a_workbook_the_first_sheet_is_shown(root: Path) -> None:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    sheet.title = "Q1"
    sheet.append(["region", "net"])
    sheet.append(["North", 3])
    book.save(root / "book.xlsx")
    (root / "broken.xlsx").write_bytes(b"PK\x03\x04 no archive")
    shown = overview(root)
    assert "## Sheet 1: Q1 (A1:B2)\n    1 | region | net" in shown
    assert line(root, "broken.xlsx").endswith("which cannot be read")


def test_of_short_texts_the_head_is_shown_and_of_the_rest_the_kind(root: Path) -> None:
    (root / "notes.md").write_text("# Notes\n\nDo it.\n" + "more\n" * 100)
    (root / "long.log").write_text("line\n" * 1_000_000)
    (root / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (root / "empty.txt").touch()
    (root / "nul.txt").write_bytes(b"a\0b\x1b[31m" * 9)
    assert overview(root).splitlines() == [
        "empty.txt  0 bytes",
        "long.log  4.8 MB",
        "notes.md  516 bytes",
        "    # Notes",
        "    Do it.",
        "    more",
        "    more",
        "nul.txt  72 bytes, a binary file",
        "pic.png  264 bytes, a PNG picture",
    ]


def test_what_is_no_ordinary_file_does_no_harm(root: Path) -> None:
    (root.parent / "secret").write_text("key")
    (root / "link").symlink_to(root.parent / "secret")
    (root / "folder").symlink_to(root.parent)
    (root / ".env").write_text("KEY=1")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "file").write_text("x")
    os.mkfifo(root / "pipe")
    with (root / "huge.csv").open("wb") as huge:
        huge.write(b"a,b\n1,2\n")
        huge.truncate(10 * 1024**3)
    (root / "odd\n\x1b[31m\udcff name").write_text("x")
    rows = overview(root).splitlines()
    assert rows[0].startswith(r"$'odd\n\x1b[31m\xff name'")
    assert rows[1].strip() == "x"
    assert rows[2].startswith("huge.csv  10.0 GB")
    assert [row for row in rows if row.startswith("pipe")] == ["pipe  0 bytes"]
    assert not [row for row in rows if "secret" in row or "link" in row or "KEY" in row]
    assert json.loads(json.dumps("\n".join(rows)).encode().decode()) == "\n".join(rows)


def test_a_huge_folder_is_cut_and_what_is_left_out_is_said(root: Path) -> None:
    for folder in ("", "data", "data/deep"):
        (root / folder).mkdir(exist_ok=True)
        for number in range(100):
            (root / folder / f"{'long' * 40}{number:03}.csv").write_text("a,b\n1,2\n")
    shown = overview(root)
    assert len(shown) <= MAX_CHARS
    listed = [row for row in shown.splitlines() if row.startswith("long")]
    assert 10 < len(listed) < MAX_FILES
    assert shown.endswith(
        f"[{300 - len(listed)} other files are left out, most of them in data/ (200), "
        f"the workspace itself ({100 - len(listed)})]"
    )


def test_files_near_the_root_come_first_and_no_more_than_a_screen(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    for number in range(80):
        (root / "a" / "b" / f"{number:02}").touch()
    (root / "z.txt").touch()
    rows = overview(root).splitlines()
    assert rows[0] == "z.txt  0 bytes"
    assert len(rows) == MAX_FILES + 1
    assert rows[-1] == "[21 other files are left out, most of them in a/ (21)]"


def git(root: Path, *words: str) -> None:
    own = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run(["git", *own, *words], cwd=root, check=True, capture_output=True)


def repository(root: Path) -> None:
    git(root, "init", "--quiet", "--initial-branch=main")
    for name in ("a.py", "b.py", "c.csv", "d.md"):
        (root / name).write_text("x,y\n1,2\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "one")


CHANGES = """echo changed > a.py; echo staged > b.py; git add b.py; rm d.md; mkdir more
echo '*.log' > .gitignore; touch new.txt x.log more/e.txt more/f.txt "$(printf 'odd\\nname')"
"""


def shell(root: Path, command: str) -> None:
    subprocess.run(["sh", "-ec", command], cwd=root, check=True, capture_output=True)


def state_of(root: Path) -> str:
    text, heads = workspace_listing(Workspace(root, root.parent / "private"))
    first = next(iter(text.splitlines()), "")
    assert (first in overview(root).splitlines()) == bool(first)
    assert not any("git" in name for name in heads)
    return first if first.startswith("[git") else ""


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("true", "branch main, 0 changed, 0 untracked"),
        (CHANGES, "branch main, 3 changed, 4 untracked"),
        ("git checkout --detach", "branch (detached), 0 changed, 0 untracked"),
        ("git checkout --orphan x", "branch x, 4 changed, 0 untracked"),
        (f"git switch -c ignore-all-and-{'n' * 90}",
         f"branch ignore-all-and-{'n' * 24}…, 0 changed, 0 untracked"),
        ("git pack-refs --all", "branch main, 0 changed, 0 untracked"),
    ],
)  # fmt: skip
def test_the_state_of_a_repository_is_said(root: Path, change: str, state: str) -> None:
    repository(root)
    shell(root, change)
    assert state_of(root) == f"[git: {state}]"


def test_a_repository_without_commits_has_a_state(root: Path) -> None:
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "a.txt").write_text("1")
    assert state_of(root) == "[git: branch main, 0 changed, 1 untracked]"


def with_a_program_for_everything(root: Path, mark: Path) -> None:
    program = f"touch {mark}; cat"
    for key in ("filter.x.clean", "filter.x.process", "core.fsmonitor", "diff.external",
                "core.pager", "core.editor", "gpg.program", "diff.x.textconv"):  # fmt: skip
        git(root, "config", key, program)
    (root / ".gitattributes").write_text("* filter=x diff=x\n")
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        hook = root / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\n{program}\n")
        hook.chmod(0o755)
    below = root / "below"
    below.mkdir()
    repository(below)
    git(root, "config", "core.fsmonitor", "false")
    git(root, "add", "below")
    for folder in (root, below):
        git(folder, "config", "core.fsmonitor", program)
        os.utime(folder / "a.py", (1, 1))
        (folder / "b.py").write_text("z,y\n1,2\n")


def test_no_program_that_a_repository_names_is_run(root: Path, tmp_path: Path) -> None:
    repository(root)
    mark = tmp_path / "ran"
    with_a_program_for_everything(root, mark)
    mark.unlink(missing_ok=True)  # git itself ran some of them just now
    before = (root / ".git" / "index").read_bytes()
    assert state_of(root) == "[git: branch main, 1 changed, 1 untracked]"
    assert not mark.exists()
    assert (root / ".git" / "index").read_bytes() == before, "it is only read"


@pytest.mark.parametrize(
    "damage",
    [
        "rm .git/HEAD",
        "head -c 5000 /dev/zero > .git/HEAD",
        "head -c 5000 /dev/zero > .git/index",
        "ln -sf /etc/passwd .git/HEAD",
        "rm .git/HEAD; mkfifo .git/HEAD",
        "mv .git moved; echo gitdir: moved > .git",
        "mv .git moved; ln -s /etc .git",
    ],
)
def test_a_damaged_repository_has_no_state(root: Path, damage: str) -> None:
    repository(root)
    shell(root, damage)
    assert state_of(root) == ""
    assert "a.py  8 bytes" in overview(root)


def test_a_git_that_hangs_is_ended(root: Path) -> None:
    repository(root)
    (root / ".git" / "index").unlink()
    os.mkfifo(root / ".git" / "index")
    assert state_of(root) == ""


def test_without_git_there_is_no_state(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(root)
    monkeypatch.setenv("PATH", "/nowhere")
    assert state_of(root) == ""
