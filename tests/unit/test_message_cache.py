import gc
import random
import weakref

from langchain_core.messages import BaseMessage, HumanMessage

from openmanus_graph.conversation.caches import NEWEST, ConversationCache


def test_each_message_is_looked_at_once_while_a_conversation_grows() -> None:
    memo, made = ConversationCache[str](), list[str]()

    def make(message: BaseMessage) -> str:
        made.append(message.text)
        return message.text.upper()

    messages: list[BaseMessage] = [HumanMessage("system")]
    for number in range(50):
        messages.append(HumanMessage(f"m{number}"))
        shown = [*messages, HumanMessage("steering")]
        assert memo.get(shown, make) == [message.text.upper() for message in shown]
    assert len([text for text in made if text != "steering"]) == len(messages)


def test_it_follows_every_change() -> None:
    chance, memo = random.Random(2), ConversationCache[str]()
    messages: list[BaseMessage] = [HumanMessage("first")]
    for number in range(500):
        change, place = chance.randrange(10), chance.randrange(len(messages))
        if change == 0:
            messages = messages[: place + 1]
        elif change == 1:
            messages[place] = HumanMessage(f"other {number}")
        elif change == 2 and place > 0:
            del messages[place]
        else:
            messages.append(HumanMessage(f"m{number}"))
        assert memo.get(messages, lambda m: m.text) == [m.text for m in messages]


def test_two_conversations_do_not_disturb_each_other() -> None:
    memo = ConversationCache[str]()
    one: list[BaseMessage] = [HumanMessage("1")]
    two: list[BaseMessage] = [HumanMessage("2")]
    for number in range(2 * NEWEST):
        one.append(HumanMessage(f"one {number}"))
        two.append(HumanMessage(f"two {number}"))
        assert memo.get(one, lambda m: m.text) == [m.text for m in one]
        assert memo.get(two, lambda m: m.text) == [m.text for m in two]


def test_it_does_not_keep_a_conversation_alive() -> None:
    memo = ConversationCache[str]()
    messages: list[BaseMessage] = [HumanMessage(f"{number}") for number in range(3 * NEWEST)]
    memo.get(messages, lambda m: m.text)
    ends = [weakref.ref(message) for message in messages]
    messages.clear()
    gc.collect()
    assert [end() for end in ends if end() is not None] == []


def test_a_change_of_a_new_message_shows() -> None:
    memo = ConversationCache[str]()
    messages: list[BaseMessage] = [HumanMessage(f"{number}") for number in range(3 * NEWEST)]
    memo.get(messages, lambda m: m.text)
    messages[-1].content = "changed"
    assert memo.get(messages, lambda m: m.text)[-1] == "changed"
