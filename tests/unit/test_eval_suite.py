"""The suite of an evaluation: what a line and a check may say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import regex

from openmanus_graph.demo import SUITE, demo_folder
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names
from openmanus_graph.interfaces.service.eval_suite import (
    find_module,
    parse_check,
    read_suite,
    task_id,
)


def write(folder: Path, *lines: object) -> Path:
    path = folder / "suite.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("file: report.md", "file", "report.md"),
        ("report.md", "file", "report.md"),
        ("command: grep -q x a | cat", "command", "grep -q x a | cat"),
        ("`test -s a.txt`", "command", "test -s a.txt"),
        ("answer: (?i)four: 4", "answer", "(?i)four: 4"),
        ("python: judges.inner:is_right", "python", "judges.inner:is_right"),
    ],
)
def test_checks_are_those_of_plans_and_two_more(text: str, kind: str, wanted: str) -> None:
    check = parse_check(text)
    assert (check.kind, check.wanted, check.text) == (kind, wanted, text)


def test_a_check_that_is_no_text_names_the_kinds_that_there_are(tmp_path: Path) -> None:
    path = write(tmp_path, {"task": "do it", "checks": [{"fiel": "report.md"}]})
    with pytest.raises(ConfigError, match=r"fiel.*is not text.*`file: NAME`.*`python:"):
        read_suite(path, agent_names())


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("fiel: report.md", ("not a check", "`answer: PATTERN`")),
        ("Does it work?", ("not a check",)),
        ("comand: a && b", ("not a check",)),
        ("", ("not a check",)),
        ("file:", ("does not name a file",)),
        ("command: ", ("does not name a command",)),
        ("command: rm -rf out", ("`rm -rf out`", "changes nothing")),
        ("answer:", ("needs a pattern",)),
        ("answer: (", ("not a regular expression",)),
        ("python: judges", ("does not name a function",)),
        ("python: a b:c", ("does not name a function",)),
        ("python: os.path; evil:x", ("does not name a function",)),
        ("python: no_such_module:check", ("no_such_module", "neither", "installed")),
    ],
)
def test_a_wrong_check_is_named_with_its_line(
    tmp_path: Path, check: str, words: tuple[str, ...]
) -> None:
    good = {"task": "one", "checks": ["file: a.md"]}
    with pytest.raises(ConfigError) as refused:
        read_suite(write(tmp_path, good, {"task": "two", "checks": [check]}), ["manus"])
    place = "The task '2'" if "python: no_such" in check else "Line 2"
    for word in (place, *words):
        assert word in str(refused.value)


@pytest.mark.parametrize("checks", [[], None, "file: a.md"])
def test_a_task_without_checks_is_refused(tmp_path: Path, checks: object) -> None:
    line = {"task": "one"} | ({"checks": checks} if checks is not None else {})
    with pytest.raises(ConfigError, match="Line 1 .* checks"):
        read_suite(write(tmp_path, line), ["manus"])


def test_attempts_have_ids_of_their_own_whatever_the_tasks_are_called(tmp_path: Path) -> None:
    lines = [{"id": name, "task": name, "checks": ["file: x"]} for name in ("a", "a#1")]
    suite = read_suite(write(tmp_path, *lines), ["manus"])
    ids = [attempt.id for attempt in suite.attempts(2)]
    assert ids == ["a#1", "a#1#1", "a#2", "a#1#2"]
    assert [task_id(one) for one in ids] == ["a", "a#1", "a", "a#1"]


def test_other_checks_are_another_digest(tmp_path: Path) -> None:
    digests = [
        read_suite(write(tmp_path, {"task": "one", "checks": [check]}), ["manus"]).tasks[0].digest
        for check in ("file: a", "file: b", "file: a")
    ]
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]


def test_a_module_is_found_beside_the_suite_before_it_is_found_installed(tmp_path: Path) -> None:
    (tmp_path / "json.py").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "deep.py").touch()
    assert find_module(parse_check("python: json:x"), tmp_path) == tmp_path / "json.py"
    assert find_module(parse_check("python: mine.deep:x"), tmp_path) == tmp_path / "mine"
    assert find_module(parse_check("python: pathlib:x"), tmp_path) is None
    with pytest.raises(ConfigError):
        find_module(parse_check("python: mine.other:x"), tmp_path)


def test_the_shipped_suite_has_ten_tasks_of_every_kind_of_check() -> None:
    with demo_folder() as folder:
        suite = read_suite(folder / SUITE, agent_names(), "shipped")
    assert len(suite.tasks) == 10
    kinds = {check.kind for task in suite.tasks for check in task.checks}
    assert kinds == {"file", "command", "answer", "python"}
    assert {task.task.agent for task in suite.tasks} >= {None, "swe", "planner", "planning"}


def test_the_documented_program_makes_a_suite_of_a_dataset_of_inspect(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "eval.md").read_text(encoding="utf-8")
    program = next(code for code in page.split("```python\n") if code.startswith("# from_inspect"))
    samples: list[dict[str, Any]] = [
        {"input": "What is 2 + 2?", "target": "4 (four)", "metadata": {"from": "here"}},
        {"id": 7, "input": "Name a colour of the flag.", "target": ["red", "white"]},
    ]
    made = subprocess.run(
        [sys.executable, "-c", program.partition("```")[0]],
        input="\n".join(map(json.dumps, samples)),
        capture_output=True,
        text=True,
        check=True,
    )
    path = tmp_path / "suite.jsonl"
    path.write_text(made.stdout)
    first, second = read_suite(path, agent_names()).tasks
    assert (first.task.id, second.task.id, second.task.text) == ("1", "7", samples[1]["input"])
    patterns = [task.checks[0].wanted for task in (first, second)]
    answers = ("It is 4 (FOUR).", "White, for one.")
    found = [bool(regex.search(one, text)) for one in patterns for text in answers]
    assert found == [True, False, False, True]
