"""A model for planning runs that decides by what it is shown: it goes on after any crash."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.tool import tool_call
from typing_extensions import override

from openmanus_graph.state.planning import shown_after
from openmanus_graph.testing import ScriptedChatModel

Reply = AIMessage | str | Exception
StepBrain = Callable[[str, list[BaseMessage]], Reply]
_STEP = re.compile(r"Your step \((.+?)\):")


def plan_call(*steps: Any, title: str = "The plan") -> AIMessage:
    """Make a reply that plans."""
    args = {"command": "create", "title": title, "steps": list(steps)}
    return AIMessage("", tool_calls=[tool_call(name="planning", args=args, id="plan")])


def use(name: str, **args: Any) -> AIMessage:
    """Make a reply that calls one tool."""
    return AIMessage("", tool_calls=[tool_call(name=name, args=args, id="call")])


def step_of(messages: Sequence[BaseMessage], only: str = "0") -> str:
    """Return the id of the step that a request is about.

    Args:
        messages: The request.
        only: The step of a plan that has no other: it is asked for as the task is.
    """
    asked = next(message for message in messages if message.type == "human")
    named = _STEP.findall(asked.text)
    return str(named[-1]) if named else only  # a flow that does a step repeats its own prompt


def only_step_of(reply: Reply) -> str:
    """Return the id of a plan's first step."""
    calls = reply.tool_calls if isinstance(reply, AIMessage) else []
    steps: list[Any] = calls[0]["args"].get("steps") or [""] if calls else [""]
    return "0" if isinstance(steps[0], str) else str(steps[0].get("id", "0"))


def plans_shown(events: Iterable[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the steps of the outermost plan as they were after each of its events."""
    shown: dict[str, Any] = {}
    plans: list[list[dict[str, Any]]] = []
    for event in events:
        if event["type"] in ("plan", "plan_change") and not event.get("plan_step"):
            shown = shown_after(shown, event)
            plans.append(shown["steps"])
    return plans


class PlanBrain:
    """Answers each kind of request a planning run makes."""

    def __init__(
        self,
        plans: list[Reply],
        steps: Mapping[str, list[Reply]] | StepBrain | None = None,
        summary: Reply = "the summary",
        verdicts: list[Reply] | None = None,
        judgements: list[Reply] | None = None,
    ) -> None:
        self.plans, self.steps, self.summary = list(plans), steps or {}, summary
        self.verdicts = list(verdicts or [])
        self.judgements = list(judgements or [])
        self.asked: list[tuple[str, list[BaseMessage]]] = []
        self.only = "0"

    def model(self, **fields: Any) -> ScriptedChatModel:
        return ScriptedChatModel([self.answer] * 1000, **fields)

    def answer(self, messages: list[BaseMessage]) -> Reply:
        system = messages[0].text
        if system.startswith("You plan how"):
            self.asked.append(("plan", messages))
            planned = self.plans.pop(0)
            self.only = only_step_of(planned)
            return planned
        if system.startswith("You write the final"):
            self.asked.append(("summary", messages))
            return self.summary
        if system.startswith("You check whether"):
            self.asked.append(("check", messages))
            return self.verdicts.pop(0)
        if system.startswith("A step of a plan was done"):
            self.asked.append(("judge", messages))
            return self.judgements.pop(0) if self.judgements else "I cannot say."
        return self._step(messages)

    def _step(self, messages: list[BaseMessage]) -> Reply:
        step = step_of(messages, self.only)
        self.asked.append((step, messages))
        if callable(self.steps):
            return self.steps(step, messages)
        if step not in self.steps:
            return f"result of {step}"
        return self.steps[step].pop(0)

    def requests(self, kind: str) -> list[list[BaseMessage]]:
        """Return what was asked about one step, or with one purpose."""
        return [messages for asked, messages in self.asked if asked == kind]


class InnerBrain(PlanBrain):
    """Tells the requests of a plan inside a step from those of the plan around it."""

    def __init__(self, outer: PlanBrain, inner: PlanBrain, step: str) -> None:
        super().__init__([])
        self.outer, self.inner, self.step = outer, inner, f"Your step ({step})"

    @override
    def answer(self, messages: list[BaseMessage]) -> Reply:
        text = "\n".join(message.text for message in messages[1:])
        return (self.inner if self.step in text else self.outer).answer(messages)
