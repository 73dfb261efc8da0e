"""What has come together while engines are asked one after another."""

from dataclasses import dataclass, field, replace

from openmanus_graph.backends.search.hits import identity
from openmanus_graph.backends.search.search_engine import Hit


@dataclass(frozen=True)
class Attempt:
    """What became of one engine."""

    engine: str
    hits: int = 0
    """How many results it gave that were not there yet."""
    problem: str = ""
    """Why it gave no answer; empty when it answered."""
    quotes: bool = False
    """Whether the problem quotes text from the engine."""
    ignores: tuple[str, ...] = ()
    """Which of `lang` and `country` it does not support."""


@dataclass
class Gathering:
    """Hits without duplicates, best first, and what became of each engine."""

    wanted: int
    hits: list[Hit] = field(default_factory=list[Hit])
    attempts: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    _pages: set[str] = field(default_factory=set[str])

    @property
    def complete(self) -> bool:
        """Whether there is as much as was wanted."""
        return len(self.hits) >= self.wanted

    def add(self, engine: str, hits: list[Hit], ignores: tuple[str, ...]) -> None:
        """Add an engine's hits, without duplicates and up to the requested count."""
        before = len(self.hits)
        for hit in hits:
            page = identity(hit.url)
            if page not in self._pages and not self.complete:
                self._pages.add(page)
                self.hits.append(replace(hit, engine=engine))
        self.attempts[engine] = Attempt(engine, len(self.hits) - before, ignores=ignores)

    def fail(self, engine: str, problem: str, *, quotes: bool = False) -> None:
        """Note why an engine gave no answer."""
        self.attempts[engine] = Attempt(engine, problem=problem, quotes=quotes)

    def skip(self, engine: str, reason: str) -> None:
        """Note why an engine was not asked, unless it was asked before."""
        if engine not in self.attempts:
            self.fail(engine, reason)
