"""Token usage and cost of model calls, from installed data that is never fetched."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.conversation.history import shown_environment
from openmanus_graph.state.addresses import is_loopback
from openmanus_graph.state.manus import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

Prices = Mapping[str, Mapping[str, float]]
_PROVIDER_IDS = {"bedrock": "aws", "mistralai": "mistral", "xai": "x-ai", "moonshot": "moonshotai"}
"""Our names of providers where genai-prices has another."""
_MEDIA_BLOCKS = ("audio", "input_audio", "video", "video_url")
_MAX_COST_USD = 1e6
"""The most that one reply may claim to have cost."""


@dataclass(frozen=True)
class CallUsage:
    input_tokens: int
    """All of the request, cached ones included."""
    cached_tokens: int
    output_tokens: int
    written_tokens: int = 0
    """Input tokens that were written to the provider's cache, where that costs extra."""
    estimated: bool = False
    """The provider reported nothing."""
    reported_cost_usd: float | None = None

    def counted(self, cost_usd: float | None) -> Usage:
        """Return it as one call of a run's usage; an unknown cost counts as nothing."""
        return Usage(
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            model_calls=1,
            cost_usd=cost_usd or 0.0,
        )


def usage_of(
    message: AIMessage, request: Sequence[BaseMessage] = (), tools: Sequence[Mapping[str, Any]] = ()
) -> CallUsage:
    """Return what a call used: as reported, else estimated from the request and the reply."""
    cost = message.response_metadata.get("cost_usd")
    sound = isinstance(cost, int | float) and 0 <= cost < _MAX_COST_USD
    reported_cost = float(cost or 0) if sound else None
    reported = message.usage_metadata
    if reported is None or not reported["input_tokens"]:
        return CallUsage(
            input_tokens=count_tokens_approximately(
                [_with_media_as_pictures(one) for one in request],
                tools=[dict(tool) for tool in tools] or None,
            ),
            cached_tokens=0,
            output_tokens=(reported["output_tokens"] if reported else 0)
            or count_tokens_approximately([message]),
            estimated=True,
            reported_cost_usd=reported_cost,
        )
    details = cast("Mapping[str, object]", reported.get("input_token_details", {}))
    # OpenAI's service tiers prefix the name: priority_cache_read.
    cached, written = (
        sum(one for key, one in details.items() if key.endswith(name) and isinstance(one, int))
        for name in ("cache_read", "cache_creation")
    )
    return CallUsage(
        input_tokens=reported["input_tokens"],
        cached_tokens=min(cached, reported["input_tokens"]),
        output_tokens=reported["output_tokens"],
        written_tokens=written,
        reported_cost_usd=reported_cost,
    )


def _with_media_as_pictures(message: BaseMessage) -> BaseMessage:
    """Return a message in which sound and video count as a picture does, not by their length."""
    if isinstance(message.content, str):
        return message
    blocks = [
        {"type": "image"} if isinstance(one, dict) and one.get("type") in _MEDIA_BLOCKS else one
        for one in message.content
    ]
    return message.model_copy(update={"content": blocks})


def estimate_request_tokens(
    history: Sequence[BaseMessage], system: str, reminder: str, tools: Sequence[Mapping[str, Any]]
) -> int:
    """Estimate a request: the last reported figure, and the messages after it."""
    for position in range(len(history) - 1, -1, -1):
        message = history[position]
        if isinstance(message, AIMessage) and message.usage_metadata:
            later = [shown_environment(one) for one in history[position + 1 :]]
            return message.usage_metadata["total_tokens"] + count_tokens_approximately(later)
    shown = [shown_environment(one) for one in history]
    return count_tokens_approximately(shown) + estimate_fixed_tokens(system, reminder, tools)


def estimate_fixed_tokens(system: str, reminder: str, tools: Sequence[Mapping[str, Any]]) -> int:
    fixed = [HumanMessage(system), HumanMessage(reminder)]
    return count_tokens_approximately(fixed, tools=[dict(tool) for tool in tools])


def last_reported(history: Sequence[BaseMessage]) -> CallUsage | None:
    """Return what the newest reply with a reported usage used; None if there is none."""
    for message in reversed(history):
        reported = message.usage_metadata if isinstance(message, AIMessage) else None
        if reported and reported["input_tokens"]:
            return usage_of(cast("AIMessage", message))
    return None


def cost_usd(
    model: str,
    provider: str,
    usage: CallUsage,
    overrides: Prices | None = None,
    *,
    base_url: str | None = None,
) -> float | None:
    """Return the dollars of a call, or None if the price is not known.

    The first look-up takes half a second, since it loads the list of prices: it blocks.

    Args:
        model: Its name without the provider.
        provider: One of `spec.PROVIDERS`, or empty if it is unknown.
        overrides: Dollars per million tokens by `NAME` or `PROVIDER:NAME`: `input`, `output`
            and `cached`, which is `input` if left out.
        base_url: The server's address, if it is not the provider's own.
    """
    own = overrides or {}
    rates = own.get(f"{provider}:{model}") or own.get(model)
    if rates is not None:
        fresh, rate_in = usage.input_tokens - usage.cached_tokens, rates.get("input", 0.0)
        dollars = fresh * rate_in + usage.cached_tokens * rates.get("cached", rate_in)
        return (dollars + usage.output_tokens * rates.get("output", 0.0)) / 1_000_000
    if usage.reported_cost_usd is not None:
        return usage.reported_cost_usd
    priced = _list_price(model, provider, usage, base_url)
    if priced is None and (provider == "ollama" or is_local(base_url)):
        return 0.0
    return priced


def _list_price(model: str, provider: str, usage: CallUsage, base_url: str | None) -> float | None:
    # Behind a company's proxy a closed model costs the same. An open one may run on any machine:
    # its price is not looked up by its name alone, and on this machine it costs nothing.
    plain = model.rpartition("/")[2]
    closed = re.match(r"gpt-[3-9]|chatgpt|o[1-9](-|$)|claude|gemini|grok", plain)
    if is_local(base_url) and not closed:
        return None
    from genai_prices import Usage as PricedUsage

    tokens = PricedUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=min(usage.written_tokens, usage.input_tokens - usage.cached_tokens),
        output_tokens=usage.output_tokens,
    )
    provider_id = None if base_url else _PROVIDER_IDS.get(provider, provider)
    places = [(model, provider_id, base_url), *([(plain.lower(), None, None)] if closed else ())]
    for place in places:
        if (found := find_price(*place)) is not None:
            with contextlib.suppress(LookupError, ValueError):  # it has no price for such tokens
                return float(found[1].calc_price(tokens, found[0]).total_price)
    return None


@lru_cache
def is_local(base_url: str | None) -> bool:
    host = (urlsplit(base_url).hostname or "") if base_url else ""
    return is_loopback(host) or host.endswith(".localhost")


@cache
def find_price(
    model: str, provider: str | None = None, address: str | None = None
) -> "tuple[Provider, ModelInfo] | None":
    """Look a model up in the list: by provider, else by address, else by its name alone. Blocks."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, address)
    except (LookupError, ValueError):
        return None
