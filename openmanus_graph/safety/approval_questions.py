"""Writes the texts that explain to a person, or to the model, why a call needs approval."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.conversation.history import NOTES_KEY, ORIGIN_KEY, STEP_KEY, canonical_args
from openmanus_graph.safety.unquoted_text import without_mark
from openmanus_graph.state.manus import UnverifiedValue, ValueSource

MOST_SHOWN = 10
"""Values that a question names. It only counts the others."""
_CONTEXT_CHARS, _DESCRIPTION_CHARS = 120, 600
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


def source_of(
    value: str, messages: Sequence[AnyMessage], calls: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> ValueSource | None:
    """Return the first text that contains a value; None if the model composed the value.

    Args:
        calls: Tool and arguments of each call, by its id.
    """
    wanted = value.casefold()
    for message in messages:
        artifact: Any = message.artifact if isinstance(message, ToolMessage) else None
        if isinstance(message, AIMessage) or "trusted_text" in (artifact or ()):
            continue
        text = without_mark(message.text)
        start = text.casefold().find(wanted)
        if start < 0 or not value:
            continue
        name, args = "a text that you quoted", ""
        if isinstance(message, ToolMessage):
            name, given = calls.get(message.tool_call_id, (message.name or "", {}))
            args = canonical_args(given)
        elif STEP_KEY in message.additional_kwargs:
            name = "the text of the step"
        elif NOTES_KEY in message.additional_kwargs:
            name = "the notes of what was said before"
        elif ORIGIN_KEY in message.additional_kwargs:
            name = "what was sent with your message"
        end = start + len(value)
        before = _SENTENCE_END.split(text[max(0, start - _CONTEXT_CHARS) : start])[-1]
        after = _SENTENCE_END.split(text[end : end + _CONTEXT_CHARS])[0]
        return ValueSource(
            tool=name, args=args, text=_readable(f"{before}{text[start:end]}{after}")
        )
    return None


def _readable(text: str) -> str:
    kept = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text)
    return " ".join(kept.split())


def explain_values(name: str, description: str, values: Sequence[UnverifiedValue]) -> str:
    """Explain which values of a call are unverified, and their sources. There must be some."""
    does = _SENTENCE_END.split(_readable(description).strip() or name)[0][:_CONTEXT_CHARS]
    shown = "; ".join(map(_explain, values[:MOST_SHOWN]))
    more = f"; and {len(values) - MOST_SHOWN} more like these" if len(values) > MOST_SHOWN else ""
    untrusted = f"values that neither you nor a trusted tool gave: {shown}{more}"
    return f"{name} ({does.rstrip('.')}) would use {untrusted}."


def _explain(one: UnverifiedValue) -> str:
    # ASCII, so that look-alike letters of other scripts are visible.
    value = json.dumps(one["value"], ensure_ascii=True)
    what = {
        "destination": f"{one['argument']} {value}",
        "address": f"the address {value} in {one['argument']}",
        "private": f"your private {value} in {one['argument']}",
        "destructive": f"it cannot be undone, and you did not name {one['argument']} {value}",
        "page": f"it enters what you did not say into a page of {value}, which you did not name",
        "download": f"it runs {value}, which was downloaded, with the network on",
        "no_destination": f"you asked for none of it, {one['argument']} {value} for example",
    }[one["rule"]]
    if not one["argument"]:
        what = "it has no argument that you named"
    source = one["source"]
    if source is None:
        return f"{what}, which the model composed"
    args = source["args"] if len(source["args"]) <= _CONTEXT_CHARS else "{...}"
    around = json.dumps(source["text"], ensure_ascii=False)
    place = f"{source['tool']} {args}".strip()
    return f"{what}, which came from {place}: {around}"


def explain_change(name: str, description: str) -> str:
    """Explain that a server's description of a tool has changed."""
    says = json.dumps(_readable(description)[:_DESCRIPTION_CHARS], ensure_ascii=False)
    return (
        f"What its server says of {name} has changed since you added the server or last allowed a "
        f"call. Now it says: {says}"
    )


def explain_unverified(addresses: Sequence[str]) -> str:
    """Explain why a call that would open these addresses needs approval."""
    return (
        f"It would open {_listed(addresses)}, which neither the person named nor a page linked to, "
        "after files or pages were read: data could leave this way."
    )


def explain_excess(addresses: Sequence[str]) -> str:
    """Explain why a call that would open so many links needs approval."""
    return (
        f"It would open {_listed(addresses)} or act in a page there. You named no such site, and "
        "files or other private data were read before. Which links are opened and what is clicked, "
        "and in which order, can spell the data out to whoever has the site."
    )


def _listed(addresses: Sequence[str]) -> str:
    # ASCII, so that look-alike letters of other scripts are visible.
    return ", ".join(json.dumps(url, ensure_ascii=True) for url in addresses)
