"""File names that are no text: as they are listed, tools take them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from openmanus_graph.backends.files.overview import workspace_listing
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.open_beneath import named, shown
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime
from openmanus_graph.tools.files import read_file, str_replace_editor

NAMES = [
    b"caf\xe9.csv", b"\xd7\xee\xba\xf3.csv", b"a\nb.csv", b"tab\t'quote'\\\xff.csv",
    "right\u202eleft.csv".encode(), b"dir\xfc/\xe9.csv", b"it's \xe9.csv",
]  # fmt: skip


def call(session: Session, tool: str, **arguments: str) -> Observation:
    chosen = {"read_file": read_file, "str_replace_editor": str_replace_editor}[tool]
    args = {"runtime": tool_runtime(session), **arguments}
    message = chosen.invoke({"type": "tool_call", "id": "call_1", "name": tool, "args": args})
    assert isinstance(message.artifact, Observation)
    return message.artifact


def make(session: Session, name: bytes, content: str = "a,b\n1,2\n") -> Path:
    path = session.workspace.root / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_taken_as_it_is_listed(session: Session, name: bytes) -> None:
    path = make(session, name)
    folder = call(session, "read_file", path=".").text
    rows = [row.strip().rpartition("  ")[0] for row in folder.splitlines()[1:] if ".csv" in row]
    within = [row.strip()[:-1] for row in folder.splitlines()[1:] if row.endswith("/")]
    listed = "/".join([*within, *rows])
    assert named(listed) == os.fsdecode(name)
    for given in (listed, shown(os.fsdecode(name)), f"{session.workspace.root}/{listed}"):
        assert "1,2" in call(session, "read_file", path=given).text
    edit = {"command": "str_replace", "old_str": "1,2", "new_str": "3,4"}
    text = call(session, "str_replace_editor", path=listed, **edit).text
    assert path.read_text() == "a,b\n3,4\n"
    assert shown(os.fsdecode(name)) in text


def test_other_names_have_no_second_spelling(session: Session) -> None:
    make(session, b"secret.txt")
    for path in ("$'secr\\x65t.txt'", "$'secret.txt'", "secr\\x65t.txt"):
        with pytest.raises(ToolError, match="does not exist"):
            call(session, "read_file", path=path)
    make(session, b"$'plain'.txt")
    assert "1,2" in call(session, "read_file", path="$'plain'.txt").text


def test_the_listing_and_the_artifacts_have_names_that_can_be_opened(session: Session) -> None:
    make(session, b"caf\xe9.csv")
    assert [name for name, _ in files_in(session.workspace)] == ["$'caf\\xe9.csv'"]
    assert workspace_listing(session.workspace)[0].startswith(
        "$'caf\\xe9.csv'  8 bytes, 1 row; columns: a, b"
    )


def test_a_picture_is_viewed_by_a_name_that_can_be_stored(session: Session) -> None:
    Image.new("RGB", (9, 9)).save(session.workspace.root / "x.png")
    path = session.workspace.root / os.fsdecode(b"b\xefld.png")
    (session.workspace.root / "x.png").rename(path)
    found = call(session, "str_replace_editor", command="view", path="$'b\\xefld.png'")
    assert found.images == ("$'b\\xefld.png'",)
    assert replace(found).text.encode()
