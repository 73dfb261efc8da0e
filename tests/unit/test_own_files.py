"""Files of ours in a person's folders: no link that a clone brought leads them anywhere."""

import os
from pathlib import Path

import pytest

from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.batch import open_results
from openmanus_graph.interfaces.service.eval_suite import About, store_about
from openmanus_graph.runtime.atomic_files import open_own_file, write_own_file
from openmanus_graph.state.context import Context


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, beside a file and a folder that it must not reach."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("kept")
    folder = tmp_path / "clone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def outside(clone: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in (clone.parent / "outside").iterdir()}


@pytest.mark.parametrize("target", ["file", "missing"])
def test_a_link_is_replaced_or_refused_and_never_followed(clone: Path, target: str) -> None:
    Path("link").symlink_to(clone.parent / "outside" / target)
    with pytest.raises(ConfigError, match="symbolic link"):
        open_own_file("link", os.O_WRONLY | os.O_APPEND)
    with pytest.raises(ConfigError, match="symbolic link"), open_results(Path("link"), [], "here"):
        pass
    write_own_file("link", "mine")
    assert not Path("link").is_symlink()
    assert Path("link").read_text() == "mine"
    assert outside(clone) == {"file": "kept"}


@pytest.mark.parametrize("target", ["../outside", "/proc/self/cwd/../outside"])
def test_no_folder_on_the_way_leads_out(clone: Path, target: str) -> None:
    Path("report").symlink_to(target)
    for path in ("report/file", clone / "report" / "new"):
        with pytest.raises(ConfigError, match="outside of"):
            write_own_file(path, "mine")
        with pytest.raises(ConfigError, match="outside of"):
            open_own_file(path, os.O_WRONLY | os.O_APPEND)
    with pytest.raises(ConfigError, match="outside of"):
        store_about(Path("report"), About.model_construct())
    assert outside(clone) == {"file": "kept"}


def test_links_that_stay_inside_and_files_elsewhere_are_the_persons_choice(clone: Path) -> None:
    Path("real").mkdir()
    Path("link").symlink_to("real")
    write_own_file("link/a", "1")
    write_own_file("link/a", "2")
    write_own_file("../outside/file", "3")
    write_own_file(clone.parent / "outside" / "new", b"4")
    assert Path("real/a").read_text() == "2"
    assert outside(clone) == {"file": "3", "new": "4"}


@pytest.mark.timeout(10)
def test_a_pipe_is_refused_at_once(clone: Path) -> None:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ConfigError, match="not a file"):
            write_own_file(name, "mine")
        with pytest.raises(ConfigError, match="not a file"):
            open_own_file(name, os.O_WRONLY | os.O_APPEND)


def test_the_streams_of_a_shell_are_written_to(clone: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write_own_file(f"/dev/fd/{writing}", "said")
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read() == "said"
    write_own_file("/dev/null", "lost")


@pytest.mark.parametrize("link", ["workspace", "workspace/demo"])
def test_a_default_workspace_that_leads_out_is_refused(clone: Path, link: str) -> None:
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(clone.parent / "outside")
    with pytest.raises(ConfigError, match="--workspace"):
        resolve_settings(Context(), "demo", without_model=True)
    chosen = resolve_settings(Context(workspace=link), "demo", without_model=True)
    assert chosen.workspace == clone.parent / "outside"


def test_a_default_workspace_may_be_a_link_within_the_folder(clone: Path) -> None:
    Path("files").mkdir()
    Path("workspace").symlink_to("files")
    found = resolve_settings(Context(), "demo", without_model=True)
    assert found.workspace == clone / "files" / "demo"
