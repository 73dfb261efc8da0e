"""What a run is set up with: files that are copied into its workspace."""

import os
from pathlib import Path

import pytest

from openmanus_graph import Context
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.options import InputOptions
from openmanus_graph.interfaces.service.run_setup import prepare_input

CONTEXT = Context(model="openai:x", base_url="http://m.test", workspace="w")


def bring(name: str) -> str:
    (message,) = prepare_input("Read it.", InputOptions(file=[name]), CONTEXT, "t")["messages"]
    return str(message.content)


@pytest.fixture
def report() -> Path:
    path = Path("report.txt")
    path.write_text("new", encoding="utf-8")
    Path("w").mkdir()
    return path


def test_a_file_is_copied_once_and_refused_where_another_has_its_name(report: Path) -> None:
    assert "Files in the workspace: report.txt" in bring("report.txt")
    assert Path("w/report.txt").read_text("utf-8") == "new"
    assert bring("report.txt") == bring("w/report.txt")
    report.write_text("other", encoding="utf-8")
    with pytest.raises(ConfigError, match="already exists with other content"):
        bring("report.txt")


def test_no_link_in_the_workspace_is_followed_out_of_it(report: Path) -> None:
    outside = Path("outside.txt")
    outside.write_text("mine", encoding="utf-8")
    Path("w/.report.txt.part").symlink_to(outside.absolute())
    bring("report.txt")
    assert outside.read_text("utf-8") == "mine"
    Path("w/report.txt").unlink()
    Path("w/report.txt").symlink_to(Path("nowhere.txt").absolute())
    with pytest.raises(ConfigError, match="cannot be copied into the workspace"):
        bring("report.txt")
    assert not Path("nowhere.txt").exists()


def test_a_pipe_of_its_name_does_not_hold_the_run_up(report: Path) -> None:
    os.mkfifo("w/report.txt")
    with pytest.raises(ConfigError, match="is a FIFO"):
        bring("report.txt")
