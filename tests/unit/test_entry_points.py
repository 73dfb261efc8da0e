"""What packages bring is read once for each search path."""

import shutil
from pathlib import Path

import pytest

from openmanus_graph.config.entry_points import installed

KIND = "tests"


def bring(folder: Path, name: str) -> Path:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[openmanus_graph.{KIND}]\n{name} = {name}:thing\n")
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
