"""Tells by its name whether an argument decides where something goes, however the name is written.

`toUser`, `recipient-id`, `accountNumber` and `dest_email_addresses` are destinations; `total`,
`username_format` and `max_users` are none: the last word of a name says what it is.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from openmanus_graph.state.tool_traits import Traits

DESTINATIONS = frozenset({
    "recipient", "to", "cc", "bcc", "email", "mail", "mailbox", "address", "addressee", "receiver",
    "participant", "attendee", "invitee", "guest", "member", "user", "username", "assignee",
    "reviewer", "owner", "person", "people", "contact", "collaborator", "subscriber", "editor",
    "viewer", "follower", "friend", "channel", "chat", "room", "group", "team", "thread",
    "conversation", "url", "uri", "link", "href", "endpoint", "webhook", "callback", "host",
    "hostname", "domain", "server", "site", "website", "iban", "bic", "account", "phone", "mobile",
    "telephone", "payee", "beneficiary", "creditor", "counterparty", "wallet", "hotel", "company",
    "restaurant", "vendor", "merchant", "seller", "store", "customer", "repo", "repository",
    "bucket", "destination", "dest", "dst", "target", "rcpt", "handle",
    "addr", "acct", "card", "routing", "msisdn", "tel", "sms", "fax", "whatsapp", "paypal", "venmo",
    "client", "org", "organization", "organisation", "tenant", "workspace", "audience", "mailing",
    "distribution", "grantee", "principal", "invite", "notify", "whom", "arn", "queue", "hook",
    "remote", "dsn", "sink", "relay", "proxy", "peer", "fqdn", "trustee", "transferee", "supplier",
    "employee", "empfaenger", "empfänger", "empfanger", "destinataire", "destinatario",
    "destinatário", "konto", "kontonummer", "who", "approver", "signer", "signatory", "delegate",
    "deputy", "witness", "observer", "watcher", "maintainer", "cohost", "nick", "nickname", "jid",
    "guild", "subreddit", "telegram", "skype", "wechat", "weixin", "qq", "pager", "dm", "pix",
    "upi", "vpa", "clabe", "bsb", "swift", "btc", "eth", "xmr", "crypto", "lnurl", "tgt", "cdtr",
})  # fmt: skip
"""Last words of the names of arguments, in the singular, that make them destinations."""
ADDRESSES = frozenset({
    "url", "uri", "link", "href", "endpoint", "webhook", "callback", "host", "hostname", "domain",
    "server", "site", "website",
})  # fmt: skip
"""Those of them that name a place on the net."""
READ_FROM = frozenset({"url", "uri", "link", "href", "endpoint", "webhook", "callback"})
"""Those of tools that only read."""
_SAYS_HOW = frozenset(
    {"id", "number", "no", "nr", "num", "name", "key", "list", "ref", "slug", "ts"}
)
"""Last words that leave a name what the word before them makes it: `user_id`."""
_ALONE = frozenset({
    "number", "numbers", "callback_url", "list_id", "list_ids", "acc_no", "sort_code", "swift_code",
    "bic_code", "screen_name", "topic_id", "topic_name", "pay_to_the_order_of", "para",
})  # fmt: skip
"""Names that are destinations only as they are: a `page_number` is none."""
_COUNTS = frozenset({"max", "min", "num", "n", "count", "limit", "total", "from", "source"})
"""First words of names that count, or say where something comes from."""
_RANGES = frozenset(
    {"date", "time", "day", "year", "price", "amount", "range", "age", "page", "from", "language",
     "lang", "currency", "unit", "format", "timezone"}
)  # fmt: skip
"""First words of names with `to` behind them that say where a range ends."""
_HOW_MANY = frozenset({"people", "persons", "guests", "attendees", "participants", "number"})
_COUNT = re.compile(r"\d{1,2}")
_WHETHER = frozenset({"true", "false", "yes", "no"})
_QUALITIES = {
    "room": {"single", "double", "twin", "triple", "family", "suite"},
    "audience": {"children", "kids", "teenagers", "adults", "beginners", "experts"},
    "queue": {"fast", "slow", "high", "low", "normal"},
}
"""Values that name nobody behind these names."""
_CODES = frozenset({
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "uk", "tr", "zh", "ja", "ko", "ar", "hi",
    "usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "aud", "cad", "sek", "nok", "dkk", "pln",
})  # fmt: skip
"""Languages and currencies."""
_OTHER_SCRIPTS = re.compile(
    r"收件|收信|收货|收貨|接收|收款|抄送|密送|寄给|寄到|发给|发到|发送给|发送到|发往|送给|送到|转给|转账"
    r"|付款给|支付给|对方|对象|用户|客户|好友|成员|群|房间|账号|账户|帐号|帐户|手机|电话|電話|邮箱|电邮"
    r"|電子郵件|邮件地址|地址|网址|链接|目标|域名|频道|联系人|微信|QQ号|银行卡|卡号|开户行"
    r"|宛先|受信者|받는|수신|^[Кк]ому$|[Пп]олучател|^[Àà]$"
)
_HOW_ZH = re.compile(r"(?:数|数量|类型|格式|大小|上限|语言)$")
"""What a Chinese name ends in that says how many there are, or of what kind."""
GRANTS = frozenset({"permission", "acl", "grant", "access", "role", "share", "sharing"})
"""Words of names of objects whose keys say who gets something."""
_FIELDS = frozenset({
    "name", "first", "last", "title", "label", "type", "kind", "role", "permission", "access",
    "level", "value", "id", "status", "state", "note", "comment", "format", "date", "time", "text",
    "body",
})  # fmt: skip
_IDS = frozenset(
    {"id", "uid", "uuid", "key", "no", "nr", "n", "number", "code", "ref", "reference"}
)
Names = Sequence[str]
"""Of an argument and of the fields within it, on the way to a value."""
_WORD = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-zà-ÿ]+|\d+")
_ONE_WORD = re.compile(
    rf"(?:to|dest|destination|target|recipient|send|reply|forward|share|mail)?"
    rf"(?P<what>{'|'.join(sorted(DESTINATIONS, key=len, reverse=True))})"
    r"(?:id|no|number|address|name|email|url|uri)?",
)
_SHARED = frozenset({"share", "shared", "meet", "call", "book", "dm"})


@lru_cache(4096)
def names_destination(  # noqa: C901
    name: str, known: frozenset[str] = DESTINATIONS
) -> bool:
    """Say whether an argument of this name is a destination.

    Args:
        name: As the tool has it.
        known: The words that make it one.
    """
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


def says_how(name: str, value: str) -> bool:
    """Say whether a value says how many there are, which kind, or whether: `people: 4`."""
    word, plain = name.lower(), value.lower()
    return (
        (word in _HOW_MANY and _COUNT.fullmatch(value) is not None)
        or plain in _WHETHER
        or plain in _QUALITIES.get(word, ())
    )


def converts(args: Mapping[str, object]) -> bool:
    """Say whether a call's `from` and `to` are languages or currencies."""
    return all(str(args.get(name, "")).lower() in _CODES for name in ("from", "to"))


def grants(name: str) -> bool:
    """Say whether the keys of an object of this name say who gets something."""
    words = [one.lower() for one in _WORD.findall(name)]
    return bool(words) and _singular(words[-1]) in GRANTS


def is_field(key: str) -> bool:
    """Say whether a key of a JSON object is a field's name, and no value itself."""
    words = [one.lower() for one in _WORD.findall(key)]
    plain = re.fullmatch(r"[A-Za-z]\w*", key) is not None
    return plain and bool(words) and (_singular(words[-1]) in _FIELDS or names_destination(key))


def names_id(name: str) -> bool:
    """Say whether a field of this name holds what tells one thing from another."""
    words = [one.lower() for one in _WORD.findall(name)]
    return bool(words) and (_singular(words[-1]) in _IDS or names_destination(name))


def destination_test(declared: Traits, *, external: bool) -> Callable[[Names], bool]:
    """Return what says whether a value decides where a call goes, by the names on the way to it."""
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
_HEADERS = frozenset({"to", "cc", "bcc", "recipient", "recipients", "sendto", "send_to"})
"""Names before a value in one text; others, as in "Hotel: Ritz", are a title's words."""
_PAIR = re.compile(
    r"\s*(?:-{0,2}(?P<name>[\w-]{1,40})\s*[:=]\s*(?P<value>\S[^\n]*)|<(?P<tag>[\w-]{1,40})>(?P<in>[^<]*)</(?P=tag)>)\s*"
)
"""A text that is nothing but a name and its value."""
_MOST_PAIR_CHARS, _MOST_NAME_CHARS, _PAIR_ITEMS = 1000, 40, 2
_PAIRS = (
    (
        ("name", "key", "field", "k", "param", "parameter", "property", "attribute", "header"),
        frozenset({"value", "values", "v", "val", "content"}),
    ),
    (("id", "type", "label", "path", "op"), frozenset({"value", "values", "v", "val"})),
)
"""Fields that name what is in a field beside them: `{"id": "to", "value": "Bob"}`."""
_ROLES = frozenset({
    "writer", "reader", "editor", "viewer", "commenter", "owner", "admin", "member",
    "collaborator", "contributor",
})  # fmt: skip
"""What is given to somebody: the key of such a value is who gets it."""


def leaves(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in a call's arguments, each with the name of its argument."""
    for names, value in leaves_of(dict(args), ()):
        yield names[0], value


def texts(
    args: Mapping[str, Any], but: Callable[[Names], bool] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield all that a call's arguments say: also keys, and JSON in texts.

    Args:
        args: Of the call.
        but: Says which values are left out, by the names on the way to them.
    """
    for names, value, _ in _opened(args):
        if but is None or not but(names):
            yield names[0], value


@dataclass(frozen=True)
class Destination:
    """A value that decides where something goes."""

    argument: str
    value: str
    is_site: bool
    """Its name says that it is a place on the net."""


def destinations(args: Mapping[str, Any], test: Callable[[Names], bool]) -> Iterator[Destination]:
    """Yield the values in a call's arguments that decide where something goes, keys among them.

    Args:
        args: Of the call.
        test: Says which ones do, by the names on the way to them.
    """
    converted = ("to",) if converts(args) else ()
    for names, value, holds_json in _opened(args):
        if test(names) and not (holds_json or says_how(names[-1], value) or names == converted):
            is_site = any(names_destination(name, ADDRESSES) for name in names)
            yield Destination(names[0], value, is_site)


def _opened(args: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield texts, numbers and keys in a call's arguments, and those in texts that are JSON.

    Each has the names on the way to it, and whether it is JSON whose parts are yielded, too.
    """
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
    """Yield the keys in JSON that are values themselves, `{"x@y.example": "writer"}`."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, way)]
    while pending:
        one, names = pending.pop()
        if isinstance(one, dict):
            for key, inner in cast("dict[Any, Any]", one).items():
                if not is_field(str(key)):
                    gets = (names and grants(names[-1])) or _is_role(inner)
                    yield (*names, _GRANTEE) if gets else names, str(key)
                pending.append((inner, (*names, str(key))))
        elif isinstance(one, list | tuple):
            pending += [(inner, names) for inner in cast("Sequence[Any]", one)]


def _json_in(text: str) -> Any:
    """Return the JSON that a text is, or the name and value; None if it is none, or a number."""
    if not text.lstrip().startswith(("[", "{", '"')):
        pair = _PAIR.fullmatch(text) if len(text) < _MOST_PAIR_CHARS else None
        name = pair and (pair["name"] or pair["tag"])
        if pair and name and (pair["tag"] or name.lower() in _HEADERS) and names_destination(name):
            return {name: pair["value"] or pair["in"]}
        return None
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def leaves_of(value: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts and numbers in JSON that are not empty, with the names on the way."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, names)]
    while pending:  # JSON of others may be nested deeper than Python calls functions
        one, way = pending.pop()
        if isinstance(one, dict):
            fields = cast("dict[Any, Any]", one)
            named = _named(fields)
            pending += [
                (inner, (*way, str(name), *named.get(str(name).lower(), ())))
                for name, inner in reversed(list(fields.items()))
            ]
        elif isinstance(one, list | tuple):
            pending += reversed(list(_items(cast("Sequence[Any]", one), way)))
        elif isinstance(one, str | int | float) and not isinstance(one, bool) and one != "":
            yield way, str(one)


def _named(fields: dict[Any, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names that the fields of an object give to values beside them."""
    said = {str(name).lower(): one for name, one in fields.items() if isinstance(one, str)}
    found: dict[str, tuple[str, ...]] = {}
    for names, values in _PAIRS:
        given = tuple(said[name] for name in names if name in said)
        for value in values & {str(name).lower() for name in fields}:
            found[value] = (*found.get(value, ()), *given)
    return found


def _is_role(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in _ROLES


def _items(items: Sequence[Any], way: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the items of a list; one behind a name, `["--to", "Bob"]`, has that name, too."""
    before = ""
    for one in items:
        yield one, (*way, before) if before else way
        is_name = isinstance(one, str) and (len(items) == _PAIR_ITEMS or one.startswith("-"))
        before = one.lstrip("-") if is_name and len(one) < _MOST_NAME_CHARS else ""
