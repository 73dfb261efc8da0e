"""The chat's line editor: keys, pastes of any size, history, and what a message names."""

import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from openmanus_graph.interfaces.cli.editor import (
    MessageCompleter,
    PasteParser,
    PrivateHistory,
    read_mentions,
)

BEGINS, ENDS = "\x1b[200~", "\x1b[201~"


def parsed(*pieces: str) -> list[tuple[object, str]]:
    keys: list[KeyPress] = []
    parser = PasteParser(keys.append)
    for piece in pieces:
        parser.feed(piece)
    return [(key.key, key.data) for key in keys]


@pytest.mark.parametrize("size", [1, 3, 5, 100])
def test_a_paste_is_one_key_however_it_comes(size: int) -> None:
    data = f"a{BEGINS}one\ntwo \x1b[201 three{ENDS}b"
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    pasted = (Keys.BracketedPaste, "one\ntwo \x1b[201 three")
    assert parsed(*pieces) == [("a", "a"), pasted, ("b", "b")]
    begins, rest = data[: len(BEGINS) + 1], data[len(BEGINS) + 1 :]
    pieces = [rest[start : start + size] for start in range(0, len(rest), size)]
    assert parsed(begins, *pieces) == [("a", "a"), pasted, ("b", "b")]


def test_ten_megabytes_are_one_key() -> None:
    text = "a line of text\n" * (10 * 1024 * 1024 // 15)
    pieces = [text[start : start + 1024] for start in range(0, len(text), 1024)]
    assert parsed(BEGINS, *pieces, ENDS) == [(Keys.BracketedPaste, text)]


def test_two_pastes_in_one_piece_are_two() -> None:
    found = parsed(f"{BEGINS}x{ENDS}{BEGINS}y{ENDS}")
    assert found == [(Keys.BracketedPaste, "x"), (Keys.BracketedPaste, "y")]


def test_the_history_is_the_persons_own(tmp_path: Path) -> None:
    path = tmp_path / "home" / "chat-history"
    history = PrivateHistory(path)
    assert list(history.load_history_strings()) == []
    assert not path.parent.exists(), "nothing is left behind until something was typed"
    history.store_string("hello\nthere")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(PrivateHistory(path).load_history_strings()) == ["hello\nthere"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with files, and a workspace below it."""
    for name in ("data.csv", "my file.txt", "plot.PNG", "workspace/sub/inside.txt", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "evil\x1b[2J.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_named_files_are_brought_and_called_as_in_the_workspace(place: Path) -> None:
    workspace = place / "workspace"
    text, given = read_mentions('see @data.csv, @"my file.txt" and @sub/inside.txt.', workspace)
    assert text == "see data.csv, my file.txt and sub/inside.txt."
    assert given.file == [str(place / "data.csv"), str(place / "my file.txt")]
    assert given.image is None


def test_what_is_no_file_stays_as_it_was(place: Path) -> None:
    said = "mail a@data.csv or @nobody, decorate with @property, @/no/where @ok @"
    assert read_mentions(said, place / "workspace")[0] == said
    assert read_mentions(said, place / "workspace")[1].file is None


@pytest.mark.parametrize(
    "form", ["@plot.PNG", "{}/plot.PNG", "'{}/plot.PNG'", "file://{}/plot.PNG"]
)
def test_pictures_are_shown_to_the_model(place: Path, form: str) -> None:
    _, given = read_mentions(f"what is in {form.format(place)} ?", place / "workspace")
    assert (given.file, given.image) == (None, [str(place / "plot.PNG")])


def test_a_dropped_picture_with_spaces_is_found(place: Path) -> None:
    (place / "a b.png").write_text("x")
    _, given = read_mentions(f"{place}/a\\ b.png".replace(" ", " "), place / "workspace")
    assert given.image == [str(place / "a b.png")]


def test_files_that_somebody_else_names_are_not_brought(place: Path) -> None:
    untrusted = f'Read @data.csv, @"my file.txt" and {place}/plot.PNG here.'
    said = f"{untrusted} Beside @sub/inside.txt"
    text, given = read_mentions(said, place / "workspace", untrusted)
    assert text == f"{untrusted} Beside sub/inside.txt"
    assert (given.file, given.image) == (None, None)


def completed(typed: str, workspace: Path) -> list[str]:
    completer = MessageCompleter({"/help": "h", "/model": "m"}, workspace)
    document = Document(typed)
    return [one.text for one in completer.get_completions(document, CompleteEvent())]


def test_commands_and_files_are_completed(place: Path) -> None:
    workspace = place / "workspace"
    assert completed("/", workspace) == ["/help", "/model"]
    assert completed("/mo", workspace) == ["/model"]
    assert completed("/model x", workspace) == []
    assert completed("see @da", workspace) == ["data.csv"]
    assert completed("see @my", workspace) == ['"my file.txt"']
    assert completed('@"my f', workspace) == ['"my file.txt"']
    assert completed('@"da', workspace) == ['"data.csv"']
    assert completed("@sub/", workspace) == ["sub/inside.txt"]
    assert completed("@.h", workspace) == [".hidden"]
    assert completed("a@da", workspace) == []


def test_names_that_would_control_the_terminal_are_not_offered(place: Path) -> None:
    offered = completed("@", place / "workspace")
    assert "data.csv" in offered
    assert not [name for name in offered if "\x1b" in name or "evil" in name]
