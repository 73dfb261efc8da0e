"""What a run tells the model about its environment, stored with a user message.

It is not in the system prompt, which is the same in all threads so that providers find it in their
caches. It is not in the message's content either, because the user did not write it. Requests show
it before the text of its message.
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
"""Begins the last paragraph of a message that came with files."""
LISTING = "listing"
"""Name of the fact that lists the workspace's files."""


class Environment(TypedDict):
    """What a user message tells the model in addition to its text."""

    facts: dict[str, str]
    """Texts by name. A later message has only changed ones."""
    heads: list[str]
    """Names of the files whose content the listing shows."""


def environment_of(messages: Sequence[BaseMessage]) -> Environment:
    """Return all that the user messages tell. Of texts with the same name, the last counts."""
    merged = Environment(facts={}, heads=[])
    for message in messages:
        if (reported := message.additional_kwargs.get(ENVIRONMENT_KEY)) is not None:
            own = cast("Environment", reported)  # made by `with_environment`
            merged["facts"] |= own["facts"]
            merged["heads"] = own["heads"] if LISTING in own["facts"] else merged["heads"]
    return merged


def listed_heads(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the names of the files whose content the conversation's listing shows."""
    return environment_of(messages)["heads"]


def with_environment(
    messages: Sequence[AnyMessage], facts: Mapping[str, str], heads: Sequence[str] = ()
) -> list[AnyMessage] | None:
    """Return the conversation with new facts in its newest user message; None if it has them.

    What earlier messages tell is not repeated. `facts` has the current texts by name. `heads` names
    the files whose content the listing in `facts` shows.
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
    """Return a message as requests show it: its facts come before its text."""
    if ENVIRONMENT_KEY not in message.additional_kwargs:
        return message
    facts = "\n".join(environment_of([message])["facts"].values())
    text = f"{render('about_run', facts=facts)}\n{message.text}" if facts else message.text
    extra: dict[str, Any] = {**message.additional_kwargs}
    del extra[ENVIRONMENT_KEY]
    changed = {"content": with_text(message, text), "additional_kwargs": extra}
    return message.model_copy(update=changed)
