"""Token usage and cost of model calls, from installed data that is never fetched."""

import contextlib
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.conversation.environment import shown_environment
from openmanus_graph.state.addresses import is_loopback

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

Prices = Mapping[str, Mapping[str, float]]
_PROVIDER_IDS = {
    "bedrock": "aws",
    "mistralai": "mistral",
    "xai": "x-ai",
    "moonshot": "moonshotai",
}
"""Our names of providers where genai-prices has another."""
_MEDIA_BLOCKS = ("audio", "input_audio", "video", "video_url")


@dataclass(frozen=True)
class CallUsage:
    """The tokens of one model call."""

    input_tokens: int
    """All of the request, cached ones included."""
    cached_tokens: int
    output_tokens: int
    """Reasoning included."""
    written_tokens: int = 0
    """Input tokens that were written to the provider's cache, where that costs extra."""
    estimated: bool = False
    """The provider reported nothing."""
    reported_cost_usd: float | None = None
    """What the provider says it charged."""


_MAX_COST_USD = 1e6
"""That one reply may claim to have cost."""


def usage_of(
    message: AIMessage,
    request: Sequence[BaseMessage] = (),
    tools: Sequence[Mapping[str, Any]] = (),
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
    return CallUsage(
        input_tokens=reported["input_tokens"],
        # OpenAI's service tiers prefix the name: priority_cache_read.
        cached_tokens=min(_sum_of(details, "cache_read"), reported["input_tokens"]),
        output_tokens=reported["output_tokens"],
        written_tokens=_sum_of(details, "cache_creation"),
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


def _sum_of(details: Mapping[str, object], ending: str) -> int:
    values = (value for name, value in details.items() if name.endswith(ending))
    return sum(value for value in values if isinstance(value, int))


def estimate_request_tokens(
    history: Sequence[BaseMessage],
    system: str,
    reminder: str,
    tools: Sequence[Mapping[str, Any]],
) -> int:
    """Estimate a request: the last reported figure, and what came after it."""
    for position in range(len(history) - 1, -1, -1):
        message = history[position]
        if isinstance(message, AIMessage) and message.usage_metadata:
            later = [shown_environment(one) for one in history[position + 1 :]]
            return message.usage_metadata["total_tokens"] + count_tokens_approximately(later)
    shown = [shown_environment(one) for one in history]
    return count_tokens_approximately(shown) + estimate_fixed_tokens(system, reminder, tools)


def last_reported(history: Sequence[BaseMessage]) -> CallUsage | None:
    """Return what the newest reply used whose provider reported it; None without any."""
    for message in reversed(history):
        reported = message.usage_metadata if isinstance(message, AIMessage) else None
        if reported and reported["input_tokens"]:
            return usage_of(cast("AIMessage", message))
    return None


def estimate_fixed_tokens(system: str, reminder: str, tools: Sequence[Mapping[str, Any]]) -> int:
    """Estimate what stands in each request beside the conversation."""
    beside = [HumanMessage(system), HumanMessage(reminder)]
    return count_tokens_approximately(beside, tools=[dict(tool) for tool in tools])


def cost_usd(
    model_name: str,
    provider: str,
    usage: CallUsage,
    overrides: Prices | None = None,
    *,
    base_url: str | None = None,
) -> float | None:
    """Return the dollars of a call, or None when nobody knows the price.

    Args:
        model_name: Without the provider.
        provider: One of `spec.PROVIDERS`, or "" when it is unknown.
        usage: From `usage_of`.
        overrides: Dollars per million tokens by `NAME` or `PROVIDER:NAME`: `input`, `output`
            and `cached`, which is `input` when left out.
        base_url: Where the model is asked, if not at its provider's own address.
    """
    own = overrides or {}
    rates = own.get(f"{provider}:{model_name}") or own.get(model_name)
    if rates is not None:
        fresh, rate_in = usage.input_tokens - usage.cached_tokens, rates.get("input", 0.0)
        dollars = fresh * rate_in + usage.cached_tokens * rates.get("cached", rate_in)
        return (dollars + usage.output_tokens * rates.get("output", 0.0)) / 1_000_000
    if usage.reported_cost_usd is not None:
        return usage.reported_cost_usd
    priced = _list_price(model_name, provider, usage, base_url)
    if priced is None and (provider == "ollama" or is_local(base_url)):
        return 0.0
    return priced


def _list_price(model: str, provider: str, usage: CallUsage, base_url: str | None) -> float | None:
    if not needs_prices(model, base_url):
        return None
    from genai_prices import Usage

    tokens = Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=min(usage.written_tokens, usage.input_tokens - usage.cached_tokens),
        output_tokens=usage.output_tokens,
    )
    for query in price_queries(model, provider, base_url):
        if query == name_query(model) and not _is_closed(model):
            break
        entry = find_price(query)
        if entry is not None:
            with contextlib.suppress(LookupError, ValueError):  # it has no price for such tokens
                return float(entry.model.calc_price(tokens, entry.provider).total_price)
    return None


@lru_cache
def is_local(base_url: str | None) -> bool:
    """Whether an address is of this machine."""
    host = (urlsplit(base_url).hostname or "") if base_url else ""
    return is_loopback(host) or host.endswith(".localhost")


def needs_prices(model_name: str, base_url: str | None) -> bool:
    """Whether the data can say what a model costs: an open one on this machine costs nothing."""
    return not is_local(base_url) or _is_closed(model_name)


def _is_closed(model: str) -> bool:
    """Whether it costs the same behind a company's proxy; an open model may run anywhere."""
    plain = model.rpartition("/")[2]
    return re.match(r"gpt-[3-9]|chatgpt|o[1-9](-|$)|claude|gemini|grok", plain) is not None


class PriceQuery(NamedTuple):
    """How a model is looked for: by provider, else by address, else by its name alone."""

    model: str
    provider: str | None = None
    address: str | None = None


class PriceEntry(NamedTuple):
    """What the list says of a model."""

    provider: "Provider"
    model: "ModelInfo"


_entries: dict[PriceQuery, PriceEntry | None] = {}
_lock = threading.Lock()


def price_queries(
    model_name: str, provider: str, base_url: str | None
) -> tuple[PriceQuery, PriceQuery]:
    """Return how a model is looked for in the list: where it is asked, and then by its name."""
    provider_id = None if base_url else _PROVIDER_IDS.get(provider, provider)
    return PriceQuery(model_name, provider_id, base_url), name_query(model_name)


def name_query(model_name: str) -> PriceQuery:
    """Return how a model is looked for by its name, wherever it is asked."""
    return PriceQuery(model_name.rpartition("/")[2].lower())


def find_price(query: PriceQuery) -> PriceEntry | None:
    """Return a model's entry, or None. Reads the list if it was not looked for before: blocks."""
    load_prices([query])
    return _entries[query]


def are_loaded(queries: Iterable[PriceQuery]) -> bool:
    """Whether `find_price` answers without reading the list."""
    return all(query in _entries for query in queries)


def load_prices(queries: Iterable[PriceQuery]) -> None:
    """Find models; the first time takes half a second, for the list is then loaded."""
    with _lock:
        missing = [query for query in queries if query not in _entries]
        _entries.update(zip(missing, map(_search_list, missing), strict=True))


def _search_list(query: PriceQuery) -> PriceEntry | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        found = get_snapshot().find_provider_model(query.model, None, query.provider, query.address)
    except (LookupError, ValueError):
        return None
    return PriceEntry(*found)
