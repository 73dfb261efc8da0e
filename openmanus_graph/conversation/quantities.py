"""Reads numbers, units and dates as English, German and Chinese write them. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_MONTH_NAMES = """
january jan januar jänner janvier enero|february feb februar février febrero
march mar märz mär mars marzo|april apr avril abril|may mai mayo|june jun juni juin junio
july jul juli juillet julio|august aug août agosto|september sep sept septembre septiembre
october oct oktober okt octobre octubre|november nov novembre noviembre
december dec dezember dez décembre diciembre
"""
MONTHS = {
    name: n
    for n, names in enumerate(re.split(r"[|\n]", _MONTH_NAMES.strip()), 1)
    for name in names.split()
}


class Unit(NamedTuple):
    dimension: str
    factor: float
    offset: float = 0.0
    """Added after the factor; only temperatures have one."""


_PREFIXES = {
    "µ": (1e-6, "micro mikro 微"), "m": (0.001, "milli 毫"), "c": (0.01, "centi zenti 厘"),
    "h": (100.0, "hecto hekto 百"), "k": (1000.0, "kilo quilo 千"), "M": (1e6, "mega 兆"),
    "G": (1e9, "giga 吉"), "T": (1e12, "tera 太"), "P": (1e15, "peta"),
}  # fmt: skip
_METRIC = """
length µmck m metre meter mètre metro 米
mass µmk g gram gramm gramme gramo 克
volume mch l litre liter litro 升
volume mch L
power kMGT W watt 瓦
energy kMGT Wh wattstunde 瓦时
frequency kMG Hz hertz 赫兹
data kMGTP B byte octet 字节
pressure hkM Pa pascal
concentration µm mol/L mol/l
time mµ s second sekunde seconde segundo 秒
"""
"""Dimension, prefixes, sign and names of units with prefixes."""
_OTHERS = """
length 1000 公里|1609.344 mi mile meile meilen milla 英里|0.3048 ft foot feet fuß pied 英尺
mass 1000 kilo 公斤|1e6 t tonne tonnen tonelada 吨|453.592 lb lbs pound pfund 磅
time 1 sec secs sekunden|60 min min. mins minute minuten minuto 分钟
time 3600 h hr hrs hour stunde stunden heure hora 小时
time 86400 day tag tage tagen jour día 天|604800 week woche wochen semaine semana 周
months 1 month monat monaten monate mois mes meses 个月
months 12 year jahr jahren jahre année ans año 年
data 1000 KB|1024 KiB|1048576 MiB
share 0.01 % ％ percent prozent pour-cent por-ciento 百分之
points 1 pp percentage-point prozentpunkt prozentpunkte prozentpunkten 百分点 个百分点
EUR 1 € EUR euro euros 欧元
USD 1 $ US$ USD dollar dólar dólares 美元
GBP 1 £ GBP sterling livre 英镑|0.01 pence
CHF 1 CHF franken franc swiss-franc 瑞士法郎
JPY 1 JPY yen 日元 円
CNY 1 CNY RMB yuan 元 人民币
area 1 m² m2 sqm square-metre square-meter quadratmeter quadratmetern 平方米
area 1e-4 cm² cm2 square-centimetre square-centimeter
area 0.09290304 ft² sqft square-feet square-foot 平方英尺|4046.856 acre
area 1e4 ha hectare hektar hectárea 公顷
area 1e6 km² km2 square-kilometre square-kilometer quadratkilometer 平方公里
area 2589988 square-mile 平方英里
volume 1000 m³ m3 cubic-metre cubic-meter kubikmeter kubikmetern 立方米|1e9 hm³ hm3
energy 1.163 kcal 千卡|0.000277778 J joule|0.277778 kJ
sound 1 dB dezibel decibel 分贝
pressure 100 mbar|1e5 bar 巴|6894.757 psi
speed 1 km/h 公里/小时|1.609344 mph|3.6 m/s 米/秒|1.852 knot knoten
"""


def _units() -> Iterator[tuple[str, Unit]]:
    for dimension, prefixes, sign, *names in map(str.split, _METRIC.strip().splitlines()):
        for one in ("", *prefixes):
            factor, before = _PREFIXES.get(one, (1.0, ""))
            whole = [start + name for start in before.split(" ") for name in names]
            whole += [f"{name}n" for name in whole if name.isascii()]
            yield from ((name, Unit(dimension, factor)) for name in (one + sign, *whole))
    for dimension, _, rest in (one.partition(" ") for one in _OTHERS.strip().splitlines()):
        for size, *names in map(str.split, rest.split("|")):
            unit = Unit(dimension, float(size))
            yield from ((name.replace("-", " "), unit) for name in names)
    yield from ((one, Unit("temperature", 1)) for one in ("°C", "℃", "C", "摄氏度"))
    yield from ((one, Unit("temperature", 5 / 9, -160 / 9)) for one in ("°F", "℉", "F", "华氏度"))


_SINGULAR = dict(_units())
UNITS = _SINGULAR | {
    f"{name}s": one for name, one in _SINGULAR.items() if name.islower() and len(name) > 2
}
_IN_ANY_CASE = {alias.casefold(): unit for alias, unit in UNITS.items()}
PERCENT, BYTE, COUNT = UNITS["%"], UNITS["B"], Unit("count", 1.0)
POUNDS = {UNITS["lb"], UNITS["£"]}
"""Both have the same name."""
_SCALES = {
    name: float(factor)
    for factor, *names in map(
        str.split,
        """
        100 hundred hundert
        1e3 k K thousand tausend tsd. tsd 千
        1e4 万 萬
        1e5 十万
        1e6 million millions millionen millones millón mio. mio mn M 百万
        1e7 千万
        1e8 亿 億
        1e9 billion billions bn milliard milliards milliarde milliarden mrd. mrd G 十亿
        1e12 trillion billionen T 万亿
        """.strip().splitlines(),
    )
    for name in names
}


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern for the longest name. Words of three letters and more are in any case."""
    forms = defaultdict[str, list[str]](list)
    for name in sorted(names, key=len, reverse=True):
        first, rest = re.escape(name[0]), re.escape(name[1:])
        if len(name) > 2 and name.islower():
            first, rest = f"[{name[0]}{name[0].upper()}]", f"(?i:{rest})"
        end = "(?![A-Za-zäöüß0-9_])" if name[-1].isascii() else ""
        forms[first].append(rest + end)
    return "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in forms.items())


FIGURE = (
    r"(?:\d{1,3}(?:[.,'’\u00a0\u202f ]\d{3})+(?!\d)|\d+)(?:[.,]\d+)?(?:[eE][+-]?\d{1,4}(?!\w))?"
)
SCALE = (
    rf"(?:[ \u00a0\u202f]?(?=[kKtTmMbBG千百万萬亿億十hH])(?:{_any_of(_SCALES)})(?![瓦米克字分]))"
)
UNIT_AFTER = re.compile(rf"[ \u00a0\u202f-]?(?:(?:de |d['’]|of ))?({_any_of(UNITS)})")
_UNIT_BEFORE = re.compile(r"(US\$|[$€£]|EUR|USD|GBP|CHF|CNY|RMB|百分之)\s?$")
_TITLE_WORD = re.compile(r"[^\s_()（）\[\],;:]+")
DATE = (
    r"\d{4}-\d\d?-\d\d?(?!\d)|\d\d?[./]\d\d?[./](?:\d{4}|\d\d)(?!\d)|\d{4}/\d\d?/\d\d?(?!\d)"
    r"|\d{4}年\d\d?月(?:\d\d?[日号])?|\d\d?月\d\d?[日号]"
)
_DATE_OR_TIME = rf"{DATE}|\d\d?:\d\d(?::\d\d)?|\d{{4}}-\d\d(?!\d)"
NUMBER = re.compile(rf"(?<![A-Za-z_\d])(?<!\d[.,])(?:{_DATE_OR_TIME}|(?:{FIGURE}){SCALE}?)")
"""A number, date or time in any text but CSV, where commas are between cells."""
CSV_NUMBER = re.compile(
    rf"(?<![A-Za-z_\d])(?<!\d\.)(?:{_DATE_OR_TIME}|\d+(?:\.\d+)?(?:[eE][+-]?\d{{1,4}}(?!\w))?{SCALE}?)"
)
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
WORDED_DATE = re.compile(
    rf"(?i)(?<![\w.])(?:(\d\d?)(?:\.|st|nd|rd|th|er)?(?: of| de)?[ \u00a0]({_MONTH})\.?"
    rf"(?:(?:,| de)?[ \u00a0](\d{{4}}))?|({_MONTH})\.?[ \u00a0](\d\d?)(?:st|nd|rd|th)?(?!\w|[.,]\d)"
    r"(?:,?[ \u00a0](\d{4}))?)(?!\w)"
)
_YEAR_OF_DATE = re.compile(r"^\d{4}(?=[-/年])|(?<=\d[./])\d{4}$")
_PLAIN = re.compile(r"\d{1,15}(?:\.(?:\d\d?|\d{4,9}))?").fullmatch
_SCALED = re.compile(rf"({FIGURE})(?:[ \u00a0\u202f]?(\D+))?")
_FULL_WIDTH = {0xFF10 + n: ord("0") + n for n in range(10)} | {0xFF0E: ord("."), 0xFF05: ord("%")}
Day = tuple[int, int, int]
"""Year, month and day; 0 if it is not given."""


WORD = re.compile(r"[^\W\d_\u3040-\u9fff]{3,}|[\u3040-\u9fff]+")


def words_in(text: str) -> set[str]:
    """Return the words of a text without capitals and plurals; of Chinese pairs of characters."""
    found = set[str]()
    for one in WORD.findall(text.casefold()):
        if one[0] >= "\u3040":
            found.update(map("".join, pairwise(one)))
        else:
            found.add(f"month{MONTHS[one]}" if one in MONTHS else one.rstrip("s"))
    has_month = any(one.startswith("month") for one in found)
    days = [worded_day(one) for one in WORDED_DATE.finditer(text)] if has_month else []
    if _HAS_MONTH.search(text):
        days += [(0, NUMBER_WORDS[one], 0) for one in _CHINESE_MONTH.findall(text)]
        dates = re.findall(rf"{DATE}|\d{{4}}-\d\d(?!\d)", text)
        days += [day for one in dates for day in days_of(one)]
    found |= {f"month{month}" for _, month, _ in days}
    found |= {f"day{month}-{day}" for _, month, day in days if day}
    return found - _COMMON


_COMMON_WORDS = """
the thi that they these both some and for are wa from with there it their our hi her
der die da und ist von für mit den ein eine sie bei auf im ihr ihre sein seine nein
le une elle des du est sont plu pour dan sur avec par per que qui zum zur nach aus wie nur
los las una del con por su sus ye
"""
_COMMON = {*_COMMON_WORDS.split()}
UNIT_WORDS = {one.rstrip("s") for one in _IN_ANY_CASE}
_HAS_MONTH = re.compile(r"月|\d[-./]\d")
_CHINESE_MONTH = re.compile(r"(?<![十个])(十[一二]?|[一二三四五六七八九])月")


_KEY_WORD = re.compile(
    r"(?<![A-Za-z\d_.,])(?:(?:19|20)\d\d|[A-Za-z]{1,3}-?\d{1,4}|[A-Z]{2})(?![A-Za-z\d_]|[.,]\d)"
)


def key_words(text: str) -> set[str]:
    """Return the words of a text, with years and short names such as Q1."""
    return words_in(text) | {*_KEY_WORD.findall(text)}


def half_width(text: str) -> str:
    """Return a text with ordinary digits. Positions stay the same."""
    return text.translate(_FULL_WIDTH) if re.search("[０-９]", text) else text


@lru_cache(maxsize=50_000)
def readings(figure: str) -> tuple[tuple[float, int], ...]:
    """Return the meanings of a figure, each with its decimals: 1.234 has two."""
    plain = re.sub(r"['’\s]", "", figure)
    marks, found = re.findall(r"[.,]", plain), list[tuple[float, int]]()
    head, _, tail = plain.rpartition(marks[-1]) if marks else (plain, "", "")
    whole = _value(re.sub("[.,]", "", plain)), 0
    if len(marks) == 1 or len(set(marks)) == 2:
        decimals = len(re.split("[eE]", tail)[0])
        found.append((_value(f"{re.sub('[.,]', '', head)}.{tail}"), decimals))
    if not marks or (len(set(marks)) == 1 and len(tail) == 3 and head[0] != "0"):
        found.append(whole)
    return tuple(found) or (whole,)


def _value(written: str) -> float:
    return min(float(written), 1e15)


_DOT, _COMMA = (re.compile(rf"(?<![\d.,])\d+{one}\d\d?(?![\d.,])") for one in (r"\.", ","))


def mark_of(text: str) -> str:
    """Return the decimal mark of a text if it has only one of them, else nothing."""
    dots, commas = _DOT.search(text, 0, 50_000), _COMMA.search(text, 0, 50_000)
    return "" if bool(dots) == bool(commas) else "." if dots else ","


def likely_value(token: str, mark: str) -> float | None:
    """Return what a match of `NUMBER` means in a text with this decimal mark."""
    values = [*values_of(token)]
    ambiguous = re.match(r"\d{1,3}([.,])\d{3}(?![\d.,])", token) if len(values) > 1 else None
    by_thousands = ambiguous is not None and mark not in ("", ambiguous[1])
    return values[1] if by_thousands else values[0] if values else None


def scale_of(words: str) -> float:
    """Return the factor of "million" and the like; 1 if there is none."""
    bare = words.strip()
    return _SCALES.get(bare) or _SCALES.get(bare.lower(), 1.0)


def unit_at(text: str, start: int, end: int) -> Unit | None:
    """Return the unit before or after a number in a text."""
    found = _UNIT_BEFORE.search(text, max(0, start - 5), start) or UNIT_AFTER.match(text, end)
    if found and found[1] == "公里" and text.endswith("时速", 0, start):
        return UNITS["km/h"]
    return (UNITS.get(found[1]) or UNITS[found[1].lower()]) if found else None


def unit_of_title(title: str) -> tuple[Unit | None, float]:
    """Return the unit and factor in the title of a column: length_km, Umsatz (Mio. EUR)."""
    words, scale = _TITLE_WORD.findall(title)[1:12], 1.0
    if len(title) > 1 and title in UNITS and title != "min":
        return UNITS[title], scale
    for one, after in zip(words, [*words[1:], ""], strict=False):
        if one.casefold() in ("per", "pro", "je", "par", "por"):
            break
        if (glued := re.match("[十百千万亿]+(?=.)", one)) is not None:  # 万吨
            return UNITS.get(one[glued.end() :]), scale_of(glued[0])
        forms = (f"{one}/{after}", one, one.rstrip("."))
        units = (
            UNITS.get(forms[0]),
            UNITS.get(one),
            *map(_IN_ANY_CASE.get, map(str.casefold, forms)),
        )
        unit = next((found for found in units if found), None)
        if unit is not None:
            return unit, scale
        scale = scale_of(one) if len(one) > 1 else 1.0
    return None, scale


def values_of(token: str) -> tuple[float, ...]:
    """Return what a match of `NUMBER` may mean; of a date only the year."""
    if _PLAIN(token):  # most are
        return (float(token),)
    found = _SCALED.fullmatch(token)
    if found is None:
        year = _YEAR_OF_DATE.search(token)
        return (float(year[0]),) if year else ()
    scale = scale_of(found[2] or "")
    values = dict.fromkeys(value * scale for value, _ in readings(found[1]))
    if scale == 1 and re.fullmatch(r"[\d.]+(?:[, \u00a0\u202f]\d{3})+", found[1]):  # may be several
        values |= dict.fromkeys(map(_value, re.findall(r"\d+(?:\.\d+)?", found[1])))
    return tuple(values)


def ranges_of(
    figure: str, scale: float = 1.0, mark: str = ".", *, is_about: bool = True
) -> Iterator[tuple[float, float]]:
    """Yield, for each reading of a figure, the range of values that are rounded to it.

    The likeliest comes first: `mark` is the decimal mark of the language.
    """
    both, used = readings(figure), re.sub(r"[^.,]", "", figure)[-1:]
    for value, decimals in both if used == mark else both[::-1]:
        plain, margin = re.sub(r"\D", "", figure), 0.501 * 10.0**-decimals
        zeros = min(len(plain) - len(plain.rstrip("0")), 15)
        rounded = 0.5 * 10.0 ** (zeros if is_about or zeros > 1 else 0)
        if not decimals and 1 < rounded <= 0.05 * value:
            margin = rounded
        yield (value - margin) * scale, (value + margin) * scale


def days_of(written: str) -> list[Day]:
    """Return what a date in figures may mean: 3/4/2026 is in March or in April."""
    parts = [int(one) for one in re.findall(r"\d+", written)]
    if "月" in written and "年" not in written:
        found = [(0, *parts)]
    elif parts[0] > 31:
        found = [(parts[0], parts[1], *(parts[2:] or [0]))]
    else:
        year = parts[2] + (2000 if parts[2] < 100 else 0)
        found = [(year, parts[1], parts[0])]
        if "/" in written or parts[1] > 12:
            found.append((year, parts[0], parts[1]))
    return [(one[0], one[1], one[2]) for one in found if 0 < one[1] <= 12 and one[2] <= 31]


def worded_day(found: re.Match[str]) -> Day:
    """Return the date of a match of `WORDED_DATE`."""
    day, month, year = found.groups()[:3] if found[1] else (found[5], found[4], found[6])
    return int(year or 0), MONTHS[month.lower()], int(day)


_ENGLISH_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
_GERMAN_WORDS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn"
    " sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig"
    " neunzig"
)
_ENGLISH, _GERMAN = _ENGLISH_WORDS.split(), _GERMAN_WORDS.split()
_CHINESE = "零一二三四五六七八九"
_PLACES = {"十": 10.0, "百": 100.0, "千": 1000.0, "万": 1e4, "亿": 1e8}


def _spelled(number: int) -> Iterator[str]:
    """Yield the words for a number below 100."""
    tens, ones = divmod(number, 10)
    yield (_CHINESE[tens] if tens > 1 else "") + "十" * (tens > 0) + _CHINESE[ones] * (ones > 0)
    if number <= 20:
        yield from (_ENGLISH[number], _GERMAN[number])
    else:
        yield _ENGLISH[18 + tens] + f"-{_ENGLISH[ones]}" * (ones > 0)
        yield f"{'ein' if ones == 1 else _GERMAN[ones]}und" * (ones > 0) + _GERMAN[18 + tens]


NUMBER_WORDS = {word: n for n in range(1, 100) for word in _spelled(n)} | {"两": 2}
_LATIN_WORDS = sorted((one for one in NUMBER_WORDS if one[0] < "一"), key=len, reverse=True)
WORDED_NUMBER = re.compile(
    rf"(?i)(?<![\w-])(?:{'|'.join(_LATIN_WORDS)})(?![\w-])"
    r"|(?<![第一二两三四五六七八九十百千万亿])(?:[一二两三四五六七八九十百]+[十百千万亿][零一二三四五六七八九十百千万亿]*+"
    r"(?![月日号多余来几])|十[一二三四五六七八九](?!分之|[月日号])"
    r"|[二两三四五六七八九](?=[公千毫英小分美欧元吨]))"
)


def worded_value(words: str) -> float:
    """Return the number that a match of `WORDED_NUMBER` says."""
    if (known := NUMBER_WORDS.get(words.lower())) is not None:
        return float(known)
    total = part = digit = 0.0
    for one in words:
        place = _PLACES.get(one)
        if place is None:
            digit = float(NUMBER_WORDS.get(one, 0))
        elif place >= 1e4:
            total, part, digit = (total + part + digit) * place, 0.0, 0.0
        else:
            part, digit = part + (digit or 1) * place, 0.0
    return min(total + part + digit, 1e15)  # as `_value`
