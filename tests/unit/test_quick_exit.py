"""The end of the command line's process: all that is to happen at exit happens, nothing beyond."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, logging, sys, tempfile, threading
from pathlib import Path
from openmanus_graph.interfaces.cli.process import is_own_process, quick_exit

class Kept:
    def __del__(self):
        print("taken apart")

def late():
    threading.main_thread().join()
    print("thread")

assert not is_own_process()
with quick_exit():
    assert is_own_process()
    kept = Kept()
    folder = tempfile.TemporaryDirectory(dir=".")
    threading.Thread(target=late).start()
    atexit.register(print, "handler")
    logging.getLogger().addHandler(logging.FileHandler("log"))
    logging.warning("logged")
    print("x" * 100_000)
    END
"""
DONE = {"handler", "thread", "x" * 100_000}


def run_to(end: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("END", end)
    with (folder / "out").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            check=False,
        )
    assert sorted(path.name for path in folder.iterdir()) == ["log", "out"], "the folder is left"
    assert (folder / "log").read_text() == "logged\n"
    return done


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("sys.exit()", 0)])
def test_an_exit_code_ends_the_process_when_all_is_done(
    end: str, code: int, tmp_path: Path
) -> None:
    done = run_to(end, tmp_path)
    assert (done.returncode, done.stderr) == (code, "")
    assert {*(tmp_path / "out").read_text().splitlines()} == DONE


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ('sys.exit("a reason")', 1, "a reason"),
        ('raise ValueError("a fault")', 1, "ValueError: a fault"),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
    ],
)
def test_any_other_end_stays_the_interpreters(
    end: str, code: int, said: str, tmp_path: Path
) -> None:
    done = run_to(end, tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, said)
    assert {*(tmp_path / "out").read_text().splitlines()} == {*DONE, "taken apart"}


def test_a_closed_stream_is_left_alone() -> None:
    program = (
        "import sys\nfrom openmanus_graph.interfaces.cli.process import quick_exit\n"
        "with quick_exit():\n    sys.stdout.close()\n    sys.exit(3)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
