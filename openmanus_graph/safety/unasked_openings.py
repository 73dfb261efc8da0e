"""Limits the links that a call opens of itself, such as the pages of search results.

Nobody can be asked about them before, as nobody knows them: what is too much is left out.
"""

from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage, AnyMessage

from openmanus_graph.safety.openings import Openings, SharedOpenings, addresses_of
from openmanus_graph.safety.value_labels import labels_of
from openmanus_graph.state.tool_traits import Traits

LEFT_OUT = (
    "it was left out: private data was read before, and nobody named its site. Which pages are "
    "read can spell the data out"
)
"""Why a page was not read, as the end of a sentence."""


class UnaskedOpenings:
    """What the calls of one reply open of themselves. They share it, as they run at once."""

    def __init__(
        self,
        messages: Sequence[AnyMessage],
        traits: Mapping[str, Traits],
        *,
        tainted: bool,
        shared: SharedOpenings | None,
    ) -> None:
        """Read the conversation.

        Args:
            messages: All of them, the reply that makes the calls included.
            traits: Those of the tools that open addresses; results of others count as private.
            tainted: Whether the prompt holds untrusted text.
            shared: The openings of the runs beside this one.
        """
        places = (n for n in range(len(messages) - 1, -1, -1) if _makes_calls(messages[n]))
        place = next(places, len(messages))
        reply = messages[place] if place < len(messages) else None
        self._labels = labels_of(messages[:place], traits, tainted=tainted)
        self._reply = reply if isinstance(reply, AIMessage) else AIMessage("")
        self._shared = shared
        self._opened = self._labels.unnamed([
            url
            for call in self._reply.tool_calls
            if call["name"] in traits
            for url in addresses_of(traits[call["name"]], call["args"], self._labels.site)
        ])  # fmt: skip
        """By any call of the reply, whether it was asked about or not."""

    def may_open(self, url: str) -> bool:
        """Say whether an address may be opened, and count it."""
        labels = self._labels
        if not (labels.tainted and labels.read_private and labels.unnamed([url])):
            return True
        if self._shared is None:
            excess = labels.openings.excess([url], self._opened)
        else:
            call = f"unasked {len(self._opened)}"
            excess = self._shared.claim(self._reply, call, labels.openings, [url], self._opened)
        if excess:
            return False
        self._opened.append(url)
        return True

    def by_site(self, urls: Sequence[str]) -> dict[str, int]:
        """Return how many openings these addresses are, by site, as later calls count them."""
        if not self._labels.read_private:
            return {}
        opened = Openings()
        opened.note(self._labels.unnamed(urls), ran=True)
        return opened.by_site()


def _makes_calls(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls)
