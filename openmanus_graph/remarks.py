"""Remarks: what a person tells an agent while it works.

It stands in the conversation as a human message, but begins no run: counts, limits and the
ledger's branch go on as they were.
"""

from langchain_core.messages import AnyMessage, HumanMessage

REMARK_KEY = "openmanus_remark"


def remark_message(remark: str, text: str) -> HumanMessage:
    """Make the message of a remark; its id tells whether it was read already."""
    return HumanMessage(text, id=remark, additional_kwargs={REMARK_KEY: True})


def is_remark(message: AnyMessage) -> bool:
    """Say whether a message was told to a run that was under way."""
    return isinstance(message, HumanMessage) and REMARK_KEY in message.additional_kwargs
