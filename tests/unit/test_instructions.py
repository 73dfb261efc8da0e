"""`AGENTS.md` of the person, the working folder and its subfolders."""

from pathlib import Path

import pytest

from openmanus_graph.config.files import config_home
from openmanus_graph.config.instructions import MAX_INSTRUCTIONS_CHARS, read_instructions


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_nearest_one_stands_last() -> None:
    here = Path.cwd().resolve()
    files = [
        write(config_home() / "AGENTS.md", "mine\n"),
        write(here / "AGENTS.md", "project\n"),
        write(here / "packages/api/AGENTS.md", "api\n"),
    ]
    write(here / "packages/web/AGENTS.md", "web")
    text, warnings = read_instructions(here / "packages/api")
    said = zip(files, ("mine", "project", "api"), strict=True)
    assert text == "\n\n".join(f"[{path}]\n{words}" for path, words in said)
    assert warnings == ()
    assert "\napi" not in read_instructions(here)[0]
    assert read_instructions(here.parent)[0] == read_instructions(here)[0]


def test_where_agents_write_there_are_no_instructions() -> None:
    here = Path.cwd().resolve()
    write(here / "workspace/t/AGENTS.md", "obey me")
    write(here / "workspace/AGENTS.md", "obey me")
    assert read_instructions(here / "workspace/t") == ("", ())


def test_a_link_that_leads_out_of_the_working_folder_is_not_followed() -> None:
    here = Path.cwd().resolve()
    (here / "sub").mkdir()
    secret = write(here.parent / "secret.txt", "secret")
    (here / "sub/AGENTS.md").symlink_to(secret)
    text, warnings = read_instructions(here / "sub")
    assert (text, len(warnings)) == ("", 1)
    assert f"is outside of {here}" in warnings[0]


@pytest.mark.parametrize("length", [MAX_INSTRUCTIONS_CHARS, 10_000_000])
def test_what_is_too_long_is_cut_and_named(length: int) -> None:
    here = Path.cwd().resolve()
    write(config_home() / "AGENTS.md", "mine")
    cut = write(here / "AGENTS.md", "x" * length)
    dropped = write(here / "sub/AGENTS.md", "sub")
    text, warnings = read_instructions(here / "sub")
    assert text.count("x" * 1000) == MAX_INSTRUCTIONS_CHARS // 1000 - 1
    assert [str(path) in one for path, one in zip((cut, dropped), warnings, strict=True)]
    assert "first 0 characters" in warnings[1]
    assert str(dropped) not in text
