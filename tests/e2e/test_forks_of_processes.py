"""A program that forks: its child begins anew, and takes nothing from the parent."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.limits import BACKSTOP_S
from tests.support.static_site import serving

pytestmark = pytest.mark.slow


def fork(scene: str, home: Path, **variables: str) -> dict[str, Any]:
    """Play a scene of `tests.support.forking` and return what parent and child found."""
    command = [sys.executable, "-m", "tests.support.forking", scene, str(home)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=BACKSTOP_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return {who: found for line in lines for who, found in line.items()}


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (
            "database",
            {
                "child": [["before"], ["child"]],
                "parent": [["before"], ["child"], ["parent"]],
            },
        ),
        ("checkpoints", {"child": 2, "parent": 3}),
    ],
)
@pytest.mark.usefixtures("each_database")
def test_a_database_is_used_in_both(scene: str, expected: dict[str, Any], tmp_path: Path) -> None:
    assert fork(scene, tmp_path) == expected


def pid_in(answer: str) -> str:
    """Return the process that answered a call of the MCP server."""
    return answer.partition(" pid ")[2].split()[0]


@pytest.mark.exhaustive
def test_what_an_agent_holds_open_stays_the_parents(tmp_path: Path) -> None:
    with serving() as site:
        found = fork("tools", tmp_path / "work", SITE=site)
    page, shell, kernel, server = found["child"]
    assert "was opened again" in page, "a browser of its own, at the address of the parent's"
    assert (shell, kernel) == ("shell", "kernel None")
    assert pid_in(server) != pid_in(found["before"][-1])
    page, shell, kernel, server = found["parent"]
    assert "forms.html" in page
    assert "was opened again" not in page
    assert (shell, kernel) == ("shell set", "kernel 1")
    assert pid_in(server) == pid_in(found["before"][-1])
