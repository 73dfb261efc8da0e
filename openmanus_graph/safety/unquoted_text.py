"""Finds a person's own wishes in a message: without what he pasted, and what he does not ask for.

Untrusted are lines that begin with `>`, fenced blocks, quotations with an address in them, mails,
and everything after a line that asks to read, judge or change a text ("summarize this mail:").

The rest is read clause by clause. A negation refuses its clause, and a list below it. A mail
address, an IBAN or a handle counts only in a form that asks for it, such as "send it to x@y",
"cc x@y" or "Recipient: x@y", not if it is only mentioned. Doubtful cases count as refused: that
costs a question, and the opposite might cost a secret.
"""

import hashlib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmanus_graph.safety import wish_words as wish

_MOST_TAGS = 20
LONG_QUOTATION = 160
"""Characters from which a quotation is a text, not a name or a sentence to be used."""
_LEAST_LOG_LINES = 2
_MOST_INTRODUCED = 50
"""Such colons that are looked at. After more of them there is a pasted text."""
_FEW_WORDS = 4
"""Words of a line that names no text, such as "Translate into German". The text follows it."""
_LOOKED_AT_CHARS = 20_000
LONG_TEXT = 30
"""Characters from which the text after such a colon was pasted."""
_GAP = " … "
"""Replaces a refusal, so that the text before and after it does not become one phrase."""
_LONGEST = 4000
"""Characters of a unit without its addresses. In a longer one nothing counts as wanted."""
_LOOKED_BACK, _WARNED = 300, 80
Span = tuple[int, int]


@dataclass(frozen=True)
class UnquotedText:
    """What a person wrote himself."""

    text: str
    """Without what he refuses in it."""
    quotes: bool
    """Whether he also quoted an untrusted text, which then was read."""


def unquoted_text(text: str) -> UnquotedText:
    """Return what a person wrote himself, without the untrusted text that he quotes."""
    own = wish.COMMENT.sub("\n", _without_tagged(text))
    own = wish.MARKED.sub("\n", wish.FENCED.sub("\n", own))
    own = wish.QUOTED.sub(_without_quotation, _without_mail(own))
    own = wish.SAID_BY_OTHERS.sub(r"\g<says>", own)
    if len(wish.LOG_LINE.findall(own)) >= _LEAST_LOG_LINES:
        own = wish.LOG_LINE.sub("\n", own)
    for number, introduced in enumerate(wish.INTRODUCED.finditer(own)):
        if number == _MOST_INTRODUCED or _is_pasted(own, introduced):
            own = own[: introduced.end()]
            break
    own = own[: _pasted_from(own)]
    own = _without_paragraphs(own)
    return UnquotedText(without_refused(own), own != text)


def _without_quotation(quotation: re.Match[str]) -> str:
    """Return a quotation that is the person's own: a value, or words without an address."""
    quoted = quotation[0]
    several = len(quoted.split()) > 1 or wish.CHINESE.search(quoted)
    is_text = len(quoted) >= LONG_QUOTATION or (several and wish.ADDRESS.search(quoted))
    return "\n" if is_text else quoted


def _without_tagged(text: str) -> str:
    """Return a text without what is between tags such as `<mail>...</mail>`."""
    for closing, bracket in wish.TAGGED:
        for name in list(dict.fromkeys(closing.findall(text)))[:_MOST_TAGS]:
            start, end = text.find(f"{bracket}{name}"), text.rfind(f"{bracket}/{name}")
            if 0 <= start < end:
                text = f"{text[:start]}\n{text[end + len(name) + 3 :]}"
    return text


def _without_mail(text: str) -> str:
    """Return a text without a mail, from its head on."""
    heads = filter(None, (wish.FORWARDED.search(text), wish.MAIL_HEAD.search(text)))
    before = text[: min((found.start() for found in heads), default=len(text))]
    if before == text:
        return text
    while (line := before.rstrip("\n").rpartition("\n")[2]) and wish.OTHER_HEAD.match(line[:300]):
        before = before.rstrip("\n")[: -len(line)]
    return before


def _without_paragraphs(text: str) -> str:
    """If a paragraph asks to read a text, return only the paragraphs that ask, or list."""
    parts = re.split(r"\n[ \t]*\n\s*|\n(?=[^\n]*\Z)", text)
    sentence = wish.LAST_SENTENCE.search(parts[-1])
    if sentence and wish.IS_TO_READ.search(parts[-1], sentence.end()):
        parts[-1:] = [parts[-1][: sentence.end()], parts[-1][sentence.end() :]]
    paragraphs = [one for one in parts if one.strip()]
    asking = [one for one in paragraphs if wish.IS_TO_READ.search(one)]
    if len(paragraphs) < 2 or not asking or any(wish.ADDRESS.search(one) for one in asking):
        return text
    own = [one for one in paragraphs if one in asking or _is_list(one.splitlines())]
    return text if own == paragraphs else "\n\n".join(own)


def _words(text: str) -> int:
    """Return the number of words of a text. Three letters of Chinese count as one more."""
    return len(text.split()) + len(wish.CHINESE.findall(text))


def _is_list(lines: Sequence[str]) -> bool:
    return all(wish.LIST_ITEM.match(line) or _words(line) == 1 for line in lines)


def _pasted_from(text: str) -> int:
    """Return where the text begins that the person asks to read."""
    for asked in wish.TO_READ.finditer(text):
        line_end = asked.end()
        begins = wish.TEXT_BEGINS.search(text, asked.end("asked"), line_end)
        if begins and not (begins[0][0] in "?？" and not wish.THIS.search(asked[0])):
            rest = text[begins.end() : begins.end() + _LOOKED_AT_CHARS].strip()
            if rest and not (wish.SOURCE.match(rest) or _words(rest) == 1):
                return begins.end()
        elif (
            (wish.THIS.search(asked[0]) or len(asked[0].split()) <= _FEW_WORDS)
            and text[line_end : line_end + 1] == "\n"
            and not wish.SOURCE.search(asked["rest"])
        ):
            return line_end
    return len(text)


def _is_pasted(text: str, introduced: re.Match[str]) -> bool:
    """Return True if somebody else wrote the text after a colon.

    A list, addresses, names of files, quotations and what is to be sent are the person's own.
    """
    start = introduced.end()
    sentence = text[max(0, text.rfind("\n", 0, start - 1) + 1, start - 200) : start]
    rest = text[start : start + _LOOKED_AT_CHARS].strip()
    lines = [line for line in rest.splitlines() if line.strip()]
    if _is_list(lines):
        return False
    names_source = len(lines) == 1 and wish.SOURCE.match(lines[0].strip()) is not None
    own = lines[0].lstrip()[:1] in "'\"“‘«" or wish.TO_SEND.search(sentence)
    length = len(rest) + _words(rest) + len(wish.CHINESE.findall(rest))
    return length >= LONG_TEXT and not (own or names_source)


_TAGS = re.compile(r"<(untrusted-[0-9a-f]{8,})>\n(.*)\n</\1>", re.DOTALL)


def mark_untrusted(text: str) -> str:
    """Return untrusted text between tags that it does not contain: the same for the same text."""
    digits, known = _digits(text), text.lower()
    while digits in known:
        digits = _digits(text + digits)
    return f"<untrusted-{digits}>\n{text}\n</untrusted-{digits}>"


def without_mark(text: str) -> str:
    """Return the text that `mark_untrusted` marked; others unchanged."""
    marked = _TAGS.fullmatch(text)
    return str(marked[2]) if marked else text


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


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
    for start, end in (one.span() for one in wish.URLS.finditer(masked)):
        # The words around a URL may warn of it, or name it only to have it changed.
        before, after = masked[max(0, start - _WARNED) : start], masked[end : end + _WARNED]
        warned_after = wish.WARNED_AFTER.match(after) and not wish.ASKED_WHETHER.search(before)
        if warned_after or wish.WARNED_BEFORE.search(before):
            yield start, end
    mails = (one.span() for one in wish.MAILS.finditer(masked))
    yield from (span for span in mails if span not in reader.wanted)


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
    if (
        wish.GIVEN.search(before)
        or wish.CONTRAST.match(before + wish.A)
        or (wish.I_WANT.search(before) and wish.TO_GET.match(after))
        or (gets and (label or gets["is"]))
        or (label and wish.LETTER.search(before) and wish.NOTHING.match(after))
        or (verb and verb.end() <= len(before) and _governs(clause, before, verb))
    ):
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
