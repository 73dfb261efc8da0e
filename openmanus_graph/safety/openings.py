"""Counts the openings of links that the person did not name, because their choice can be a message.

A page may list a link for each letter and tell the model to open those that spell a file. So after
private data was read, only a few links of one site, of one result and of all sites together are
opened without asking. An action in a page, such as a click, counts as an opening of its site. If a
person allows more, the limit becomes twice what is then open.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.errors import ToolError
from openmanus_graph.safety.provenance import links_shown, strings_in
from openmanus_graph.safety.urls import canonical_url, site_of, urls_in
from openmanus_graph.state.addresses import parse_address
from openmanus_graph.state.tool_traits import Traits

_SITE, _RESULT, _ALL = "site ", "result ", "all"
MOST_OF_SITE = 5
"""Openings of one site without asking."""
MOST_OF_RESULT = 10
"""Openings of links that one result showed, on any sites."""
MOST_OF_RUN = 30
"""Openings of all such sites together, because links may lead over many sites."""


def addresses_of(declared: Traits, args: Mapping[str, Any], site: str = "") -> list[str]:
    """Return the addresses that a call opens, whatever the names of its arguments.

    `site` is that of the page that the browser shows, which learns what is clicked there.
    """
    if declared.addresses is None:
        return []
    if site and declared.page is not None and declared.page(args).acts:
        return [site]
    found = [one for one in declared.addresses(args) if one]
    return found or [url for text in strings_in(dict(args)) for url in set(urls_in(text))]


@dataclass
class Openings:
    counted: Counter[str] = field(default_factory=Counter[str])
    """How many there were, by site and by the result that showed the link."""
    allowed: dict[str, int] = field(default_factory=dict[str, int])
    """How many a person has allowed, if that is more."""
    results: list[ToolMessage] = field(default_factory=list[ToolMessage])

    def by_site(self) -> dict[str, int]:
        """Return the openings by site alone, as runs hand them on."""
        return {key: number for key, number in self.counted.items() if key.startswith(_SITE)}

    def note(self, urls: Sequence[str], *, ran: bool) -> None:
        """Count openings of a call. If it `ran`, a person allowed those beyond the limit."""
        wanted = self.wanted(urls)
        for key in wanted if ran and self._exceeded(wanted) else ():
            self.allowed[key] = max(self._most(key), 2 * (self._count(key) + wanted[key]))
        self.counted.update({key: one for key, one in wanted.items() if key != _ALL})

    def excess(self, urls: Sequence[str], earlier: Sequence[str] = ()) -> list[str]:
        """Return the addresses, opened after `earlier` ones, that exceed a limit."""
        wanted = self.wanted((*earlier, *urls))
        exceeded = self._exceeded(wanted)
        return [url for url in urls if exceeded.intersection(self._keys(url))]

    def wanted(self, urls: Sequence[str]) -> Counter[str]:
        """Return what opening these addresses counts as."""
        return Counter(key for url in urls for key in self._keys(url))

    def combined_with(self, others: "Openings") -> "Openings":
        """Return these openings combined with others, which may include these."""
        keys = (*self.allowed, *others.allowed)
        allowed = {key: max(self._most(key), others._most(key)) for key in keys}
        return Openings(self.counted | others.counted, allowed, self.results)

    def _exceeded(self, wanted: Mapping[str, int]) -> set[str]:
        return {key for key, one in wanted.items() if self._count(key) + one > self._most(key)}

    def _most(self, key: str) -> int:
        limit = MOST_OF_SITE if key.startswith(_SITE) else MOST_OF_RESULT
        return self.allowed.get(key, MOST_OF_RUN if key == _ALL else limit)

    def _count(self, key: str) -> int:
        return sum(self.by_site().values()) if key == _ALL else self.counted[key]

    def _keys(self, url: str) -> Iterator[str]:
        try:
            host, identity = parse_address(url).host, canonical_url(url)
        except ToolError:  # it cannot be opened
            return
        yield _ALL
        yield f"{_SITE}{site_of(host)}"
        for result in self.results:
            if identity in links_shown(result):
                yield f"{_RESULT}{result.tool_call_id}"
                return


class SharedOpenings:
    """The openings of runs at the same time. What one is about to open counts for the others."""

    def __init__(self, before: Mapping[str, int]) -> None:
        """`before` has the openings before these runs, by site."""
        self._before = Counter(before)
        self._claims: dict[str, dict[str, Counter[str]]] = {}
        """Openings of each call, by its reply and its own id."""
        self._asked: dict[str, dict[str, dict[str, int]]] = {}
        """What is allowed once a call that is asked about has run."""
        self._allowed = dict[str, int]()
        self._lock = threading.Lock()

    def claim(
        self,
        reply: AIMessage,
        call: str,
        own: Openings,
        urls: Sequence[str],
        earlier: Sequence[str],
    ) -> list[str]:
        """Count a call's openings from now on, and return those that exceed a limit.

        `own` are the openings of the run so far. The person named neither `urls`, of the call, nor
        `earlier`, of the reply's calls before it.
        """
        place = str(reply.id)
        with self._lock:
            replies = (calls for at, calls in self._claims.items() if at != place)
            others = [one for calls in replies for one in calls.values()]
            now = own.combined_with(Openings(sum(others, self._before.copy()), self._allowed))
            excess = now.excess(urls, earlier)
            wanted = now.wanted(urls)
            self._claims.setdefault(place, {})[call] = Counter(
                {key: number for key, number in wanted.items() if key.startswith(_SITE)}
            )
            if excess:
                now.note([*earlier, *urls], ran=True)
                self._asked.setdefault(place, {})[call] = now.allowed
        return excess

    def raise_limits(self, messages: Sequence[AnyMessage]) -> None:
        """Raise the limits if a call has run that a person was asked about."""
        if not self._asked:
            return
        results = (one for one in messages if isinstance(one, ToolMessage))
        ran = {one.tool_call_id for one in results if one.status != "error"}
        replies = {str(one.id) for one in messages if isinstance(one, AIMessage)}
        with self._lock:
            for place in replies & self._asked.keys():
                for call in ran & self._asked[place].keys():
                    for key, most in self._asked[place].pop(call).items():
                        self._allowed[key] = max(most, self._allowed.get(key, 0))
