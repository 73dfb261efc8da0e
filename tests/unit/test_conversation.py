import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.types import Overwrite

from openmanus_graph.state.manus import Conversation, DeltaChannel, merge_messages


def texts(channel: DeltaChannel[Any]) -> list[tuple[str | None, str]]:
    return [(message.id, message.text) for message in channel.get()]


def some_update(chance: random.Random, number: int) -> Any:
    old = f"m{chance.randrange(max(1, number))}"
    return chance.choice(
        [
            [HumanMessage("new", id=f"m{number}"), AIMessage("too", id=f"n{number}")],
            [AIMessage("replaced", id=old)],
            [RemoveMessage(id=old), AIMessage("new", id=f"m{number}")],
            [AIMessage("one", id=f"m{number}"), AIMessage("same id", id=f"m{number}")],
            [AIMessage("no id")],
            AIMessage("alone", id=f"m{number}"),
            [{"role": "user", "content": "a dict", "id": f"m{number}"}],
            [],
            Overwrite([HumanMessage("start again", id=f"m{number}")]),
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_it_holds_what_langgraphs_channel_holds(seed: int) -> None:
    chance = random.Random(seed)
    ours: Any = Conversation(merge_messages)
    theirs: Any = DeltaChannel[list[AnyMessage]](merge_messages)
    ours.key = theirs.key = "messages"
    for number in range(60):
        values = [some_update(chance, number)]
        assert ours.update(values) == theirs.update(values)
        if chance.randrange(5) == 0:
            ours = ours.copy()
        assert texts(ours) == texts(theirs)


def test_parallel_updates_are_added_in_their_order() -> None:
    channel: Any = Conversation(merge_messages)
    channel.update([[HumanMessage("go", id="1")]])
    before: list[AnyMessage] = channel.get()
    channel.update([[AIMessage("a", id="2")], [AIMessage("b", id="3")]])
    assert [message.text for message in channel.get()] == ["go", "a", "b"]
    assert len(before) == 1  # an update makes a new list
