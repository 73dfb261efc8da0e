"""What is kept of a request from step to step makes no difference to it."""

import random

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.model_calls.projection import (
    Pictures,
    Projector,
    pictured,
    project,
    reminder_message,
)


def some_messages(number: int, chance: random.Random) -> list[AnyMessage]:
    """A turn, complete or not, or what a person said."""
    if chance.randrange(6) == 0:
        images = {"images": ["a.png"]} if chance.randrange(3) == 0 else {}
        return [HumanMessage(f"said {number}", additional_kwargs=images)]
    ids = [f"c{number}.{place}" for place in range(chance.randrange(3))]
    calls = [tool_call(name="note", args={}, id=call_id) for call_id in ids]
    answered = ids[: chance.randrange(len(ids) + 1)] if chance.randrange(3) == 0 else ids
    artifact = {"images": ["b.png"]} if chance.randrange(10) == 0 else None
    return [
        AIMessage(f"step {number}", tool_calls=calls),
        *(ToolMessage("done", tool_call_id=call_id, artifact=artifact) for call_id in answered),
    ]


def shown(request: list[BaseMessage]) -> list[tuple[str, object]]:
    return [(message.type, message.content) for message in request]


def test_it_makes_the_same_requests_as_projecting_anew() -> None:
    chance, projector = random.Random(3), Projector()
    messages: list[AnyMessage] = [HumanMessage("go")]
    for number in range(300):
        if chance.randrange(25) == 0:
            messages = messages[: chance.randrange(1, len(messages) + 1)]
        for message in some_messages(number, chance):
            messages = [*messages, message]
            pictures: Pictures | None = {"a.png": "data:,a"} if chance.randrange(5) == 0 else None
            reminder, system = (
                chance.choice(["", "hint"]),
                chance.choice(["s", "s", "other", ""]),
            )
            assert projector.pictured(messages) == pictured(messages)
            kept = projector.project(
                messages,
                system=system,
                reminder=reminder_message(reminder),
                pictures=pictures,
            )
            anew = project(
                messages,
                system=system,
                reminder=reminder_message(reminder),
                pictures=pictures,
            )
            assert shown(kept) == shown(anew)
            assert (kept[0].type == "system") is bool(system)


def test_the_beginning_is_made_of_the_same_objects() -> None:
    projector = Projector()
    turn: list[AnyMessage] = [AIMessage("step"), HumanMessage("on")]
    messages: list[AnyMessage] = [HumanMessage("go"), *turn]
    first = projector.project(
        messages, system="s", reminder=reminder_message("hint"), pictures=None
    )
    again = projector.project([*messages, *turn], system="s", reminder=None, pictures=None)
    assert all(a is b for a, b in zip(first[:-1], again, strict=False))
