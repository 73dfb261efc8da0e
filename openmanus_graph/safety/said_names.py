"""Which bare numbers and small words a person used as a name, and not as what any text holds.

"It takes 5 hours" names no file 5, and "tell me all" no group called all.
"""

import re

from openmanus_graph.safety.values import NUMBER, words_in

SMALL_WORDS = frozenset({
    "a", "an", "the", "this", "that", "these", "those", "and", "or", "but", "not", "no", "nor",
    "if", "so", "as", "at", "by", "for", "from", "in", "into", "of", "off", "on", "onto", "out",
    "over", "to", "up", "with", "about", "after", "before", "between", "during", "until", "via",
    "per", "than", "then", "there", "here", "i", "me", "my", "mine", "we", "us", "our", "ours",
    "you", "your", "yours", "he", "him", "his", "she", "her", "hers", "it", "its", "they", "them",
    "their", "who", "whom", "whose", "what", "which", "when", "where", "why", "how", "all", "any",
    "both", "each", "every", "everyone", "everybody", "anyone", "anybody", "someone", "somebody",
    "other", "others", "another", "same", "such", "some", "few", "more", "most", "is", "am",
    "are", "was", "were", "be", "been", "being", "do", "does", "did", "have", "has", "had", "can",
    "could", "may", "might", "must", "shall", "should", "will", "would", "please", "yes", "ok",
    "just", "only", "also", "too", "now", "today", "new", "main", "default", "general", "random",
    "public", "private", "admin", "administrator", "root", "support", "team", "staff", "user",
    "users", "member", "members", "group", "channel", "owner", "host", "guest", "guests", "test",
})  # fmt: skip
"""Words that every task may hold. As a value they count only where they are called a name."""
_NOUNS = (
    r"ids?|uid|numbers?|no\.?|nr\.?|num|files?|documents?|docs?|folders?|orders?|tickets?|issues?|prs?|requests?|invoices?"
    r"|accounts?|transactions?|payments?|transfers?|appointments?|events?|meetings?|messages?|e-?mails?|records?"
    r"|entry|entries|items?|tasks?|jobs?|cases?|users?|customers?|clients?|contacts?|members?|channels?|rooms?|chats?"
    r"|threads?|groups?|posts?|comments?|bookings?|reservations?|contracts?|products?|articles?|nodes?|devices?|cards?"
    r"|wallets?|keys?|codes?|refs?|reference|phone|tel|mobile|extension|bugs?|builds?|containers?|recipients?|notes?"
)
_NOUNS_ZH = (
    "文件|编号|号码|订单|工单|任务|账号|账户|用户|事件|邮件|消息|会议|记录|项目|房间|频道|电话|手机"
)
_USED_AS_ID = re.compile(
    rf"(?:[#№]|\b(?:\w+_)?(?:{_NOUNS})(?!\w)(?:[\s\"'“‘(\[:=]|\b(?:ids?|numbers?|no|nr|with|is|are|the|called|named|numbered)\b\.?)*"
    rf"|(?:{_NOUNS_ZH})\s*(?:编号|号码|号|是|为|[\s:：\"“（(])*)$",
    re.IGNORECASE,
)
_USED_AS_ID_ZH = re.compile(rf"^\s*号(?:{_NOUNS_ZH})")
_ORDINAL_ID_ZH = re.compile(r"^\s*号")
_COMMANDED = re.compile(
    r"\b(?:delete|remove|cancel|close|open|read|show|update|edit|archive|share|approve|reject|merge|reopen|choose"
    r"|select|restore|unsubscribe)\s+[\"'“‘(]*$|(?:删除|取消|关闭|打开)\s*$",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"^\s*[\"'”’)\]]*\s*(?:$|[.,;:!?。，；！？、&]|\b(?:and|or|to|from|in|on|at|for|with|by|is|are|was|has|please|now|then|if"
    r"|as|but|into|via|that|which|until|before|after|also|too|instead|again)\b|[和或及并])",
    re.IGNORECASE,
)
"""Behind a number that counts nothing."""
_COUNTS = re.compile(
    r"^\s*[-–]?\s*(?:[%‰°€$£¥]|(?:percent|hours?|hrs?|h|minutes?|mins?|seconds?|secs?|days?|weeks?|months?|years?|times"
    r"|euros?|eur|dollars?|usd|pounds?|gbp|chf|yen|rmb|cents?|people|children|men|women|km|cm|mm|m|kg|g|mb|gb|kb|tb|x|am|pm"
    r"|o[’']clock|of|per|degrees?|dozen|hundred|thousand|million|percent)\b"
    r"|(?!(?:is|was|has|as|this|its|does|us|plus|always)\b)(?:[a-z-]+\s+){0,1}[a-z]{2,}s\b"
    r"|[个小天分元块人次页年月日点岁公米章节版篇条只件张份度])",
    re.IGNORECASE,
)
_CURRENCY = re.compile(r"(?:[$€£¥₹]|\b(?:eur|usd|gbp|chf))\s*$", re.IGNORECASE)
_LIST = re.compile(r"^[\"'”’)\]]*\s*(?:,|;|&|、|and|or|和|及|,\s*and)\s*[#\"'“‘(]*$", re.IGNORECASE)
_LONG = re.compile(r"\d{5,}")
"""So long a number counts nothing, if nothing is named that it counts."""
_CALLED = re.compile(
    r"(?:[@#]|\b(?:user|channel|group|room|team|role|chat|account|alias|label|called|named)\s+[\"'“‘]?"
    r"|\b(?:to|cc|tell|ask|notify|invite|mention|mail|email|message|inform)\s+(?:the\s+|our\s+|my\s+)?[\"'“‘]?)$",
    re.IGNORECASE,
)
_GROUPS = frozenset(
    {"everyone", "everybody", "all", "admin", "administrator", "root", "support", "team", "staff"}
)
"""Small words that a person may write to."""
_NAMED = re.compile(r"^[\"'”’]?\s*(?:channel|group|room|team|role|chat|list)\b", re.IGNORECASE)
_WRITES = (
    "to", "cc", "tell", "ask", "notify", "invite", "mention", "mail", "email", "message", "inform",
)  # fmt: skip
_MARKED = re.compile(r"(?:[@#]|[\"'“‘「])$")
_CHARS = 60


class SaidNames:
    """The bare numbers and small words that a person named; extended as he says more."""

    def __init__(self) -> None:
        self._named: set[str] = set()
        self._open: set[str] = set()
        """Numbers with nothing beside them: they name something if they count nothing."""
        self._counted: set[str] = set()

    def hear(self, text: str) -> None:
        """Read what a person wrote."""
        uses, last_token, last = self._counted, "", 0
        for token, start, end in words_in(text):
            if token in SMALL_WORDS:
                if _is_called(
                    token, text[max(0, start - _CHARS) : start], text[end : end + _CHARS]
                ):
                    self._named.add(token)
            elif token.startswith(NUMBER):
                goes_on = last > 0 and _LIST.match(text[last:start][:_CHARS]) is not None
                before = text[max(0, start - _CHARS) : start]
                earlier = uses if goes_on else None
                uses = self._uses(token, before, text[end : end + _CHARS], earlier)
                uses.add(token)
                if goes_on and uses is self._counted:  # "5 or 6 hours"
                    uses.add(last_token)
                last_token, last = token, end

    def _uses(self, token: str, before: str, after: str, earlier: set[str] | None) -> set[str]:
        """Return what a number is added to, by what stands around it and before it in a list."""
        counts = _COUNTS.match(after) and not (
            before.endswith(("#", "№")) or _USED_AS_ID_ZH.match(after)
        )
        if counts or _CURRENCY.search(before):
            return self._counted
        if _USED_AS_ID.search(before) or _USED_AS_ID_ZH.match(after):
            return self._named
        if before.rstrip().endswith("第"):
            return self._named if _ORDINAL_ID_ZH.match(after) else self._counted
        if not _GOES_ON.match(after):
            return self._counted
        if earlier is not None:
            return earlier
        alone = not before.strip() or _COMMANDED.search(before) or _LONG.search(token)
        return self._open if alone else self._counted

    def names(self, token: str) -> bool:
        """Say whether a bare number or small word was used as a name; other words always are."""
        if token in SMALL_WORDS or token.startswith(NUMBER):
            return token in self._named or (token in self._open and token not in self._counted)
        return True


def _is_called(word: str, before: str, after: str) -> bool:
    if _MARKED.search(before) or _NAMED.match(after):
        return True
    called = _CALLED.search(before)
    return called is not None and (word in _GROUPS or not called[0].lower().startswith(_WRITES))
