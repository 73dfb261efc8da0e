"""Parts what a person wrote from what he pasted: a mail to summarise is not his own word.

What is taken for foreign is what a reader would: lines that begin with `>`, fenced blocks, long
quotations, and the text behind a colon whose sentence speaks of a text ("summarise this mail:").
"""

import re
from dataclasses import dataclass

from openmanus_graph.safety.refusals import without_refused

_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?(?:^\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^[ \t]*>[^\n]*(?:\n|\Z)", re.MULTILINE)
_CLOSING_TAG = re.compile(r"</(\w[\w-]{0,30})\s?>")
_MOST_TAGS = 20
"""Kinds of them that are looked for."""
LONG_QUOTATION = 160
"""Characters from which a quotation is a text, not a name or a sentence to be used."""
_QUOTED = re.compile(
    rf"\"[^\"]{{{LONG_QUOTATION},}}\"|“[^“”]{{{LONG_QUOTATION},}}”|«[^«»]{{{LONG_QUOTATION},}}»"
)
_HEAD_NAMES = (
    "from|to|cc|date|sent|subject|von|an|gesendet|betreff|de|objet|à"
    "|发件人|收件人|抄送|主题|日期|发送时间"
)
_MAIL_HEAD = re.compile(
    rf"^[*\s]{{0,4}}(?:{_HEAD_NAMES})\*?\s?[:：][^\n]*\n"
    rf"(?=[*\s]{{0,4}}(?:{_HEAD_NAMES})\*?\s?[:：])",
    re.I | re.M,
)
"""Two lines of a mail's head: one alone may be the person's own."""
_SENDER = re.compile(
    r"^[*\s]{0,4}(?:from|von|de|发件人|date|sent|gesendet|日期|发送时间)\*?\s?[:：]", re.I | re.M
)
_FORWARDED = re.compile(
    r"^[ \t]*(?:-{2,}.{0,60}(?:original|forwarded|weitergeleitete|ursprüngliche|原始|转发).{0,60}--"
    r"|begin forwarded message|(?:on|am|le)\b.{4,120}\b(?:wrote|schrieb|a écrit)\s?:"
    r"|.{4,80}写道[:：])",
    re.I | re.M,
)
"""The line before a mail that somebody else wrote."""
_LOG_LINE = re.compile(
    r"^\W?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|\d\d:\d\d:\d\d\S*"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{1,3}(?:\.\d{1,3}){3} \S+ \S+ \["
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b[: ]|Traceback \()"
    r"[^\n]*(?:\n|\Z)",
    re.M,
)
_LEAST_LOG_LINES = 2
_SAID_BY_OTHERS = re.compile(
    r"(?P<says>\b(?:wrote|writes|said|says|reads|replied|answered|asks?|asked"
    r"|told (?:me|us|him|her|them))\b"
    r"[^\n\"“«]{0,30})(?:\"[^\"\n]*\s[^\"\n]*\"|“[^“”]*\s[^“”]*”|«[^«»]*\s[^«»]*»)",
    re.IGNORECASE,
)
"""What others said, of more than one word: a single value in quotation marks is the person's."""
_TEXTS = (
    "mail|email|e-mail|message|letter|text|article|page|post|document|comment|review|note|notes"
    "|transcript|log|output|paragraph|report|review|invoice|bill|thread|chat|following|below|says"
    "|wrote|said|reads"
)
_INTRODUCED = re.compile(rf"\b(?:{_TEXTS})\b[^\n:.?!]{{0,40}}:[ \t]*(?=\S|\n)", re.IGNORECASE)
_TO_READ = re.compile(
    r"\b(?:summari[sz]e|translate|proofread|rephrase|shorten|explain|analy[sz]e|reply to|answer"
    r"|classify|review|correct|fasse|übersetze|résume[rz]?|traduis)\b"
    r"[^\n:.?!]{0,80}:[ \t]*(?=\S|\n)",
    re.IGNORECASE,
)
_MOST_INTRODUCED = 50
"""Such colons that are looked at; behind more of them there is a pasted text."""
_LOOKED_AT_CHARS = 20_000
LONG_TEXT = 60
"""Characters from which what stands behind such a colon is a text that was pasted."""
_SOURCE = re.compile(r"(?:https?://|www\.|[~./]*/)\S+|\S+\.\w{2,4}\b", re.IGNORECASE)
"""An address or a file, at the beginning of what the person wants read."""
_ITEM = re.compile(r"[ \t]*(?:[-*•]|\d+[.)])[ \t]")


@dataclass(frozen=True)
class UnquotedText:
    """What a person wrote himself."""

    text: str
    """Without what he refuses in it, too."""
    quotes: bool
    """Whether he quoted a foreign text beside it: then that was read."""


def unquoted_text(text: str) -> UnquotedText:
    """Return what a person wrote himself, without the foreign text that he quotes."""
    own = _without_tagged(text)
    for quoted in (_FENCED, _MARKED, _QUOTED):
        own = quoted.sub("\n", own)
    own = _SAID_BY_OTHERS.sub(r"\g<says>", _without_mail(own))
    if len(_LOG_LINE.findall(own)) >= _LEAST_LOG_LINES:
        own = _LOG_LINE.sub("\n", own)
    for number, introduced in enumerate(_INTRODUCED.finditer(own)):
        if number == _MOST_INTRODUCED or _is_pasted(own, introduced.end()):
            own = own[: introduced.end()]
            break
    to_read = _TO_READ.search(own)
    if to_read is not None and _is_pasted(own, to_read.end(), least_chars=1):
        own = own[: to_read.end()]
    return UnquotedText(without_refused(own), own != text)


def _without_tagged(text: str) -> str:
    """Return a text without what stands between tags, `<mail>...</mail>` say."""
    for name in list(dict.fromkeys(_CLOSING_TAG.findall(text)))[:_MOST_TAGS]:
        start, end = text.find(f"<{name}>"), text.rfind(f"</{name}>")
        if 0 <= start < end:
            text = f"{text[:start]}\n{text[end + len(name) + 3 :]}"
    return text


def _without_mail(text: str) -> str:
    """Return a text without what stands behind the head of a mail."""
    heads = [found.start() for found in (_FORWARDED.search(text), _mail_head(text)) if found]
    return text[: min(heads)] if heads else text


def _mail_head(text: str) -> re.Match[str] | None:
    """Return the first lines of a mail's head; a mail that the person wants sent has no sender."""
    head = _MAIL_HEAD.search(text)
    return head if head and _SENDER.search(text, head.start()) else None


def _is_pasted(text: str, start: int, least_chars: int = LONG_TEXT) -> bool:
    """Say whether what stands behind a colon is a text that somebody else wrote.

    A list is the person's own, and so are addresses and names of files, and what he puts in
    quotation marks to have it used.
    """
    rest = text[start : start + _LOOKED_AT_CHARS]
    lines = [line for line in rest.strip().splitlines() if line.strip()]
    if not lines or all(_ITEM.match(line) or len(line.split()) == 1 for line in lines):
        return False
    names_source = len(lines) == 1 and _SOURCE.match(lines[0].strip()) is not None
    quoted = lines[0].lstrip()[:1] in "'\"“‘«" and least_chars > 1
    return len(rest.strip()) >= least_chars and not (quoted or names_source)
