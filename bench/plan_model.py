"""A local model that plans and does one piece of work, as a plan or in one run.

Runs as a process of its own, so that its CPU time is not the client's. It decides by what a
request shows, so that steps may run at once or after a pause.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.server import Call, serve

BYTES_PER_TOKEN = 4
_STEP = re.compile(r"Your step \((.+?)\):")
QUESTION = "Which year is meant?"


def calls_of(step: str) -> list[Call]:
    """Return the work of one step: three cells that build on each other, and a command."""
    cells = (
        f"import csv, json\nrows = [(n, n % 7 * {len(step)}) for n in range(5000)]\nlen(rows)",
        "total = sum(value for _, value in rows)\nprint(total)",
        f"json.dump({{'total': total}}, open('{step}.json', 'w'))",
    )
    python: list[Call] = [("python_execute", {"code": cell}) for cell in cells]
    return [*python, ("bash", {"command": f"wc -c {step}.json"})]


def asks(step: str) -> list[Call]:
    """Return the work of a step that asks the person before it begins."""
    return [("ask_human", {"inquire": QUESTION}), *calls_of(step)]


def adds_up(step: str) -> list[Call]:
    """Return the work of a step that makes one total of those of all parts."""
    totals = "sum(json.load(open(name))['total'] for name in glob.glob('p?.json'))"
    cell = f"import glob, json\njson.dump({{'total': {totals}}}, open('{step}.json', 'w'))"
    return [("python_execute", {"code": cell})]


@dataclass(frozen=True)
class Case:
    """A piece of work."""

    steps: Mapping[str, list[str]]
    """The steps that each one depends on."""
    work: Mapping[str, Callable[[str], list[Call]]] = field(
        default_factory=dict[str, Callable[[str], list[Call]]]
    )
    """Steps whose work is not `calls_of`."""
    fails: str = ""
    """A step whose first try ends without its result."""
    brief: str = ""
    """Follows the text of each step."""

    def calls(self, step: str) -> list[Call]:
        """Return the calls of a step, one in each reply."""
        return self.work.get(step, calls_of)(step)


CHAIN = {"s0": [], "s1": ["s0"], "s2": ["s1"], "s3": ["s2"]}
PARTS: dict[str, list[str]] = {"p0": [], "p1": [], "p2": [], "p3": []}
BRIEF = (
    "Look at every source that the task names for this part, and at no other. Note for each figure "
    "where it stands, which year it is for and in which unit, and convert all to millions of euros "
    "at the rate of the year's last day. Where two sources differ by more than a tenth, name both "
    "and say which one is newer. Leave out what is estimated. Hand over a table with the columns "
    "source, year, figure and note, the total, and what was not found. "
)
CASES = {
    "a chain of four": Case(CHAIN),
    "four independent parts": Case(PARTS),
    "four independent parts and a summary": Case(
        {**PARTS, "sum": list(PARTS)}, work={"sum": adds_up}
    ),
    "four parts with long texts, and a report": Case(
        {**PARTS, "sum": list(PARTS)}, work={"sum": adds_up}, brief=BRIEF
    ),
    "a chain whose second step fails once": Case(CHAIN, fails="s1"),
    "a chain whose second step asks the person": Case(CHAIN, work={"s1": asks}),
}


class PlanModel:
    """Answers requests; one of a plan's step is about that step, any other about all of them."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._has_failed = False
        self.seen: list[dict[str, float]] = []

    def reply(self, body: bytes) -> bytes:
        """Answer a request."""
        message = self._message(json.loads(body)["messages"])
        asked = len(body) // BYTES_PER_TOKEN
        answered = len(json.dumps(message)) // BYTES_PER_TOKEN
        answer = {
            "id": f"r{len(self.seen)}", "object": "chat.completion", "created": 0, "model": "bench",
            "choices": [{
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
            }],
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": answered,
                "total_tokens": asked + answered,
            },
        }  # fmt: skip
        return json.dumps(answer).encode()

    def _message(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        system, texts = _text(messages[0]), [_text(message) for message in messages]
        if system.startswith("You plan how"):
            return self._call("planning", self._plan(), 0)
        if system.startswith("You write the final"):
            return {"role": "assistant", "content": "All parts are done; each has its file."}
        named = _STEP.findall("\n".join(texts))
        done = sum(message["role"] == "tool" for message in messages)
        if not named:
            calls = [call for step in self._case.steps for call in self._case.calls(step)]
            return self._next(calls, done, "All parts are done; each has its file.")
        step = named[-1]
        calls = self._case.calls(step)
        if step == self._case.fails and not self._has_failed:
            calls = calls[:2]
            self._has_failed = done == len(calls)
        return self._next(calls, done, f"The total of {step} stands in {step}.json.")

    def _plan(self) -> dict[str, Any]:
        steps = [
            {
                "id": step,
                "text": f"Add up the rows of {step}, and write the total to {step}.json.\n"
                + self._case.brief,
                "depends_on": before,
                "done_when": f"file: {step}.json",
            }
            for step, before in self._case.steps.items()
        ]
        return {"command": "create", "title": "Totals", "steps": steps}

    def _next(self, calls: list[Call], done: int, answer: str) -> dict[str, Any]:
        if done < len(calls):
            return self._call(*calls[done], done)
        return {"role": "assistant", "content": answer}

    def _call(self, name: str, args: Mapping[str, Any], number: int) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(args)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(serve(given.port, PlanModel(CASES[given.case]), given.latency))
