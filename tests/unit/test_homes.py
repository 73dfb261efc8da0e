"""Which home folders are used in a process of an app's own."""

import json
import shutil
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from openmanus_graph import Context, build_manus_graph, invoke
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.config import homes
from openmanus_graph.config.homes import ID_FILE, is_own, make_folder, openmanus_home, trust_home
from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.testing import ScriptedChatModel


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the home folder is if nobody names one."""
    monkeypatch.delenv("OPENMANUS_HOME")
    monkeypatch.setattr(homes, "_checked", set[Path]())
    return tmp_path / ".openmanus"


def test_a_new_home_is_made_registered_and_overlooked_by_git(place: Path, tmp_path: Path) -> None:
    assert openmanus_home() == place
    assert not place.exists()
    DatabaseStore(database_url()).put(("a",), "b", {})
    (known,) = json.loads((tmp_path / "config/openmanus/homes.json").read_text()).items()
    assert known == (
        str(place),
        {"id": (place / ID_FILE).read_text(), "folder": str(place)},
    )
    assert (place / ".gitignore").read_text() == "*\n"
    assert is_own(place)


def test_no_part_of_an_embedded_graph_uses_a_home_that_came_with_the_folder(place: Path) -> None:
    place.mkdir()
    (place / "openmanus.db").write_bytes(b"")
    for read in (openmanus_home, database_url, lambda: resolve_settings(Context(), "t")):
        with pytest.raises(ConfigError, match="openmanus trust"):
            read()
    context = Context(model=ScriptedChatModel([]))
    with pytest.raises(ConfigError, match="openmanus trust"):
        invoke(build_manus_graph(), {"messages": [HumanMessage("x")]}, context=context)
    trust_home(place)
    assert openmanus_home() == place


def test_many_homes_that_are_gone_are_forgotten(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "_MOST_KNOWN", 2)
    for name in "abcd":
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        make_folder(openmanus_home())
        if name != "a":
            shutil.rmtree(tmp_path / name)
    known = json.loads((tmp_path / "config/openmanus/homes.json").read_text())
    assert str(tmp_path / "a" / ".openmanus") in known
    assert len(known) == 2
