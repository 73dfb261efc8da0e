"""Answers over fixed evidence: true ones, and the same with one planted error, in three languages.

They are made without chance: the same lists come out each time. A `World` is one set of evidence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from openmanus_graph.conversation.passages import Passage
from openmanus_graph.conversation.sources import Evidence

LANGUAGES = ("en", "de", "zh")
KINDS = ("digit", "unit", "quotation", "link", "row", "year", "unread")
ANSWERS = 200


@dataclass(frozen=True)
class Measure:
    """A column of the world's table, and how answers speak of it."""

    column: str
    words: Mapping[str, str]
    """A sentence in each language, with {name}, {year} and {value}."""
    unit: Mapping[str, str]
    wrong_unit: Mapping[str, str]
    values: Mapping[tuple[str, str], float]
    """By name and year."""
    decimals: int = 0


@dataclass(frozen=True)
class Fact:
    """A sentence of a page: how answers repeat it, and how it would be wrong."""

    true: Mapping[str, str]
    digit: Mapping[str, str]
    unit: Mapping[str, str]
    year: Mapping[str, str]


@dataclass(frozen=True)
class World:
    passages: Sequence[Passage]
    opened: str
    files: frozenset[str]
    measures: Sequence[Measure]
    facts: Sequence[Fact]
    true_sentences: Sequence[str]
    """Others that follow from the evidence: totals, shares, dates, and what is no claim."""
    quotations: Sequence[tuple[str, str]]
    """Speaker and words."""
    invented: Sequence[tuple[str, str]]
    links: Sequence[str]
    wrong_links: Sequence[str]
    read: Sequence[str]
    """Sources that were opened, and some that were only listed."""
    unread: Sequence[str]
    task: str = ""

    def evidence(self) -> Evidence:
        passages = [*self.passages, Passage(self.task, tool="user")]
        return Evidence(passages, task=self.task, files=self.files, opened=self.opened)


def written(value: float, decimals: int, language: str, form: int) -> str:
    """Write a number as a language does, in one of several notations."""
    english = f"{value:,.{decimals}f}"
    german = english.translate(str.maketrans(",.", ".,"))
    spaced = english.replace(",", "\u202f")
    plain = f"{value:.{decimals}f}"
    if value >= 10_000 and form % 5 == 4:
        short = {"en": f"{value / 1000:.1f}k", "zh": f"{value / 10_000:.2f}万"}
        return short.get(language, f"{value / 1000:.1f} Tausend".replace(".", ","))
    forms = {
        "en": (english, plain, spaced),
        "de": (german, plain.replace(".", ",")),
        "zh": (plain, english),
    }
    return forms[language][form % len(forms[language])]


def sentences(world: World) -> Iterator[tuple[str, str]]:
    """Yield true sentences about the table, each with its language."""
    number = 0
    for measure in world.measures:
        for (name, year), value in measure.values.items():
            language = LANGUAGES[number % 3]
            yield said(measure, language, name, year, value, form=number // 3), language
            number += 1


def said(
    measure: Measure,
    language: str,
    name: str,
    year: str,
    value: float,
    *,
    form: int,
    unit: str = "",
) -> str:
    amount = written(value, measure.decimals, language, form)
    unit = unit or measure.unit[language]
    space = "" if language == "zh" and not unit.isascii() else " "
    return measure.words[language].format(
        name=name, year=year, value=f"{amount}{space}{unit}".strip()
    )


def true_answers(world: World) -> list[str]:
    """Return the true answers: of one sentence, or of two."""
    facts = [fact.true[language] for fact in world.facts for language in LANGUAGES]
    quoted = [
        form.format(*one)
        for one in world.quotations
        for form in ('{0} said: "{1}"', "{0} sagte: „{1}“", "{0}表示：“{1}”")
    ]
    linked = [
        form.format(one)
        for one in world.links
        for form in (
            "Details: {0}",
            "Mehr dazu unter {0}.",
            "详情见 {0} 。",
            "See [the page]({0}).",
        )
    ]
    read = [
        form.format(one)
        for one in world.read
        for form in (
            "According to {0}, this holds.",
            "Laut {0} stimmt das.",
            "根据 {0} ，情况如此。",
        )
    ]
    tables = [sentence for sentence, _ in sentences(world)]
    single = [*tables, *facts, *world.true_sentences, *quoted, *linked, *read]
    double = [f"{one} {other}" for one, other in zip(tables, tables[::-1], strict=True)]
    return (
        [*islice(cycle([*single, *double]), ANSWERS)] if len(single) < ANSWERS else single[:ANSWERS]
    )


def wrong_answers(world: World) -> dict[str, list[str]]:
    """Return the answers with a planted error, by its kind."""
    share = 30
    made = {
        "digit": [
            *_in_table(world, _digit),
            *(f.digit[one] for f in world.facts for one in f.digit),
        ],
        "unit": [*_in_table(world, _unit), *(f.unit[one] for f in world.facts for one in f.unit)],
        "row": [*_in_table(world, _row)],
        "year": [*(f.year[one] for f in world.facts for one in f.year), *_in_table(world, _year)],
        "quotation": [
            form.format(*one)
            for one in world.invented
            for form in ('{0} said: "{1}"', "{0} sagte: „{1}“", "{0}表示：“{1}”")
        ],
        "link": [
            form.format(one)
            for one in world.wrong_links
            for form in ("Details: {0}", "Mehr dazu unter {0}.", "详情见 {0} 。")
        ],
        "unread": [
            form.format(one)
            for one in world.unread
            for form in (
                "According to {0}, this holds.",
                "Laut {0} stimmt das.",
                "根据 {0} ，情况如此。",
            )
        ],
    }
    return {kind: [*islice(_spread(made[kind]), share)] for kind in KINDS}


def _spread(answers: Sequence[str]) -> Iterator[str]:
    """Yield answers from all parts of a list: every third first."""
    for start in range(3):
        yield from answers[start::3]


Change = Callable[[Measure, str, str, str, float, int], str | None]


def _in_table(world: World, change: Change) -> Iterator[str]:
    number = 0
    for measure in world.measures:
        for (name, year), value in measure.values.items():
            language = LANGUAGES[number % 3]
            made = change(measure, language, name, year, value, number // 3)
            if made is not None:
                yield made
            number += 1


def _digit(measure: Measure, language: str, name: str, year: str, value: float, form: int) -> str:
    digits = f"{value:.{measure.decimals}f}"
    places = [n for n, one in enumerate(digits) if one.isdecimal()][:4]
    place = places[form % len(places)]
    new = str((int(digits[place]) + 1 + form % 7) % 10)
    if new == digits[place] or (new == "0" and place == 0):
        new = "9" if digits[place] != "9" else "4"
    changed = float(digits[:place] + new + digits[place + 1 :])
    plain = form - form % 5  # no rounded notation, which may hide the digit
    return said(measure, language, name, year, changed, form=plain)


def _unit(
    measure: Measure, language: str, name: str, year: str, value: float, form: int
) -> str | None:
    wrong = measure.wrong_unit.get(language)
    return wrong and said(measure, language, name, year, value, form=form, unit=wrong)


def _row(
    measure: Measure, language: str, name: str, year: str, value: float, form: int
) -> str | None:
    others = sorted({one for one, _ in measure.values} - {name})
    other = others[form % len(others)]
    if abs(measure.values[other, year] - value) < 0.02 * value:
        return None
    return said(measure, language, other, year, value, form=form)


def _year(
    measure: Measure, language: str, name: str, year: str, value: float, form: int
) -> str | None:
    years = sorted({one for _, one in measure.values} - {year})
    if not years or abs(measure.values[name, years[form % len(years)]] - value) < 0.02 * value:
        return None
    return said(measure, language, name, years[form % len(years)], value, form=form)
