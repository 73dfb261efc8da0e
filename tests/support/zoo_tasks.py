"""The tasks of the zoo, and the model of all its servers: it decides by what it is shown."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, Field

from tests.support.openai_script import Call, Reply
from tests.support.zoo_rules import Body, Message, text_of

VALUES = {"alpha": "A-7193", "beta": "B-8204", "gamma": "G-9315", "delta": "D-6426"}


class Near(BaseModel):
    """Where to look first."""

    shelf: str = Field(default="a", pattern=r"[a-z]|\d", max_length=4000)
    floor: int = Field(default=1, gt=0, multiple_of=1)


@tool
def look_up(
    key: Annotated[str, Field(pattern=r"^\w+", max_length=4000, description="One word.")],
    near: Annotated[Near, Field(description="Where to look first.")] = Near(),  # noqa: B008
    since: date | None = None,
    kind: Literal["value"] = "value",
    depth: Annotated[int, Field(gt=0, description="How far.")] = 1,
    weights: Annotated[dict[Literal["a", "b"], float] | None, Field(max_length=4000)] = None,
) -> str:
    """Look a value up."""
    return said_of(key)


def said_of(key: str) -> str:
    """Return what the tool says."""
    return f"{key} is {VALUES[key]}." if key in VALUES else f"There is no {key}."


def _measured(**_: Any) -> str:
    return "Nothing is measured."


measure = StructuredTool.from_function(
    _measured,
    name="measure",
    description="Measure something.",
    args_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "Part": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
                },
            }
        },
        "properties": {
            "whole": {"$ref": "#/$defs/Part", "description": "What to measure."},
            "note": {"description": "Anything."},
            "unit": {"type": ["string", "null"], "anyOf": [{"minLength": 1}, {"type": "null"}]},
            "by": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "rule": {"type": "string"}},
                "anyOf": [{"required": ["name"]}, {"required": ["rule"]}],
            },
        },
        "required": ["whole"],
        "additionalProperties": False,
    },
)
"""As a server of somebody else describes its tools. No task needs it."""
TOOLS = [look_up, measure]


@dataclass(frozen=True)
class Task:
    """What a person asks for."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    """Keys to look up; those of one step at once."""
    tool: str = "look_up"
    """`read_file`: the values stand in files. `str_replace_editor`: they are pictures."""

    @property
    def text(self) -> str:
        """What the person writes."""
        keys = ", then ".join(" and ".join(step) for step in self.steps)
        return f"Find out {keys} with {self.tool}, and name what you found. (case {self.name})"

    @property
    def answer(self) -> str:
        """What the model answers in the end."""
        return f"{_found(key for step in self.steps for key in step)}."

    def reply(self, shown: str) -> Reply:
        """Return the next reply, with the text that came since the task."""
        for step in self.steps:
            missing = [key for key in step if VALUES.get(key, key) not in shown]
            if missing:
                text = "I look." if len(missing) == 1 else ""
                return Reply(text=text, calls=tuple(map(self._call, missing)))
        return Reply(text=self.answer)

    def _call(self, key: str) -> Call:
        if self.tool == "read_file":
            return Call("read_file", {"path": f"{key}.txt"})
        if self.tool == "delegate":
            task = TASKS["subagent"].text
            return Call("delegate", {"agent": "manus", "task": task})
        if self.tool == "str_replace_editor":
            return Call("str_replace_editor", {"command": "view", "path": key})
        return Call("look_up", {"key": key})


def _found(keys: Any) -> str:
    return ", ".join(f"{key} is {VALUES.get(key, 'seen')}" for key in keys)


TASKS = {
    one.name: one
    for one in (
        Task("fresh", (("alpha",), ("beta", "gamma"))),
        Task("more", (("delta",),)),
        Task("picture", (("alpha",),)),
        Task("views", (("wide.png",), ("small.png",)), tool="str_replace_editor"),
        Task("steered", (("alpha",), ("beta",))),
        Task("limit", (("alpha",), ("beta",), ("gamma",), ("delta",))),
        Task("plan", (("alpha",), ("beta",))),
        Task("step-a", (("alpha",),)),
        Task("step-b", (("beta",),)),
        Task("subagent", (("alpha",),), tool="delegate"),
        Task("subagent", (("alpha",),), tool="read_file"),
        Task("files", (("alpha",), ("beta",), ("gamma",)), tool="read_file"),
        Task("more-files", (("delta",),), tool="read_file"),
    )
}
LIMIT_ANSWER = f"So far: {_found(('alpha', 'beta'))}."
"""Of the task `limit` after two steps."""
LOST = "Hello! What can I do for you?"
"""Said where the task is not shown: it was cut off."""
_MARK = re.compile(r"\(case ([\w-]+)\)")


def brain(body: Body) -> Reply:
    """Answer a request."""
    reply = _reply(body["messages"])
    tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if not reply.calls:
        if "final_answer" in tools:  # smolagents: an answer is a call
            return Reply(calls=(Call("final_answer", {"answer": reply.text}),))
        return reply
    return reply if tools else _calls_as_text(reply)


def _reply(messages: Sequence[Message]) -> Reply:
    texts = [text_of(one) for one in messages if one["role"] != "assistant"]
    whole, first = "\n".join(texts), "\n".join(texts[:2])
    if "You plan how a task gets done" in first:
        return _PLAN
    if "You write the final answer" in first:
        return Reply(text=TASKS["plan"].answer)
    if "write the notes" in texts[-1].lower():
        known = [key for key, value in VALUES.items() if value in whole]
        return Reply(text=f"Known: {_found(known)}.")
    marks = list(_MARK.finditer(whole))
    if not marks:
        return Reply(text=LOST)
    task, shown = TASKS[marks[-1][1]], whole[marks[-1].end() :]
    if "has reached its limit" in texts[-1]:
        known = [key for key, value in VALUES.items() if value in shown]
        return Reply(text=f"So far: {_found(known)}.")
    reply = task.reply(shown)
    if "It is the last one" in whole and not reply.calls:  # its reply is the plan's answer
        return Reply(text=TASKS["plan"].answer)
    return reply


_STEPS: list[Any] = [
    {"id": "a", "text": TASKS["step-a"].text, "depends_on": []},
    {"id": "b", "text": TASKS["step-b"].text, "depends_on": ["a"]},
]
_PLAN = Reply(
    calls=(Call("planning", {"command": "create", "title": "Two values", "steps": _STEPS}),)
)


def _calls_as_text(reply: Reply) -> Reply:
    """Write calls as a model does that was sent no tools, and told how to write them."""
    made = [{"name": call.name, "arguments": call.args} for call in reply.calls]
    blocks = [f"<tool_call>{json.dumps(one)}</tool_call>" for one in made]
    return Reply(text="\n".join(filter(None, (reply.text, *blocks))))
