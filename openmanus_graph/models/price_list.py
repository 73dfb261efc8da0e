"""The list of models with their prices and windows: installed with genai-prices, never fetched."""

import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider


class Query(NamedTuple):
    """How a model is looked for: by provider, else by address, else by its name alone."""

    model: str
    provider: str | None = None
    address: str | None = None


class Entry(NamedTuple):
    """What the list says of a model."""

    provider: "Provider"
    """With this model only."""
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
    """Find models; the first time takes half a second.

    The list itself is not kept: it is 5 MB, and a process needs a few of its thousand models.
    """
    with _lock:
        missing = [query for query in queries if query not in _found]
        if missing:
            _found.update(zip(missing, map(partial(_entry, _read_list()), missing), strict=True))


def _read_list() -> "DataSnapshot":
    import genai_prices
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    del sys.modules["genai_prices.data"]  # it would keep the list,
    delattr(genai_prices, "data")  # and its package would keep it
    return DataSnapshot(providers=providers, from_auto_update=False)


def _entry(data: "DataSnapshot", query: Query) -> Entry | None:
    try:
        provider, model = data.find_provider_model(query.model, None, query.provider, query.address)
    except (LookupError, ValueError):
        return None
    return Entry(replace(provider, models=[model]), model)
