"""The list of models with their prices and windows: installed with genai-prices, never fetched."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider


class Query(NamedTuple):
    """How a model is looked for: by provider, else by address, else by its name alone."""

    model: str
    provider: str | None = None
    address: str | None = None


class Entry(NamedTuple):
    """What the list says of a model."""

    provider: "Provider"
    model: "ModelInfo"


_found: dict[Query, Entry | None] = {}
_lock = threading.Lock()


def find(query: Query) -> Entry | None:
    """Return a model's entry, or None. Reads the list if it was not looked for before: blocks."""
    look_up([query])
    return _found[query]


def looked_up(queries: Iterable[Query]) -> bool:
    """Whether `find` answers without reading the list."""
    return all(query in _found for query in queries)


def look_up(queries: Iterable[Query]) -> None:
    """Find models; the first time takes half a second, for the list is then loaded."""
    with _lock:
        missing = [query for query in queries if query not in _found]
        _found.update(zip(missing, map(_entry, missing), strict=True))


def _entry(query: Query) -> Entry | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        found = get_snapshot().find_provider_model(query.model, None, query.provider, query.address)
    except (LookupError, ValueError):
        return None
    return Entry(*found)
