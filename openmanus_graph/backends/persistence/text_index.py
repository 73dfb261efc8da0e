"""The index of texts by which threads and the passages of libraries are found.

It is SQLite's FTS5, or PostgreSQL's text search. A row of `texts` is a piece of a text. Its number
begins with that of its thread in `indexed_threads`, so that neither needs an index over threads.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from openmanus_graph.backends.persistence import texts

_Row = tuple[Any, ...]
_OWN = "texts.number >= own.number << 24 AND texts.number < own.number + 1 << 24"
"""Selects the texts of a row `own` of `indexed_threads`."""
_ADD = f"""
    INSERT INTO texts (number, text{{column}})
    SELECT coalesce((SELECT max(number) FROM texts WHERE {_OWN}), own.number << 24) + 1, ?{{value}}
    FROM indexed_threads AS own WHERE own.thread = ? AND ? NOT IN (
        SELECT text FROM texts WHERE {_OWN} ORDER BY texts.number DESC LIMIT {texts.MAX_PIECES}
    )
"""
_BETWEEN = """
    number >= (SELECT number << 24 FROM indexed_threads WHERE thread = ?)
    AND number < (SELECT number + 1 << 24 FROM indexed_threads WHERE thread = ?)
"""
"""Selects the texts of a thread. With a join, PostgreSQL reads all texts after them as well."""
DELETE_TEXTS = f"DELETE FROM texts WHERE {_BETWEEN}"
_TEXTS = f"SELECT text FROM texts WHERE {_BETWEEN} ORDER BY number DESC LIMIT ?"
_NEWEST = (20, 1000)
"""How many of a thread's texts are searched for a line, and how many if those have none."""
INDEX_THREAD = "INSERT INTO indexed_threads (thread) VALUES (?) ON CONFLICT (thread) DO NOTHING"
_FEW_TEXTS = 20_000
"""Up to so many texts that have a word are all read, to list the threads that have it."""

_ADD_PASSAGE = """
    INSERT INTO library_passages (number, about, place, text{column})
    SELECT number << 18 | ?, ?, ?, ?{value} FROM library_documents WHERE key = ?
"""
_BEST = """
    SELECT rank, about, place, text, source, mine FROM ({found} ORDER BY rank LIMIT ?) AS found
    JOIN library_passages AS p ON p.number = found.number
    JOIN library_documents AS d ON d.number = p.number >> 18 ORDER BY rank, p.number
"""
_MOST_TERMS, _MOST_SCORED = 32, 30_000
"""Words of a question that are looked up, and how many passages with one of them are compared."""
Term = Sequence[str]  # words that a passage must have in a row


class TextIndex(ABC):
    """The index of a database. All methods block; `run` executes a statement."""

    _add: ClassVar[str]
    """Adds a piece of a text, unless it is among the thread's last ones."""

    add_passage: ClassVar[str]
    """Adds a passage to a document. Its values: `passage_row`, and the document's key."""
    _count: ClassVar[str]
    """Counts the passages with numbers in a range that have a term, at most so many."""
    _found: ClassVar[str]
    """Selects numbers and ranks of such passages that have some of several terms."""

    def __init__(self, run: Callable[[str, Sequence[Any]], list[_Row]]) -> None:
        self._run = run

    def adding(self, thread: str, said: Iterable[str]) -> list[tuple[str, list[_Row]]]:
        """Return the statements by which a thread is found by texts, with their rows of values.

        They belong in one transaction.
        """
        pieces = (one for text in said for one in texts.pieces_of(text))
        return [(self._add, [(one, *self._stored(one), thread, one) for one in pieces])]

    def _stored(self, piece: str) -> _Row:
        """Return what is stored with a piece of a text."""
        return ()

    def finding(self, part: str, words: Sequence[str]) -> tuple[str, list[Any]]:
        """Return a condition on `threads`, and its values: a part of a query finds them.

        They have its words in a text or the title, or the id begins with it. What has no words, and
        the titles of former versions, are compared letter by letter.
        """
        pattern = "".join(f"\\{c}" if c in "%_\\" else c for c in part)
        letters = "LIKE lower(?) ESCAPE '\\'"
        titled = f"SELECT 1 FROM titles WHERE thread = id AND (lower(title) {letters}"
        values = [f"{pattern}%", f"%{pattern}%"]
        if not words:
            return f"lower(id) {letters} OR EXISTS ({titled}))", values
        said, more = self.having(words)
        titled = f"{titled} AND words = '' OR ' ' || words LIKE ?)"
        values = [*more, *values, f"% {' '.join(words)}%"]
        return f"{said} OR lower(id) {letters} OR EXISTS ({titled})", values

    def lines(self, threads: Sequence[str], query: str) -> dict[str, str]:
        """Return a line with something that a query asks for, by thread, "" if there is none."""
        asked = [words for _, words in texts.wanted(query) if words]
        found: dict[str, str] = {}
        for limit, thread in itertools.product(_NEWEST, threads if asked else ()):
            if not found.get(thread):
                rows = self._run(_TEXTS, (thread, thread, limit))
                lines = (texts.line_with(asked, text) for (text,) in rows)
                found[thread] = next(filter(None, lines), "")
        return found

    def best(self, terms: Sequence[Term], within: tuple[int, int], limit: int) -> list[_Row]:
        """Return the passages that fit a question best, by the method BM25 or one like it.

        Rows have the rank (the lowest is the best) and the fields of a `Passage`. Terms that very
        many passages have are left out, unless no others are found.
        """
        longest = sorted(terms, key=lambda one: len("".join(one)), reverse=True)[:_MOST_TERMS]
        most = (*within, _MOST_SCORED)
        counts = [(self._run(self._count, (self._query(one), *most))[0][0], one) for one in longest]
        asked, room = list[tuple[Term, float]](), _MOST_SCORED
        for count, term in sorted(one for one in counts if one[0]):
            if not asked or count <= room:
                asked.append((term, math.log(1 + _MOST_SCORED / count)))
                room -= count
        if not asked:
            return []
        return self._run(_BEST.format(found=self._found), (*self._asked(asked), *within, limit))

    def passage_row(self, at: int, about: str, place: str, text: str) -> _Row:
        """Return the values of a passage; `at` counts the passages of its document."""
        return (at, about, place, text)

    @abstractmethod
    def _query(self, term: Term) -> str: ...

    @abstractmethod
    def _asked(self, terms: Sequence[tuple[Term, float]]) -> _Row:
        """Return the values of `_found` for terms, each with its weight."""

    @abstractmethod
    def having(self, words: Sequence[str]) -> tuple[str, _Row]:
        """Return a condition on `threads`, and its values: a text has these words in this order.

        The last one may be a beginning, but not a lone letter: very many begin with it.
        """


class SqliteTextIndex(TextIndex):
    """The words are in the table `text_words`, which triggers of `texts` fill."""

    _add = _ADD.format(column="", value="")
    add_passage = _ADD_PASSAGE.format(column="", value="")
    _having = "FROM passage_words WHERE passage_words MATCH ? AND rowid >= ? AND rowid < ?"
    _found = f"SELECT rowid AS number, rank {_having}"
    _count = f"SELECT count(*) FROM (SELECT 1 {_having} LIMIT ?)"  # `rank` would be computed

    @override
    def _query(self, term: Term) -> str:
        return f'"{" ".join(term)}"'

    @override
    def _asked(self, terms: Sequence[tuple[Term, float]]) -> _Row:
        return (" OR ".join(self._query(term) for term, _ in terms),)  # it weighs them itself

    @override
    def having(self, words: Sequence[str]) -> tuple[str, _Row]:
        found = "SELECT rowid >> 24 FROM text_words WHERE text_words MATCH ?"
        own = f"SELECT thread FROM indexed_threads WHERE number IN ({found})"
        return f"id IN ({own})", (f'"{" ".join(words)}"{" *" if words[-1][1:] else ""}',)


class PostgresTextIndex(TextIndex):
    """The words are in a column of `texts`, with an index."""

    _add = _ADD.format(column=", words", value=", ?::tsvector")
    add_passage = _ADD_PASSAGE.format(column=", words", value=", to_tsvector('english', ?)")
    _count = """
        SELECT count(*) FROM (
            SELECT FROM library_passages WHERE words @@ to_tsquery('english', ?)
            AND number >= ? AND number < ? LIMIT ?
        ) AS found
    """
    _found = """
        SELECT number, -sum(weight * ts_rank(words, to_tsquery('english', term), 1)) AS rank
        FROM unnest(?::text[], ?::float8[]) AS asked (term, weight)
        JOIN library_passages ON words @@ to_tsquery('english', term)
        WHERE number >= ? AND number < ? GROUP BY number
    """

    @override
    def adding(self, thread: str, said: Iterable[str]) -> list[tuple[str, list[_Row]]]:
        # Else two transactions at one moment would choose the same next number.
        locking = "SELECT 1 FROM indexed_threads WHERE thread = ? FOR UPDATE"
        added = super().adding(thread, said)
        return [(locking, [(thread,)]), *added] if added[0][1] else added

    @override
    def _stored(self, piece: str) -> _Row:
        # The server's parser makes one word of an address, and knows no Chinese.
        words = texts.words_of(piece).split()
        return (" ".join(f"{word}:{at}" for at, word in enumerate(words, 1)),)

    @override
    def passage_row(self, at: int, about: str, place: str, text: str) -> _Row:
        return (at, about, place, text, texts.words_of(f"{about} {text}"))

    @override
    def _query(self, term: Term) -> str:
        return " <-> ".join(term)

    @override
    def _asked(self, terms: Sequence[tuple[Term, float]]) -> _Row:
        return ([self._query(term) for term, _ in terms], [weight for _, weight in terms])

    @override
    def having(self, words: Sequence[str]) -> tuple[str, _Row]:
        query = f"{' <-> '.join(words)}{':*' if words[-1][1:] else ''}"
        some = f"SELECT number FROM texts WHERE words @@ ?::tsquery LIMIT {_FEW_TEXTS + 1}"
        ((found,),) = self._run(f"SELECT count(*) FROM ({some}) AS found", (query,))
        if found > _FEW_TEXTS:  # some of the newest threads have it
            said = f"SELECT FROM indexed_threads AS own JOIN texts ON {_OWN} WHERE thread = id"
            # "IS TRUE" keeps the server from searching its index again for each thread.
            return f"EXISTS ({said} AND (words @@ ?::tsquery) IS TRUE)", (query,)
        own = "SELECT number >> 24 FROM texts WHERE words @@ ?::tsquery"
        return f"id IN (SELECT thread FROM indexed_threads WHERE number IN ({own}))", (query,)
