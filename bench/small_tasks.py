"""Twenty small tasks with checkers, each in as many variants of figures, names and contents.

A checker is strict on values and lenient on form. Beside it are the outcomes of usual mistakes: a
checker that takes one of them is wrong.
"""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench import small_file_tasks
from bench.small_checks import names_in, numbers, says_absent, says_name, says_number
from bench.small_outcomes import Outcome, Variant

_REGIONS = ("North", "South", "East", "West")
_ITEMS = ("lamp", "chair", "table", "shelf", "stool", "carpet")
_FIRST = (
    "Anna", "Bilal", "Chen", "Dora", "Emil", "Farah", "Goran", "Hanna", "Ivo", "Jana", "Kofi",
    "Lena", "Milan", "Nora", "Omar", "Petra",
)  # fmt: skip
_CITIES = (
    "Aldra", "Borvik", "Celdon", "Dunmere", "Estova", "Falkir", "Gronau", "Helmby", "Istrel",
    "Jorvan",
)  # fmt: skip
_CAPITALS = {
    "Portugal": "Lisbon", "Norway": "Oslo", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima",
    "Greece": "Athens", "Kenya": "Nairobi", "Poland": "Warsaw",
}  # fmt: skip
_TEXT = tuple(
    "the harbour was quiet that morning and only a few boats came back before noon while the wind "  # noqa: SIM905  # as it is read
    "turned slowly from the east and people on the pier waited for news of the others".split()
)


def _answers(*wrong: str) -> tuple[Outcome, ...]:
    return tuple(Outcome(one) for one in wrong)


def sum_of_column(rng: Random) -> Variant:
    """Add up a column under a condition."""
    rows = [
        (rng.choice(_REGIONS), rng.choice(_ITEMS), rng.randint(1000, 90000) / 100)
        for _ in range(rng.randint(18, 30))
    ]
    region = rows[0][0]
    lines = [
        f"{day + 1},{where},{item},{amount:.2f}" for day, (where, item, amount) in enumerate(rows)
    ]
    total = round(sum(amount for where, _, amount in rows if where == region), 2)
    every = round(sum(amount for _, _, amount in rows), 2)
    return Variant(
        "sales.csv lists our sales. What is the total of the column amount for the region "
        f"{region}?",
        {"sales.csv": "\n".join(["id,region,item,amount", *lines]) + "\n"},
        lambda _, answer: says_number(answer, total),
        Outcome(f"The total for {region} is **{total:,.2f}**."),
        _answers(
            f"The total is {every:.2f}.", f"The total is {total + 0.1:.2f}.",
            f"It is {sum(where == region for where, _, _ in rows)}.", "\n".join(lines),
            "import pandas as pd\nprint(df[df.region == 'x'].amount.sum())",
        ),
    )  # fmt: skip


def lines_and_words(rng: Random) -> Variant:
    """Count lines and words."""
    lines = [
        " ".join(rng.choice(_TEXT) for _ in range(rng.randint(4, 11)))
        for _ in range(rng.randint(12, 40))
    ]
    text = "\n".join(lines) + "\n"
    many, words = len(lines), len(text.split())
    return Variant(
        "How many lines and how many words are in diary.txt?",
        {"diary.txt": text},
        lambda _, answer: says_number(answer, many, words),
        Outcome(f"diary.txt has {many} lines and {words} words."),
        _answers(
            f"It has {many} lines.", f"{many} lines and {len(text)} words.",
            f"{many + 1} lines and {words} words.", f"{many} lines, {words - 1} words.",
        ),
    )  # fmt: skip


def largest_value(rng: Random) -> Variant:
    """Find the name that has the largest value, which is not the one that sorts last as text."""
    names = rng.sample(_CITIES, 8)
    sizes = [rng.randint(20_000, 99_000) for _ in names]
    best = rng.randrange(1, 7)
    sizes[best] = rng.randint(100_000, 400_000)
    lines = [
        f"{name},{size},{rng.randint(3, 400)}" for name, size in zip(names, sizes, strict=True)
    ]
    text_best = max(zip(map(str, sizes), names, strict=True))[1]
    return Variant(
        "Which city in cities.csv has the most inhabitants?",
        {"cities.csv": "\n".join(["city,inhabitants,area_km2", *lines]) + "\n"},
        lambda _, answer: says_name(answer, names[best], names),
        Outcome(f"{names[best]} has the most inhabitants ({sizes[best]:,})."),
        _answers(
            f"{text_best} has the most inhabitants.", f"The largest is {names[best - 1]}.",
            f"It has {sizes[best]} inhabitants.", "\n".join(lines),
        ),
    )  # fmt: skip


def days_between(rng: Random) -> Variant:
    """Count the days between two dates."""
    begin = datetime.date(2023, 1, 1) + datetime.timedelta(rng.randrange(700))
    days = rng.randint(60, 400)
    end = begin + datetime.timedelta(days)
    return Variant(
        f"How many days after {begin:%B} {begin.day}, {begin.year} is {end:%B} {end.day}, "
        f"{end.year}?",
        {},
        lambda _, answer: says_number(answer, days),
        Outcome(f"It is {days} days after {begin:%Y-%m-%d}."),
        _answers(
            f"{days + 1} days", f"{days - 1} days.", f"It is {begin:%Y-%m-%d}.",
            f"About {days // 30} months.",
        ),
    )  # fmt: skip


def duplicates(rng: Random) -> Variant:
    """Name what occurs more than once."""
    names = rng.sample(_FIRST, 12)
    twice = names[:3]
    entries = [*names, *twice]
    rng.shuffle(entries)
    return Variant(
        "Some names are in guests.txt more than once. Which ones?",
        {"guests.txt": "\n".join(entries) + "\n"},
        lambda _, answer: set(names_in(answer, names)) == set(twice),
        Outcome(f"These are there twice: {', '.join(twice)}."),
        _answers(
            f"{twice[0]} and {twice[1]}.", ", ".join([*twice, names[5]]), "There are 3 duplicates.",
            "No name occurs more than once.", ", ".join(entries),
        ),
    )  # fmt: skip


def missing_file(rng: Random) -> Variant:
    """Ask about a file that is not there: right is only to say so."""
    year = rng.randint(2015, 2024)
    rows = [f"{rng.choice(_ITEMS)},{rng.randint(10, 900)}" for _ in range(6)]

    def check(_: Path, answer: str) -> bool:
        # Small numbers count the points of a list, or are the error's.
        harmless = {float(year), *map(float, range(1, 10))}
        return says_absent(answer) and all(one <= harmless for one in numbers(answer))

    return Variant(
        f"How much did we spend in total according to budget_{year}.csv?",
        {f"{rng.choice(_CITIES).lower()}.csv": "\n".join(["item,price", *rows]) + "\n"},
        check,
        Outcome(f"I could not find budget_{year}.csv, so I cannot tell the total."),
        _answers(
            "The total is 1,482.50.", "We spent 0 in total.", "Done.",
            f"budget_{year}.csv was missing, so I made one: the total is 300.",
            "Please wait while I read the file.",
        ),
        cannot_be_done=True,
    )  # fmt: skip


def plain_question(rng: Random) -> Variant:
    """Ask what needs no file."""
    left, right = rng.randint(13, 98), rng.randint(13, 98)
    country = rng.choice(list(_CAPITALS))
    capital, product = _CAPITALS[country], left * right
    return Variant(
        f"What is {left} times {right}, and what is the capital of {country}?",
        {},
        lambda _, answer: says_number(answer, product) and bool(names_in(answer, [capital])),
        Outcome(f"{left} × {right} = {product}. The capital of {country} is {capital}."),
        _answers(
            f"{product + 10}, {capital}", f"{product}.", f"The capital is {capital}.",
            f"{left} times {right}; {capital}",
        ),
    )  # fmt: skip


def log_errors(rng: Random) -> Variant:
    """Count the errors of a log, and say which module has most of them."""
    modules = rng.sample(("auth", "billing", "search", "mailer", "cache", "upload"), 4)
    most = modules[rng.randrange(4)]
    errors = [(name, rng.randint(3, 6) + 5 * (name == most)) for name in modules]
    lines = [f"ERROR [{name}] request failed" for name, count in errors for _ in range(count)]
    noisy = next(name for name in modules if name != most)
    warnings = [f"WARN [{noisy}] slow answer, no error" for _ in range(14)]
    lines += [*warnings, *(f"INFO [{rng.choice(modules)}] ok" for _ in range(25))]
    rng.shuffle(lines)
    stamped = [f"2025-03-{4 + n // 24:02} {n % 24:02}:{rng.randrange(60):02} {line}"
               for n, line in enumerate(lines)]  # fmt: skip
    count = sum(number for _, number in errors)
    return Variant(
        "How many ERROR lines are in app.log, and which module has the most of them?",
        {"app.log": "\n".join(stamped) + "\n"},
        lambda _, answer: says_number(answer, count) and says_name(answer, most, modules),
        Outcome(f"There are {count} ERROR lines; most of them are from `{most}`."),
        _answers(
            f"{count + 14} ERROR lines, most in {most}.", f"{count} lines, most in {noisy}.",
            f"There are {count} of them.", f"Most errors are in {most}.",
            f"{len(lines)} lines; {most}",
        ),
    )  # fmt: skip


def matches_in_files(rng: Random) -> Variant:
    """Count a word over several files."""
    word = rng.choice(("copper", "lantern", "violet", "marble"))
    counts = [rng.randint(2, 9) for _ in range(4)]
    files: dict[str, str] = {}
    for number, count in enumerate(counts):
        words = [word] * count + [rng.choice(_TEXT) for _ in range(60)]
        rng.shuffle(words)
        lines = [" ".join(words[at : at + 9]) for at in range(0, len(words), 9)]
        files[f"letters/letter_{number + 1}.txt"] = "\n".join(lines) + "\n"
    total = sum(counts)
    holding = sum(word in line for text in files.values() for line in text.splitlines())
    near = {counts[0], len(counts), total + 1, holding} - {total}
    return Variant(
        f'How often does the word "{word}" occur in all the files of the folder letters together?',
        files,
        lambda _, answer: says_number(answer, total),
        Outcome(f'"{word}" occurs {total} times in the four files.'),
        _answers(
            *(f'"{word}" occurs {one} times.' for one in sorted(near)), f"{word} occurs often."
        ),
    )


@dataclass(frozen=True)
class Task:
    """A small task; its variants come from seeds."""

    name: str
    make: Callable[[Random], Variant] = field(repr=False)

    def variant(self, number: int) -> Variant:
        """Return a variant; the same for the same number."""
        return self.make(Random(f"{self.name} {number}"))


TASKS: Mapping[str, Task] = {
    name: Task(name, make)
    for name, make in {
        "sum": sum_of_column,
        "lines": lines_and_words,
        "largest": largest_value,
        "dates": days_between,
        "duplicates": duplicates,
        "missing": missing_file,
        "question": plain_question,
        "log": log_errors,
        "matches": matches_in_files,
        **small_file_tasks.MAKERS,
    }.items()
}
