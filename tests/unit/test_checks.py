"""What a plan's `done_when` is taken for."""

import pytest

from openmanus_graph.planning.checks import read_check


@pytest.mark.parametrize(
    ("written", "kind", "wanted"),
    [
        ("file: out/report.md", "file", "out/report.md"),
        ("File: `a b.txt`", "file", "a b.txt"),
        ("report.md", "file", "report.md"),
        ("`charts/sales.png`", "file", "charts/sales.png"),
        ("The file report.md exists.", "file", "report.md"),
        ("out/report.md must exist", "file", "out/report.md"),
        ("command: pytest -q", "command", "pytest -q"),
        ("Command: `pytest -q`", "command", "pytest -q"),
        ("`pytest -q`", "command", "pytest -q"),
        ("$ pytest -q", "command", "pytest -q"),
        ("shell: make check", "command", "make check"),
        ("test -s log.txt", "command", "test -s log.txt"),
        ("[ -f a.txt ]", "command", "[ -f a.txt ]"),
        ("grep -q total out.txt && echo ok", "command", "grep -q total out.txt && echo ok"),
        ("The report names all three sources.", "question", "The report names all three sources."),
        ("the tests pass", "question", "the tests pass"),
        ("Is report.md complete?", "question", "Is report.md complete?"),
        ("done.", "question", "done."),
        ("", "question", ""),
    ],
)
def test_a_check_is_taken_for_what_it_is(written: str, kind: str, wanted: str) -> None:
    assert read_check(written) == (kind, wanted)
