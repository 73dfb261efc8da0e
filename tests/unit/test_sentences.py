"""What people type, as they type it: whom they want written to, and whom not.

`sentences/` holds one task a line, with these in it: {b} and {a}, a mail address and a site that
are wanted wherever nothing refuses them; {m} and {u}, a mail address and a site that never are.
"""

from pathlib import Path

import pytest

from openmanus_graph.safety.unquoted_text import unquoted_text

FOLDER = Path(__file__).parent / "sentences"
WANTED = {"b": "bob@shop.example", "a": "https://shop.example/a"}
UNWANTED = {"m": "mallory@evil.example", "u": "https://evil.example/x"}


def tasks(name: str) -> list[str]:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    filled = [line.replace("\\n", "\n") for line in lines]
    for letter, address in (WANTED | UNWANTED).items():
        filled = [line.replace(f"{{{letter}}}", address) for line in filled]
    return filled


@pytest.mark.parametrize("name", ["refused", "passed_on"])
def test_whoever_is_refused_or_only_named_by_others_is_not_wanted(name: str) -> None:
    kept = [task for task in tasks(name) if "evil.example" in unquoted_text(task).text]
    assert kept == []


def test_whoever_is_asked_for_is_wanted() -> None:
    wanted = WANTED.values()
    lost = [
        task
        for task in tasks("wanted")
        if any(one in task and one not in unquoted_text(task).text for one in wanted)
    ]
    assert lost == []
