import gc
import random
import weakref
from collections import Counter

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call

from openmanus_graph.conversation.history import canonical_args, conversation_index


def some_message(number: int, chance: random.Random) -> AnyMessage:
    kind = chance.randrange(8)
    if kind == 0:
        return HumanMessage("more", id=f"m{number}")
    if kind < 4:
        made = [
            tool_call(name="note", args={"n": chance.randrange(3)}, id=f"c{number}{place}")
            for place in range(chance.randrange(3))
        ]
        broken = invalid_tool_call(name="note", args="{", id=f"b{number}", error="no JSON")
        return AIMessage("", id=f"m{number}", tool_calls=made, invalid_tool_calls=[broken])
    return ToolMessage("done", tool_call_id=f"c{number}", id=f"m{number}")


def agrees(messages: list[AnyMessage]) -> bool:
    """Compare the index with what looking through all messages finds."""
    index = conversation_index(messages)
    people = [place for place, message in enumerate(messages) if message.type == "human"]
    start = people[-1] if people else -1
    replies = [message for message in messages if isinstance(message, AIMessage)]
    calls = Counter(
        (call["name"], canonical_args(call["args"]))
        for message in messages[start + 1 :]
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    )
    ids = {
        call["id"]
        for message in replies
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    }
    return (
        index.run_start == start
        and index.message_ids == {message.id for message in messages}
        and index.call_ids == ids
        and index.calls == calls
    )


def test_it_finds_what_looking_through_finds_however_a_conversation_changes() -> None:
    chance = random.Random(1)
    messages: list[AnyMessage] = [HumanMessage("go", id="first")]
    for number in range(400):
        change = chance.randrange(20)
        if change == 0 and len(messages) > 2:
            messages = [*messages[:1], *messages[3:]]  # as compaction, or an edit
        elif change == 1:
            messages[chance.randrange(len(messages))] = some_message(number, chance)
        elif change == 2:
            messages = messages[: max(1, len(messages) - 3)]
        else:
            messages = [*messages, some_message(number, chance)]
        assert agrees(messages)


def test_an_empty_conversation_has_an_empty_index() -> None:
    assert agrees([])


def test_it_does_not_keep_a_conversation_alive() -> None:
    messages: list[AnyMessage] = [HumanMessage("go"), AIMessage("done")]
    conversation_index(messages)
    ends = [weakref.ref(message) for message in messages]
    messages.clear()
    gc.collect()
    assert [end() for end in ends] == [None, None]
