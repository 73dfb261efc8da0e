"""Folders are copied with all that is in them, and nothing of elsewhere."""

import os
import stat
from pathlib import Path

import pytest

from openmanus_graph.runtime.atomic_files import copy_entry


def copied(folder: Path, name: str, target: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        copy_entry(descriptor, name, target)
    finally:
        os.close(descriptor)


def test_files_links_and_folders_are_copied_as_they_are(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "file").write_bytes(os.urandom(3_000_000))
    (source / "deep").chmod(0o750)
    (source / "run").write_text("x")
    (source / "run").chmod(0o755)
    (source / "out").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    copied(source, ".", target)
    assert {str(one.relative_to(target)) for one in target.rglob("*")} == {
        "deep", "deep/er", "deep/er/file", "run", "out",
    }  # fmt: skip
    assert (target / "deep/er/file").read_bytes() == (source / "deep/er/file").read_bytes()
    assert (target / "out").readlink() == Path("/etc")
    assert stat.S_IMODE((target / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "deep").stat().st_mode) == 0o750
    assert (target / "run").stat().st_mtime_ns == (source / "run").stat().st_mtime_ns


@pytest.mark.parametrize("size", [0, 1, 5 << 20, 10 << 40])
def test_holes_stay_holes(tmp_path: Path, size: int) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"head"[:size])
        file.seek(size // 2)
        file.write(b"middle"[: size // 2])
        file.truncate(size)
    copied(tmp_path, "sparse", tmp_path / "copy")
    status = (tmp_path / "copy").stat()
    assert (status.st_size, status.st_blocks < 10_000) == (size, True)
    with (tmp_path / "copy").open("rb") as file:
        assert file.read(4) == b"head"[:size]
        file.seek(size // 2)
        assert file.read(6) == (b"middle"[: size // 2] or b"head"[:size])
