"""`openmanus run` with subagents: killed in the middle, asking, shown nested."""

import json
import re
from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.support.cli import Event
from tests.support.crash import Kill, Ordeal
from tests.support.crash_script import ANSWER, THREAD
from tests.support.graphs import own_words
from tests.support.openai_script import Call, Reply
from tests.support.zygote import Zygote

NAMES = ("one", "two")


def subagent_in(messages: list[dict[str, Any]]) -> str:
    """Return what a subagent was asked, a word; empty for the agent that the person runs."""
    found = re.match(r"You are a subagent.*\n\n(\w+)\n", own_words(str(messages[1]["content"])))
    return found[1] if found else ""


def answer(body: dict[str, Any]) -> Reply:
    """Answer by what a request shows: a subagent asks the person, writes a line, and ends."""
    messages: list[dict[str, Any]] = body["messages"]
    reported = [str(message["content"]) for message in messages if message["role"] == "tool"]
    name = subagent_in(messages)
    if not name:
        made = tuple(Call("delegate", {"agent": "manus", "task": one}) for one in NAMES)
        return Reply("\n".join(reported)) if reported else Reply(calls=made)
    steps = (
        Call("bash", {"command": f"echo {name} | tee -a log.txt"}),
        Call("ask_human", {"inquire": f"What about {name}?"}),
    )
    if len(reported) < len(steps):
        return Reply(calls=(steps[len(reported)],))
    return Reply(f"{name} is done: {reported[-1]}")


class DelegateOrdeal(Ordeal):
    """A run with two subagents."""

    @override
    def run_argv(self) -> tuple[str, ...]:
        common = ("--thread", THREAD, "--workspace", "files", "--policy", "auto")
        return ("run", "the task", *common, "--sandbox", self.sandbox)

    @override
    def reply_to(self, waiting: Event) -> tuple[str, ...]:
        assert waiting["plan_step"].startswith("manus-")
        return ("--answer", f"{ANSWER} for {waiting['question'].split()[-1]}")


def test_subagents_that_are_killed_go_on_and_ask_by_their_names(
    tmp_path: Path, zygote: Zygote
) -> None:
    def in_subagent(event: Event) -> bool:
        return event["type"] == "tool_end" and bool(event.get("plan_step"))

    def at_end(event: Event) -> bool:
        return bool(event["type"] == "step_end")

    def at_question(event: Event) -> bool:
        return bool(event["type"] == "interrupt")

    ordeal = DelegateOrdeal(tmp_path / "cli", zygote, model=answer)
    ordeal.cli.write("openmanus.toml", 'tools = ["+delegate"]\n')
    ordeal.see_through(Kill(in_subagent), Kill(at_question), None, Kill(at_end))
    final = ordeal.lives[-1].final
    assert final["status"] == "finished"
    for name in NAMES:
        assert f"{name} is done: {ANSWER} for {name}?" in final["answer"]
    log = (ordeal.cli.workspace / "log.txt").read_text().split()
    assert sorted(log) == sorted({*log}), ordeal.story()
    events = [event for life in ordeal.lives for event in life.events]
    subagents = {event["id"] for event in events if event["type"] == "step_start"}
    assert len(subagents) == len(NAMES)
    inside = {e["plan_step"] for e in events if e["type"] == "tool_end" and "plan_step" in e}
    assert inside == subagents
    of_subagents = [e for e in events if e["type"] == "tool_end" and e["tool"] == "delegate"]
    unknown = [e for e in events if "may have run" in json.dumps(e)]
    assert {e["tool"] for e in unknown} <= {"bash"}, ordeal.story()  # which a kill may cut off
    assert all(e["ok"] for e in of_subagents)
