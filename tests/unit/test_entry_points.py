"""What packages bring is read once for each search path."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.config.entry_points import installed
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.main import app

KIND = "tests"


def bring(folder: Path, name: str, kind: str = KIND) -> Path:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[openmanus_graph.{kind}]\n{name} = {name}:thing\n")
    return info


def test_packages_are_looked_through_once_and_again_where_the_path_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed(KIND).names == set()
    info = bring(tmp_path / "one", "first")
    monkeypatch.syspath_prepend(tmp_path / "one")
    assert installed(KIND).names == {"first"}
    shutil.rmtree(info)
    assert installed(KIND).names == {"first"}, "nothing is read again"
    bring(tmp_path / "two", "second")
    monkeypatch.syspath_prepend(tmp_path / "two")
    assert installed(KIND).names == {"second"}


def test_a_broken_package_hides_no_other_command_or_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(tmp_path, "damaged", "commands")
    monkeypatch.syspath_prepend(tmp_path)
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert "The command 'damaged' (damaged:thing)" in " ".join(listed.split())
    assert "threads" in listed
    with pytest.raises(ConfigError, match=r"'damaged'.*cannot be loaded.*uninstall the package"):
        app(["damaged"], standalone_mode=False)
    bring(tmp_path / "more", "damaged", "providers")
    monkeypatch.syspath_prepend(tmp_path / "more")
    with pytest.raises(ConfigError, match="unknown provider 'other'.*moonshot, damaged"):
        parse_spec("other:model")
    with pytest.raises(ConfigError, match="The provider 'damaged' .* cannot be loaded"):
        parse_spec("damaged:model")
