"""Stores libraries, and finds the passages that answer a question.

Libraries are in a file beside the local database, or in the database that machines share. A
document is replaced in one transaction, so that an index is whole after any crash.
"""

import hashlib
import heapq
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openmanus_graph.backends.persistence.backend import Database, Row, Several
from openmanus_graph.backends.persistence.database import open_database, open_file
from openmanus_graph.backends.persistence.sqlite import LIBRARY_VERSIONS
from openmanus_graph.backends.persistence.texts import search_terms, storable, words_of
from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.state.addresses import DatabaseUrl

_NAME = re.compile(r"\w[\w.-]{0,63}")
_CANDIDATES = 8  # passages that are compared for each one that is wanted: some repeat others
_SAME = 0.8  # share of common words above which one passage repeats another
_LOCK = "UPDATE libraries SET given = given + 1 WHERE number = ?"
"""Also keeps other processes from changing the library until the transaction ends."""
_DELETE_PASSAGES = """
    DELETE FROM library_passages
    WHERE number >= (SELECT number << 18 FROM library_documents WHERE key = ?)
    AND number < (SELECT number + 1 << 18 FROM library_documents WHERE key = ?)
"""
_READ = """
    SELECT about, place, text, source, mine FROM (
        SELECT number AS own, source, mine FROM library_documents WHERE number >= ? AND number < ?
        AND (source = ? OR substr(?, 1, length(source) + 2) = source || ', ')
        ORDER BY length(source) DESC LIMIT 1
    ) AS found CROSS JOIN library_passages
    WHERE number >= own << 18 AND number < own + 1 << 18 ORDER BY number
"""
_ADD_DOCUMENT = """
    INSERT INTO library_documents (number, key, source, digest, mine)
    SELECT number << 28 | given, ?, ?, ?, ? FROM libraries WHERE number = ?
"""


@dataclass(frozen=True)
class Passage:
    about: str
    """The document's title and the headings above it. They are searched, too."""
    place: str  # pages, cells or lines in its document
    text: str
    source: str = ""  # of one that was found: the path or address of its document
    mine: bool = False  # whether the user vouches for it
    also: tuple[str, ...] = ()  # where else nearly the same is written

    @property
    def label(self) -> str:
        return f"{self.source}, {self.place}"


@dataclass(frozen=True)
class Document:
    source: str  # its path or address
    digest: str  # of its content; empty if it cannot be read
    mine: bool = False  # whether the user vouches for it; all others are untrusted
    passages: Sequence[Passage] = ()
    note: str = ""  # what of it was left out, and why


class Library:
    """One library. All methods block; they raise StorageError."""

    def __init__(self, database: Database, number: int, name: str) -> None:
        self.name, self._database, self._number = name, database, number
        self._documents = (number << 28, number + 1 << 28)
        self._passages = (number << 46, number + 1 << 46)

    def documents(self) -> dict[str, Document]:
        """Return the documents without their passages, by source."""
        select = "SELECT source, digest, mine FROM library_documents"
        rows = self._database.run(
            f"{select} WHERE number >= ? AND number < ? ORDER BY source", self._documents
        )
        return {row[0]: Document(row[0], row[1], bool(row[2])) for row in rows}

    def put(self, documents: Iterable[Document]) -> None:
        """Add documents, or replace those with the same sources: all or none."""
        texts, statements = self._database.texts, list[Several]()
        for one in documents:
            key = self._key(one.source)
            row = (key, storable(one.source), one.digest, int(one.mine), self._number)
            passages = [
                (*texts.passage_row(at, *map(storable, (each.about, each.place, each.text))), key)
                for at, each in enumerate(one.passages[: 1 << 18])
            ]
            statements += self._deletion(key)
            statements += [(_ADD_DOCUMENT, [row]), (texts.add_passage, passages)]
        self._database.run_many(*statements)

    def remove(self, sources: Iterable[str]) -> None:
        """Remove documents, some in each transaction: others can write in between."""
        found = iter(sources)
        while some := list(itertools.islice(found, 200)):
            deletions = (self._deletion(self._key(one)) for one in some)
            self._database.run_many(*itertools.chain.from_iterable(deletions))

    def delete(self) -> None:
        """Remove the library with its documents."""
        self.remove(self.documents())
        rest = "SELECT 1 FROM library_documents WHERE number >= ? AND number < ?"
        delete = f"DELETE FROM libraries WHERE number = ? AND NOT EXISTS ({rest})"
        self._database.run(delete, (self._number, *self._documents))  # some may just be added

    def ranked(self, query: str, limit: int) -> Iterator[tuple[float, Passage]]:
        """Yield passages and their ranks, the best (lowest) first."""
        terms = search_terms(query)
        for row in self._database.texts.best(terms, self._passages, limit):
            yield float(row[0]), _passage(row[1:])

    def read(self, query: str) -> list[Passage]:
        """Return the passages of a document from a place on, if that is what a query names.

        It is written as in `Passage.label`, or a source alone. Empty if it is neither.
        """
        named = storable(query)
        rows = self._database.run(_READ, (*self._documents, named, named))
        found = [*map(_passage, rows)]
        starts = (at for at, one in enumerate(found) if named in (one.source, one.label))
        return found[next(starts, len(found)) :]

    def _key(self, source: str) -> str:
        named = f"{self._number} {source}".encode("utf-8", "replace")
        return hashlib.sha256(named).hexdigest()[:32]

    def _deletion(self, key: str) -> list[Several]:
        delete = "DELETE FROM library_documents WHERE key = ?"
        return [(_LOCK, [(self._number,)]), (_DELETE_PASSAGES, [(key, key)]), (delete, [(key,)])]


def _passage(row: Row) -> Passage:
    about, place, text, source, mine = row
    return Passage(about, place, text, source, bool(mine))


def libraries(
    url: DatabaseUrl, owner: str = "", names: Sequence[str] = (), *, create: str = ""
) -> list[Library]:
    """Return an owner's libraries of a database, or those with some names. Blocks.

    "" owns those of the machine's user. `create` names one that is made if there is none;
    ConfigError: it cannot have this name.
    """
    if create and not _NAME.fullmatch(create):
        raise ConfigError(f"{create[:64]!r} is no name. Use up to 64 letters, digits and _.-")
    if url.is_local and not create and not _file_of(url).exists():
        return []
    database = open_file(_file_of(url), LIBRARY_VERSIONS) if url.is_local else open_database(url)
    if create:
        insert = "INSERT INTO libraries (owner, name) VALUES (?, ?) ON CONFLICT DO NOTHING"
        database.run(insert, (owner, create))
    select = "SELECT number, name FROM libraries WHERE owner = ? ORDER BY name"
    found = [Library(database, number, name) for number, name in database.run(select, (owner,))]
    return [one for one in found if one.name in (names or (one.name,))]


def _file_of(url: DatabaseUrl) -> Path:
    return url.file.with_name(f"{url.file.stem}-library.db")


def search(found: Iterable[Library], query: str, limit: int) -> list[Passage]:
    """Return the best passages of libraries for a question; those that repeat others are joined.

    TrustedToolError: the query has no words.
    """
    if not search_terms(query):
        raise TrustedToolError("The query has no words. Write some that the documents may have.")
    ranked = (one.ranked(query, limit * _CANDIDATES) for one in found)
    hits = list[tuple[set[str], Passage]]()
    for _, hit in heapq.merge(*ranked, key=lambda one: one[0]):
        words = set(words_of(hit.text).split())
        for at, (known, first) in enumerate(hits):
            if len(words & known) >= _SAME * len(words | known):
                both = replace(first, also=(*first.also, hit.label), mine=first.mine and hit.mine)
                hits[at] = known, both
                break
        else:
            hits.append((words, hit))
    return [hit for _, hit in hits[:limit]]
