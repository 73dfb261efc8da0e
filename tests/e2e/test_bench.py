import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.limits import BACKSTOP_S

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
def test_the_bench_prints_a_table_of_figures() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", "run", "tools"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line]
    found = {row[0]: row for row in rows}
    checkpoints, whole = map(float, found["openmanus"][2:4])  # MB on disk
    assert 0 < checkpoints < whole
    growth, own = map(float, found["openmanus"][5:7])
    assert 0 < growth <= own
    assert float(found["openmanus: five parallel calls of 1 s, to the next request"][1]) >= 1000


@pytest.mark.parametrize(
    "reader", [pytest.param("orderly", marks=pytest.mark.exhaustive), "clumsy"]
)
def test_ten_tasks_are_done_whoever_reads_the_model(reader: str) -> None:
    command = [sys.executable, "-m", "bench.tasks", reader]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [one["right"] for one in json.loads(done.stdout)] == [True] * 10


MOST_REQUESTS = {"software": 10, "office": 3, "web": 6, "page building": 6, "research": 8}
"""Of the larger tasks, without a detour."""


@pytest.mark.parametrize("task", MOST_REQUESTS)
def test_a_larger_task_is_done_without_a_detour(task: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.trials", "ours", task]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BACKSTOP_S, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["done"]
    assert found["requests"] <= MOST_REQUESTS[task]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("postgres")
def test_killed_at_every_boundary_of_a_sample_the_shop_is_as_it_should_be() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", "kills"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * BACKSTOP_S, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line]
    wrong = {row[0]: [int(figure) for figure in row[3:6]] for row in rows[2:]}
    without = wrong.pop("create_agent")
    assert without[0] > 0, "the kills are such that they double effects"
    assert list(wrong.values()) == [[0, 0, 0]] * 3
