"""Files that the user names: links anywhere, but only files; in the workspace only those of it."""

import os
from pathlib import Path

import pytest

from openmanus_graph import ConfigError
from openmanus_graph.interfaces.cli.editor import read_mentions
from openmanus_graph.interfaces.service.batch import open_results, read_tasks
from openmanus_graph.interfaces.service.run_setup import read_input
from openmanus_graph.runtime.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    return Workspace(tmp_path / "work", tmp_path / "private")


def test_a_named_file_may_be_a_link_anywhere(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert read_input(tmp_path / "link", 10, workspace) == b"x"


def test_what_is_no_file_is_refused_with_a_sentence(tmp_path: Path, workspace: Workspace) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "big").write_bytes(b"x" * 11)
    for name, words in (
        ("pipe", "is a FIFO, not a file"), ("zeros", "is a device, not a file"),
        (".", "is a folder, not a file"), ("big", "at most 10 bytes can be read here"),
        ("none", "There is no file"), ("big/x", "There is no file"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            read_input(tmp_path / name, 10, workspace)


def test_a_link_in_the_workspace_leads_nowhere_else(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "secret").write_text("secret")
    (workspace.root / "notes.txt").symlink_to(tmp_path / "secret")
    (workspace.root / "plot.png").symlink_to(tmp_path / "secret")
    (workspace.root / "inner.txt").symlink_to("own.txt")
    (workspace.root / "own.txt").write_text("own")
    assert read_input(workspace.root / "inner.txt", 10, workspace) == b"own"
    with pytest.raises(ConfigError, match="is outside"):
        read_input(workspace.root / "notes.txt", 10, workspace)
    for message in ("see @notes.txt", "see @plot.png", "see ./plot.png"):
        assert read_mentions(message, workspace.root) == (
            message,
            read_mentions("", workspace.root)[1],
        )


def test_files_of_a_batch_are_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tasks.jsonl")
    with pytest.raises(ConfigError, match="is a FIFO"):
        read_tasks(tmp_path / "tasks.jsonl", None)
    with (
        pytest.raises(ConfigError, match="is a FIFO"),
        open_results(tmp_path / "tasks.jsonl", (), "here"),
    ):
        pass
