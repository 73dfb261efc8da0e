"""Notices servers that read only a part of a long conversation, and say nothing.

Ollama, LM Studio and llama.cpp do so, by their settings. The run goes on with the window that the
server showed, so that the conversation is compacted before it is cut again.
"""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage

from openmanus_graph.backends.models.build import model_key, model_name
from openmanus_graph.backends.models.prices import usage_of
from openmanus_graph.backends.models.resolved import address_of, facts_of, larger_window
from openmanus_graph.model_calls.recorder import ProviderRequest, awaited_fact
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.manus import Usage
from openmanus_graph.state.model_settings import ModelSettings

LEAST_MISSING = 1500
"""Tokens; fewer are within the errors of an estimate."""
LEAST_READ = 1000
"""Tokens; no window is smaller, so a server that reports fewer counts otherwise."""
LEAST_SHARE = 0.4
"""Of the estimated tokens: tokenizers differ by a factor of two at most, and no further."""
GROWN = 1.5
"""A request so many times as long as another one has more tokens by any tokenizer."""


def seems_cut(sent_tokens: int, usage: Usage, largest: tuple[int, int] = (0, 0)) -> bool:
    """Return True if a server has read far less than it was sent.

    Args:
        sent_tokens: Of the request, as estimated from its text.
        usage: As the server reported it; `input_tokens` holds those from its cache as well.
        largest: The same two figures of the conversation's largest request before.
    """
    read = usage["input_tokens"]
    if read < LEAST_READ or sent_tokens - read < LEAST_MISSING:
        return False
    no_more_than_before = sent_tokens > GROWN * largest[0] and read <= largest[1]
    return read < LEAST_SHARE * sent_tokens or no_more_than_before


def note_cut(session: Session, chosen: ModelSettings, shown_tokens: int) -> None:
    """Remember for the run how many tokens a server takes."""
    session.cached((note_cut, model_key(chosen)), lambda: shown_tokens)


def within_shown_window(session: Session, chosen: ModelSettings, window: int) -> int:
    """Return a model's window, or the smaller one that its server has shown in this run."""
    return min(window, session.find_cached((note_cut, model_key(chosen))) or window)


async def look_for_cut(
    session: Session, emit: Emit, request: ProviderRequest, usage: Usage
) -> None:
    """Tell the person, once per run, if a request seems to have been cut.

    Args:
        session: Of the run.
        emit: Takes the notice.
        request: As it was sent.
        usage: As the server reported it.
    """
    chosen = request.model.settings
    if address_of(chosen) is None or session.find_cached((note_cut, model_key(chosen))):
        return
    estimate = await asyncio.to_thread(usage_of, AIMessage(""), request.messages, request.tools)
    sent, read = estimate.input_tokens, usage["input_tokens"]
    before = session.cached(look_for_cut, dict[Any, tuple[int, int]])
    largest = before.get(model_key(chosen), (0, 0))
    before[model_key(chosen)] = max(largest, (sent, read))
    name, replay = f"silent cut of {model_name(chosen)}", current_replay()
    if not seems_cut(sent, usage, largest) or (replay is not None and not replay.has_fact(name)):
        return
    kind, window = await awaited_fact(session, name, lambda: _kind_and_window(chosen))
    if window and window > 2 * sent:
        return  # it did not count what it had in its cache
    shown = window or read + usage["output_tokens"]
    note_cut(session, chosen, shown)
    notice(
        emit,
        f"{model_name(chosen)} was sent about {sent:,} tokens and read {read:,}: its server cuts "
        f"long conversations without a word. {larger_window(kind)} Until then the conversation is "
        f"shortened to what fits into {shown:,} tokens.",
    )


async def _kind_and_window(chosen: ModelSettings) -> list[Any]:
    facts = await facts_of(chosen)
    return [facts.kind, facts.window]
