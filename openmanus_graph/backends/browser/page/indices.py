"""Element indices: stable for the lifetime of an element, and never reused.

A framework that draws a part anew makes new nodes for the same things. A new node takes over the
index of one that is gone when role, name and the words beside it are the same, or role and name
are the only such pair; so a button keeps its number with its article when a list is sorted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from openmanus_graph.backends.browser.page.assembly import Entry, RawLine

Key = tuple[str, int]
Mark = tuple[str, ...]
Marks = tuple[Mark, Mark]
"""Role, name and context; role, name and hint."""


@dataclass
class LastSnapshot:
    """The indices and marks of the elements of the last snapshot."""

    numbers: dict[Key, int] = field(default_factory=dict[Key, int])
    marks: dict[int, Marks] = field(default_factory=dict[int, Marks])


class Indices:
    """Assigns indices to a tab's elements."""

    def __init__(self) -> None:
        self._last = 0
        self._document = ""
        self._last_snapshot = LastSnapshot()
        self._indices: dict[Key, int] = {}

    def assign(
        self, document: str, lines: Sequence[RawLine], is_detached: Callable[[Key], bool]
    ) -> dict[Key, int]:
        """Assign indices to the elements of a snapshot; another document gets new ones.

        Args:
            document: The tab's document id; nothing is inherited from another document.
            lines: The page's lines.
            is_detached: Returns whether an element was removed from its document (not only hidden).
        """
        if document != self._document:
            self._document, self._last_snapshot, self._indices = document, LastSnapshot(), {}
        marks = dict(_marks(lines))
        detached = {
            key: index for key, index in self._last_snapshot.numbers.items() if is_detached(key)
        }
        for key in detached:
            del self._indices[key]
        added = [key for key in marks if key not in self._indices]
        self._indices |= _successors(
            detached, self._last_snapshot.marks, {key: marks[key] for key in added}
        )
        for key in added:
            if key not in self._indices:
                self._last += 1
                self._indices[key] = self._last
        numbers = {key: self._indices[key] for key in marks}
        self._last_snapshot = LastSnapshot(
            numbers, {numbers[key]: mark for key, mark in marks.items()}
        )
        return numbers


def _marks(lines: Sequence[RawLine]) -> Iterator[tuple[Key, Marks]]:
    before = ""
    for line in lines:
        words = line.words()
        entries = [part for part in line.parts if isinstance(part, Entry)]
        is_only_part = len(entries) == len(line.parts) == 1
        for entry in entries:
            role, name = entry.facts["role"], entry.facts["name"]
            yield (
                entry.key,
                (
                    (role, name, before + words if is_only_part else words),
                    (role, name, entry.facts.get("hint", "")),
                ),
            )
        before = words


def _successors(
    detached: Mapping[Key, int], old: Mapping[int, Marks], added: Mapping[Key, Marks]
) -> dict[Key, int]:
    """Match new elements to detached ones: first by context, then where a pair is unique."""
    successors: dict[Key, int] = {}
    for kind in (0, 1):
        old_by_mark: dict[Mark, list[int]] = defaultdict(list)
        for index in sorted(set(detached.values()) - set(successors.values())):
            old_by_mark[old[index][kind]].append(index)
        new_by_mark: dict[Mark, list[Key]] = defaultdict(list)
        for key in added:
            if key not in successors:
                new_by_mark[added[key][kind]].append(key)
        for mark, keys in new_by_mark.items():
            if len(old_by_mark[mark]) == len(keys) and (kind == 0 or len(keys) == 1):
                successors.update(zip(keys, old_by_mark[mark], strict=True))
    return successors
