"""Finds which bare numbers and small words a person used as names.

"It takes 5 hours" names no file 5, and "tell me all" names no group called all.
"""

import re
from collections.abc import Collection, Sequence

from openmanus_graph.safety import word_set
from openmanus_graph.safety.values import NUMBER, words_in

SMALL_WORDS = word_set(
    "a an the this that these those and or but not no nor if so as at by for from in into of off "
    "on onto out over to up with about after before between during until via per than then there "
    "here i me my mine we us our ours you your yours he him his she her hers it its they them "
    "their who whom whose what which when where why how all any both each every everyone everybody "
    "anyone anybody someone somebody other others another same such some few more most is am are "
    "was were be been being do does did have has had can could may might must shall should will "
    "would please yes ok just only also too now today new main default general random public "
    "private admin administrator root support team staff user users member members group channel "
    "owner host guest guests test"
)
"""Words that any task may contain. They count as values only if they are used as names."""
_IDS = r"ids?|uid|numbers?|no\.|nr\.?|num|refs?|reference|phone|tel|mobile|extension|accounts?"
_NOUNS = (
    rf"{_IDS}|no|files?|documents?|docs?|folders?|orders?|tickets?|issues?|prs?|requests?|invoices?"
    r"|transactions?|payments?|transfers?|appointments?|events?|meetings?|messages?|e-?mails?|records?"
    r"|entry|entries|items?|tasks?|jobs?|cases?|users?|customers?|clients?|contacts?|members?|channels?|rooms?|chats?"
    r"|threads?|groups?|posts?|comments?|bookings?|reservations?|contracts?|products?|articles?|nodes?|devices?|cards?"
    r"|wallets?|keys?|bugs?|builds?|containers?|recipients?|notes?|photos?"
    r"|pictures?|rows?|alarms?|subscriptions?"
    r"|flights?|drafts?"
)
_KINDS_ZH = {
    "文件": "file", "编号": "", "号码": "", "订单": "order", "工单": "ticket", "任务": "task",
    "账号": "account", "账户": "account", "用户": "user", "事件": "event", "邮件": "email",
    "消息": "message", "会议": "meeting", "记录": "record", "项目": "item", "房间": "room",
    "频道": "channel", "电话": "phone", "手机": "phone", "照片": "photo", "图片": "photo",
    "航班": "flight", "闹钟": "alarm", "行": "row", "草稿": "draft", "订阅": "subscription",
}  # fmt: skip
"""Words for things that have numbers, with their kind; empty for any kind."""
_NOUNS_ZH = "|".join(sorted(_KINDS_ZH, key=len, reverse=True))
_LIKE = (
    word_set("pr pull issue request bug ticket case"),
    word_set("file document doc note article attachment"),
    word_set("event appointment meeting calendar booking reservation"),
    word_set("message email mail thread post comment chat"),
    word_set("user member customer client contact recipient account person phone"),
    word_set("order invoice payment transaction transfer bill item product"),
    word_set("task job item ticket issue todo"),
    {"room", "channel", "group", "chat"},
    {"folder"}, {"record", "entry"}, {"contract"}, {"node"}, {"device"}, {"card"}, {"wallet"},
    {"build"}, {"container"}, {"photo", "picture", "image", "file"}, {"row", "line", "record"},
    {"alarm"}, {"subscription"}, {"flight", "booking"}, {"draft", "message", "email", "mail"},
)  # fmt: skip
"""Kinds of things that have ids. Words for the same thing are in the same set."""
_KINDS = frozenset[str]().union(*_LIKE)
_WITH_ID = re.compile(
    rf"(?i)(?:[#№]|\b(?:(?:\w+_)?(?P<noun>{_NOUNS})(?!\w)(?P<marks>[\s\"'“‘(\[:=]*))?"
    rf"\b(?:\w+_)?(?P<word>{_NOUNS})(?!\w)(?:[\s\"'“‘(\[:=]|\b(?P<is>is|are)\b|\b(?:the|called|named|numbered)\b)*)$"
)
_WITH_ID_ZH = re.compile(
    rf"(?i)(?P<word>{_NOUNS_ZH})\s*(?P<no>编号|号码|号)?(?P<marks>[是为\s:：\"“（(]*)$"
)
_USED_AS_ID_ZH = re.compile(rf"^\s*号(?P<word>{_NOUNS_ZH})")
_ORDINAL_ID_ZH = re.compile(rf"^\s*(?:号(?!线|楼|门|公路|站|机)(?P<word>{_NOUNS_ZH})?|(?P<row>行))")
_DAY_ZH = re.compile(r"月\s*$")
_HELD_ON_DAY_ZH = re.compile(r"^\s*号(?:会议|事件)")
_PLURAL = re.compile(r"(?:(?<!s)s|entries)$", re.IGNORECASE)
_MORE = re.compile(r"^[\"'”’)\]]*\s*(?:,|;|&|、|and|or|,\s*and)\s*[#\"'“‘(]*\d", re.IGNORECASE)
_VERB = re.compile(
    r"(?i)(?:^|[.!?;,:\n]|\b(?:please|and|to|then|you|we|i|can|could|should|will|let's))\s*"
    r"(?:orders?|requests?|transfer|build|post|e-?mail|message|note|contact|book)\s*$"
)
_ABOUT_IT = re.compile(r"^\s*(?:is|was|has)\b", re.IGNORECASE)
_HEADING = re.compile(r"(?:^|[.!?;,\n)])\s*(?:task|item|case|note|job)\s*$", re.IGNORECASE)
_HEADED = re.compile(r"^\s*[:.)–-]\s*\w")
_RATED = re.compile(r"\b(?:rate|score|grade|give|mark)\b[^.!?\n]*$", re.IGNORECASE)
_COMMANDED = re.compile(
    r"(?i)\b(?:delete|remove|cancel|close|open|update|edit|archive|share|approve|reject|merge|reopen"
    r"|restore|unsubscribe)\s+[\"'“‘(]*$|(?:删除|取消|关闭|打开)\s*$"
)
_CALLED_UP = re.compile(
    r"(?i)\b(?:call|phone|dial|ring|text|sms|message|whatsapp)\s+[\"'“‘(]*$|(?:打电话给|拨打|致电|联系|发短信给|打给)\s*$"
)
_GOES_ON = re.compile(
    r"(?i)^\s*[\"'”’)\]]*\s*(?:$|[.,;:!?。，；！？、&]|(?:to|by|in)\b(?!\s+\d)|(?:and|or)\b(?!\s+(?:up|more|less)\b)"
    r"|of\b(?!\s+(?:them|these|those|it|us|my|our|your|each|all|\d+)\b)"
    r"|\b(?:from|on|at|for|with|is|are|was|has|please|now|then|if|as|but|into|via|that|which|until|before|after|also"
    r"|too|instead|again|back|today|tomorrow|first|because|since|when|while|using)\b|[和或及并])"
)
"""After a number that counts nothing."""
_COUNTS = re.compile(
    r"(?i)^\s*[-–]?\s*(?:[%‰°€$£¥′]|(?:percent|hours?|hrs?|h|minutes?|mins?|seconds?|secs?|days?|weeks?|months?|years?|times"
    r"|euros?|eur|dollars?|usd|pounds?|gbp|chf|yen|rmb|cents?|people|children|men|women|km|cm|mm|m|kg|g|mb|gb|kb|tb|x|am|pm"
    r"|o[’']clock|per|degrees?|dozen|hundred|thousand|million|percent)\b"
    r"|of\s+(?:them|these|those|it|us|my|our|your|each|all)\b"
    r"|(?!(?:is|was|has|as|this|its|does|us|plus|always)\b)(?:(?!of\b)[a-z-]+\s+){0,1}[a-z]{2,}s\b"
    r"|stars?\b|[星折成路]|号(?:线|楼|门|公路)|[个小天分元块人次页年月日点岁公米章节版篇条只件张份度封位名晚夜周瓶杯辆台部套间层期箱袋双对家种类组万千百亿克斤升美欧英])"
)
_RANK = re.compile(
    r"(?i)\b(?:rank(?:ed|s|ing)?|we're|we are|i'm|i am|you're|page|step|level|chapter|version"
    r"|top|watch\s+channel)"
    r"\s*[#№]?\s*$"
)
_RANKED = re.compile(
    r"(?i)^\s*(?:in\s+the\s+charts?|on\s+(?:my|the|our)\s+list|priority|hit|fan|choice)\b"
)
_TITLE = re.compile(r"(?P<own>[A-Z][a-z]+)\s+(?i:no\.?|nr\.?|number)\s*$")
"""Before a number that is a part of a title: `Chanel No. 5`."""
_NUMBER_IS = re.compile(r"\bnumbers?\s*(?:\b(?:is|are)\b|[:=])\s*$", re.IGNORECASE)
"""Before a number that names nothing: `My lucky number is 5`."""
_CURRENCY = re.compile(r"(?:[$€£¥₹]|\b(?:eur|usd|gbp|chf))\s*$", re.IGNORECASE)
_LIST = re.compile(r"^[\"'”’)\]]*\s*(?:,|;|&|、|and|or|和|及|,\s*and)\s*[#\"'“‘(]*$", re.IGNORECASE)
_LONG = re.compile(r"\d{5,}")
_ASKS_WHICH = re.compile(r"\bwhich\b|\b(?:id|uid|reference)\b|哪|编号", re.IGNORECASE)
_ASKS_HOW_MANY = re.compile(r"\bhow\b|多少|几", re.IGNORECASE)
_GROUPS = word_set("everyone everybody all admin administrator root support team staff")
_CALLS = word_set("user channel group room team role chat account alias label called named")
"""A name follows these words."""
_PLACES = word_set("channel group room team role chat list")
_TELLS = word_set("to cc tell ask notify invite mention mail email message inform")
_RECEIVES = _TELLS | word_set(
    "assign kick ping call text contact server store hotel restaurant company bucket repo "
    "repository member guest"
)
"""A recipient or a place follows these words."""
_GIVES = word_set("pay write send give show forward")
"""A recipient, and what he gets, follow these words: "send bob the file"."""
_GIVEN = word_set(
    "the a an my our his her their this that these those it all some about back access"
)
_JOINS = frozenset({"add", "remove"})
_MEETS = word_set(
    "channel group room team role chat repo repository meeting event organization organisation "
    "server thread call project board"
)
_BESIDE = {
    "with": word_set(
        "share shared meet meeting call chat speak talk discuss sync appointment schedule"
    ),
    "in": word_set("post publish announce say ask message"),
    "from": {"order", "buy", "purchase", "book"},
    "at": {"book", "reserve", "table", "order"},
}  # fmt: skip
"""Prepositions before a recipient or a place, with the words that must be near."""
_NEAR = 8
_THINGS = re.compile(
    rf"(?:{_NOUNS}|inbox|results?|summary|summaries|reports?|news|projects?|pictures?|photos?|links?|pages?"
    r"|people|everything|something|monday|tuesday|wednesday|thursday|friday|saturday|sunday|money|info|information|details|data|text|home"
    r"|work|office|prices?|invites?|invitations?|calls?|names?|address|addresses|love|feedback|detail|mind"
    r"|code|tests?|form|cent(?:er|re)|rules?|errors?|lists?|attention|once|noon|midnight|advice"
    r"|english|german|french|spanish|italian|portuguese|russian|chinese|japanese"
    r"|markdown|json)"
)
"""What is sent, or when, but not to whom."""
_SAYS_OF_IT = word_set(
    "wants needs sent wrote said says will should must can cannot did told paid got"
)
_THE = frozenset({"the", "our", "my"})
_MARKED = re.compile(r"(?:[@#]|[\"'“‘「])$")
_SENTENCE = re.compile(r"[.!?:\n。！？]")
_WORD = re.compile(r"[^\W\d_]+")
_NO_NAMES = SMALL_WORDS - _GROUPS - word_set("general random main default public private test")
"""Small words that are names only if they are marked."""
_CHARS = 60


class SaidNames:
    """The bare numbers and words that a person used as names."""

    def __init__(self) -> None:
        self._named: dict[str, set[str]] = {}
        """Names, with the kinds of things they name; empty for any kind."""
        self._open: set[str] = set()
        """Numbers alone. They are names unless they count something."""
        self._counted: set[str] = set()

    def read(self, text: str, asked: str = "") -> None:
        """Read the words of a person, and the question that they answer."""
        words = list(words_in(text))
        if asked and len(words) == 1 and words[0][0].startswith(NUMBER):
            if _ASKS_WHICH.search(asked) and not _ASKS_HOW_MANY.search(asked):
                self._name(words[0][0], kinds_in(asked) or {""})
            return
        self._read_words(text, words)
        self._read_numbers(text, words)

    def _read_words(self, text: str, words: Sequence[tuple[str, int, int]]) -> None:
        last = 0
        for place, (token, start, end) in enumerate(words):
            follows = last > 0 and _LIST.match(text[last : min(start, last + _CHARS)]) is not None
            marked = start > 0 and _MARKED.match(text[start - 1])
            is_marked = marked and not text.startswith("'s", end)
            is_named = is_marked or _is_called(words, place)
            if token not in SMALL_WORDS:
                is_named = is_named or follows or _is_proper(text, words, place)
                is_named = is_named or _receives(words, place)
            if is_named and _WORD.fullmatch(token):
                last = end
                self._name(token, {""})

    def _name(self, token: str, kinds: Collection[str]) -> None:
        self._named.setdefault(token, set()).update(kinds)

    def _read_numbers(self, text: str, words: Sequence[tuple[str, int, int]]) -> None:
        use: str | None = None
        last_token, last = "", 0
        for token, start, end in words:
            if not token.startswith(NUMBER):
                continue
            goes_on = last > 0 and _LIST.match(text[last:start][:_CHARS]) is not None
            before = text[max(0, start - _CHARS) : start]
            after = text[end : end + _CHARS]
            if not goes_on:
                use = _use_of(token, before, after)
            elif _COUNTS.match(after) or not _GOES_ON.match(after):
                use = None
            if use is None:
                self._counted.add(token)
                if goes_on:  # "5 or 6 hours"
                    self._counted.add(last_token)
                    self._named.pop(last_token, None)
            elif use == _OPEN:
                self._open.add(token)
            else:
                self._name(token, {use})
            last_token, last = token, end

    def names(self, token: str, kinds: Collection[str] = ()) -> bool:
        """Return True if a bare number or small word was used as a name. Other words always are.

        `kinds` are those of the things whose id the token may be; any if empty.
        """
        if not (token in SMALL_WORDS or token.startswith(NUMBER)):
            return True
        if token in self._open and token not in self._counted:
            return True
        return any(
            not one
            or not kinds
            or one in kinds
            or any(one in like and not like.isdisjoint(kinds) for like in _LIKE)
            for one in self._named.get(token, ())
        )

    def receives(self, tokens: Sequence[str]) -> bool:
        """Return True if a value was used as the name of a recipient or a place."""
        telling = [token for token in tokens if token not in SMALL_WORDS] or tokens[-1:]
        if len(telling) > 1 or not _WORD.fullmatch(telling[0]) or not telling[0].isascii():
            return True
        return telling[0] in self._named


def kinds_in(name: str) -> frozenset[str]:
    """Return the kinds of things that a name, or a sentence, mentions."""
    words = (one.lower() for one in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))
    forms = (form for one in words for form in (one, one.removesuffix("s")))
    return _KINDS.intersection(forms)


_OPEN = "open"


def _use_of(token: str, before: str, after: str) -> str | None:  # noqa: C901
    """Return the kind of what a number names: "" for any, `_OPEN` if it may; None if it counts."""
    if _DAY_ZH.search(before) or _CURRENCY.search(before):
        return None
    if before.rstrip().endswith("第"):
        ordinal = _ORDINAL_ID_ZH.match(after)
        return _KINDS_ZH.get(ordinal["word"] or ordinal["row"] or "", "") if ordinal else None
    if used := _USED_AS_ID_ZH.match(after):
        return None if _HELD_ON_DAY_ZH.match(after) else _KINDS_ZH[used["word"]]
    if _RANK.search(before) or _RANKED.match(after):
        return None
    if titled := _TITLE.search(before):
        own = titled["own"].lower()
        if not (own == "please" or re.fullmatch(_NOUNS, own) or _COMMANDED.search(f"{own} ")):
            return None
    if before.endswith(("#", "№")):
        return ""
    if _COUNTS.match(after) or (after.startswith(("'", "’")) and not _MARKED.search(before)):
        return None
    if zh := _WITH_ID_ZH.search(before):
        is_number = zh["no"] or not _KINDS_ZH[zh["word"]] or zh["word"] in ("账号", "电话", "手机")
        return _KINDS_ZH[zh["word"]] if is_number or not set("是为") & set(zh["marks"]) else None
    if not _GOES_ON.match(after):
        return None
    if found := _WITH_ID.search(before):
        return _kind_of(found, before, after)
    if not before.strip() or _COMMANDED.search(before):
        return _OPEN
    return _OPEN if _LONG.search(token) and _CALLED_UP.search(before) else None


def _kind_of(found: re.Match[str], before: str, after: str) -> str | None:
    """Return the kind of what a number next to a noun names; None if it names nothing."""
    word = (found["word"] or "").lower()
    is_id = re.fullmatch(_IDS, word) is not None
    if not found["noun"] and (word == "no" or _NUMBER_IS.search(before)):
        return None
    if (found["is"] and not is_id) or _RATED.search(before):
        return None
    if _PLURAL.search(word) and not _MORE.match(after):
        return None
    if _VERB.search(before) and not _ABOUT_IT.match(after):
        return None
    if _HEADING.search(before) and _HEADED.match(after):
        return None
    kinds = kinds_in(f"{found['noun'] or ''} {word}")
    return next(iter(sorted(kinds)), "")


def _is_called(words: Sequence[tuple[str, int, int]], place: int) -> bool:
    """Return True if a word is used as a name: `the general channel`, `tell everyone`."""
    token = words[place][0]
    before = [one[0] for one in words[max(0, place - 2) : place]]
    behind = words[place + 1][0] if place + 1 < len(words) else ""
    if token in _NO_NAMES:
        return False
    if behind in _PLACES and token not in _PLACES and not _THINGS.fullmatch(token):
        return True
    if before and before[-1] in _THE:
        before.pop()
    if not before:
        return False
    if token in SMALL_WORDS:
        return token in _GROUPS and before[-1] in _TELLS
    return before[-1] in _CALLS and not _THINGS.fullmatch(token)


def _receives(words: Sequence[tuple[str, int, int]], place: int) -> bool:
    token, before = words[place][0], words[place - 1][0] if place else ""
    if _THINGS.fullmatch(token):
        return False
    near = {one.split("-")[0] for one, _, _ in words[max(0, place - _NEAR) : place + _NEAR]}
    if before in _GIVES:
        behind = words[place + 1][0] if place + 1 < len(words) else ""
        return behind in _GIVEN or behind.startswith(NUMBER)
    if before in _JOINS:
        return not _MEETS.isdisjoint(near)
    return before in _RECEIVES or not near.isdisjoint(_BESIDE.get(before, ()))


def _is_proper(text: str, words: Sequence[tuple[str, int, int]], place: int) -> bool:
    token, start, _ = words[place]
    if not text[start].isupper() or _THINGS.fullmatch(token):
        return False
    between = text[words[place - 1][2] : start] if place else ""
    if place and not _SENTENCE.search(between):
        return True
    following = words[place + 1][0] if place + 1 < len(words) else ""
    if following == "and":  # "Anna and Bob", but not "Review and merge"
        return place + 2 < len(words) and text[words[place + 2][1]].isupper()
    return following in _SAYS_OF_IT or following.endswith("ed")  # "Apple called": no command
