"""Languages and countries, in the form each engine wants them."""

import re
from dataclasses import dataclass

_TAG = re.compile(r"([a-z]{2,3})(?:[-_]([a-z]{4}))?(?:[-_]([a-z]{2}))?", re.IGNORECASE)
_TRADITIONAL = {"tw", "hk", "mo"}


@dataclass(frozen=True)
class Place:
    """A language and a country, as ISO codes in lower case."""

    lang: str = "en"
    country: str = "us"
    traditional: bool = False
    """Chinese in traditional characters."""

    @property
    def tag(self) -> str:
        """`en-US`."""
        return f"{self.lang}-{self.country.upper()}"


def parse_place(lang: str, country: str = "", usual_country: str = "us") -> Place:
    """Read codes as people write them: `en`, `en-GB`, `zh-Hant`, `UK`. ValueError says what fits.

    Args:
        lang: A language code.
        country: A country code, or "": that of the language, if it has one.
        usual_country: The country when neither says it.
    """
    match = _TAG.fullmatch(lang.strip())
    if match is None:
        raise ValueError(f"lang is {lang!r}; write a language code such as en, de or zh")
    language, script, region = (part.lower() if part else "" for part in match.groups())
    found = country.strip().lower() or region or usual_country.strip().lower()
    if not re.fullmatch(r"[a-z]{2}", found):
        raise ValueError(f"country is {found!r}; write a two-letter code such as us, de or cn")
    found = "gb" if found == "uk" else found
    traditional = language == "zh" and (
        script == "hant" or (not script and (region or found) in _TRADITIONAL)
    )
    return Place(language, found, traditional)


def codes(text: str) -> frozenset[str]:
    """Read a list of codes."""
    return frozenset(text.split())


_NAMES = """
ae united arab emirates, af afghanistan, al albania, am armenia, ao angola, ar argentina,
at austria, au australia, az azerbaijan, ba bosnia and herzegovina, bd bangladesh, be belgium,
bg bulgaria, bh bahrain, bo bolivia, br brazil, bw botswana, by belarus, ca canada,
ch switzerland, cl chile, cm cameroon, cn china, co colombia, cr costa rica, cu cuba, cy cyprus,
cz czech republic, de germany, dk denmark, do dominican republic, dz algeria, ec ecuador,
ee estonia, eg egypt, es spain, et ethiopia, fi finland, fr france, gb united kingdom,
ge georgia, gh ghana, gr greece, gt guatemala, hn honduras, hr croatia, hu hungary,
id indonesia, ie ireland, il israel, in india, iq iraq, ir iran, is iceland, it italy,
jm jamaica, jo jordan, jp japan, ke kenya, kh cambodia, kr south korea, kw kuwait,
kz kazakhstan, lb lebanon, lk sri lanka, lt lithuania, lu luxembourg, lv latvia, ma morocco,
md moldova, mn mongolia, mt malta, mx mexico, my malaysia, ng nigeria, ni nicaragua,
nl netherlands, no norway, np nepal, nz new zealand, om oman, pa panama, pe peru,
ph philippines, pk pakistan, pl poland, pt portugal, py paraguay, qa qatar, ro romania,
rs serbia, ru russia, sa saudi arabia, se sweden, sg singapore, si slovenia, sk slovakia,
sn senegal, th thailand, tn tunisia, tr turkey, tw taiwan, tz tanzania, ua ukraine, ug uganda,
us united states, uy uruguay, uz uzbekistan, ve venezuela, vn vietnam, za south africa,
zm zambia, zw zimbabwe
"""
COUNTRY_NAMES = {
    code: name for code, _, name in (entry.strip().partition(" ") for entry in _NAMES.split(","))
}
"""English names in lower case."""
