import subprocess
import sys

from tests.support.limits import BACKSTOP_S


def test_the_bench_prints_a_table_of_figures() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", "run", "tools"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line]
    found = {row[0]: row for row in rows}
    assert float(found["openmanus"][2]) > 0  # MB on disk
    growth, own = float(found["openmanus"][4]), float(found["openmanus"][5])
    assert 0 < growth <= own
    assert float(found["five parallel calls of 1 s, to the next request"][1]) >= 1000
