"""The index of texts by which threads are found: SQLite's FTS5, PostgreSQL's text search.

A row of `texts` is a piece of a text. Its number begins with that of its thread in
`indexed_threads`, so that neither needs an index over threads.
"""

import itertools
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
DELETE_TEXTS = """
    DELETE FROM texts WHERE number >= (SELECT number << 24 FROM indexed_threads WHERE thread = ?)
    AND number < (SELECT number + 1 << 24 FROM indexed_threads WHERE thread = ?)
"""
_TEXTS = f"""
    SELECT text FROM indexed_threads AS own JOIN texts ON {_OWN} WHERE own.thread = ?
    ORDER BY texts.number DESC LIMIT ?
"""
_NEWEST = (20, 1000)
"""How many of a thread's texts are searched for a line, and how many if those have none."""
INDEX_THREAD = "INSERT INTO indexed_threads (thread) VALUES (?) ON CONFLICT (thread) DO NOTHING"
_FEW_TEXTS = 20_000
"""Up to so many texts that have a word are all read, to list the threads that have it."""


class TextIndex(ABC):
    """The index of a database. All methods block; `run` executes a statement."""

    _add: ClassVar[str]
    """Adds a piece of a text, unless it is among the thread's last ones."""

    def __init__(self, run: Callable[[str, Sequence[Any]], list[_Row]]) -> None:
        self._run = run

    def adding(self, thread: str, said: Iterable[str]) -> tuple[str, list[_Row]]:
        """Return the statement by which a thread is found by texts, and its rows of values."""
        pieces = (one for text in said for one in texts.pieces_of(text))
        return self._add, [(one, *self._stored(one), thread, one) for one in pieces]

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
                rows = self._run(_TEXTS, (thread, limit))
                lines = (texts.line_with(asked, text) for (text,) in rows)
                found[thread] = next(filter(None, lines), "")
        return found

    @abstractmethod
    def having(self, words: Sequence[str]) -> tuple[str, _Row]:
        """Return a condition on `threads`, and its values: a text has these words in this order.

        The last one may be a beginning, but not a lone letter: very many begin with it.
        """


class SqliteTextIndex(TextIndex):
    """The words are in the table `text_words`, which triggers of `texts` fill."""

    _add = _ADD.format(column="", value="")

    @override
    def having(self, words: Sequence[str]) -> tuple[str, _Row]:
        found = "SELECT rowid >> 24 FROM text_words WHERE text_words MATCH ?"
        own = f"SELECT thread FROM indexed_threads WHERE number IN ({found})"
        return f"id IN ({own})", (f'"{" ".join(words)}"{" *" if words[-1][1:] else ""}',)


class PostgresTextIndex(TextIndex):
    """The words are in a column of `texts`, with an index."""

    _add = _ADD.format(column=", words", value=", ?::tsvector")

    @override
    def _stored(self, piece: str) -> _Row:
        # The server's parser makes one word of an address, and knows no Chinese.
        words = texts.words_of(piece).split()
        return (" ".join(f"{word}:{at}" for at, word in enumerate(words, 1)),)

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
