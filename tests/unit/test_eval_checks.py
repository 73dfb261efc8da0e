"""Checks after a task: what holds, what does not, and checks that are wrong themselves."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openmanus_graph.demo import SUITE, demo_folder
from openmanus_graph.graphs.catalog import agent_names
from openmanus_graph.interfaces.service.eval_suite import (
    judge,
    parse_check,
    read_suite,
    run_checks,
)
from openmanus_graph.state.settings import SandboxSettings, Settings
from openmanus_graph.testing import tool_session
from tests.support.sandboxes import MODES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
JUDGES = """\
import sys, time
from pathlib import Path

def reads(answer, workspace):
    return answer == "gr\\u00fcn" and (workspace / "a.txt").read_text() == "yes"

def says(answer, workspace):
    return "too little"

def no(answer, workspace):
    return False

def raises(answer, workspace):
    raise KeyError("boom")

def leaves(answer, workspace):
    sys.exit(0)

def nothing(answer, workspace):
    pass

def hangs(answer, workspace):
    while True:
        time.sleep(1)

def writes(answer, workspace):
    (workspace / "a.txt").write_text("no")
    return True

def looks_around(answer, workspace):
    return not Path(__file__).with_name("beside.txt").exists()
"""
Find = Callable[..., tuple[str, str]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("yes")
    (tmp_path / "judges.py").write_text(JUDGES)
    (tmp_path / "beside.txt").write_text("a key, perhaps")
    return tool_session(workspace).settings


@pytest.fixture
def find(settings: Settings, tmp_path: Path) -> Find:
    """Return the outcome of one check, and what it said."""

    def find(text: str, answer: str = "grün", limit_s: float = 60) -> tuple[str, str]:
        known = replace(settings, sandbox=replace(settings.sandbox, timeout_s=limit_s))
        checks = [parse_check(text)]
        (finding,) = asyncio.run(run_checks(checks, answer, tmp_path, known))
        assert finding.check == text
        return finding.outcome, finding.said

    return find


@pytest.mark.parametrize(
    ("check", "outcome", "words"),
    [
        ("file: a.txt", "holds", ""),
        ("file: b.txt", "fails", "does not exist"),
        ("file: ../beside.txt", "fails", "beside.txt"),
        ("command: grep -q yes a.txt", "holds", ""),
        ("command: echo sorry; exit 3", "fails", "sorry\n[exit code 3]"),
        ("answer: ^gr.n$", "holds", ""),
        ("answer: red", "fails", "'red'"),
        ("python: judges:reads", "holds", ""),
        ("python: judges:says", "fails", "too little"),
        ("python: judges:no", "fails", "judges:no returned False"),
        ("python: judges:raises", "error", "KeyError: 'boom'"),
        ("python: judges:leaves", "error", "SystemExit"),
        ("python: judges:nothing", "error", "None"),
        ("python: judges:missing", "error", "AttributeError"),
        ("python: judges:looks_around", "holds", ""),
    ],
)
def test_each_kind_of_check(find: Find, check: str, outcome: str, words: str) -> None:
    found, said = find(check)
    assert found == outcome, said
    assert words in said
    assert bool(said) == (outcome != "holds")


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("command: while true; do :; done", ""),
        ("python: judges:hangs", ""),
        (r"answer: (a|aa)+\Z(?<!a)", "a" * 5000),
    ],
)
def test_a_check_that_hangs_ends_at_its_limit_and_says_nothing_of_the_task(
    find: Find, check: str, answer: str
) -> None:
    outcome, said = find(check, answer, limit_s=1)
    assert (outcome, "did not end within 1 s" in said) == ("error", True), said


def test_a_check_changes_nothing(find: Find, settings: Settings) -> None:
    assert find("python: judges:writes")[0] == "error"
    assert find("command: echo no > a.txt")[0] == "fails"
    assert (settings.workspace / "a.txt").read_text() == "yes"


@pytest.mark.parametrize("mode", MODES)
def test_a_function_is_called_in_every_sandbox(
    settings: Settings, tmp_path: Path, mode: str
) -> None:
    sandbox = SandboxSettings(mode=mode)  # type: ignore[arg-type]  # one of them
    checks = [parse_check("python: judges:reads")]
    found = asyncio.run(run_checks(checks, "grün", tmp_path, replace(settings, sandbox=sandbox)))
    assert [one.outcome for one in found] == ["holds"], found


def test_a_check_that_fails_outweighs_one_that_is_broken(find: Find, settings: Settings) -> None:
    texts = ("file: a.txt", "python: judges:raises", "file: b.txt")
    found = asyncio.run(
        run_checks([*map(parse_check, texts)], "", settings.workspace.parent, settings)
    )
    assert judge(found) == ("failed", "check file")
    assert judge(found[:2]) == ("error", "broken check python")
    assert judge(found[:1]) == ("passed", "")


@pytest.mark.parametrize(("content", "outcome"), [("[1, 2, 3]", "passed"), ("[1, 2]", "failed")])
def test_the_example_of_the_documentation_works(tmp_path: Path, content: str, outcome: str) -> None:
    page = (ROOT / "docs" / "eval.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    judges, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "suite.jsonl").write_text(line)
    (tmp_path / "judges.py").write_text(judges)
    (task,) = read_suite(tmp_path / "suite.jsonl", ["manus"]).tasks
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "totals.json").write_text(content)
    settings = tool_session(tmp_path / "work").settings
    found = asyncio.run(run_checks(task.checks, "Done.", tmp_path, settings))
    assert judge(found)[0] == outcome, found


def test_no_task_of_the_shipped_suite_passes_undone(tmp_path: Path) -> None:
    """In a folder with its files only, and with an answer that says nothing."""
    with demo_folder() as folder:
        suite = read_suite(folder / SUITE, agent_names(), "shipped")
        for task in suite.tasks:
            workspace = tmp_path / task.task.id
            workspace.mkdir()
            for name in task.task.files:
                (workspace / Path(name).name).write_bytes(Path(name).read_bytes())
            settings = tool_session(workspace).settings
            found = asyncio.run(run_checks(task.checks, "Done.", suite.folder, settings))
            assert judge(found)[0] == "failed", (task.task.id, found)
