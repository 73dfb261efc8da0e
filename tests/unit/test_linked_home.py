"""A home that was copied brings no links: nothing outside of it is shown to the sandbox."""

from pathlib import Path

import pytest

from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    victim = tmp_path / "victim"
    for folder in (victim, victim / "outputs", victim / "t" / "outputs"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "id_rsa").write_text("secret")
    return Workspace(tmp_path / "w", tmp_path / "home" / "threads" / "t")


@pytest.mark.parametrize(
    "name", ["threads", "threads/t", *(f"threads/t/{one}" for one in ("outputs", "python",
    "incoming", "charts", "baselines"))]
)  # fmt: skip
@pytest.mark.parametrize("target", ["victim", "victim/id_rsa", "missing"])
def test_a_link_in_a_home_is_refused(workspace: Workspace, name: str, target: str) -> None:
    tmp_path = workspace.root.parent
    before = sorted((tmp_path / "victim").rglob("*"))
    link = tmp_path / "home" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="is a symbolic link") as refused:
        workspace.prepare()
    assert str(link) in str(refused.value)
    assert sorted((tmp_path / "victim").rglob("*")) == before, "nothing was made there"
    assert not (tmp_path / "missing").exists()
    link.unlink()
    workspace.prepare()


def test_a_fork_takes_nothing_over_by_a_link(workspace: Workspace) -> None:
    tmp_path = workspace.root.parent
    workspace.private.mkdir(parents=True)
    workspace.outputs.symlink_to(tmp_path / "victim")
    newer = Workspace(workspace.root, workspace.private.with_name("new"))
    with pytest.raises(ConfigError, match="is a symbolic link"):
        newer.inherit_outputs(workspace)
    assert not list(newer.private.rglob("id_rsa"))


def test_a_home_may_be_a_link_itself(workspace: Workspace) -> None:
    tmp_path = workspace.root.parent
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").symlink_to("elsewhere")
    workspace.prepare()
    assert (tmp_path / "elsewhere/threads/t/outputs").is_dir()


def test_a_note_of_former_outputs_names_outputs_only(workspace: Workspace) -> None:
    workspace.prepare()
    home = workspace.private.parents[1]
    (home / "threads" / "old" / "outputs").mkdir(parents=True)
    (home / "threads" / "linked").symlink_to(home.parent / "victim")
    own = home / "threads" / "old" / "outputs"
    other = Path("/other/home/threads/t/outputs")
    odd = [home.parent / "victim", Path("/usr/bin"), Path("/"), Path("outputs"),
           home / "threads/t/../../../victim/threads/x/outputs", home / "threads/t/python"
    ]  # fmt: skip
    linked = home / "threads" / "linked" / "outputs"
    note = "".join(f"{one}\n" for one in (own, other, linked, *odd))
    (workspace.private / "former_outputs").write_text(note)
    assert workspace.former_outputs() == [own, other, linked]
    assert workspace.readable_outputs() == [workspace.outputs, own], "by their own paths"
