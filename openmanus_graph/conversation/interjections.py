"""Interjections: messages that a person sends to an agent while it works.

An interjection is a human message of the conversation, but starts no run: counts, limits and the
ledger's branch stay as they are.
"""

from langchain_core.messages import AnyMessage, HumanMessage

INTERJECTION_KEY = "openmanus_remark"


def interjection_message(interjection: str, text: str) -> HumanMessage:
    """Make the message of an interjection, whose id it gets: by it a run knows what it has read."""
    return HumanMessage(text, id=interjection, additional_kwargs={INTERJECTION_KEY: True})


def is_interjection(message: AnyMessage) -> bool:
    """Say whether a message is an interjection."""
    return isinstance(message, HumanMessage) and INTERJECTION_KEY in message.additional_kwargs
