"""Finds what an answer claims that a source can show, and where in the answer it is. Pure.

These are figures, years, dates, quotations, addresses, files, and tests that were run. Ordinals,
versions, identifiers, code, numbers of list items and small counts are not claims.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from openmanus_graph.conversation.announcements import named_files
from openmanus_graph.conversation.quantities import (
    DATE,
    FIGURE,
    PERCENT,
    SCALE,
    UNIT_AFTER,
    WORDED_DATE,
    WORDED_NUMBER,
    Day,
    Unit,
    days_of,
    half_width,
    ranges_of,
    scale_of,
    unit_at,
    worded_day,
    worded_value,
)

_SPANS = (86400.0, 604800.0)
_SCALED = re.compile(SCALE)
FEW, MOST_FILES = 12, 300
"""A noun after so small a number is a count, which is no claim."""
ClaimKind = Literal["number", "year", "date", "quotation", "url", "file", "tests"]
ADDRESS = re.compile(r"https?://[^\s<>\"'`|\]）】》，。；、“”「」]+")
YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d%]|[.,]\d)")
_GERMAN = re.compile(r"(?i)\b(?:der|die|das|und|ist|im|mit|bei|von|ein\w*|sind|waren|auf|es)\b")
_ENGLISH = re.compile(r"(?i)\b(?:the|and|of|is|at|in|was|were|to|for|with|it|has|had)\b")
_CODE = re.compile(r"(?s)```.*?(?:```|\Z)")
_CLAIMED = re.compile(
    rf"(?<![A-Za-z_\d./\\#])(?<![A-Za-z_]-)({FIGURE})(?![.,]?\d)({SCALE})?"
    r"(\W{0,3}\s*[^\W\d_]{2,})?"
)
_NOT_CLAIMED = re.compile(
    r"(?im)"
    r"`(?!\W{0,2}\d[\d.,' ]*(?:[^\W\d_]{1,12}|%)?`)[^`\n]*`"
    r"|\b\d{4}-\d\d\b|\b\d+:\d+(?::\d+)?|\bv?(?!\d{1,3}\.\d{3}\b)\d+(?:\.\d+){2,}"
    r"|^[^\w\n]{0,20}\d+[.)]\s|\b\d+(?:st|nd|rd|th)\b|第\s?\d+"
    r"|\b\d{1,2}\.\s(?=quartal|platz|kapitel|schritt|stelle|halbjahr)"
    r"|\b(?:step|item|row|line|column|page|chapter|section|table|figure|n[or]\.?|zeile|seite|version"
    r"|release|python|iso|rfc|din|schritt|kapitel|abschnitt|tabelle|版本|步骤)\s*\d+(?:\.\d+)*"
)
"""Times, versions, numbers of list items and of places in a text."""
_QUOTATION = re.compile(
    r"“([^“”\n]{2,600})”|„([^„“”\n]{2,600})[“”]|«([^»\n]{2,600})»|»([^«\n]{2,600})«"
    r"|(?<![\w\"])\"([^\"\n]{2,600})\"(?![\w:\"])|「([^」\n]{2,600})」|『([^』\n]{2,600})』"
)
_IS_OPEN = re.compile(
    r"(?i)\b(?:should|could|would|can|may|might|if|e\.g|for example|such as|recommend|suggest|next"
    r"|not|no|never|cannot|without|unable|missing|sollten?|könnten?|kann|können|wenn|z\. ?B"
    r"|zum Beispiel|empfehle|nicht|kein\w*|ohne|fehlt)\b|n['’]t\b"
    r"|应该|可以|如果|建议|例如|比如|没|未|不|无"
)
"""What a sentence says that claims nothing: a suggestion, a condition, a denial."""
_READS = re.compile(
    r"(?i)\b(?:according to|based on|as (?:stated|reported|described|shown) (?:in|by|on)|per the"
    r"|(?:i|we) (?:have |also |then )*(?:read|opened|visited|checked|consulted|looked at|reviewed)"
    r"|(?:d['’]après|selon|según|de acuerdo con|nach)(?= \S+[./]\w)|(?:j['’]ai|nous avons|he) (?:lu"
    r"|consulté|leído|visto)|laut|gemäß|zufolge|nach Angaben|gelesen|geöffnet|besucht"
    r"|geprüft|ausgewertet)\b|根据|依据|按照|据|阅读了|查阅了|访问了|打开了|读了"
)
"""What a sentence says that names a source as read."""
_TESTED = re.compile(
    r"(?i)\b(?:(?:ran|run|executed) (?:all |the |its |unit ){0,4}(?:tests?|test suite|pytest)"
    r"|(?:all |the |\d+ ){0,4}tests? (?:now |all )?"
    r"(?:pass(?:ed|es)?|succeed(?:ed)?|(?:are|is) green)"
    r"|(?:alle |die ){0,2}tests? (?:laufen|liefen|bestehen|sind (?:grün|bestanden|erfolgreich))"
    r"|tests? (?:ausgeführt|bestanden))\b|(?:运行了|执行了)[^，。]{0,6}测试|测试[^，。]{0,4}通过"
)
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\b[Mm]io\.)(?<!\b[Mm]rd\.)(?<!\b[Tt]sd\.)"
    r"(?!\s+(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez))"
    r"(?<!\b(?:ca|[NDSn]r|St)\.)"
    r"(?<!\bz\.)(?<! B\.)(?:[ \t]+(?=[^a-zäöü\d])|(?<=[a-zäöü]{4}[.!?])[ \t]+(?=\d))"
    r"|(?<=[。！？；])|\n+"
)
_PART = re.compile(r",(?!\d)|[;，；、()（）]|\s[–—-]\s")
_JOINT = re.compile(
    r"(?i)(?:,\s*)?\b(?:and|und|while|whereas|während|but|aber|to|auf|bis|versus|vs|et|mais|y)\b"
    r"|和|而|至|到|以及|但"
)
_WORDED = re.compile(r"[^\W\d_]{3,}|[\u3040-\u9fff]{2,}")
_WITH_UNIT = re.compile(rf"\d{UNIT_AFTER.pattern}")
_ENDS_WITH_COLON = re.compile(r"(?m)^(?:\#+ .*|\*\*[^*\n]+\*\*:?|[^\n]{1,120}[:：])\s*$")


@dataclass(frozen=True)
class Claim:
    kind: ClaimKind
    text: str
    start: int
    end: int
    ranges: tuple[tuple[float, float], ...] = ()
    """The exact value is in one of them, likeliest in the first."""
    unit: Unit | None = None
    days: tuple[Day, ...] = ()
    counts: bool = False
    """Whether a noun follows it."""
    is_factor: bool = False
    """Whether it says how many times as much."""
    says_read: bool = False
    """Whether the sentence names it as a source that was read, or a file as made."""


def claims_in(answer: str) -> list[Claim]:
    """Return the claims of an answer in its order. What is one is not looked at for another."""
    text, found = half_width(_CODE.sub(_blank, answer)), list[Claim]()
    if not answer.lstrip().startswith(("{", "[")):
        found += _quotations(text)
    for find in (_addresses, _files, _tests, _dates):
        made = [*find(text)]
        found += made
        for one in made:
            text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    mark = "," if len(_GERMAN.findall(answer)) > len(_ENGLISH.findall(answer)) else "."
    found += _numbers(_NOT_CLAIMED.sub(_blank, text), mark)
    return sorted(found, key=lambda one: one.start)


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _quotations(text: str) -> Iterator[Claim]:
    for one in _QUOTATION.finditer(text):
        group = one.lastindex or 0
        if len(re.findall(r"[^\W\d_]", one[group])) > 1:
            yield Claim("quotation", one[group], *one.span(group))


def _addresses(text: str) -> Iterator[Claim]:
    for one in ADDRESS.finditer(text):
        address = one[0].rstrip(".,;:!?*_…" + ")" * ("(" not in one[0]))
        end = one.start() + len(address)
        reads = _READS.search(sentence_at(text, one.start(), end)) is not None
        yield Claim("url", address, one.start(), end, says_read=reads)


def _files(text: str) -> Iterator[Claim]:
    for name in named_files(text)[:MOST_FILES]:
        for one in re.finditer(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", text):
            sentence = sentence_at(text, *one.span())
            before = sentence.partition(name)[0]
            said = before if _READS.search(before[-40:]) else sentence.replace(name, "")
            if not _IS_OPEN.search(said):
                reads = _READS.search(sentence) is not None
                yield Claim("file", name, *one.span(), says_read=reads)


def _tests(text: str) -> Iterator[Claim]:
    for one in _TESTED.finditer(text):
        if not _IS_OPEN.search(sentence_at(text, *one.span())):
            yield Claim("tests", one[0], *one.span())


def _dates(text: str) -> Iterator[Claim]:
    for one in re.finditer(rf"(?<![A-Za-z\d./-])(?:{DATE})(?![A-Za-z\d/-])", text):
        if days := tuple(days_of(one[0])):
            yield Claim("date", one[0], *one.span(), days=days)
    for one in WORDED_DATE.finditer(text):
        is_verb = (one[2] or one[4]) in ("may", "mars")  # it "may 5 times"
        if not is_verb and int(one[1] or one[5]) <= 31:
            yield Claim("date", one[0], *one.span(), days=(worded_day(one),))


def _numbers(text: str, mark: str) -> Iterator[Claim]:
    for one in _CLAIMED.finditer(text):
        figure, scale, end = one[1], one[2] or "", one.end(2) if one[2] else one.end(1)
        unit = unit_at(text, one.start(1), end)
        whole = float(figure) if figure.isdecimal() and not scale and len(figure) < 16 else 1e9
        is_span = unit is None or unit.dimension == "months" or unit.factor in _SPANS
        since = 1900 if not _IN_YEAR.search(text, max(0, one.start(1) - 12), one.start(1)) else 1100
        if len(figure) == 4 and since <= whole <= 2100 and is_span:
            yield Claim("year", figure, *one.span(1), ((whole, whole),))
            continue
        if unit is None and re.match(r"[A-Za-z_]", text[end : end + 1]):
            continue  # a part of a word
        if not whole or (one[3] and whole <= FEW and is_span):
            continue
        if unit is None and not scale:  # 10-20 %
            after = _TO.match(text, end)
            unit = unit_at(text, end, after.end()) if after else None
            scale = (after[1] or "") if after else ""
        about = _ABOUT.search(text, max(0, one.start(1) - 14), one.start(1)) is not None
        ranges = [*ranges_of(figure, scale_of(scale), mark, is_about=about)]
        ranges += ranges_of(figure, mark=mark) if scale and not one[2] else ()
        found = UNIT_AFTER.match(text, end) if unit == PERCENT else None
        end = found.end() if found else end
        times = _TIMES.match(text, end) is not None
        written = text[one.start(1) : end]
        yield Claim(
            "number", written, one.start(1), end, tuple(ranges), unit,
            counts=bool(one[3]) and unit is None, is_factor=times,
        )  # fmt: skip
    for word in WORDED_NUMBER.finditer(text):
        scaled = _SCALED.match(text, word.end())
        start, end = word.start(), scaled.end() if scaled else word.end()
        value, unit = (
            worded_value(word[0]) * scale_of(scaled[0] if scaled else ""),
            unit_at(text, start, end),
        )
        has_unit = unit is not None and unit.dimension not in ("months", "time")
        if value > FEW or (value > 1 and has_unit):
            yield Claim(
                "number", text[start:end], start, end, ((value - 0.01, value + 0.01),), unit
            )


_IN_YEAR = re.compile(r"(?i)\b(?:in|since|from|until|year|dated|jahr|seit|von|ab|anno)\s$")
_ABOUT = re.compile(
    r"(?i)(?:\b(?:about|around|roughly|approximately|nearly|almost|over|than|some|rund|etwa|circa"
    r"|ca\.|gut|knapp|fast|über|ungefähr|environ|près de|plus de|unos|unas|cerca de|casi)\s"
    r"|[约近~≈]|超过)[\s€$£]*$"
)
_TIMES = re.compile(r"\s?(?:times|fold|-fold|x\b|×|mal\b|-?fache|倍)")
_TO = re.compile(rf"\s?(?:[-–—~]|to|and|bis|und|or|oder|至|到|和)\s?{FIGURE}({SCALE})?")


def sentence_at(text: str, start: int, end: int) -> str:
    """Return the sentence or line around a place, at most some hundred characters each way."""
    first, last = sentence_span(text, start, end)
    return text[first:last]


def line_at(text: str, start: int) -> str:
    """Return the line around a place, at most some hundred characters each way."""
    first = text.rfind("\n", max(0, start - 600), start) + 1 or max(0, start - 600)
    return text[first : start + 600].partition("\n")[0]


def sentence_span(text: str, start: int, end: int) -> tuple[int, int]:
    low, high = max(0, start - 400), min(len(text), end + 400)
    breaks = [(one.start() + low, one.end() + low) for one in _SENTENCE.finditer(text[low:high])]
    first = max((one for _, one in breaks if one <= start), default=low)
    return first, min((one for one, _ in breaks if one >= end), default=high)


def sentences_around(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the sentence or line around a place, the one before it and the one after it."""
    low, high = max(0, start - 800), min(len(text), end + 800)
    cuts = [low, *(one.end() for one in _SENTENCE.finditer(text, low, high)), high]
    spans = [(a, b) for a, b in pairwise(cuts) if not text[a:b].isspace()]
    own = next((n for n, (a, b) in enumerate(spans) if a <= start < b), 0)
    return spans[max(0, own - 1) : own + 2]


@dataclass(frozen=True)
class Surroundings:
    """The words around a number, from the nearest to the farthest."""

    part: str
    """Between commas, or on one side of "and"."""
    beside: tuple[str, ...]
    """The other parts of the sentence that have no number, the nearest first."""
    sentence: str
    heading: str
    before: str = ""
    """The sentence up to the number."""

    def texts(self) -> tuple[str, ...]:
        return (self.part, *self.beside, self.sentence, self.heading)


def surroundings(text: str, start: int, end: int, *, with_heading: bool = True) -> Surroundings:
    first, last = sentence_span(text, start, end)
    sentence = text[first:last]
    parts = parts_of(sentence)
    place = next((n for n, (a, b) in enumerate(parts) if a <= start - first < b), 0)
    own = sentence[slice(*parts[place])] if parts else sentence
    nearest = sorted(range(len(parts)), key=lambda n: abs(n - place + 0.1))[1:]
    others = [sentence[slice(*parts[n])] for n in nearest]
    undated = (YEAR.sub("", WORDED_DATE.sub("", one)) for one in others)
    beside = tuple(a for a, b in zip(others, undated, strict=True) if not re.search(r"\d", b))
    heading = ""
    if with_heading and (above := [*_ENDS_WITH_COLON.finditer(text, max(0, first - 1500), first)]):
        heading = above[-1][0]
    return Surroundings(own, beside, sentence, heading, sentence[: start - first])


def parts_of(sentence: str) -> list[tuple[int, int]]:
    """Return where the parts of a sentence are: between commas, or on one side of "and"."""
    cuts = {0, len(sentence), *(one.end() for one in _PART.finditer(sentence))}
    for one in _JOINT.finditer(sentence):
        low = max(cut for cut in cuts if cut <= one.start())
        high = min(cut for cut in cuts if cut > one.start())
        sides = sentence[low : one.start()], sentence[one.end() : high]
        if all(
            re.search(r"(?<![A-Za-z\d])\d", YEAR.sub("", side))
            and (YEAR.search(side) or _WORDED.search(_WITH_UNIT.sub(" ", side)))
            for side in sides
        ):
            cuts.add(one.end())
    return [(a, b) for a, b in pairwise(sorted(cuts)) if a < b]
