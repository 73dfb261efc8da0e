"""A process that is killed at any call of a cell: no cell runs again, each effect is there once."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.support.cli import Event
from tests.support.crash import Kill, Ordeal
from tests.support.openai_script import Call, Reply
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow
LINES = [f"r{number}" for number in range(1, 5)]


def code_for(lines: list[str]) -> str:
    noted = "open('cells.log', 'a').write('begun ')\n"
    return f"{noted}for line in {lines}:\n    print(tools.ring(line=line))"


def decide(body: dict[str, Any], *, repeats: bool) -> Reply:
    """Send the same code again after it was cut off, or code for what is missing."""
    results = [str(one["content"]) for one in body["messages"] if one["role"] == "tool"]
    done = {line for text in results for line in re.findall(r"rang (r\d)|heard (r\d)", text)}
    named = {one for pair in done for one in pair}
    missing = [line for line in LINES if line not in named]
    if not results or missing:
        code = code_for(LINES if repeats else missing)
        return Reply(calls=(Call("python_execute", {"code": code}),))
    return Reply("All has rung.")


class Bells(Ordeal):
    @override
    def reply_to(self, waiting: Event) -> tuple[str, ...]:
        (call,) = waiting["calls"]
        line = call["args"]["line"]
        if line not in self.files().get("ring.log", "").split():
            return ("--approve",)
        if self.number % 2:
            return ("--answer", f"= It rang {line}.")
        return ("--reject", "--reason", f"I heard {line}.")

    @override
    def run_argv(self) -> tuple[str, ...]:
        return ("run", "Ring four times.", "--thread", "t", "--workspace", "files",
                "--policy", "auto", "--sandbox", self.sandbox)  # fmt: skip


def nth_inner(number: int) -> Callable[[Event], bool]:
    left = [None] * number

    def meant(event: Event) -> bool:
        if "parent" in event and left:
            left.pop()
            return not left
        return False

    return meant


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("number", range(1, 2 * len(LINES) + 1))
def test_each_effect_is_there_once(
    number: int, repeats: bool, tmp_path: Path, zygote: Zygote
) -> None:
    bells = Bells(
        tmp_path / "cli", zygote, "auto" if number == 3 else "none", number,
        model=lambda body: decide(body, repeats=repeats),
    )  # fmt: skip
    bells.see_through(Kill(nth_inner(number)))
    assert bells.files()["ring.log"].split() == LINES, bells.story()
    assert bells.lives[-1].final["answer"] == "All has rung."
    cells = {
        event["call_id"]
        for life in bells.lives
        for event in life.events
        if event["type"] == "tool_start" and event["tool"] == "python_execute"
    }
    assert len(bells.files()["cells.log"].split()) == len(cells), bells.story()
