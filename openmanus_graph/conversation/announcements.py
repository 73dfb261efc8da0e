"""Tells an answer from a text that only announces work. Pure.

Three kinds of evidence: the text breaks off (a colon, dots), its words say what the speaker does
next, or the task names files or addresses, nothing was called yet, and the text says nothing that
the task did not say. The last needs no knowledge of the language.
"""

import re

SHORT_CHARS = 600
"""Longer texts announce work in their last sentence only: before it they report."""
LAST_CHARS = 1000
"""Of a longer text that is looked at: its last sentence."""
LEAST_FACTS_CHARS = 400
"""A text this long says something of its own."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|`[^`\n]*`")
"""What somebody else says: a translation, a draft, a name."""
_ANNOTATION = re.compile(r"[*_#>\s\-–—•]+")
_BREAKS_OFF = re.compile(r"(?:[^\W\d_]\S* ){2}.*[^\W\d_]\s*:$|[\u3040-\u9fff]{4,}：$")
"""A last line of some words that ends with a colon."""
_DOTS = ("...", "…", "……")
_QUESTION = ("?", "？", "؟")
_NUMBER = re.compile(r"(?<!\d)\d+(?:[.,]\d+)*(?![.)] )")
"""A figure, but not that of a list's item."""
_ADDRESS = re.compile(r"https?://[^\s)>\"']+")
_FILE = re.compile(
    r"(?<![\w/-])[\w/-]++\.(?:csv|tsv|xlsx?|jsonl?|xml|ya?ml|txt|md|pdf|docx?|pptx?|html?|png|"
    r"jpe?g|gif|svg|py|ipynb|sh|sql|log|zip|parquet|toml|db|sqlite)\b",
    re.IGNORECASE,
)

_NEXT_OWN_ACTION = re.compile(
    # English
    r"\b(?:i['’]ll|i (?:will|shall|am going to|am about to|plan to|intend to|need to|have to)|"
    r"i should|"
    r"i['’]m (?:going to|about to|gonna|now)|i['’]d start|let me|let['’]s|we['’]ll|we will|"
    r"(?:i am|i['’]m) (?:now )?(?:starting|beginning|reading)|(?:proceeding|starting) (?:to|with)|"
    r"starting now|working on it|hang tight|stand by|(?:one|a) moment|please wait)\b"
    r"|^(?:now )?(?:reading|processing|checking|calling|running|opening|listing|comparing)\b"
    r"|^action: \w+"
    # German, Dutch, Scandinavian
    r"|\bich werde\b|\bwerde ich\b|\blass(?:t|en sie)? mich\b|\bich (?:beginne|schaue)\b"
    r"|\bich lese jetzt\b|\b(?:beginne|fange|lese) ich\b|\beinen moment\b"
    r"|\bik (?:ga|zal)\b|\b(?:ga|zal) ik\b"
    r"|\blaat me\b|\bjag (?:ska|kommer att)\b|\b(?:ska|kommer) jag\b|\bjeg (?:vil|skal)\b"
    r"|\b(?:vil|skal) jeg\b"
    # French, Spanish, Portuguese, Italian
    r"|\bje vais\b|\bje commence(?:rai)?\b|\blaissez-moi\b|\bje m['’]en occupe\b|\bun instant\b"
    r"|\bvoy a\b|\b(?:comenzaré|empezaré|leeré)\b|\bdéjame\b|\bvamos a\b|\bun momento\b"
    r"|\bvou \w+r\b|\bvou \w+ndo\b|\bcomeçarei\b|\bdeixe-me\b|\binizi(?:o|erò)\b|\bfammi\b"
    r"|\blasciami\b|\b(?!(?:im)?però\b)\w+[ei]rò\b"
    # Polish, Russian, Ukrainian, Turkish
    r"|\b(?:zacznę|przeczytam|sprawdzę|sprawdzam)\b|\bпозвольте мне\b|\b(?:начну|приступаю)\b"
    r"|\b(?:сначала|сперва|сейчас|теперь) (?:я|\w+ю)\b|\b(?:почну|зараз я)\b"
    r"|\b\w+(?:acağım|eceğim)\b|\bbaşlıyorum\b|\b\w+[ıiuü]yorum\b"
    # Arabic, Hindi, Vietnamese, Indonesian, Thai
    r"|\bسأ\w+|\bسوف أ\w*|\bدعني\b|(?:ूँगा|ूंगा|ूँगी|ूंगी)|\btôi sẽ\b|\bhãy để tôi\b"
    r"|\bsaya akan\b|\bmari kita\b|ผมจะ|ฉันจะ|ดิฉันจะ|กรุณารอ"
    # Chinese, Japanese, Korean: no spaces between words
    r"|我(?:将|會|会|先|来|來|就来|马上|现在就|准备|打算|这就|要先|需要)|我们(?:将|先|来|开始)|让我|讓我"
    r"|接下来我|正在|请稍|馬上|马上|(?:首先|第一步|下一步)[，,：:]?(?:读|讀|列|查|看)"
    r"|(?:まず|次に|これから|それでは|では).{0,60}(?:確認|読|調べ|開始|始め)\w*ます|(?:始め|はじめ)ます"
    r"|少々お待ち|(?:読み込み|読み込んで|確認し)\w*ます|겠습니다|할게요|시작합니다|기다려",
    re.IGNORECASE,
)
"""Words by which a speaker says what he does next, in the languages that models are used in."""

_NO_ACTION = re.compile(
    r"\b(?:if|once|when|whenever|should|unless) (?:you|there|it|they|the|anything|something)\b"
    r"|\blet me (?:know|be clear|explain|put|denote)\b|\bjust say\b|\bto you\b"
    r"|\b(?:i|we)(?:['’]ll| will| shall) (?:be (?:happy|glad|here|able)|wait|not\b|never\b|only\b|"
    r"gladly|leave|stop|assume|remember|keep|call you|always|subtract|tell you)"
    r"|\blet['’]s (?:assume|say|suppose|imagine|go|talk)\b"
    r"|\b(?:nie|nicht|wenn|falls|sobald)\b|\b(?:si|se|avísame|dites-moi)\b|\bno voy\b|\bom\b"
    r"|\b(?:если|jeśli|jika|nếu|olursa)\b|سعيد|буду (?:рад|ждать)"
    r"|如果|如有|需要的话|随时|请告诉我|我会很|我不会|我将不|让我解释|お知らせ|必要であれば|もし|よろしく"
    r"|ご報告|필요하|있으면|도와",
    re.IGNORECASE,
)
"""Offers, conditions, refusals and figures of speech: they end many answers."""

_WORDS_WANTED = re.compile(
    r"\b(?:translat|übersetz|tradu|poem|haiku|song|slogan|letter|e-?mail|reply|story|joke|draft|"
    r"conjugat|quote|minutes|gedicht|brief|poème|carta)|翻译|翻訳|번역|诗|信|メール",
    re.IGNORECASE,
)
"""Tasks that want a text in which somebody may speak of what he will do."""


def announces_work(text: str, *, task: str, worked: bool, asked: bool = False) -> bool:
    """Say whether a text only announces work that no call does.

    Args:
        text: Of a reply without tool calls.
        task: What the person said.
        worked: Whether the run has called a tool before.
        asked: Whether the model was asked already whether it meant an answer: dots at the end, and
            words in a text that was to be written, are then no evidence any more.
    """
    text = text.strip()
    if text.endswith(_QUESTION):
        return False  # to the person
    short = len(text) <= SHORT_CHARS and "```" not in text
    end = text if short else text[-LAST_CHARS:]
    if _BREAKS_OFF.search(end.rpartition("\n")[2]):
        return True
    if short and not asked and text.endswith(_DOTS):
        return True
    own_words = _QUOTED.sub("", end)
    sentences = [one for one in map(_plain, _SENTENCE_END.split(own_words)) if one]
    looked_at = sentences[-1:]
    if short:
        looked_at = sentences[-2:] if worked else sentences
    speaks = not (asked and _WORDS_WANTED.search(task))
    if speaks and any(map(_says_next_action, looked_at)):
        return True
    return not worked and names_things(task) and not says_something(text, task)


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
