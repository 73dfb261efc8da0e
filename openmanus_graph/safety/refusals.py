"""Takes out of a person's words what he refuses: "never write to x@y" names nobody to write to.

A negation reaches to the end of its sentence, or to where the sentence turns: "not x but y". What
is doubtful is taken for refused: that costs a question, and the other might cost a secret.
"""

import re
from collections.abc import Iterator

_GAP = " … "
"""Stands where a refusal was, so that what is before and behind it does not become one phrase."""
_HARMLESS = (
    r"(?:don[’']?t|do\s+not|never|not)\s+(?:forget|hesitate|fail|worry|neglect|omit|mind)\b"
    r"|not\s+(?:only|sure|certain|yet|later|until|more|less)\b|(?:why|if|or)\s+not\b"
    r"|\b(?:nobody|no\s+one|nothing)\s+(?:but|except|other\s+than)\b"
    r"|(?:不要|别|勿)忘|不(?:仅|但|只|过|一定|知道)|(?:要|是|能|会)不(?:要|是|能|会)"
)
"""Negations that refuse nothing."""
_STATING = r"(?:is|are|was|were|does|did)(?:n[’']t|\s+not)"
_NOT = (
    r"never|don[’']?t|do\s+not|cannot|can[’']?t|won[’']?t|not|no\s+longer|neither|nor|nobody|no\s+one"
    r"|under\s+no\s+\w+|at\s+no\s+time|no\s+[\w-]+\s+(?:to|for|with|from|at)|hands\s+off"
    r"|(?:must|should|shall|need|may|can|could|would|will|ought)(?:n[’']t|\s+not)"
    r"|avoid(?:ing)?|refrain|forbid(?:den)?|prohibit(?:ed)?|ban(?:ned)?|block(?:ed)?|blacklist|blocklist"
    r"|ignore|skip|distrust|beware|(?:keep|stay)\s+(?:\S+\s+)?(?:away|clear)|exclud(?:e|es|ed|ing)"
)
_BUT = (
    r"except(?:ing)?|(?:any|every)(?:one|body)\s+but|(?:all|none)\s+but|(?:other|rather)\s+than"
    r"|instead\s+of|(?:apart|aside)\s+from|without|barring"
)
_NOT_ZH = (
    r"不(?:要|能|得|可|许|准|必|应|该|用|再|允许|是|给|发|找|联系|信任)"
    r"|(?<![特分级类性识区辨个告离派差])别(?![人的墅名处致])|勿|切忌|禁止|严禁|避免|屏蔽|拉黑|阻止"
    r"|(?<!删)(?<!清)(?<!移)排除|忽略|跳过|绝不|从不|永不|而非|并非"
)
_BUT_ZH = r"除了|(?<![删清移解消扣去开免排拆卸])除(?=[^，。\n]{1,200}外)|而不是|不包括"
_REFUSAL = re.compile(
    rf"(?P<harmless>\b(?:{_HARMLESS})|(?:不要|别|勿)忘|不(?:仅|但|只|过|一定|知道)|[要是能会]不[要是能会])"
    rf"|\b(?:(?P<stating>{_STATING})|(?P<but>{_BUT})|(?P<no>{_NOT}))\b"
    rf"|(?P<but_zh>{_BUT_ZH})|(?P<no_zh>{_NOT_ZH})",
    re.IGNORECASE,
)
_SENTENCE_END = (
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bmr)(?<!\bms)(?<!\bdr)(?<!\bvs)(?<!\bmrs)"
    r"[.!?][\"')\]”’»]*(?=\s|$)|[。！？；]|;(?=\s)|\n[ \t]*\n"
)
_SENDING = (
    r"send|mail|e-?mail|write|use|forward|share|post|give|pay|invite|add|copy|cc|tell|ask|book"
    r"|transfer|message|notify|contact|deliver|open|visit|read|delete|please|only|just"
)
_TURN = (
    r"\b(?:but|however|instead(?!\s+of)|though|although|unless)\b|而是|但是|但|却|改为|改成"
    rf"|[,—–]\s*(?:and\s+|then\s+)*(?:{_SENDING})\b(?![^.!?\n]*\b(?:or|nor)\b)"
    r"|[，,]\s*(?:请|只|就|应|要|改|直接|而)*(?:发|寄|写|联系|给|用|转|抄送|通知|告诉|邀请|访问|打开)"
    r"(?![^。！？；\n]*(?:或|和|、))"
)
"""Where a sentence says what is wanted instead; a list of verbs ("write, mail or call") is none."""
_ENDS = {
    "no": re.compile(rf"{_SENTENCE_END}|(?P<turn>{_TURN}|\b(?:{_BUT})\b|{_BUT_ZH})", re.IGNORECASE),
    "but": re.compile(
        rf"{_SENTENCE_END}|(?P<turn>{_TURN}|[以之]?外|[,，](?!\s*(?:and\s+|or\s+)?[^\s,，]*[@.]\w))",
        re.IGNORECASE,
    ),
    "stating": re.compile(
        rf"{_SENTENCE_END}|(?P<turn>{_TURN}|[,，]|\b(?:and|so)\b)", re.IGNORECASE
    ),
}
_ITEM = r"[ \t]*(?:[-*•]|\d+[.)])[ \t]"
_ITEMS = re.compile(rf"[:：][ \t]*\n+(?:{_ITEM}[^\n]*\n?)+")
"""A list, which belongs to the sentence before it."""
_AN_ITEM = re.compile(_ITEM)
_NEXT_ITEM = re.compile(rf"\n(?={_ITEM})")
_ADDRESS = r"(?:(?<![\w.+%-])[\w.+%-]{1,100})?[@#][\w-]{1,63}(?:\.[\w-]{1,63}){0,20}"
_SAID_OF = re.compile(
    rf"\b(?:leave|keep|take)\s+(?:{_ADDRESS}|\w+)\s+(?:out|off|away|alone)\b"
    rf"|{_ADDRESS}[\"'’)]*\s+(?:is|are)\s+(?:an?\s+|only\s+)?(?:blocked|banned|forbidden|off[\s-]limits"
    r"|spam(?:mer)?|scam(?:mer)?|fraud|fake|phishing|malicious|untrusted|wrong)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    rf"(?P<if>\b(?:if|when|once|since|because|while|that)\s+)?{_ADDRESS}[\"'’)]*(?P<more>\s*(?:[,，、&和或]|\band\b|\bor\b)\s*)?"
    r"(?:\s*[:—–-]|\s*\b(?:which|who|is|are|must|should|shall|may|all)\b|[都也均一律])*\s*$",
    re.IGNORECASE,
)
"""An address directly before a negation, or before such a one: "x and y must not get it"."""
_WITHOUT_SUBJECT = re.compile(r"not$|nor|neither|nobody|no\s+one", re.IGNORECASE)
_CHARS_BEFORE = 200
_LONGEST = 4000
"""Characters in which a refusal ends; one that does not reaches to the end of the text."""
_MOST = 500
"""Negations that are looked at: from there on nothing in a text counts as wanted."""


def without_refused(text: str) -> str:
    """Return a text without what it refuses."""
    spans = sorted([*_refused(text), *(found.span() for found in _SAID_OF.finditer(text))])
    kept, end = list[str](), 0
    for start, stop in spans:
        if start > end or not kept:
            kept += (text[end:start], _GAP)
        end = max(end, stop)
    return "".join((*kept, text[end:]))


def _refused(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text refuses something: from the negation to where it ends."""
    done = 0
    for number, found in enumerate(_REFUSAL.finditer(text)):
        if number == _MOST:
            yield found.start(), len(text)
            return
        if found["harmless"] or found.start() < done:
            continue
        kind = (found.lastgroup or "no").removesuffix("_zh")
        end, done = _end(text, found, kind)
        yield _start(text, found), end


def _start(text: str, negation: re.Match[str]) -> int:
    """Return where a refusal begins, with addresses that are its subject: "x must not get it"."""
    start = negation.start()
    if negation["but"] or negation["but_zh"] or _WITHOUT_SUBJECT.match(negation[0]):
        return start
    first = max(text.rfind("\n", 0, start) + 1, start - _CHARS_BEFORE)
    while found := _SUBJECT.search(text, first, start):
        if found["if"] or bool(found["more"]) == (start == negation.start()):
            break
        start = found.start()
    return start


def _end(text: str, negation: re.Match[str], kind: str) -> tuple[int, int]:
    """Return where a refusal ends, and from where on another may begin."""
    start, horizon = negation.end(), min(len(text), negation.end() + _LONGEST)
    line = text.rfind("\n", 0, start) + 1
    item = _NEXT_ITEM.search(text, start, horizon) if _AN_ITEM.match(text, line) else None
    ends = _ENDS[kind].search(text, start, item.start() if item else horizon)
    stop = ends.start() if ends else item.start() if item else len(text)
    listed = None if item else _ITEMS.search(text, start, min(horizon, stop + _LONGEST))
    if listed and listed.start() <= stop:
        whole = _ITEMS.match(text, listed.start()) or listed
        return whole.end(), whole.end()
    return stop, ends.end() if ends and ends["turn"] else stop
