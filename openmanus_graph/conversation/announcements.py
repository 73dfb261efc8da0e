"""Tells an answer from a text that only announces work. Pure.

Three kinds of evidence: the text breaks off (a colon, dots), its words say what the speaker does
next, or the task names files or addresses, nothing was called yet, and the text says nothing that
the task did not say. The last needs no knowledge of the language.
"""

import re

SHORT_CHARS = 600
"""Longer texts announce work in their last sentence only: before it they report."""
LEAST_FACTS_CHARS = 400
"""A text this long says something of its own."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|`[^`\n]*`")
"""What somebody else says: a translation, a draft, a name."""
_ANNOTATION = re.compile(r"[*_#>\s\-–—•]+")
_BREAKS_OFF = (":", "：")
_DOTS = ("...", "…", "……")
_QUESTION = ("?", "？", "؟")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ADDRESS = re.compile(r"https?://[^\s)>\"']+")
_FILE = re.compile(
    r"(?<![\w/-])[\w/-]++\.(?:csv|tsv|xlsx?|jsonl?|xml|ya?ml|txt|md|pdf|docx?|pptx?|html?|png|jpe?g|gif|svg|py|"
    r"ipynb|sh|sql|log|zip|parquet|toml|db|sqlite)\b",
    re.IGNORECASE,
)

_NEXT_OWN_ACTION = re.compile(
    # English
    r"\b(?:i['’]ll|i (?:will|shall|am going to|am about to|need to first|plan to|intend to)|"
    r"i['’]m (?:going to|about to|now going)|let me|let['’]s|we['’]ll|we will|"
    r"(?:i am|i['’]m) (?:starting|beginning))\b"
    # German, Dutch, Scandinavian
    r"|\bich werde\b|\bwerde ich\b|\blass(?:t|en sie)? (?:mich|uns)\b|\bich (?:beginne|fange)\b"
    r"|\b(?:beginne|fange) ich\b|\bik (?:ga|zal)\b|\b(?:ga|zal) ik\b|\blaat me\b"
    r"|\bjag (?:ska|kommer att)\b|\b(?:ska|kommer) jag\b|\bjeg (?:vil|skal)\b|\b(?:vil|skal) jeg\b"
    # French, Spanish, Portuguese, Italian
    r"|\bje vais\b|\bje commence(?:rai)?\b|\blaissez-moi\b|\bvoy a\b|\bcomenzaré\b|\bempezaré\b"
    r"|\bdéjame\b|\bvamos a\b|\b(?:eu )?vou (?:\w+r)\b|\bcomeçarei\b|\bdeixe-me\b"
    r"|\binizi(?:o|erò)\b|\bfammi\b|\blasciami\b|\b(?!però\b)\w+[ei]rò\b"
    # Polish, Russian, Ukrainian, Turkish
    r"|\b(?:zacznę|przeczytam|sprawdzę|zaraz)\b|\bпозвольте мне\b|\b(?:начну|буду|сейчас я)\b"
    r"|\b(?:сначала|сперва|теперь) я\b|\b(?:почну|зараз я)\b"
    r"|\b\w+(?:acağım|eceğim)\b|\bbaşlıyorum\b"
    # Arabic, Hindi, Vietnamese, Indonesian
    r"|\bسأ\w+|\bسوف أ\w*|\bدعني\b|(?:ूँगा|ूंगा|ूँगी|ूंगी)|\btôi sẽ\b|\bhãy để tôi\b"
    r"|\bsaya akan\b|\bmari kita\b"
    # Chinese, Japanese, Korean: no spaces between words
    r"|我(?:将|會|会|先|来|來|就来|马上|现在就|准备|打算|这就|要先|需要先|接下来)|让我|讓我|接下来"
    r"|我们(?:将|先|来|开始)"
    r"|(?:まず|次に|これから|それでは|では).{0,60}(?:ます|ましょう)(?:。|$)|(?:始め|はじめ)ます"
    r"|하겠습니다|할게요|겠습니다|시작합니다",
    re.IGNORECASE,
)
"""Words by which a speaker says what he does next, in the languages that models are used in."""

_NO_ACTION = re.compile(
    r"\blet me know\b|\bi(?:['’]ll| will| shall) (?:be (?:happy|glad|here|able)|wait|not\b|never\b|"
    r"leave|stop|assume|need)|\bif (?:you|there)|\blet['’]s (?:assume|say)\b"
    r"|\bwerde ich nicht\b|\bich werde nicht\b|\bwenn (?:du|sie)\b|\bsi (?:vous|tu|quiere|lo)\b"
    r"|如果|需要的话|请告诉我|我会很|我不会|我将不|お知らせ|必要であれば|もし|필요하시면",
    re.IGNORECASE,
)
"""Offers, conditions and refusals: they end many answers."""


def announces_work(text: str, *, task: str, worked: bool, asked: bool = False) -> bool:
    """Say whether a text only announces work that no call does.

    Args:
        text: Of a reply without tool calls.
        task: What the person said.
        worked: Whether the run has called a tool before.
        asked: Whether the model was asked already whether it meant an answer: then only its own
            words count against it.
    """
    text = text.strip()
    if text.endswith(_QUESTION):
        return False  # to the person
    short = len(text) <= SHORT_CHARS and "```" not in text
    if text.endswith(_BREAKS_OFF) or (short and text.endswith(_DOTS)):
        return True
    own_words = _QUOTED.sub("", text)
    sentences = [one for one in map(_plain, _SENTENCE_END.split(own_words)) if one]
    looked_at = sentences[-1:]
    if short:
        looked_at = sentences[-2:] if worked else sentences
    if any(map(_says_next_action, looked_at)):
        return True
    return not asked and not worked and names_things(task) and not says_something(text, task)


def names_things(task: str) -> bool:
    """Say whether a task names files or addresses: it cannot be done without a tool."""
    return bool(_FILE.search(task) or _ADDRESS.search(task))


def _says_next_action(sentence: str) -> bool:
    return bool(_NEXT_OWN_ACTION.search(sentence)) and not _NO_ACTION.search(sentence)


def says_something(text: str, task: str) -> bool:
    """Say whether a text holds what its task does not: figures, addresses, code, or much text."""
    if len(text) > LEAST_FACTS_CHARS or "```" in text:
        return True
    known = set(_NUMBER.findall(task)) | set(_ADDRESS.findall(task))
    return bool({*_NUMBER.findall(text), *_ADDRESS.findall(text)} - known)


def _plain(sentence: str) -> str:
    """Strip what Markdown puts before a sentence."""
    return _ANNOTATION.sub(" ", sentence).strip()
