"""Finds the destinations in a call's arguments by their names, and parses their values strictly.

`toUser`, `recipient-id`, `accountNumber` and `dest_email_addresses` are destinations; `total`,
`username_format` and `max_users` are not. The last word of a name tells what it is. A value is
verified only if every part of it is.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from openmanus_graph.errors import ToolError
from openmanus_graph.safety import values, word_set
from openmanus_graph.safety.urls import canonical_url
from openmanus_graph.safety.values import Tokens, tokens_of
from openmanus_graph.state.addresses import PORTS, has_scheme, normal_host, with_scheme
from openmanus_graph.state.json_values import json_or
from openmanus_graph.state.tool_traits import Traits

Names = Sequence[str]
"""The names of an argument and of the fields in it, on the way to a value."""
DESTINATIONS = word_set(
    "recipient to cc bcc email mail mailbox address addressee receiver participant attendee "
    "invitee guest member user username assignee reviewer owner person people contact collaborator "
    "subscriber editor viewer follower friend channel chat room group team thread conversation url "
    "uri link href endpoint webhook callback host hostname domain server site website iban bic "
    "account phone mobile telephone payee beneficiary creditor counterparty wallet hotel company "
    "restaurant vendor merchant seller store customer repo repository bucket destination dest dst "
    "target rcpt handle addr acct card routing msisdn tel sms fax whatsapp paypal venmo client org "
    "organization organisation tenant workspace audience mailing distribution grantee principal "
    "invite notify whom arn queue hook remote dsn sink relay proxy peer fqdn trustee transferee "
    "supplier employee empfaenger empfänger empfanger destinataire destinatario destinatário konto "
    "kontonummer who approver signer signatory delegate deputy witness observer watcher maintainer "
    "cohost nick nickname jid guild subreddit telegram skype wechat weixin qq pager dm pix upi vpa "
    "clabe bsb swift btc eth xmr crypto lnurl tgt cdtr"
)
"""Last words, in the singular, of names of arguments that are destinations."""
ADDRESSES = word_set(
    "url uri link href endpoint webhook callback host hostname domain server site website"
)
"""Those of them that name a place on the net."""
READ_FROM = word_set("url uri link href endpoint webhook callback")
"""Those of tools that only read."""
_SAYS_HOW = word_set("id number no nr num name key list ref slug ts")
"""Last words that leave the meaning to the word before them: `user_id`."""
_ALONE = word_set(
    "number numbers callback_url list_id list_ids acc_no sort_code swift_code bic_code screen_name "
    "topic_id topic_name pay_to_the_order_of para"
)
"""Whole names that are destinations: a `page_number` is none."""
_COUNTS = word_set("max min num n count limit total from source")
"""First words of names that count, or say where something comes from."""
_RANGES = word_set(
    "date time day year price amount range age page from language lang currency unit format "
    "timezone"
)
"""First words of names that end in `to` and say where a range ends."""
_HOW_MANY = word_set("people persons guests attendees participants number")
_COUNT = re.compile(r"\d{1,2}")
_WHETHER = frozenset({"true", "false", "yes", "no"})
_QUALITIES = {
    "room": word_set("single double twin triple family suite"),
    "audience": word_set("children kids teenagers adults beginners experts"),
    "queue": {"fast", "slow", "high", "low", "normal"},
}
"""Values that are not recipients, by the name of the argument."""
_CODES = word_set(
    "en de fr es it pt nl pl ru uk tr zh ja ko ar hi usd eur gbp chf jpy cny inr aud cad sek nok "
    "dkk pln"
)
_OTHER_SCRIPTS = re.compile(
    r"收件|收信|收货|收貨|接收|收款|抄送|密送|寄给|寄到|发给|发到|发送给|发送到|发往|送给|送到|转给|转账"
    r"|付款给|支付给|对方|对象|用户|客户|好友|成员|群|房间|账号|账户|帐号|帐户|手机|电话|電話|邮箱|电邮"
    r"|電子郵件|邮件地址|地址|网址|链接|目标|域名|频道|联系人|微信|QQ号|银行卡|卡号|开户行"
    r"|宛先|受信者|받는|수신|^[Кк]ому$|[Пп]олучател|^[Àà]$"
)
_HOW_ZH = re.compile(r"(?:数|数量|类型|格式|大小|上限|语言)$")
"""Endings of Chinese names that say how many, or of what kind."""
GRANTS = word_set("permission acl grant access role share sharing")
"""Last words of names of objects whose keys say who gets something."""
_FIELDS = word_set(
    "name first last title label type kind role permission access level value id status state note "
    "comment format date time text body"
)
_IDS = word_set("id uid uuid key no nr n number code ref reference")
_WORD = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-zà-ÿ]+|\d+")
_ONE_WORD = re.compile(
    rf"(?:to|dest|destination|target|recipient|send|reply|forward|share|mail)?"
    rf"(?P<what>{'|'.join(sorted(DESTINATIONS, key=len, reverse=True))})"
    r"(?:id|no|number|address|name|email|url|uri)?"
)
_SHARED = word_set("share shared meet call book dm")


@lru_cache(4096)
def names_destination(  # noqa: C901
    name: str, known: frozenset[str] = DESTINATIONS
) -> bool:
    """Return True if the name of an argument makes it a destination."""
    words = [one.lower() for one in _WORD.findall(name) if not one.isdigit()]
    if known is DESTINATIONS and _OTHER_SCRIPTS.search(name):
        return _HOW_ZH.search(name) is None
    if known is DESTINATIONS and "_".join(words) in _ALONE:
        return True
    if "of" in words[1:]:
        words = words[: words.index("of")]
    while len(words) > 1 and not _SAYS_HOW.isdisjoint({words[-1], _singular(words[-1])}):
        words.pop()
    if not words or (len(words) > 1 and words[0] in _COUNTS):
        return False
    if words[-1] == "to" and words[0] in _RANGES:
        return False
    last = _singular(words[-1])
    if last in known or words[-1] in known or (last == "with" and words[0] in _SHARED):
        return True
    if len(words) > 1:
        return False
    joined = _ONE_WORD.fullmatch(last)
    return joined is not None and joined["what"] in known


def _last_word(name: str) -> str:
    return _singular(([one.lower() for one in _WORD.findall(name)] or [""])[-1])


def names_id(name: str) -> bool:
    """Return True if a field of this name tells one thing from another."""
    return bool(_WORD.search(name)) and (_last_word(name) in _IDS or names_destination(name))


def destination_test(declared: Traits, *, external: bool) -> Callable[[Names], bool]:
    """Return a test for the names on the way to a value that decides where a call goes."""
    sends_to = frozenset(declared.sends_to or ())
    if declared.sends_to is not None and not declared.sends_to_by_name:
        return lambda names: not sends_to.isdisjoint(names)
    known = DESTINATIONS if external else READ_FROM
    return lambda names: any(names_destination(name, known) for name in names)


def _singular(word: str) -> str:
    if word.endswith("sses"):  # addresses
        return word[:-2]
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


_GRANTEE = "grantee"
_HEADERS = word_set("to cc bcc recipient recipients sendto send_to")
"""Names before a value in one text. Other names, as in "Hotel: Ritz", belong to a title."""
_PAIR = re.compile(
    r"\s*(?:-{0,2}(?P<name>[\w-]{1,40})\s*[:=]\s*(?P<value>\S[^\n]*)|<(?P<tag>[\w-]{1,40})>(?P<in>[^<]*)</(?P=tag)>)\s*"
)
_MOST_PAIR_CHARS, _MOST_NAME_CHARS, _PAIR_ITEMS = 1000, 40, 2
_PAIRS = (
    (
        ("name", "key", "field", "k", "param", "parameter", "property", "attribute", "header"),
        frozenset({"value", "values", "v", "val", "content"}),
    ),
    (("id", "type", "label", "path", "op"), frozenset({"value", "values", "v", "val"})),
)
"""Fields that name what another field holds: `{"id": "to", "value": "Bob"}`."""
_ROLES = word_set(
    "writer reader editor viewer commenter owner admin member collaborator contributor"
)
"""Values whose key is who gets the role."""


def leaves(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for names, value in leaves_of(dict(args), ()):
        yield names[0], value


def texts(
    args: Mapping[str, Any], but: Callable[[Names], bool] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield all texts in arguments, also keys and JSON in texts; `but` excludes some by names."""
    for names, value, _ in _opened(args):
        if but is None or not but(names):
            yield names[0], value


class Destination(NamedTuple):
    argument: str
    value: str
    is_site: bool


def destinations(args: Mapping[str, Any], test: Callable[[Names], bool]) -> Iterator[Destination]:
    """Yield the values, and keys, in a call's arguments that decide where something goes."""
    is_converted = all(str(args.get(name, "")).lower() in _CODES for name in ("from", "to"))
    for names, value, holds_json in _opened(args):
        if holds_json or not test(names) or (is_converted and names == ("to",)):
            continue
        last, plain = names[-1].lower(), value.lower()
        says_how = plain in _WHETHER or plain in _QUALITIES.get(last, ())
        if not says_how and not (last in _HOW_MANY and _COUNT.fullmatch(value)):
            is_site = any(names_destination(name, ADDRESSES) for name in names)
            yield Destination(names[0], value, is_site)


def _opened(args: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield texts, numbers and keys with their names, and whether each is JSON that is read too."""
    pending: list[tuple[tuple[str, ...], Any]] = [((name,), one) for name, one in args.items()]
    pending.reverse()
    while pending:
        way, one = pending.pop()
        for names, value in leaves_of(one, way):
            inner = _json_in(value)
            yield names, value, inner is not None
            if inner is not None:
                pending.append((names, inner))
        yield from ((names, key, False) for names, key in _keys(one, way))


def _keys(value: Any, way: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys in JSON that are values themselves, as in `{"x@y.example": "writer"}`."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, way)]
    while pending:
        one, names = pending.pop()
        if isinstance(one, dict):
            for name, inner in cast("dict[Any, Any]", one).items():
                key = str(name)
                is_field = re.fullmatch(r"[A-Za-z]\w*", key) and (
                    _last_word(key) in _FIELDS or names_destination(key)
                )
                if not is_field:
                    gets = (names and _last_word(names[-1]) in GRANTS) or (
                        isinstance(inner, str) and inner.lower() in _ROLES
                    )
                    yield (*names, _GRANTEE) if gets else names, key
                pending.append((inner, (*names, key)))
        elif isinstance(one, list | tuple):
            pending += [(inner, names) for inner in cast("Sequence[Any]", one)]


def _json_in(text: str) -> Any:
    """Return the JSON, or the name and value, that a text is; None for others, and numbers."""
    if not text.lstrip().startswith(("[", "{", '"')):
        pair = _PAIR.fullmatch(text) if len(text) < _MOST_PAIR_CHARS else None
        name = pair and (pair["name"] or pair["tag"])
        if pair and name and (pair["tag"] or name.lower() in _HEADERS) and names_destination(name):
            return {name: pair["value"] or pair["in"]}
        return None
    return json_or(text)


def leaves_of(value: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts and numbers in JSON that are not empty, with the names on the way."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, names)]
    while pending:  # JSON may be nested deeper than Python allows calls
        one, way = pending.pop()
        if isinstance(one, dict):
            fields = cast("dict[Any, Any]", one)
            strings = ((name, one) for name, one in fields.items() if isinstance(one, str))
            said = {str(name).lower(): one for name, one in strings}
            lower = {str(name).lower() for name in fields}
            named: dict[str, tuple[str, ...]] = {}  # names that fields give to values next to them
            for keys, given_names in _PAIRS:
                given = tuple(said[name] for name in keys if name in said)
                named |= {key: (*named.get(key, ()), *given) for key in given_names & lower}
            pending += [
                (inner, (*way, str(name), *named.get(str(name).lower(), ())))
                for name, inner in reversed(list(fields.items()))
            ]
        elif isinstance(one, list | tuple):
            pending += reversed(list(_items(cast("Sequence[Any]", one), way)))
        elif isinstance(one, str | int | float) and not isinstance(one, bool) and one != "":
            yield way, str(one)


def _items(items: Sequence[Any], way: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the items of a list. An item after a name, `["--to", "Bob"]`, also has that name."""
    before = ""
    for one in items:
        yield one, (*way, before) if before else way
        is_name = isinstance(one, str) and (len(items) == _PAIR_ITEMS or one.startswith("-"))
        before = one.lstrip("-") if is_name and len(one) < _MOST_NAME_CHARS else ""


UNREAD = "unread:"
_MOST_CHARS = 2000
"""Longer destinations are not parsed, because some patterns are slow on long texts."""
_SEPARATORS = re.compile(r"[,;]")
_BESIDE_URLS = re.compile(r"[,;]\s+")
_LIKE_ADDRESS = re.compile(
    r"(?i)\S@|@\S*\.|:/|//|\\|www\.|[<>]|[a-z][a-z0-9+.-]{0,30}:\S*[@?%]|%[0-9a-f]{2}|&#|=\?|\bb?cc:|\bto:"
)
_MAILBOX = re.compile(
    r"(?:(?P<quote>\"?)(?P<name>[^\"<>@,;:()\[\]\\|=%&{}]*)(?P=quote)\s*<(?P<in>[^<>\s]+)>|(?P<bare>[^<>\s]+))"
)
_LOCAL = re.compile(r"[\w+%-]+(?:\.[\w+%-]+)*")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_URL_SIGNS = re.compile(r"[^\s<>\"'`\\|^{}]+")
_BARE_HOST = re.compile(r"(?:[\w-]+\.)+[^\W\d_][\w-]*(?::\d+)?(?:[/?#].*)?")


class Part(NamedTuple):
    tokens: Tokens
    bare_host: bool = False
    """Whether it is a host without a scheme, as files and names in code look too."""


def parts_of(value: str) -> tuple[Part, ...]:
    """Return the parts of a destination in canonical form. Each must be verified.

    Parsed are a name, an address, `Name <address>`, and lists of these with `,` or `;`. An address
    must be one that all programs read alike: no comments, quoted or literal parts, routes, groups
    or user names in URLs. Another text is one part, which was never said.
    """
    text = value.strip(" \t\r\n")
    if not text.strip() or len(text) > _MOST_CHARS:
        return (Part((UNREAD + value,)),)
    has_address = holds_address(text)
    if has_address and not text.isprintable():
        return (Part((UNREAD + text,)),)
    if has_address and (whole := _address(text)):  # `,` and `;` are signs of URLs, too
        return (whole,)
    separators = _BESIDE_URLS if "//" in text else _SEPARATORS
    parts = [one.strip() for one in separators.split(text)]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # "a@b.example;"
    return tuple(map(_part, parts))


def approval_key(value: str) -> str:
    """Return the key under which the approval of a value is stored."""
    return " , ".join(" ".join(part.tokens) for part in parts_of(value))


def holds_address(text: str) -> bool:
    """Return True if a text contains an address, or what may be read as one."""
    if len(text) > _MOST_CHARS:
        return True
    return _LIKE_ADDRESS.search(text) is not None or any(map(values.is_address, tokens_of(text)))


def _part(text: str) -> Part:
    if text and not holds_address(text):
        return Part(tokens_of(text), _BARE_HOST.fullmatch(text) is not None)
    return _address(text) or Part((UNREAD + text,))


def _address(text: str) -> Part | None:
    """Return an address that is alone, or with its owner's name; None if the text is none."""
    if re.fullmatch(values.IBAN_PATTERN, text, re.IGNORECASE):
        return Part(tokens_of(text))
    found = _MAILBOX.fullmatch(text)
    if found and "@" in (address := found["in"] or found["bare"]):
        named = found["name"] or ""
        is_plain = not (any(values.addresses_in(named)) or holds_address(named))
        if is_plain and (token := _mailbox(address)):
            return Part((token,))
    return _url(text)


def _mailbox(address: str) -> str | None:
    local, _, host = address.rpartition("@")
    tokens = tokens_of(address)
    if not (_LOCAL.fullmatch(local) and _HOST.fullmatch(host) and len(tokens) == 1):
        return None
    try:
        normal_host(host)
    except ToolError:
        return None
    return tokens[0]


def _url(text: str) -> Part | None:
    """Return a URL as it is reached; None for one that programs read differently."""
    if not _URL_SIGNS.fullmatch(text):
        return None
    bare = not (has_scheme(text) or text.startswith("//"))
    if bare and ("@" in text or not _BARE_HOST.fullmatch(text)):
        return None
    if has_scheme(text) and text.partition(":")[0].lower() not in PORTS:
        tokens = tokens_of(text)
        return Part(tokens) if tokens == (values.URL + text,) else None
    try:
        identity = canonical_url(with_scheme(text))
    except ToolError:
        return None
    is_www = text.casefold().startswith("www.")
    return Part((values.URL + identity.removeprefix("www."),), bare_host=bare and not is_www)
