"""Libraries: adding 10,000 documents, searching them, and how often the right one is found.

The 1,000 questions are worded unlike the documents: by synonyms, and by other forms of their words.
Beside ours stands rank-bm25, which is given the whole documents as lower-case words.
"""

import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from openmanus_graph.backends.library.adding import add
from openmanus_graph.backends.library.store import Library, libraries, search
from openmanus_graph.backends.persistence.database import close_databases
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.state.addresses import DatabaseUrl

DOCUMENTS, QUESTIONS = 10_000, 1000
AT = 5
"""The right document must be among so many."""
_random = random.Random(7)
TRADES = [
    ("brewery", "breweries"), ("bakery", "bakeries"), ("shipyard", "shipyards"),
    ("foundry", "foundries"), ("tannery", "tanneries"), ("dairy", "dairies"),
    ("quarry", "quarries"), ("sawmill", "sawmills"), ("nursery", "nurseries"),
    ("cannery", "canneries"), ("refinery", "refineries"), ("vineyard", "vineyards"),
    ("pottery", "potteries"), ("library", "libraries"), ("academy", "academies"),
    ("observatory", "observatories"), ("railway", "railways"), ("ferry", "ferries"),
    ("theatre", "theatres"), ("hospital", "hospitals"), ("orchestra", "orchestras"),
    ("archive", "archives"), ("laboratory", "laboratories"), ("printing house", "printing houses"),
]  # fmt: skip
"""As documents and as questions have them."""
EVENTS = [
    ("was expanded by a second hall", "expansion with another building"),
    ("was damaged by a fire", "blaze that damaged"),
    ("was acquired by a competitor", "purchase by a rival"),
    ("introduced a shorter working week", "reduction of weekly hours"),
    ("received an award for safety", "prize for being safe"),
    ("lost its operating licence", "permit that was withdrawn"),
    ("was renovated completely", "renovation"),
    ("celebrated its centenary", "hundredth anniversary celebrations"),
    ("dismissed a third of its employees", "layoffs of staff"),
    ("opened a museum for visitors", "opening of an exhibition for tourists"),
    ("switched to renewable electricity", "change to green power"),
    ("was sued by its neighbours", "lawsuit of residents nearby"),
    ("relocated to the harbour", "relocation to the port"),
    ("published its accounts for the first time", "first publication of its finances"),
    ("closed for several months", "temporary closure"),
    ("appointed a new director", "appointment of another head"),
]
MATTERS = ["oak", "copper", "linen", "barley", "granite", "amber", "wool", "steel", "salt", "glass"]
FILLER = [
    "The weather of that season was unusually mild, and the roads stayed open.",
    "According to the minutes, the council discussed the budget at length.",
    "Several families moved into the district during these years.",
    "The market was held on Thursdays, as it had been for generations.",
    "A new bridge shortened the way to the neighbouring villages.",
    "The school added a class for languages and another one for music.",
    "Critics remarked that the plans had been drawn up in haste.",
    "The newspaper printed letters from readers on the matter.",
]


def _names(count: int) -> list[str]:
    made = dict[str, None]()
    while len(made) < count:
        parts = (_random.choice("bcdfglmnprstv") + _random.choice("aeiou") for _ in range(3))
        made["".join(parts).title() + _random.choice("nrls")] = None
    return list(made)


PLACES, PEOPLE = _names(400), _names(3000)


def documents(count: int) -> list[tuple[str, str, str]]:
    """Return documents: a name, a text, and a question that it answers."""
    found: list[tuple[str, str, str]] = []
    for number in range(count):
        place, person, matter = map(_random.choice, (PLACES, PEOPLE, MATTERS))
        (trade, trades), (event, asked) = _random.choice(TRADES), _random.choice(EVENTS)
        year = _random.randint(1950, 2024)
        facts = [
            f"# The {trade} of {place}",
            f"The {trade} in {place} was founded by {person}, who traded in {matter}.",
            f"In {year} the {trade} {event}. The decision was taken after long debate.",
            f"## Figures\n\nIt had {_random.randint(5, 900)} workers then.",
        ]
        texts = [
            f"{fact}\n\n{' '.join(_random.choices(FILLER, k=_random.randint(4, 9)))}"
            for fact in facts
        ]
        question = _random.choice([
            f"What is known about the {asked} at one of the {trades} near {place}?",
            f"Which of the {trades} founded by {person}'s family saw the {asked}?",
            f"{place}'s {trades}: {asked}, {matter} trading",
        ])  # fmt: skip
        found.append((f"{number % 100:02}/{number}.md", "\n\n".join(texts), question))
    return found


def measure_library(*, quick: bool) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    made = documents(200 if quick else DOCUMENTS)
    asked = _random.sample(made, 20 if quick else QUESTIONS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "docs"
        for name, text, _ in made:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (library,) = libraries(DatabaseUrl.in_folder(Path(folder)), create="bench")
        for what in ("adding them, s", "adding them again, s"):
            began = time.perf_counter()
            done, _ = add(library, [str(root)], Guard())
            assert done.total() == len(made)
            yield [what, f"{time.perf_counter() - began:.1f}", ""]
        yield from _of_searches(library, root, made, asked)
        close_databases()


def _of_searches(
    library: Library, root: Path, made: Sequence[tuple[str, str, str]], asked: Any
) -> Iterator[list[str]]:
    times, right = list[float](), 0
    for name, _, question in asked:
        began = time.perf_counter()
        hits = search([library], question, AT)
        times.append(1000 * (time.perf_counter() - began))
        right += str(root / name) in [hit.source for hit in hits]
    found, other_ms = _rank_bm25(made, asked)
    median, worst = statistics.median(times), max(times)
    yield ["a search, ms: median", f"{median:.0f}", f"{other_ms:.0f}"]
    yield ["a search, ms: the slowest (at most 200)", f"{worst:.0f}", ""]
    shares = (f"{100 * count / len(asked):.1f}" for count in (right, found))
    yield [f"the right document among {AT}, %", *shares]


def _rank_bm25(made: Sequence[tuple[str, str, str]], asked: Any) -> tuple[int, float]:
    """Return how often rank-bm25 finds the right document, and the milliseconds of a search."""
    from rank_bm25 import BM25Okapi

    index: Any = BM25Okapi([_plain(text) for _, text, _ in made])
    right, times = 0, list[float]()
    for name, _, question in asked:
        began = time.perf_counter()
        scores = index.get_scores(_plain(question))
        best = sorted(range(len(made)), key=lambda at: -float(scores[at]))[:AT]
        times.append(1000 * (time.perf_counter() - began))
        right += name in [made[at][0] for at in best]
    return right, statistics.median(times)


def _plain(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
