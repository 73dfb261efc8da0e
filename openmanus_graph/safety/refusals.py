"""Takes out of a person's words what he refuses: "never write to x@y" names nobody to write to.

A text is read unit by unit: a sentence, a line, an item of a list. A unit with any word of refusal
or doubt verifies an address only in a clause that says with a verb to send something there, before
any word of refusal. What is doubtful is taken for refused: that costs a question, and the other
might cost a secret.
"""

import re
from collections.abc import Iterator

_GAP = " … "
"""Stands where a refusal was, so that what is before and behind it does not become one phrase."""
_W = "A-Za-z0-9_"
_ADDRESS = (
    rf"(?:https?://[^\s，。；、（）]{{1,300}}|www\.[{_W}./-]{{1,300}}"
    rf"|(?:(?<![{_W}.+%-])[{_W}.+%-]{{1,100}})?[@#][{_W}-]{{1,63}}(?:\.[{_W}-]{{1,63}}){{0,20}})"
)
_MAIL = rf"(?:(?<![{_W}.+%-])[{_W}.+%-]{{1,100}}@\w)"
_AN_ADDRESS = re.compile(_ADDRESS)
_VERB = (
    r"(?:send|e-?mail|mail|write|use|forward|share|post|give|pay|invite|add|copy|cc|tell|ask|book|call"
    r"|transfer|message|notify|contact|deliver|open|visit|read|delete|reply|answer|inform|remind|text"
    r"|introduce|schedule|create|let(?!\s+\S+\s+not)|warn|complain|schreibe?|schicke?|sende|leite|antworte"
    r"|écris|écrivez|envoie|envoyez|escribe|envía|manda|reenvía)\b"
)
_VERB_ZH = (
    r"(?:发|發|寄|写|寫|联系|聯繫|给|給|用|转|轉|抄送|通知|告诉|告訴|邀请|邀請|访问|打开"
    r"|回复|回覆|问|分享)"
)
_HARMLESS = (
    rf"\A\s*(?:no|nope|nah|nein|non|不)\s*[,.;:!，。：！]\s*(?=(?:please\s+)?(?:to\b|use\b|take\b|{_VERB}|{_VERB_ZH}))"
    r"|\b(?:(?:don[’']?t|do\s+not|never|not)\s+(?:forget|hesitate|fail|worry|neglect|omit|mind)"
    r"|not\s+(?:only|sure|certain|yet|later|until|more|less)|(?:why|if|or)\s+not|no\.?\s*#?\d+"
    r"|(?:nobody|no\s+one|nothing)\s+(?:but|except|other\s+than)"
    rf"|(?:don[’']?t|do\s+not|never)\s+{_VERB}[^.,;\n@]{{0,30}}\b(?:any(?:one|body))\s+(?:but|except|other\s+than)"
    r"|(?:can|could|won|would)n?[’']?t\s+you|without\s+delay"
    r"|(?:if|when|once)\s+\S{1,200}\s+(?:does|did|has|have)(?:n[’']t|\s+not)"
    r"|(?:I|we)\s+(?:can[’']?t|cannot|could\s?n[’o]t|have(?:n[’']t|\s+not|\s+never)|did(?:n[’']t|\s+not))"
    r"\s+(?:reach|hear|heard|find|written|met|know))\b"
    r"|(?:不要|别|勿)忘|[别不]担心|不(?:仅|但|只|过|一定|知道|含|错|同|久|急|客气|好意思)|[要是能会]不[要是能会]"
    r"|没关系|非(?:常|洲|得)|无(?:论|线|锡)"
)
"""Negations that refuse nothing."""
_THING = (
    r"\b(?:skip|ignor(?:e|ing)|avoid(?:ing)?|exclud(?:e|es|ed|ing)|omit|except(?:ing)?|without|barring"
    r"|(?:other|rather)\s+than|instead\s+of|(?:apart|aside)\s+from|minus)\b"
    r"|跳过|忽略|除(?:了|开)|不用|没有|避开"
)
"""Words that may refuse a thing only: "skip the pictures and mail x"."""
_HARD = (
    r"\b(?:never|don[’']?t+[’']?t?|cannot|not|nothing|none|no|nope|neither|nor|nobody|\w{1,12}n[’']t|cant|wont|dont"
    r"|hands\s+off|stop|quit|ceas(?:e|ing)|refrain|refus(?:e|es|ed|al)|reject(?:ed)?|deny|denied|declin(?:e|ed)|forbid(?:den)?"
    r"|prohibit(?:ed|s)?|ban(?:ned|s)?|block(?:ed|s|ing)?|black-?list(?:ed)?|block-?list(?:ed)?|distrust"
    r"|beware|watch\s+out|careful|forget|uninvite|unsubscribe|revoke|unless|sue|dnc"
    rf"|(?:keep|kept|hide|take|leave)(?=[^;\n]{{1,80}}?\b(?:from\s+{_ADDRESS}|away|out|off|alone|secret|dark)\b)"
    r"|(?:stay|keep)\s+(?:away|clear|off)"
    rf"|(?:remove|drop|delete)(?=\s+(?:\w+\s+)?{_MAIL})|leave\s+o(?:ff|ut)|zero|illegal|cancel\s+the\s+invitation"
    r"|(?:any|every)(?:one|body)\s+but|(?:all|everyone|everybody|none)\s+(?:but|save|bar)"
    r"|nicht|nie(?:mals?|mand\w*)?|nichts|kein\w{0,2}|ohne|außer|jamais|ne|pas|sans|sauf|aucun\w*|personne|rien"
    r"|nunca|jamás|sin|excepto|ning[uú]n\w*|nadie|nada|tampoco|não|nem|non(?!-)|senza|никогда|никому|не|без|кроме)\b"
    r"|\bn[’'](?=\w)|[❌🚫⛔✗✘]"
    r"|[不勿毋莫無无没沒拒禁唔甭]|(?<![特分级类性识区辨个告离派差])[别別](?![人的墅名处致])|切忌|停止|避免|防|免得|以免|屏蔽|拉黑|阻止"
    rf"|排除|(?:剔除|移除|去掉|删掉|删除)(?=[^，。\n并发给]{{0,6}}{_MAIL})|瞒|瞞|保密|休要|非|误发|错发|举报|投诉|小心|当心|警惕"
    r"|别理|除外|从[^，。\n]{0,20}(?:删除|移除)|未(?![来读完])|(?<![删移解消扣去开免拆卸])除(?=[^，。\n]{1,200}外)"
    r"|\b(?:if|when|whenever|should|in\s+case)\s+(?:(?:asked|told)\b|(?:(?:any|some)(?:one|body)"
    r"|(?:an?|the|some|any)\s+(?:e?-?mail|message|page|website|site|document|file|letter|tool|text"
    r"|user|person|comment|post|stranger))\b(?=[^.;\n]{0,40}?\b"
    r"(?:ask|tell|told|want|say|said|order|instruct|request|demand)))"
    r"|ないで|しない|なく|않|마세요|말고|금지"
    r"|如果?(?=[^，。\n]{0,20}(?:让|要求|叫))"
)
"""Words that refuse what is behind them, as far as their clause reaches."""
_SOFT = (
    r"\b(?:spam\w*|scam\w*|phish\w*|fake|fraud\w*|wrong(?:ly)?|old|dead|suspicious|unwanted|enem(?:y|ies)|attackers?"
    r"|malicious|untrusted|trustworthy|invalid|has\s+left|stole|steal|mistake|accidentally|otherwise|disaster|hate"
    r"|is\s+out|illegal|prohibited|off[\s-]limits|bad|excluded|who\s+is|offen[cs]e)\b|\[\s\]"
    rf"|{_ADDRESS}\s+(?:wrote|writes|said|says|wants|asked|tries)\b|\bdid\s+{_ADDRESS}|\bis\s+{_ADDRESS}[^.\n]{{0,60}}\?"
    rf"|骗|離職|离职|黑名单|可疑|{_ADDRESS}\s*(?:给我|的邮件|发来|寄来|写)|来自\s*{_ADDRESS}"
)
"""Words of doubt, and mentions: an address beside them is wanted only with a verb."""
_MENTION = (
    rf"~~[^~\n]{{1,200}}~~|\b(?:from|by|about|against|of)\s+(?!https?:|www\.){_ADDRESS}"
    rf"|\b(?:add|move|put)\b[^;\n]{{1,200}}?\b(?:block|black|ban|spam|deny)[\s-]?(?:list|folder)?\b"
)
"""An address that is only spoken of."""
_WORD = re.compile(
    rf"(?P<harmless>{_HARMLESS}"
    rf"|(?>{_ADDRESS})(?!\s+(?:wrote|writes|said|says|wants|asked|tries)\b|\s*(?:给我|的邮件|发来|寄来|写)))"
    rf"|(?P<mention>{_MENTION})|(?P<thing>{_THING})|(?P<hard>{_HARD})|(?P<soft>{_SOFT})",
    re.IGNORECASE,
)
_FROM_WANTED = re.compile(r"\b(?:reply|answer|respond|hear|heard|ask|request|order|buy)\b", re.I)
_FILLER = r"(?:(?:and|then|so|please|just|simply|only|now|also|hence|therefore)\s+)*"
_LIST = (
    rf"(?!(?:{_VERB}\s*,?\s*){{1,6}}(?:and|or|nor)\s+{_VERB})(?![^.!?\n]{{0,200}}\b(?:or|nor)\b)"
)
_DO_ZH = (
    rf"(?:请|請|只|就|应|要|改|直接|而|并|再|然后|这次|现在|其他|其余|都|[把将][^，。；\n]{{1,30}}?){{0,3}}{_VERB_ZH}"
    r"(?![^。！？；\n]{0,200}(?:或|和|、))"
)
_TURN = re.compile(
    r"(?P<turn>\b(?:but|however|instead(?!\s+of)|though|although|sondern|aber|mais|pero|sino)\b|[;；]|而是|但是|但|却"
    rf"|[,，—–]\s*{_FILLER}{_LIST}(?={_VERB})|[,，]\s*(?={_DO_ZH})|\bso\s+{_FILLER}(?={_VERB})"
    rf"|\bwhen\s+you\s+(?={_VERB})|就(?={_VERB_ZH})|[请請](?={_VERB_ZH}))"
    rf"|(?P<after_thing>\b(?:and|then)\s+{_FILLER}(?={_VERB})|(?<=ing)\s+(?={_VERB})|并(?={_DO_ZH})"
    rf"|[,，](?=\s*(?:其他|其余|一律))|\bto\s+(?={_ADDRESS}))"
    rf"|(?P<line>\n\s*{_FILLER}(?={_VERB})|[,，](?=[^\S\n]*\S))",
    re.IGNORECASE,
)
"""Where a sentence turns to what is wanted; a list of verbs ("write, mail or call") is no turn."""
_POSITIVE = re.compile(
    r"(?:^|[,;:—–(.!?\n-]|\b(?:please|you|and|then|so|just|now|to|must|should|also|only|simply|kindly|instead|do|did"
    rf"|always|whatever|not|them?|him|her|me|it|it[’']s)\s)[\s\"'*]*{_VERB}|{_VERB_ZH}",
    re.IGNORECASE,
)
_DIRECTLY = re.compile(
    rf"[\s:：]*(?:(?:rather|only|to|for|with|at|an|à|a|是|给|发给)\s*){{0,3}}(?>{_ADDRESS})\s*(?:[,，。.!?].*)?$",
    re.I | re.S,
)
_UNIT_END = re.compile(
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)(?<!\b[Mm][rs]\.)(?<!\b[Dd]r\.)(?<!\bvs\.)(?<!\bMrs\.)(?!(?<=\b[Nn]o\.)\s?\d)"
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]”’»]))[ \t]+|[。！？]|(?<=[.!?:：。！？])[ \t]*\n\s*"
    r"|\n[ \t]*\n\s*"
    r"|\n(?!\s*[a-zäöüéàñ]{2,}[ ,])"
)
_ITEM = re.compile(r"\s*(?:[-*•|]|\d{1,3}[.)])\s")
_HOLDS_WORD = re.compile(r"\w")
_NO_WORD = re.compile(r"\b(?:please|ever|really|again|repeat|at|all|to|and|or|even)\b|\W+", re.I)
_LEFT_OPEN = re.compile(
    rf"(?:[:：,，]|\b(?:to|with|an|à|for)|\b{_VERB}|\b(?:never|not|don[’']?t|cannot|avoid|stop|no)|给|到)\s*$",
    re.I,
)
_MOST_WORDS = 3
"""Words beside its addresses that a unit may have to belong to the refusal before it."""
_LONGEST = 4000
"""Characters of a unit; behind a refusal in a longer one nothing counts as wanted."""

Span = tuple[int, int]


def without_refused(text: str) -> str:
    """Return a text without what it refuses."""
    kept, end = list[str](), 0
    for start, stop in sorted(_refused(text)):
        if start > end or not kept:
            kept += (text[end:start], _GAP)
        end = max(end, stop)
    return "".join((*kept, text[end:]))


def _refused(text: str) -> Iterator[Span]:
    """Yield where a text refuses something, with what a refusal reaches of the units beside it."""
    reaching = listed = left_open = False
    for start, stop in _units(text):
        unit = text[start:stop]
        if not _HOLDS_WORD.search(unit) and not unit.strip():
            continue
        item = bool(_ITEM.match(unit))
        if reaching and (left_open or (listed and item) or _is_bare(unit)):
            yield start, stop
            left_open = False
            continue
        spans, reaching = _refused_in(unit)
        yield from ((start + first, start + last) for first, last in spans)
        end = unit.rstrip()
        listed, left_open = end.endswith((":", "：")), bool(_LEFT_OPEN.search(end[-80:]))


def _units(text: str) -> Iterator[Span]:
    start = 0
    for end in _UNIT_END.finditer(text):
        if end.end() > start:
            yield start, end.end()
            start = end.end()
    if start < len(text):
        yield start, len(text)


def _is_bare(unit: str) -> bool:
    """Say whether a unit is little more than addresses."""
    if len(unit) > _LONGEST or not _AN_ADDRESS.search(unit) or _POSITIVE.search(unit):
        return False
    return len(_AN_ADDRESS.sub(" ", unit).split()) <= _MOST_WORDS + 1


def _refused_in(unit: str) -> tuple[list[Span], bool]:
    """Return where a unit refuses something, and whether that reaches into the next unit."""
    words = [found for found in _WORD.finditer(unit[:_LONGEST]) if found.lastgroup != "harmless"]
    if words and len(unit) > _LONGEST:
        return [(words[0].start(), len(unit))], True
    asks = _FROM_WANTED.search(unit)
    spans = [
        word.span()
        for word in words
        if word["mention"] and not (asks and asks.start() < word.start())
    ]
    words = [word for word in words if not word["mention"]]
    reaches = False
    for first, last, turned in _clauses(unit, words) if words else ():
        refusal = next((w for w in words if first <= w.start() < last and not w["soft"]), None)
        wanted_to = refusal.start() if refusal else last
        if not (turned and _DIRECTLY.match(unit[first:last])):
            spans += _unwanted(unit, first, wanted_to)
        if refusal:
            spans.append((wanted_to, last))
        reaches = refusal is not None and not (
            _AN_ADDRESS.search(unit, wanted_to)
            or (_AN_ADDRESS.search(unit, first, wanted_to) and not _LEFT_OPEN.search(unit.rstrip()))
        )
    return spans, reaches


def _clauses(unit: str, words: list[re.Match[str]]) -> Iterator[tuple[int, int, bool]]:
    """Yield the clauses of a unit, and whether each begins with a turn."""
    first, turned, number, last = 0, False, 0, None
    for turn in _TURN.finditer(unit):
        while number < len(words) and words[number].start() < turn.start():
            last = words[number]
            number += 1
        if last and last.end() > turn.start():  # a part of the refusal: "anyone but"
            continue
        refused = last is not None and last.start() >= first and not last["soft"]
        between = unit[last.end() : turn.start()] if last and refused else ""
        if refused and last and not _turns(unit, turn, last, between, first):
            continue
        if turn["turn"] is None and turn["line"] is None and not refused:
            continue
        yield first, turn.start(), turned
        first, turned = turn.end(), turn["line"] is None
    yield first, len(unit), turned


def _turns(
    unit: str, turn: re.Match[str], refusal: re.Match[str], between: str, first: int
) -> bool:
    """Say whether a turn ends a refusal: what it refuses is between them."""
    if turn[0][:1] in ",，—–" and not _NO_WORD.sub("", between):
        return False
    if turn["line"]:
        return turn[0][0] == "\n" and _AN_ADDRESS.search(between) is not None
    if turn["after_thing"]:
        if refusal["thing"] is None or _AN_ADDRESS.search(between):
            return False
        if turn[0].lower().startswith("to"):
            before = unit[first : refusal.start()]
            return bool(_POSITIVE.search(before)) and not re.search(r"\b(?:to|with)\b|[@#]", before)
    return True


def _unwanted(unit: str, first: int, last: int) -> Iterator[Span]:
    """Yield the addresses of a clause that no verb says to send something to."""
    verb = _POSITIVE.search(unit[first:last])
    yield from (
        found.span()
        for found in _AN_ADDRESS.finditer(unit, first, first + verb.start() if verb else last)
    )
