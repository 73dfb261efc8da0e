import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.small import OURS, Case, Result, report, results
from bench.small_proxy import Counts, usage_of
from bench.small_sandbox import run, sandboxed
from bench.small_tools import bash, python, read_file, write_file
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S

CASE = Case("m", 0.0, 1, 1, "sum", "ours")
SOLVED = Result(CASE, True, True, 4.0, Counts(3, 1200, 50), "5")


def test_usage_is_read_from_whole_answers_and_streams() -> None:
    used = {"prompt_tokens": 7, "completion_tokens": 2}
    assert usage_of(json.dumps({"choices": [], "usage": used}).encode()) == used
    events: list[dict[str, Any]] = [{"choices": [], "usage": None}, {"choices": [], "usage": used}]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    assert usage_of(stream.encode()) == used
    assert usage_of(b"<html>no</html>") == {}
    assert usage_of(b'{"error": "x"}') == {}
    assert usage_of(b"[]") == {}


def test_a_success_that_is_none_is_counted_as_one(tmp_path: Path) -> None:
    false = replace(SOLVED, solved=False)
    honest = replace(SOLVED, solved=False, claimed=False, error="stopped")
    unclaimed = replace(SOLVED, claimed=False)
    peer = replace(SOLVED, case=replace(CASE, harness="deepagents"))
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(one.line() for one in (peer, SOLVED, false, honest, unclaimed)))
    found = results([file])
    assert found == [peer, SOLVED, false, honest, unclaimed]
    rows = report(found).splitlines()[2:]
    assert rows[2:] == [
        "| ours | 2 of 4 | 1 | 12 | 4,800 | 200 | 4 |",
        "| deepagents | 1 of 1 | 0 | 3 | 1,200 | 50 | 4 |",
    ]


def test_each_temperature_has_a_table() -> None:
    warm = replace(SOLVED, case=replace(CASE, temperature=0.7, seed=2))
    text = report([warm, SOLVED])
    assert text.index("m, temperature 0\n") < text.index("m, temperature 0.7\n")


def test_ours_is_run_in_each_form_and_profile() -> None:
    assert OURS["ours"] == ("auto", "auto")
    assert OURS["ours-text"] == ("text", "auto")
    assert OURS["ours-constrained-small"] == ("constrained", "small")
    assert len(OURS) == 12


async def test_a_run_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    assert (await run(sandboxed(tmp_path, ["sleep", "600"]), 0.1)).code is None


async def test_a_run_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    argv = sandboxed(tmp_path, ["bash", "-c", "sleep 600 & echo here > begun; sleep 600"])
    running = asyncio.create_task(run(argv, BACKSTOP_S))
    await asyncio.to_thread(until, (tmp_path / "begun").exists)
    assert _that_name(tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.to_thread(until, lambda: not _that_name(tmp_path))


def _that_name(folder: Path) -> list[Path]:
    """Return the processes that have a folder in their command."""
    return [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in _text(one)]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


async def test_the_environment_stays_outside(tmp_path: Path) -> None:
    ended = await run(sandboxed(tmp_path, ["env"]), 60)
    names = {line.partition("=")[0] for line in ended.out.splitlines()}
    assert names <= {"HOME", "PATH", "LANG", "PYTHONDONTWRITEBYTECODE", "PWD", "SHLVL", "_"}


def test_the_tools_of_the_others() -> None:
    assert python("x = 20\nprint('hi')\nx + 1") == "hi\n21\n"
    assert python("x") == "20\n"
    assert "ZeroDivisionError" in python("1 / 0")
    assert "SyntaxError" in python("1 +")
    assert "SystemExit" in python("raise SystemExit")
    assert python("") == "(no output)"
    assert bash("echo a; echo b >&2; exit 3") == "a\nb\n\nExit status 3."
    assert "left out" in bash(f"{sys.executable} -c 'print(50000 * 1234)' && seq 20000")


def test_the_tools_of_the_others_for_files(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b.txt")
    assert read_file(path).startswith("FileNotFoundError")
    assert write_file(path, "text") == f"Wrote {path}."
    assert read_file(path) == "text"
    assert write_file(str(tmp_path), "text").startswith("IsADirectoryError")
