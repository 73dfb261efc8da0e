"""What lists, searches and changes of very many threads take, and the server's start with them."""

import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.texts import words_of
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.postgres import Postgres
from tests.support.serving import Served

VOCABULARY = 50_000
BASES = 20_000
"""Texts of which the messages are made: half of one, and half of another."""
CHINESE = 20
"""One of so many bases is in Chinese."""
USERS = 20
AT_ONCE = 8
"""Threads whose messages come in turn, as of runs side by side."""
TRIES = 5
PAGE = 50
BULK = 100
DELETED = 25
"""At once: the page asks for so many, one group after another."""
COMMAND = str(Path(sys.executable).with_name("openmanus"))
_random = random.Random(1)
_words = list(
    dict.fromkeys(
        "".join(
            _random.choice("bcdfghjklmnprstvz") + _random.choice("aeiou") for _ in range(length)
        )
        for length in [1] * 200 + [2] * 2000 + [3, 4] * VOCABULARY
    )
)[:VOCABULARY]
"""The first one is in most messages, the last ones in some of a million."""
_characters = [chr(0x4E00 + number) for number in range(2000)]


def measure_threads(*, quick: bool) -> list[list[str]]:
    """Return the rows of the table: ms with SQLite and with PostgreSQL."""
    threads, messages = (200, 10) if quick else (10_000, 100)
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, Postgres.running("fsync=on") as server:
        for name, address in (("sqlite", ""), ("postgresql", server.database())):
            place = Path(folder) / name
            place.mkdir()
            home = place / ".openmanus"
            url = DatabaseUrl.parse(address) if address else DatabaseUrl.in_folder(home)
            env = {DATABASE_VARIABLE: address} if address else {}
            with _server(place / "empty", {}) as (_, *empty):
                pass
            fill(open_database(url), threads, messages)
            if address:
                server.execute("VACUUM ANALYZE")  # which a server does by itself after a while
            found.append(_of_tables(open_database(url)))
            close_databases()
            found[-1] |= _of_processes(place, url, env, empty)
    return [[case, *(f"{one[case]:.0f}" for one in found)] for case in found[0]]


def fill(database: Database, threads: int, messages: int) -> None:
    """Make threads with messages. Every other one is of a user, the rest are the machine's own."""
    ids = [str(uuid.UUID(int=number, version=4)) for number in range(1, threads + 1)]
    made = _texts()
    titles = [f"Task {number} {next(made)[:40]}" for number in range(threads)]
    owners = [(one, f"user{number % USERS}") for number, one in enumerate(ids) if number % 2]
    database.run_many(
        (
            "INSERT INTO threads (id, agent, task, options, status)"
            " VALUES (?, 'manus', ?, '{}', 'finished')",
            zip(ids, titles, strict=True),
        ),
        (
            "INSERT INTO titles (thread, title, words) VALUES (?, ?, ?)",
            [(one, title, words_of(title)) for one, title in zip(ids, titles, strict=True)],
        ),
        ("INSERT INTO indexed_threads (thread) VALUES (?)", [(one,) for one in ids]),
        ("INSERT INTO owners (thread, owner) VALUES (?, ?)", owners),
    )
    [(statement, _)] = database.texts.adding("", [])
    shared = "words" in statement
    add = f"INSERT INTO texts (number, text{', words' if shared else ''}) VALUES (?, ?"
    numbers = [row[0] for row in database.run("SELECT number FROM indexed_threads ORDER BY 1")]
    for start in range(0, threads, AT_ONCE):
        group = numbers[start : start + AT_ONCE]
        places = [(one << 24) + at for at in range(1, messages + 1) for one in group]
        # A row has the thread at its end, for which the number is here.
        rows = [
            (place, *database.texts.adding("", [next(made)])[-1][1][0][:-2]) for place in places
        ]
        database.run_many((f"{add}{', ?::tsvector' if shared else ''})", rows))


def _texts() -> Iterator[str]:
    """Yield texts of 10 to 80 words, which are as frequent as in a language."""
    weights = list(itertools.accumulate(1 / (rank + 2) for rank in range(len(_words))))
    bases = [
        "".join(_random.choices(_characters, k=40))
        if number % CHINESE == 0
        else " ".join(_random.choices(_words, cum_weights=weights, k=_random.randint(10, 80)))
        for number in range(BASES)
    ]
    while True:
        one, other = _random.choice(bases), _random.choice(bases)
        yield f"{one[: len(one) // 2]} {other[len(other) // 2 :]}"


def queries() -> dict[str, str]:
    """Return what is searched."""
    chinese = "".join(_random.choices(_characters, k=2))
    return {
        "a word of a few messages": _words[-1],
        "a word of 1 % of the messages": _words[400],
        "a word of 10 %": _words[40],
        "a word of 90 %": _words[0],
        "the beginning of very many words": "ba",
        "three words": f"{_words[5]} {_words[90]} {_words[700]}",
        "a Chinese character": chinese[0],
        "two Chinese characters": chinese,
        "nothing": "nothing-of-this",
    }


def _of_tables(database: Database) -> dict[str, float]:
    threads = Threads(database)
    last = threads.page(10**6)[-PAGE][0]

    def search(query: str, owner: str | None = None) -> None:
        page = threads.page(PAGE, None, query, owner=owner, archived=False)
        threads.lines([thread.id for _, thread in page], query)

    cases: dict[str, Callable[[], object]] = {
        "the first 50 threads": partial(threads.page, PAGE, archived=False),
        "the last 50": partial(threads.page, PAGE, last, archived=False),
        "the first 50 of a user": partial(threads.page, PAGE, owner="user3", archived=False),
    }
    for name, query in queries().items():
        cases[f"search: {name}"] = partial(search, query)
    cases["search of a user: a word of 90 %"] = partial(search, _words[0], "user3")
    return {name: _median_ms(call) for name, call in cases.items()}


def _median_ms(call: Callable[[], object], tries: int = TRIES) -> float:
    def once() -> float:
        began = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - began)

    return statistics.median(once() for _ in range(tries))


@contextlib.contextmanager
def _server(place: Path, env: dict[str, str]) -> Generator[tuple[Served, float, float]]:
    """Start a server. Yields it, the seconds until it answered, and its memory."""
    began = time.perf_counter()
    with Served(place, env) as served:
        seconds = time.perf_counter() - began
        assert served.process is not None
        yield served, seconds, psutil.Process(served.process.pid).memory_info().rss


def _of_processes(
    place: Path, url: DatabaseUrl, env: dict[str, str], empty: list[float]
) -> dict[str, float]:
    def command(*arguments: str) -> None:
        subprocess.run(
            [COMMAND, "threads", *arguments], cwd=place, env={**os.environ, **env}, check=True,
            capture_output=True,
        )  # fmt: skip

    found = {
        "`openmanus threads`": _median_ms(command),
        "`openmanus threads --search`, 1 %": _median_ms(lambda: command("--search", _words[400])),
    }
    with _server(place, env) as (served, start_s, memory):

        def ask(method: str, path: str, body: Any = None) -> Any:
            request = urllib.request.Request(
                f"{served.url}/app/api/threads{path}", method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={**served.headers, "Content-Type": "application/json"},
            )  # fmt: skip
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read() or "null")

        def page(path: str) -> bytes:
            with urllib.request.urlopen(f"{served.url}{path}") as answer:
                return bytes(answer.read())

        found["`GET threads`"] = _median_ms(lambda: ask("GET", ""))
        query = f"?q={quote(_words[400])}"
        found["`GET threads?q=`, 1 %"] = _median_ms(lambda: ask("GET", query))
        ids = [one["id"] for one in ask("GET", f"?limit={BULK}")["threads"]]
        found["`PATCH threads/ID`, pin"] = _median_ms(
            lambda: ask("PATCH", f"/{ids[0]}", {"pinned": True})
        )
        shares = f"/{ids[0]}/shares"
        link = ask("POST", shares)["url"]
        found["`POST threads/ID/shares`"] = _median_ms(lambda: ask("POST", shares))
        found["a shared thread"] = _median_ms(lambda: page(link))
        found["`DELETE threads/ID/shares`"] = _median_ms(lambda: ask("DELETE", shares), 1)
        for action, some in (("archive", ids), ("unarchive", ids), ("delete", ids[:DELETED])):
            change = {"action": action, "ids": some}
            ms = _median_ms(partial(ask, "POST", "/bulk", change), 1)
            found[f"`POST threads/bulk`, {action} {len(some)}"] = ms
    open_database(url).run("UPDATE threads SET updated = '2020-01-01 00:00:00'")
    close_databases()
    prune = partial(command, "prune", "--older-than", "30d")
    found["`openmanus threads prune` of all, s"] = _median_ms(prune, 1) / 1000
    found["the server's start, more than with none"] = 1000 * (start_s - empty[0])
    found["its memory, more than with none, MB"] = (memory - empty[1]) / 1e6
    return found
