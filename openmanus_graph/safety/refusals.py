"""Removes from a person's words what he does not ask for: "never write to x@y" names no recipient.

A text is read clause by clause. A negation refuses its clause, and a list below it. A mail address,
an IBAN or a handle counts only in a form that asks for it, such as "send it to x@y", "cc x@y" or
"Recipient: x@y", not if it is only mentioned. Doubtful cases count as refused: that costs a
question, and the opposite might cost a secret.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator

from openmanus_graph.safety import wish_words as wish

_GAP = " … "
"""Replaces a refusal, so that the text before and after it does not become one phrase."""
_LONGEST = 4000
"""Characters of a unit without its addresses. In a longer one nothing counts as wanted."""

_LOOKED_BACK = 300
_WARNED = 80

Span = tuple[int, int]


def without_refused(text: str) -> str:
    """Return a text without what it refuses, and without addresses that it only mentions."""
    plain, places = _plain(text)
    spans = [(places[first], places[last]) for first, last in _unwanted(plain)]
    kept, end = list[str](), 0
    for start, stop in sorted(spans):
        if start > end or not kept:
            kept += (text[end:start], _GAP)
        end = max(end, stop)
    return "".join((*kept, text[end:]))


def _plain(text: str) -> tuple[str, list[int]]:
    """Return a text as it is read, with the position of each character: `_𝐧ever_` is "never"."""
    signs, places = list[str](), list[int]()
    for place, char in enumerate(text):
        shown = char
        around = text[max(0, place - 1) : place + 2]
        is_in_word = len(around) == 3 and around[0].isalnum() and around[2].isalnum()
        if char in "*_`" and not is_in_word:
            shown = " "
        elif not char.isascii() and char != "´":
            is_hidden = unicodedata.category(char) == "Cf"
            shown = "" if is_hidden else unicodedata.normalize("NFKC", char)
        signs.append(shown)
        places += [place] * len(shown)
    return "".join(signs), [*places, len(text)]


def _unwanted(plain: str) -> Iterator[Span]:
    masked = wish.FIND.sub(lambda one: (wish.U if one["url"] else wish.A) * len(one[0]), plain)
    reader = _Reader(masked)
    reader.read()
    wanted = sorted(reader.wanted)
    for first, end in reader.refused:  # an address in it may be wanted all the same
        for start, stop in wanted[bisect_left(wanted, (first, 0)) :]:
            if start >= end:
                break
            yield first, start
            first = stop
        yield first, max(first, end)
    urls = (one.span() for one in wish.URLS.finditer(masked))
    yield from (span for span in urls if _is_warned_of(masked, *span))
    mails = (one.span() for one in wish.MAILS.finditer(masked))
    yield from (span for span in mails if span not in reader.wanted)


def _is_warned_of(masked: str, start: int, end: int) -> bool:
    """Return True if the words around a URL warn of it, or name it only to have it changed."""
    before, after = masked[max(0, start - _WARNED) : start], masked[end : end + _WARNED]
    warned_after = wish.WARNED_AFTER.match(after) and not wish.ASKED_WHETHER.search(before)
    return bool(warned_after or wish.WARNED_BEFORE.search(before))


def _parts(
    text: str, between: re.Pattern[str], start: int, stop: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the nonempty parts of a text, each with the separators before it."""
    sign = ""
    for found in (*between.finditer(text, start, stop), None):
        end = found.start() if found else stop
        if text[start:end].strip():
            yield sign, start, end
            sign = ""
        if found:
            sign, start = sign + found[0], found.end()


class _Reader:
    """Reads a text clause by clause. Collects what is refused and which addresses are wanted."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.refused = list[Span]()
        self.wanted = set[Span]()
        self._lacking = set[Span]()
        """Addresses of people who lack something. They are wanted if the people are to get it."""
        self._before: tuple[Span, set[Span]] = (0, 0), set()
        """The clause before, and what it wants."""
        self._heading = ""
        """What below the heading is refused: a `list` or a `paragraph`."""
        self._neutral = True
        """Whether a bare address is wanted here: not below words that ask for nothing."""
        self._refuses = False
        """Whether the clause before, in the same sentence or line, refuses something."""
        self._below = False
        """Whether it refuses what follows it."""
        self._has_verb = False
        """Whether the last refusal has a verb."""
        self._open = False
        """Whether a negation still lacks what it refuses."""

    def read(self) -> None:
        for sign, start, stop in _parts(self.text, wish.UNIT, 0, len(self.text)):
            unit = self.text[start:stop]
            item = wish.ITEM.match(unit) is not None
            if self._heading == "below":
                self._heading = "list" if item else "paragraph"
            elif (self._heading == "list" and "\n" in sign and not item) or (
                self._heading == "paragraph" and sign.count("\n") > 1
            ):
                self._heading = ""
            if self._heading or len(wish.MAILS.sub("", unit)) > _LONGEST:
                self.refused.append((start, stop))
            elif _is_bare(unit) and not _first_no(unit):
                self._read_bare(start, stop)
            else:
                self._read_unit(start, stop)

    def _read_bare(self, start: int, stop: int) -> None:
        if self._neutral and not self._open:
            self.wanted.update(one.span() for one in wish.MAILS.finditer(self.text, start, stop))
        else:
            self.refused.append((start, stop))
        self._open = False

    def _read_unit(self, start: int, stop: int) -> None:
        unit = self.text[start:stop].rstrip()
        self._refuses = self._below = False
        for sign, first, last in _parts(self.text, wish.TURN, start, stop):
            self._read_clause(sign, first, last, self.text[last:stop])
        self._neutral = not self._refuses and bool(_verb_of(unit) or wish.LABEL.match(unit))
        is_heading = unit[-1:] in (":", "：") or "following" in unit
        if (self._refuses or self._open) and is_heading:
            self._heading, self._open = "below", False
        self._open = self._open and unit[-1:] not in ".!?。！？"

    def _read_clause(self, sign: str, first: int, last: int, rest: str) -> None:
        clause = self.text[first:last]
        if wish.ANSWER.match(clause) or wish.CORRECTS.match(self.text, first):
            self.refused.append(self._before[0])
            self.wanted -= self._before[1]
        verb, no = _verb_of(clause), _first_no(clause)
        goes_on = self._refuses and self._reaches(sign, clause, verb, rest)
        end = len(clause)
        if self._open or goes_on:
            self.refused.append((first, last))
            end = -1
            if self._open and (verb or wish.A in clause or wish.U in clause):
                self._open, self._refuses = False, True
        elif no:
            end = self._refuse(clause, first, no, verb, rest)
        if "but" in sign.lower() and self._refuses and end == len(clause) and _is_bare(clause):
            wanted = {one.span() for one in wish.MAILS.finditer(self.text, first, last)}
        else:
            wanted = self._wanted_in(clause, first, end, verb)
        is_question = rest[:1] in ("?", "？") or clause.rstrip().endswith("吗")
        if is_question and not wish.ASKS.search(clause):
            wanted = set[Span]()
        elif end == len(clause):
            asks = wish.THEM.search(clause) and (verb or wish.ZH_VERB.search(clause))
            wanted |= self._lacking if asks else set[Span]()
        self._refuses = self._refuses and not (end >= 0 and not no and (wanted or verb))
        self.wanted |= wanted
        self._before = (first, last), wanted

    def _reaches(self, sign: str, clause: str, verb: re.Match[str] | None, rest: str) -> bool:
        """Return True if the refusal before covers a clause: "never read, write or mail"."""
        to = wish.CONTRAST.match(clause)
        return bool(
            self._below
            or (verb and (wish.JOINS.search(sign) or wish.OR.search(rest)))
            or clause.lstrip().startswith("就")
            or (to and not to["word"] and "but" not in sign and self._has_verb)
        )

    def _refuse(
        self, clause: str, first: int, no: re.Match[str], verb: re.Match[str] | None, rest: str
    ) -> int:
        """Note what a negation refuses. Return where in its clause something may be wanted."""
        begins = 0 if _is_subject(clause, no) else no.start()
        self.refused.append((first + begins, first + len(clause)))
        behind = clause[no.end() :]
        self._open = not wish.FILLER.sub("", behind)
        self._has_verb = wish.A_VERB.search(clause) is not None
        self._refuses = not wish.BLOCKS.match(no[0]) or behind.lstrip().startswith("to ")
        self._below = rest[:1] in (":", "：") and bool(wish.FOLLOWING.search(clause))
        is_thing = not self._refuses and verb is not None and verb.end() <= no.start()
        return len(clause) if is_thing else no.start()

    def _wanted_in(
        self, clause: str, first: int, end: int, verb: re.Match[str] | None
    ) -> set[Span]:
        """Return the addresses of a clause that a form asks for."""
        found = list(wish.MAILS.finditer(clause))
        while found:
            group = [found.pop(0)]
            while found and wish.GOES_ON.match(clause[group[-1].end() : found[0].start()]):
                group.append(found.pop(0))
            start, stop = group[0].start(), group[-1].end()
            before, after = clause[max(0, start - _LOOKED_BACK) : start], clause[stop:]
            follows = self.text[first + stop : first + stop + 60]
            spans = {(first + one.start(), first + one.end()) for one in group}
            if wish.NOT_HEARD.search(before) or (
                wish.NOT_YET.match(after) and wish.LACKING.match(before)
            ):
                self._lacking |= spans
            if start > end or wish.ANSWER.match(follows):
                continue
            if wish.PREDICATE.match(follows) and not wish.GETS.match(after):
                continue
            if _is_asked_for(clause, before, after, verb):
                return spans
        return set()


def _is_asked_for(clause: str, before: str, after: str, verb: re.Match[str] | None) -> bool:
    label, gets = wish.LABEL.match(before), wish.GETS.match(after)
    if wish.GIVEN.search(before) or wish.CONTRAST.match(before + wish.A):
        return True
    if wish.I_WANT.search(before) and wish.TO_GET.match(after):
        return True
    if gets and (label or gets["is"]):
        return True
    if label and wish.LETTER.search(before) and wish.NOTHING.match(after):
        return True
    if verb and verb.end() <= len(before) and _governs(clause, before, verb):
        return True
    chinese = wish.VERB_ZH.search(before)
    return chinese is not None and not wish.STOPS_ZH.search(before[: chinese.start()])


def _governs(clause: str, before: str, verb: re.Match[str]) -> bool:
    """Return True if a verb has the address after a text as its object."""
    if wish.WEAK.match(verb[0]):
        return wish.WEAK_RIGHT.match(clause[verb.start() :]) is not None
    between = before[verb.end() :]
    last = next(reversed(list(wish.PREPOSITION.finditer(between))), None)
    if last and wish.HEAD.search(between, 0, last.start()):
        return False
    words = between[last.end() :] if last else between
    if wish.HE_WHO.search(words):
        return wish.ANSWERS.match(verb[0]) is not None
    return len(words.split()) <= wish.MOST_WORDS and not wish.NO_PART.search(words)


def _verb_of(clause: str) -> re.Match[str] | None:
    lead = wish.LEAD.match(clause)
    return wish.A_VERB.match(clause, lead.end() if lead else 0)


def _first_no(clause: str) -> re.Match[str] | None:
    """Return the first word of a clause that refuses something."""
    harmless = [one.span() for one in wish.HARMLESS.finditer(clause)]
    for no in wish.NO.finditer(clause):
        if not any(start <= no.start() < stop for start, stop in harmless):
            return no
    return None


def _is_subject(clause: str, no: re.Match[str]) -> bool:
    """Return True if a negation refuses the words before it: "Carol must not get it"."""
    before = clause[: no.start()]
    if not no[0].isascii() and not no[0][:1].isalpha():
        return not wish.ZH_VERB.search(before)
    if wish.SUBJECT.search(before):
        return True
    if wish.BLOCKS.match(no[0]):
        return False
    if no[0].lower().endswith(("n't", "cannot")):
        return not wish.LACKS.match(no[0])
    return not wish.NO_SUBJECT.search(before) and len(before.split()) <= wish.MOST_WORDS


def _is_bare(unit: str) -> bool:
    if wish.A not in unit:
        return False
    rest = wish.BESIDE_BARE.sub(" ", wish.MAILS.sub(" ", wish.NAMED.sub(" ", unit)))
    return wish.BARE_SIGNS.fullmatch(rest) is not None
