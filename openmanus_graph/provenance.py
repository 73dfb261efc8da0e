"""Where addresses come from: which ones a run may open without asking the person first.

A page or file may tell the model to send what it knows somewhere, by opening an address with the
data in it. So once anything from outside or any file was read, an address must be known: its
domain named by the person, or the address itself seen word for word as a link. What the model
writes proves nothing, nor does text that it could have composed by a program and printed.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.errors import ToolError
from openmanus_graph.models.condensed import NOTES_KEY, TASK_KEY
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import Origin
from openmanus_graph.tools.declaration import Traits
from openmanus_graph.web.addresses import PORTS, authority, normal_host, parse_address, within

PERSON = "person"
"""The resource of tools whose output is a person's own words."""
ORIGIN_KEY = "openmanus_origin"
"""Where a message that a flow wrote keeps an `Origin`."""
_LINK = re.compile(r"https?://[^\s<>\"`\\|^{}]+", re.IGNORECASE)
_ESCAPED = re.compile(r"\\u0026|\\/|\\([_*\[\]()#+.!~-])")
_ENDINGS = ".,;:!?)]*_~'"
_CUTS = re.compile(r"[)\]']")
_MOST_CUTS = 4
_DOMAIN = re.compile(
    r"(?:(?<!\w)(?P<scheme>\w+://)|(?<![@\w.-]))"
    r"(?P<host>(?:[\w-]+\.)+[^\W\d_][\w-]+|localhost|(?:\d{1,3}\.){3}\d{1,3}|\[[\da-f:]+\])"
    r"(?::(?P<port>\d{1,5}))?",
    re.IGNORECASE,
)
_NO_MORE = r"/?(?![\w/?#&=%+~@:-]|\.\w)"
"""After an address: that it does not go on."""
_FILE_ENDINGS = frozenset({"py", "md", "sh", "zip", "rs", "pl", "so", "cc", "mov", "ps", "cab"})
"""Top-level domains that a name without a scheme rather has because it is a file."""


def passed_on(text: str, messages: Sequence[AnyMessage], traits: Mapping[str, Traits]) -> list[str]:
    """Return the links of a text that were really seen in a conversation.

    Args:
        text: What a step reports.
        messages: Of that step.
        traits: Of the tools whose links count.
    """
    record = _Record(traits)
    for message in messages:
        record.take(message)
    return [link for link in dict.fromkeys(links_in(text)) if record.has_seen(link)]


def unvouched_addresses(
    call: PlannedCall, messages: Sequence[AnyMessage], traits: Mapping[str, Traits]
) -> list[str]:
    """Return the addresses of a planned call that a person should be asked about.

    Args:
        call: Of the newest reply.
        messages: The conversation, that reply included.
        traits: What is declared of each tool.
    """
    declared = traits.get(call["name"])
    if declared is None or declared.addresses is None or call["problem"] is not None:
        return []
    addresses = declared.addresses(call["args"])
    if not addresses:
        return []
    record = _Record(traits)
    for message in _before_the_reply(messages):
        record.take(message)
    return [url for url in addresses if record.tainted and not record.vouches(url)]


def links_in(text: str) -> Iterator[str]:
    """Yield every address in a text, also without the punctuation that may follow it."""
    plain = html.unescape(_ESCAPED.sub(_unescaped, text))
    for variant in (text, plain) if plain != text else (text,):
        for found in _LINK.finditer(variant):
            link = found[0]
            cuts = [cut.start() for cut in _CUTS.finditer(link)][:_MOST_CUTS]
            yield from (link, link.rstrip(_ENDINGS), *(link[:cut] for cut in cuts))


def domains_in(text: str) -> Iterator[tuple[str, int | None]]:
    """Yield the hosts that a text names, with the port if it names one."""
    for found in _DOMAIN.finditer(text):
        host = found["host"]
        if not found["scheme"] and host.rpartition(".")[2].lower() in _FILE_ENDINGS:
            continue
        try:
            name = normal_host(host.strip("[]") if host.startswith("[") else host)
        except ToolError:
            continue
        yield name.removeprefix("www."), int(found["port"]) if found["port"] else None


def _unescaped(found: re.Match[str]) -> str:
    return {"\\u0026": "&", "\\/": "/"}.get(found[0]) or found[1]


def _before_the_reply(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AIMessage):
            return messages[:index]
    return messages


def _identity(url: str) -> str:
    """Return an address in the form by which it is compared. ToolError if it is none.

    Neither scheme nor a last slash can carry data, so they do not count; a fragment can, because
    scripts of the page read it.
    """
    address = parse_address(url)
    fragment = urlsplit(url).fragment
    path = address.url[len(address.origin) :].rstrip("/")
    host = authority(address.host, address.port, address.scheme)
    return f"{host}{path}" + (f"#{fragment}" if fragment else "")


def _identities(text: str) -> Iterator[str]:
    for link in links_in(text):
        try:
            identity = _identity(link)
        except ToolError:
            continue
        yield identity
        yield identity.partition("#")[0].rstrip("/")


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text in arguments, which are any JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings_in(list(cast("dict[str, Any]", value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from strings_in(item)


@dataclass
class _Record:
    """What a conversation has told of addresses, read message by message."""

    traits: Mapping[str, Traits]
    tainted: bool = False
    """Content from outside, or of a file, was read."""
    _composed: bool = False
    """Since then a program ran: what it prints or wrote may be put together by the model."""
    _seen: set[str] = field(default_factory=set[str])
    _domains: set[tuple[str, int | None]] = field(default_factory=set[tuple[str, int | None]])
    _written: str = ""
    """What the model wrote since then."""
    _calls: dict[str, tuple[str, dict[str, Any]]] = field(
        default_factory=dict[str, tuple[str, dict[str, Any]]]
    )

    def take(self, message: AnyMessage) -> None:
        """Read the next message."""
        if isinstance(message, HumanMessage):
            if origin := _origin(message):
                self.tainted |= origin["tainted"]
                self._see("\n".join(origin["links"]), allowed=True)
            self._domains.update(domains_in(_own_words(message)))
            if NOTES_KEY in message.additional_kwargs:  # what was read before is not known any more
                self.tainted = self._composed = True
        elif isinstance(message, AIMessage):
            self._take_reply(message)
        elif isinstance(message, ToolMessage):
            self._take_result(message)

    def vouches(self, url: str) -> bool:
        """Say whether an address is known; one that is none reaches nothing."""
        try:
            address, identity = parse_address(url), _identity(url)
        except ToolError:
            return True
        return identity in self._seen or any(
            within(address.host, domain)
            and (address.port == port if port else address.port in PORTS.values())
            for domain, port in self._domains
        )

    def has_seen(self, url: str) -> bool:
        """Say whether an address was shown as a link."""
        try:
            return _identity(url) in self._seen
        except ToolError:
            return False

    def _take_reply(self, reply: AIMessage) -> None:
        for call in reply.tool_calls:
            self._calls[call["id"] or ""] = (call["name"], call["args"])
            if self.tainted and self._is_program(call["name"], call["args"]):
                self._composed = True
        if self.tainted:
            arguments = strings_in([call["args"] for call in reply.tool_calls])
            self._written += unquote("\n".join([reply.text, *arguments])) + "\n"

    def _take_result(self, result: ToolMessage) -> None:
        if "own_words" in (result.artifact or ()):  # nothing came in, so nothing was read
            return
        name, args = self._calls.get(result.tool_call_id, (result.name or "", {}))
        traits = self.traits.get(name)
        if traits is None:  # another agent's tool, or none
            self.tainted |= result.status != "error"
        elif traits.resource == PERSON:
            self._domains.update(domains_in(result.text))
        elif not (self._composed and (traits.reads_files or self._is_program(name, args))):
            self._see(result.text)
        if traits is None:
            return
        # It was opened, so somebody had allowed it, unless the person put another one in its place.
        edited = "edited" in (result.artifact or ())
        if traits.addresses is not None and result.status != "error" and not edited:
            self._see("\n".join(traits.addresses(args)), allowed=True)
        effect = traits.effect_of(args)
        self.tainted |= traits.untrusted or traits.reads_files or effect != "pure"

    def _see(self, text: str, allowed: bool = False) -> None:
        """Note the links of a text, but none that only repeats what the model wrote."""
        self._seen.update(
            identity for identity in _identities(text) if allowed or not self._wrote(identity)
        )

    def _wrote(self, identity: str) -> bool:
        plain = unquote(identity)
        whole = re.escape(plain) + _NO_MORE
        return plain in self._written and re.search(whole, self._written) is not None

    def _is_program(self, name: str, args: Mapping[str, Any]) -> bool:
        traits = self.traits.get(name)
        if traits is None:
            return True
        return traits.effect_of(args) == "workspace" and not traits.untrusted


def _own_words(message: HumanMessage) -> str:
    """Return what the person said; the notes of a compacted conversation are the model's."""
    if origin := _origin(message):
        return origin["words"]
    return str(message.additional_kwargs.get(TASK_KEY) or message.text)


def _origin(message: HumanMessage) -> Origin | None:
    return cast("Origin | None", message.additional_kwargs.get(ORIGIN_KEY))  # `origin_of` made it


def origin_of(message: HumanMessage | None, links: Sequence[str], *, tainted: bool) -> Origin:
    """Return what vouches for a step, made for a person's message or another flow's.

    Args:
        message: Of the user.
        links: Passed on by the steps before.
        tainted: Whether there were any.
    """
    if message is None:
        return Origin(words="", links=list(links), tainted=tainted)
    around = _origin(message)
    known = around["links"] if around else []
    return Origin(
        words=_own_words(message),
        links=[*known, *links],
        tainted=tainted or bool(around and around["tainted"]),
    )


def strange_addresses(addresses: Sequence[str]) -> str:
    """Say why a call that would open these addresses is held up."""
    # ASCII, so that a letter of another script does not pass for one that the person knows.
    listed = ", ".join(json.dumps(url, ensure_ascii=True) for url in addresses)
    return (
        f"It would open {listed}, which neither the person named nor a page linked to, after "
        "files or pages were read: data could leave this way."
    )
