"""Separates a person's own words from what he pasted, such as a mail to summarize.

Untrusted are lines that begin with `>`, fenced blocks, quotations with an address in them, mails,
and everything after a line that asks to read, judge or change a text ("summarize this mail:").
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from openmanus_graph.safety.refusals import without_refused

_FENCED = re.compile(r"(?ms)^[ \t]*(?:[-*]\s+)?(`{3,}|~{3,})[^\n`]*\n.*?(?:^[ \t]*\1[^\n]*$|\Z)")
_MARKED = re.compile(
    r"(?m)^[ \t]*(?:[-*]\s)?(?:[>»＞│┃❯›》〉]|&gt;|\w{1,3}>(?=\s)|\|(?=[^|\n]*$))"
    r"(?:[^\n]*[^\n.!?:>»＞|]\n(?!\s)[^\n]+|[^\n]*)(?:\n|\Z)"
)
"""A line marked as an answered line in a reply, with the line that continues it."""
_TAGGED = (re.compile(r"</(\w[\w-]{0,30})\s?>"), "<"), (re.compile(r"\[/(\w{1,30})\]"), "[")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_MOST_TAGS = 20
LONG_QUOTATION = 160
"""Characters from which a quotation is a text, not a name or a sentence to be used."""
_QUOTED = re.compile(
    r"\'\'\'[^\']+\'\'\'|```[^`]+```|`[^`\n]+`|\"[^\"]+\"|[“„][^“”„]+[“”]|«[^«»]+»|»[^«»]+«|‹[^‹›]+›"
    r"|›[^‹›]+‹|「[^「」]+」|『[^『』]+』|(?<!\w)\'[^\'\n]+\'(?!\w)|(?<!\w)‘[^‘’\n]+’(?!\w)|‚[^‚‘\n]+‘"
    r"|〝[^〝〞]+〞|《[^《》]+》|〈[^〈〉]+〉|【[^【】]+】|(?:``|'')[^`'\n]+''|(?<!\w)\"[^\"]*\Z"
)
_ADDRESS = re.compile(r"[\w.+%-]@\w|https?://|www\.|\d{6}|\b[A-Z]{2}\d\d[A-Z0-9]{4}")
_CHINESE = re.compile(r"[\u3400-\u9fff]{3}")
_MAIL_HEAD = re.compile(
    r"(?im)^[-*\s]{0,4}(?:from|sender|von|de|da|van|fra|od|kimden|frá|från|от|发件人|寄件者|寄件人|差出人|보낸\s사람|return-path|received)"
    r"\*{0,2}\s?[:：]|\A\s{0,9}(?:subject|betreff|asunto|objet|oggetto|主题|件名)\s?[:：]"
)
"""The sender of a mail. A mail to be sent has no such line, and does not begin a message."""
_OTHER_HEAD = re.compile(r"[-*\s]{0,4}[^\W\d_][\w -]{0,20}\*{0,2}\s?[:：][^\n]*\Z")
_FORWARDED = re.compile(
    r"(?im)^[ \t]*+(?:-{2,}.{0,60}(?:original|forwarded|weitergeleitete|ursprüngliche|原始|转发)"
    r".{0,60}--"
    r"|begin\b.{0,40}$|[-=*#]{3,}(?![-|]).{0,60}$|.{0,60}<<\s?'?\w+'?$|(?:fwd?|fw|re|aw|wg|转发|轉發)\s?[:：]"
    r"|.{2,200}(?:\bwrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|napisał.{0,4}|작성"
    r"|:\d\d .{0,40}<\S+@\S+>|написала?"
    r"|のメール|写道)\s?[:：]"
    r"|<?\[?\w+>\s.*\n<\w+>\s|\[\d\d?:\d\d[^\n]*\n\[\d)"
)
"""The line before a mail or a chat that somebody else wrote."""
_LOG_LINE = re.compile(
    r"(?m)^\W?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|\d\d:\d\d:\d\d\S*"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{1,3}(?:\.\d{1,3}){3} \S+ \S+ \["
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b[: ]|Traceback \()"
    r"[^\n]*(?:\n|\Z)"
)
_LEAST_LOG_LINES = 2
_SAID_BY_OTHERS = re.compile(
    r"(?i)(?P<says>\b(?:wrote|writes|said|says|reads|replied|answered|asks?|asked"
    r"|told (?:me|us|him|her|them)|insists?|demands?|begged (?:me|us)|recommends?|states?|stated"
    r"|(?:informed|instructed|urged|wants) (?:me|us)"
    r"|(?:was|am|were) (?:told|instructed|asked)|according to \w+,?)\b)"
    r"(?:[^\n\"“«]{0,30}(?:\"[^\"\n]*\s[^\"\n]*\"|“[^“”]*\s[^“”]*”|«[^«»]*\s[^«»]*»)"
    r"|\s(?:that|we|I|you|please|to)\b(?:[^.!?\n]|[.!?](?=\S))*)"
)
"""What others said, if longer than one word. A single quoted value is the person's."""
_TEXTS = (
    "mails?|emails?|e-mails?|messages?|letter|text|article|page|post|document|comment|review|notes?"
    "|transcript|log|output|paragraph|report|invoice|bill|thread|chat|sms|ticket|input|context|ad"
    "|advert|sign|error|voicemail|request|instructions|manual|question|document|sentence|story|poem"
)
_INTRODUCED = re.compile(
    rf"(?im)(?:\b(?:the|this|that|these|following|his|her|their)\s+(?:\w+\s+)?(?:{_TEXTS})\b[^\n:.?!]{{0,40}}"
    r"|\b(?:says?|said|wrote|reads|got|received|below)\b[^\n:.?!]{0,20}"
    rf"|^[^\w\n]{{0,8}}(?!(?:note|review|e-?mails?|mails?)\s?[:：]\s?\S)(?:(?:an?|the|[A-Z][\w'’]*)\s+){{0,2}}(?:\w+\s)?(?:{_TEXTS})\b(?!\s(?:to|for)\b)[^\n:.?!]{{0,40}}"
    r"|(?<!，)(?:说|說|写道|寫道|写"
    r"|来信|短信|内容如下|以下是邮件|聊天记录|原文|通知|留言))[:：][ \t]*(?=\S|\n)"
)
_TO_SEND = re.compile(
    r"(?i)\b(?:send|write|draft|compose|post (?:this|the)|create|add|reply"
    r"|I (?:need|want)|my (?:request|task))\b"
)
_MOST_INTRODUCED = 50
"""Such colons that are looked at. After more of them there is a pasted text."""
_READ = (
    r"(?:\b(?:summari[sz]e|sum(?:\s+up)?|tl;?dr|translate|proofread|rephrase|shorten|explain|analy[sz]e"
    r"|classify|review|correct|answer\s+(?:this|these|the)|improve|fix\s+the|make\s+(?:this|it)\s+sound|handle\s+th(?:is|ese)"
    r"|reply\s+to\s+th(?:is|ese)|respond\s+to\s+th(?:is|ese)|check\s+th(?:is|ese)"
    r"|what\s+(?:does|do|is|are)\s+th(?:is|at|ese)|what\s+is\s+it|who\s+is\s+in\s+this|why\s+does\s+(?:it|this)"
    r"|is\s+(?:this|it)\s+(?:an?\s+)?(?:spam|scam|phishing|legit|real|true|genuine|fake|safe)"
    r"|(?:here\s?(?:is|[’']s)|this\s+is)\s+what(?!\s+I\s+(?:want|need))|i\s+pasted|follows"
    r"|rewrite|paraphrase|simplify|spell|spell-?check|grammar|eli5|extract|convert|count|sentiment|tone|headline|meaning|language"
    r"|validate|pretty-?print|valid|sort|parse|compile|triage|continue|play|how\s+should\s+i|how\s+many\s+words|what\s+should\s+i|action\s+items|to-?do\s+list"
    r"|draft\s+an?\s+(?:reply|answer)|answer\s+(?:her|him|them)|above|scam|legit|what\s+does\s+(?:she|he)|who\s+has\s+to|minutes|add\s+a\s+test|unit\s+tests?|friendlier|act\s+on|which\s+of\s+these|file\s+a\s+bug"
    r"|got\s+a\s+(?:letter|mail|message)|zobacz|kolla|was\s+will|fass\w*|übersetze|résume[rz]?|traduis|traduce|riassumi|resum[aeo]\w?|vat\s+samen)\b"
    r"|кратко|переведи|要約|翻訳|요약|번역|总结|總結|翻译|翻譯|改写|提取|纠错|概括|骗局|怎么[回看]|看看|看一下|是啥|是真的吗|上面|以上|解释|解釋|润色|帮我看|什么意思|诈骗|骗人|回复这|分类|提炼|整理|真实|靠谱|合适吗|正常吗)"
)
_TO_READ = re.compile(
    rf"(?im)^(?![ \t]*(?:[-*•]|\d+[.)])[ \t])(?P<asked>[^\n:：]{{0,200}}?{_READ})"
    r"(?P<rest>[^\n]{0,300})"
)
_IS_TO_READ = re.compile(_READ, re.I)
_TEXT_BEGINS = re.compile(r"[:：]+(?!//|(?<=\w:)\d)\s*|[<{\[|\\](?!https?:)|(?:[?？]\s+|？)(?=\S)")
_THIS = re.compile(
    r"(?i)\b(?:this|these|that|it|following|below|what|pasted|follows|dies\w*|das|der|est[eo]|ceci|zusammen)\b|这|這|下面|以下"
)
_FEW_WORDS = 4
"""Words of a line that names no text, such as "Translate into German". The text follows it."""
_LOOKED_AT_CHARS = 20_000
LONG_TEXT = 30
"""Characters from which the text after such a colon was pasted."""
_SOURCE = re.compile(
    r"(?i)(?:(?:read|open|see|look\s+at)\s+)?(?:(?:https?://|www\.|[~./]*/)\S+|[\w./-]+\.\w{2,4}\b(?!@))"
)
"""An address or a file, at the start of what the person wants read."""
_LAST_SENTENCE = re.compile(r"(?:(?<=\.)[ \t]+|(?<=。)[ \t]*)(?=[^\n.。]+[.。?？]?\Z)")
_ITEM = re.compile(r"[ \t]*(?:[-*•]|\d+[.)])[ \t]")


@dataclass(frozen=True)
class UnquotedText:
    """What a person wrote himself."""

    text: str
    """Without what he refuses in it."""
    quotes: bool
    """Whether he also quoted an untrusted text, which then was read."""


def unquoted_text(text: str) -> UnquotedText:
    """Return what a person wrote himself, without the untrusted text that he quotes."""
    own = _COMMENT.sub("\n", _without_tagged(text))
    for quoted in (_FENCED, _MARKED):
        own = quoted.sub("\n", own)
    own = _QUOTED.sub(_without_quotation, _without_mail(own))
    own = _SAID_BY_OTHERS.sub(r"\g<says>", own)
    if len(_LOG_LINE.findall(own)) >= _LEAST_LOG_LINES:
        own = _LOG_LINE.sub("\n", own)
    for number, introduced in enumerate(_INTRODUCED.finditer(own)):
        if number == _MOST_INTRODUCED or _is_pasted(own, introduced):
            own = own[: introduced.end()]
            break
    own = own[: _pasted_from(own)]
    own = _without_paragraphs(own)
    return UnquotedText(without_refused(own), own != text)


def _without_quotation(quotation: re.Match[str]) -> str:
    """Return a quotation that is the person's own: a value, or words without an address."""
    quoted = quotation[0]
    is_text = len(quoted) >= LONG_QUOTATION or (
        (len(quoted.split()) > 1 or _CHINESE.search(quoted)) and _ADDRESS.search(quoted) is not None
    )
    return "\n" if is_text else quoted


def _without_tagged(text: str) -> str:
    """Return a text without what is between tags such as `<mail>...</mail>`."""
    for closing, bracket in _TAGGED:
        for name in list(dict.fromkeys(closing.findall(text)))[:_MOST_TAGS]:
            start, end = text.find(f"{bracket}{name}"), text.rfind(f"{bracket}/{name}")
            if 0 <= start < end:
                text = f"{text[:start]}\n{text[end + len(name) + 3 :]}"
    return text


def _without_mail(text: str) -> str:
    """Return a text without a mail, from its head on."""
    heads = [found.start() for found in (_FORWARDED.search(text), _MAIL_HEAD.search(text)) if found]
    if not heads:
        return text
    before = text[: min(heads)]
    while (line := before.rstrip("\n").rpartition("\n")[2]) and _OTHER_HEAD.match(line[:300]):
        before = before.rstrip("\n")[: -len(line)]
    return before


def _without_paragraphs(text: str) -> str:
    """If a paragraph asks to read a text, return only the paragraphs that ask, or list."""
    parts = re.split(r"\n[ \t]*\n\s*|\n(?=[^\n]*\Z)", text)
    sentence = _LAST_SENTENCE.search(parts[-1])
    if sentence and _IS_TO_READ.search(parts[-1], sentence.end()):
        parts[-1:] = [parts[-1][: sentence.end()], parts[-1][sentence.end() :]]
    paragraphs = [one for one in parts if one.strip()]
    asking = [one for one in paragraphs if _IS_TO_READ.search(one)]
    if len(paragraphs) < 2 or not asking or any(_ADDRESS.search(one) for one in asking):
        return text
    own = [one for one in paragraphs if one in asking or _is_list(one.splitlines())]
    return text if own == paragraphs else "\n\n".join(own)


def _words(text: str) -> int:
    """Return the number of words of a text. Three letters of Chinese count as one more."""
    return len(text.split()) + len(_CHINESE.findall(text))


def _is_list(lines: Sequence[str]) -> bool:
    return all(_ITEM.match(line) or _words(line) == 1 for line in lines)


def _pasted_from(text: str) -> int:
    """Return where the text begins that the person asks to read."""
    for asked in _TO_READ.finditer(text):
        line_end = asked.end()
        begins = _TEXT_BEGINS.search(text, asked.end("asked"), line_end)
        if begins and not (begins[0][0] in "?？" and not _THIS.search(asked[0])):
            rest = text[begins.end() : begins.end() + _LOOKED_AT_CHARS].strip()
            if rest and not (_SOURCE.match(rest) or _words(rest) == 1):
                return begins.end()
        elif (
            (_THIS.search(asked[0]) or len(asked[0].split()) <= _FEW_WORDS)
            and text[line_end : line_end + 1] == "\n"
            and not _SOURCE.search(asked["rest"])
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
    names_source = len(lines) == 1 and _SOURCE.match(lines[0].strip()) is not None
    own = lines[0].lstrip()[:1] in "'\"“‘«" or _TO_SEND.search(sentence)
    length = len(rest) + _words(rest) + len(_CHINESE.findall(rest))
    return length >= LONG_TEXT and not (own or names_source)


_TAGS = re.compile(r"<(untrusted-[0-9a-f]{8,})>\n(.*)\n</\1>", re.DOTALL)


def mark_untrusted(text: str) -> str:
    """Return untrusted text between tags that it does not contain, so that it cannot close them.

    The same text gets the same tags, so that repeats can be recognized.
    """
    tag = untrusted_tag(text)
    return f"<{tag}>\n{text}\n</{tag}>"


def without_mark(text: str) -> str:
    """Return the text that `mark_untrusted` marked; others unchanged."""
    marked = _TAGS.fullmatch(text)
    return str(marked[2]) if marked else text


def untrusted_tag(text: str) -> str:
    """Return the name of the tag for a text: a digest that does not occur in the text."""
    digits, known = _digits(text), text.lower()
    while digits in known:
        digits = _digits(text + digits)
    return f"untrusted-{digits}"


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
