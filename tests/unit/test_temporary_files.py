"""The file tools read what programs leave in their temporary folder, and nothing beyond it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash
from openmanus_graph.tools.files import read_file, str_replace_editor
from tests.support.sandboxes import sandbox_settings

LEFT = """cd "$(mktemp -d)" && printf 'one\\ntwo\\n' > a.txt && mkdir -p d && cp a.txt d/b.csv
printf '\\x89PNG\\r\\n\\x1a\\n' > broken.png; ln -s a.txt near; ln -s /etc/passwd far
ln -s ../../../../../../../etc/passwd up; ln -s / root; mkfifo fifo; pwd
python -c "from PIL import Image; Image.new('RGB', (9, 9)).save('p.png')"
"""


@pytest.fixture(scope="module", params=["bwrap", "none", "ssh"])
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    opened = tool_session(tmp_path_factory.mktemp("ws"), sandbox=sandbox_settings(request))
    yield opened
    opened.close()


async def folder_of(session: Session) -> str:
    """Return a temporary folder, as programs name it, with files in it."""
    return (await bash_text(session, LEFT)).splitlines()[0]


async def bash_text(session: Session, command: str) -> str:
    assert isinstance(bash, StructuredTool)
    assert bash.coroutine is not None
    _, observation = await bash.coroutine(command=command, runtime=tool_runtime(session))
    return str(observation.text)


def call(tool: Any, session: Session, **args: Any) -> Observation:
    observation: Observation = tool.func(runtime=tool_runtime(session), **args)[1]
    return observation


def view(session: Session, path: str) -> Observation:
    return call(str_replace_editor, session, command="view", path=path)


async def test_files_of_programs_are_read_where_they_left_them(session: Session) -> None:
    folder = await folder_of(session)
    if session.settings.sandbox.mode == "ssh":
        with pytest.raises(ToolError, match="on another machine"):
            view(session, f"{folder}/a.txt")
        return
    for name in ("a.txt", "near", "d/b.csv"):
        assert call(read_file, session, path=f"{folder}/{name}").text.endswith("one\ntwo")
        assert "2\ttwo" in view(session, f"{folder}/{name}").text
    assert view(session, folder).listing
    assert "b.csv" in call(read_file, session, path=f"{folder}/d").text
    [picture] = view(session, f"{folder}/p.png").images
    assert Path(picture).is_relative_to(session.workspace.outputs)
    with pytest.raises(ToolError, match=r"There is: .*a\.txt"):
        view(session, f"{folder}/a.tx")


@pytest.mark.parametrize(
    "name",
    ["far", "up", "root/etc/passwd", "fifo", "../../etc/passwd", "broken.png", "a\0b", "../../run"],
)
async def test_nothing_else_is_read_by_way_of_them(session: Session, name: str) -> None:
    folder = await folder_of(session)
    for tool, args in ((read_file, {}), (str_replace_editor, {"command": "view"})):
        with pytest.raises(ToolError):
            call(tool, session, path=f"{folder}/{name}", **args)


async def test_files_there_are_not_changed_and_those_of_a_workspace_in_tmp_are(
    session: Session,
) -> None:
    folder = await folder_of(session)
    with pytest.raises(ToolError, match="outside the workspace"):
        call(str_replace_editor, session, command="create", path=f"{folder}/n", file_text="1")
    own = session.workspace.root / "own.txt"
    call(str_replace_editor, session, command="create", path=str(own), file_text="mine")
    assert "mine" in view(session, str(own)).text
