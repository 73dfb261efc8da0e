"""Where addresses come from: which ones a run may open without asking the person first.

A page or file may tell the model to send what it knows somewhere, by opening an address with the
data in it. So once anything from outside or any file was read, an address must be known: its
domain named by the person, or the address itself seen word for word as a link. What the model
writes proves nothing, nor does text that it could have composed by a program and printed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.errors import ToolError
from openmanus_graph.links import domains_in, identities_in, identities_of, identity_of, links_in
from openmanus_graph.memo import MessageMemo
from openmanus_graph.models.condensed import NOTES_KEY, TASK_KEY
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import Origin
from openmanus_graph.tools.declaration import Traits
from openmanus_graph.web.addresses import PORTS, parse_address, within

M = TypeVar("M", HumanMessage, ToolMessage)

PERSON = "person"
"""The resource of tools whose output is a person's own words."""
ORIGIN_KEY = "openmanus_origin"
"""Where a message that a flow wrote keeps an `Origin`."""
_NO_MORE = r"/?(?![\w/?#&=%+~@:-]|\.\w)"
"""After an address: that it does not go on."""

# Each step looks at the ones before again.
_shown = MessageMemo[frozenset[str]]()
_opened = MessageMemo[frozenset[str]]()
_named = MessageMemo[frozenset[tuple[str, int | None]]]()
_words = MessageMemo[str]()


def passed_on(text: str, messages: Sequence[AnyMessage], traits: Mapping[str, Traits]) -> list[str]:
    """Return the links of a text that were really seen in a conversation.

    Args:
        text: What a step reports.
        messages: Of that step.
        traits: Of the tools whose links count.
    """
    links = list(dict.fromkeys(links_in(text)))
    record = _Record.of(messages, links, traits)
    return [link for link in links if record.has_seen(link)]


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
    record = _Record.of(_before_the_reply(messages), addresses, traits)
    return [url for url in addresses if record.tainted and not record.vouches(url)]


def _before_the_reply(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AIMessage):
            return messages[:index]
    return messages


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
    """What a conversation has told of a few addresses, read message by message."""

    traits: Mapping[str, Traits]
    wanted: Set[str]
    """The addresses, as they are compared."""
    tainted: bool = False
    """Content from outside, or of a file, was read."""
    _composed: bool = False
    """Since then a program ran: what it prints or wrote may be put together by the model."""
    _seen: set[str] = field(default_factory=set[str])
    _domains: set[tuple[str, int | None]] = field(default_factory=set[tuple[str, int | None]])
    _written: list[str] = field(default_factory=list[str])
    """What the model wrote since then."""
    _calls: dict[str, tuple[str, dict[str, Any]]] = field(
        default_factory=dict[str, tuple[str, dict[str, Any]]]
    )

    @classmethod
    def of(
        cls, messages: Sequence[AnyMessage], addresses: Sequence[str], traits: Mapping[str, Traits]
    ) -> "_Record":
        """Read a conversation for what it tells of these addresses."""
        record = cls(traits, identities_of(addresses))
        for message in messages:
            record.take(message)
        return record

    def take(self, message: AnyMessage) -> None:
        """Read the next message."""
        if isinstance(message, HumanMessage):
            if origin := _origin(message):
                self.tainted |= origin["tainted"]
                passed = "\n".join(origin["links"])
                self._see(_shown.get(message, lambda _: identities_in(passed)), allowed=True)
            self._hear(message, _own_words)
            if NOTES_KEY in message.additional_kwargs:  # what was read before is not known any more
                self.tainted = self._composed = True
        elif isinstance(message, AIMessage):
            self._take_reply(message)
        elif isinstance(message, ToolMessage):
            self._take_result(message)

    def vouches(self, url: str) -> bool:
        """Say whether an address is known; one that is none reaches nothing."""
        try:
            address, identity = parse_address(url), identity_of(url)
        except ToolError:
            return True
        return identity in self._seen or any(
            within(address.host, domain)
            and (address.port == port if port else address.port in PORTS.values())
            for domain, port in self._domains
        )

    def has_seen(self, url: str) -> bool:
        """Say whether an address was shown as a link."""
        return bool(identities_of([url]) & self._seen)

    def _take_reply(self, reply: AIMessage) -> None:
        for call in reply.tool_calls:
            self._calls[call["id"] or ""] = (call["name"], call["args"])
            if self.tainted and not self._composed and self._is_program(call["name"], call["args"]):
                self._composed = True
        if self.tainted:
            self._written.append(_words.get(reply, _words_of))

    def _take_result(self, result: ToolMessage) -> None:
        if "own_words" in (result.artifact or ()):  # nothing came in, so nothing was read
            return
        name, args = self._calls.get(result.tool_call_id, (result.name or "", {}))
        traits = self.traits.get(name)
        if traits is None:  # another agent's tool, or none
            self.tainted |= result.status != "error"
        elif traits.resource == PERSON:
            self._hear(result, lambda result: result.text)
        elif not (self._composed and (traits.reads_files or self._is_program(name, args))):
            self._see(_shown.get(result, lambda result: identities_in(result.text)))
        if traits is None:
            return
        # It was opened, so somebody had allowed it, unless the person put another one in its place.
        edited = "edited" in (result.artifact or ())
        if traits.addresses is not None and result.status != "error" and not edited:
            opened = partial(_opened_by, traits.addresses, args)
            self._see(_opened.get(result, opened), allowed=True)
        effect = traits.effect_of(args)
        self.tainted |= traits.untrusted or traits.reads_files or effect != "pure"

    def _hear(self, message: M, words: Callable[[M], str]) -> None:
        """Note the domains that the person names."""
        self._domains |= _named.get(message, lambda told: frozenset(domains_in(words(told))))

    def _see(self, links: Set[str], allowed: bool = False) -> None:
        """Note links, but none that only repeats what the model wrote."""
        new = (self.wanted & links) - self._seen
        self._seen.update(link for link in new if allowed or not self._wrote(link))

    def _wrote(self, link: str) -> bool:
        plain = unquote(link)
        whole = re.compile(re.escape(plain) + _NO_MORE)
        return any(plain in words and whole.search(words) for words in self._written)

    def _is_program(self, name: str, args: Mapping[str, Any]) -> bool:
        traits = self.traits.get(name)
        if traits is None:
            return True
        return traits.effect_of(args) == "workspace" and not traits.untrusted


def _opened_by(
    addresses: Callable[[Mapping[str, Any]], Sequence[str]], args: Mapping[str, Any], _: ToolMessage
) -> frozenset[str]:
    return identities_in("\n".join(addresses(args)))


def _words_of(reply: AIMessage) -> str:
    return unquote(
        "\n".join([reply.text, *strings_in([call["args"] for call in reply.tool_calls])])
    )


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
