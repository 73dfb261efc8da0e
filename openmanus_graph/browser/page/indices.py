"""The numbers elements go by: the same as long as an element lives, never another's.

A framework that draws a part anew makes new nodes for the same things. A new node takes over the
index of one that is gone when role, name and the words beside it are the same, or role and name
are the only such pair; so a button keeps its number with its article when a list is sorted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from openmanus_graph.browser.page.assembly import Entry, RawLine

Key = tuple[str, int]
Mark = tuple[str, ...]
Marks = tuple[Mark, Mark]
"""Role, name and context; role, name and hint."""


@dataclass
class Known:
    """What is remembered of the elements of the last look."""

    numbers: dict[Key, int] = field(default_factory=dict[Key, int])
    marks: dict[int, Marks] = field(default_factory=dict[int, Marks])


class Indices:
    """Gives a tab's elements their indices."""

    def __init__(self) -> None:
        self._last = 0
        self._document = ""
        self._known = Known()
        self._all: dict[Key, int] = {}

    def assign(
        self, document: str, lines: Sequence[RawLine], gone: Callable[[Key], bool]
    ) -> dict[Key, int]:
        """Number the elements of a look; those of another document get new numbers.

        Args:
            document: What the tab shows; with another one nothing is inherited.
            lines: The page's lines.
            gone: Tells whether an element has left its document (a hidden one has not).
        """
        if document != self._document:
            self._document, self._known, self._all = document, Known(), {}
        marks = dict(_marks(lines))
        orphaned = {key: index for key, index in self._known.numbers.items() if gone(key)}
        for key in orphaned:
            del self._all[key]
        fresh = [key for key in marks if key not in self._all]
        self._all |= _heirs(orphaned, self._known.marks, {key: marks[key] for key in fresh})
        for key in fresh:
            if key not in self._all:
                self._last += 1
                self._all[key] = self._last
        numbers = {key: self._all[key] for key in marks}
        self._known = Known(numbers, {numbers[key]: mark for key, mark in marks.items()})
        return numbers


def _marks(lines: Sequence[RawLine]) -> Iterator[tuple[Key, Marks]]:
    before = ""
    for line in lines:
        words = line.words()
        entries = [part for part in line.parts if isinstance(part, Entry)]
        alone = len(entries) == len(line.parts) == 1
        for entry in entries:
            role, name = entry.facts["role"], entry.facts["name"]
            yield (
                entry.key,
                (
                    (role, name, before + words if alone else words),
                    (role, name, entry.facts.get("hint", "")),
                ),
            )
        before = words


def _heirs(
    orphaned: Mapping[Key, int], old: Mapping[int, Marks], fresh: Mapping[Key, Marks]
) -> dict[Key, int]:
    """Pair new elements with those that are gone: first by context, then by being the only ones."""
    heirs: dict[Key, int] = {}
    for kind in (0, 1):
        was: dict[Mark, list[int]] = defaultdict(list)
        for index in sorted(set(orphaned.values()) - set(heirs.values())):
            was[old[index][kind]].append(index)
        now: dict[Mark, list[Key]] = defaultdict(list)
        for key in fresh:
            if key not in heirs:
                now[fresh[key][kind]].append(key)
        for mark, keys in now.items():
            if len(was[mark]) == len(keys) and (kind == 0 or len(keys) == 1):
                heirs.update(zip(keys, was[mark], strict=True))
    return heirs
