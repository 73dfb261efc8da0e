"""What every search engine is: a question in, hits out, one kind of failure."""

from dataclasses import dataclass
from typing import Protocol

from openmanus_graph.state.places import Place


@dataclass(frozen=True)
class SearchQuery:
    """A search query."""

    text: str
    count: int = 5
    """How many results are wanted."""
    place: Place = Place()

    def text_up_to(self, characters: int, words: int | None = None) -> str:
        """Return the text, cut at a word to what an engine takes."""
        text = " ".join(self.text.split()[:words])
        if len(text) <= characters:
            return text
        whole_words = text[: characters + 1].rpartition(" ")[0]
        return whole_words or text[:characters]


@dataclass(frozen=True)
class Hit:
    """One result."""

    title: str
    url: str
    snippet: str = ""
    engine: str = ""
    """Which engine found it."""


class EngineError(Exception):
    """Why an engine gave no answer: a few words that hold no key.

    Args:
        reason: What is shown to people and models.
        passing: Whether asking again in a moment could help.
        retry_after_s: How long the engine asked to be left alone.
        quotes: Whether the reason holds words of the engine's own.
    """

    def __init__(
        self,
        reason: str,
        *,
        passing: bool = False,
        retry_after_s: float | None = None,
        quotes: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.passing = passing
        self.retry_after_s = retry_after_s
        self.quotes = quotes


class SearchEngine(Protocol):
    """A search engine as the search uses it."""

    @property
    def name(self) -> str:
        """Its name in results and messages."""
        ...

    @property
    def ignores(self) -> tuple[str, ...]:
        """Which of `lang` and `country` the engine does not support."""
        ...

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Return hits, best first; none if it found nothing. EngineError: it did not answer."""
        ...
