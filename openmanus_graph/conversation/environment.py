"""What a run tells the model of where it works, kept with a user message.

It belongs to no system prompt: that is the same in all threads, so that providers find it in their
caches. It is in no message's content either: these words are ours, not the user's. Requests show it
before the text of its message.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from typing_extensions import TypedDict

from openmanus_graph.conversation.history import last_user_message, with_text
from openmanus_graph.prompts import render

M = TypeVar("M", bound=BaseMessage)
ENVIRONMENT_KEY = "openmanus_environment"
"""Key of the `Environment` in a user message."""
ATTACHED = "Files in the workspace: "
"""What begins the last paragraph of a message that came with files."""
LISTING = "listing"
"""Name of the fact that lists the workspace's files."""


class Environment(TypedDict):
    """What a user message tells the model beside its own text."""

    facts: dict[str, str]
    """Texts by name. A later message has only those that have changed."""
    heads: list[str]
    """Names of the files of which the listing shows content."""


def environment_of(messages: Sequence[BaseMessage]) -> Environment:
    """Return all that the user messages of a conversation tell; of two texts of a name the last."""
    merged = Environment(facts={}, heads=[])
    for message in messages:
        if (reported := message.additional_kwargs.get(ENVIRONMENT_KEY)) is not None:
            own = cast("Environment", reported)  # made by `with_environment`
            merged["facts"] |= own["facts"]
            merged["heads"] = own["heads"] if LISTING in own["facts"] else merged["heads"]
    return merged


def listed_heads(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the names of the files of which the conversation's listing shows content."""
    return environment_of(messages)["heads"]


def with_environment(
    messages: Sequence[AnyMessage], facts: Mapping[str, str], heads: Sequence[str] = ()
) -> list[AnyMessage] | None:
    """Return the conversation with what its newest user message has to tell; None if it tells that.

    What earlier messages tell is not repeated.

    Args:
        messages: The conversation.
        facts: Texts by name, as they are now; an empty one tells nothing.
        heads: Names of the files of which the listing in `facts` shows content.
    """
    user = last_user_message(messages)
    if user is None:
        return None
    known = environment_of([one for one in messages if isinstance(one, HumanMessage)])["facts"]
    new = {name: text for name, text in facts.items() if text and known.get(name) != text}
    if not new and ENVIRONMENT_KEY in user.additional_kwargs:
        return None
    own = environment_of([user])
    reported = Environment(
        facts={**own["facts"], **new}, heads=list(heads) if LISTING in new else own["heads"]
    )
    extra = {**user.additional_kwargs, ENVIRONMENT_KEY: reported}
    changed = user.model_copy(update={"additional_kwargs": extra})
    return [changed if one is user else one for one in messages]


def shown_environment(message: M) -> M:
    """Return a message as requests show it: what it tells stands before its text."""
    if ENVIRONMENT_KEY not in message.additional_kwargs:
        return message
    facts = "\n".join(environment_of([message])["facts"].values())
    text = f"{render('about_run', facts=facts)}\n{message.text}" if facts else message.text
    extra: dict[str, Any] = {**message.additional_kwargs}
    del extra[ENVIRONMENT_KEY]
    changed = {"content": with_text(message, text), "additional_kwargs": extra}
    return message.model_copy(update=changed)
