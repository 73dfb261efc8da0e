"""Tracks the provenance of addresses: which ones a run may open without asking the person first.

A page or file may tell the model to send data somewhere by opening an address that contains the
data. So after untrusted content or any file was read, an address must be verified: the person named
its domain, or exactly this address was seen as a link. Text of the model verifies nothing, nor does
output that the model could have composed with a program.
"""

import base64
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from openmanus_graph.conversation import history
from openmanus_graph.conversation.caches import MessageCache
from openmanus_graph.errors import ToolError
from openmanus_graph.safety.destinations import texts
from openmanus_graph.safety.unquoted_text import UnquotedText, unquoted_text
from openmanus_graph.safety.urls import (
    Domain,
    canonical_url,
    canonical_urls,
    canonical_urls_in,
    is_of_domains,
    named_domains,
    paths_in,
    urls_in,
)
from openmanus_graph.safety.values import plainly_written, spellings, squeezed
from openmanus_graph.state.addresses import parse_address
from openmanus_graph.state.manus import Origin, PendingCall
from openmanus_graph.state.tool_traits import Traits

M = TypeVar("M", HumanMessage, ToolMessage)

PERSON = "person"
"""The resource of tools whose output the person writes."""


Calls = dict[str, tuple[str, Mapping[str, Any]]]
"""Tool and arguments of each call, by its id."""


Words = tuple[Collection[str], Collection[str]]
"""The spellings of a text of the model, in lower case, and its URLs."""


# Cached, because each step reads the earlier messages again.
_shown = MessageCache[frozenset[str]]()
_shown_paths = MessageCache[frozenset[str]]()
_opened = MessageCache[frozenset[str]]()
_named = MessageCache[frozenset[Domain]]()
_words = MessageCache[Words]()
_own = MessageCache[UnquotedText]()


def links_shown(result: ToolMessage) -> frozenset[str]:
    """Return the addresses that a result shows, in canonical form."""
    return _shown.get(result, lambda result: canonical_urls_in(result.text))


def seen_links(
    text: str, messages: Sequence[AnyMessage], traits: Mapping[str, Traits]
) -> list[str]:
    """Return the links of a text that were seen with tools that have these traits."""
    urls = list(dict.fromkeys(urls_in(text)))
    provenance = _Provenance.of(messages, urls, traits)
    return [url for url in urls if canonical_urls([url]) & provenance.seen]


def newest_reply(
    messages: Sequence[AnyMessage], *, with_calls: bool = False
) -> tuple[AIMessage | None, Sequence[AnyMessage]]:
    """Return the newest reply, or the newest with calls, and what is before it: all without one."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, AIMessage) and (message.tool_calls or not with_calls):
            return message, messages[:place]
    return None, messages


@dataclass(frozen=True)
class JudgedReply:
    """The newest reply of a conversation, and what its calls are judged by."""

    messages: Sequence[AnyMessage]
    traits: Mapping[str, Traits]
    """The traits of each tool, with `sends_to` filled in."""
    untrusted_prompt: bool = False
    network: bool = False
    approved: Collection[str] = ()
    """What the person approved for the rest of the thread, by `approval_key`."""

    @cached_property
    def message(self) -> AIMessage | None:
        return newest_reply(self.messages)[0]

    @cached_property
    def earlier(self) -> Sequence[AnyMessage]:
        return newest_reply(self.messages)[1]


def unverified_addresses(call: PendingCall, reply: JudgedReply) -> list[str]:
    """Return the addresses of a pending call of a reply that need a person's approval."""
    declared = reply.traits.get(call["name"])
    if declared is None or declared.addresses is None or call["problem"] is not None:
        return []
    addresses = declared.addresses(call["args"])
    if not addresses:
        return []
    provenance = _Provenance.of(
        reply.earlier, addresses, reply.traits, tainted=reply.untrusted_prompt
    )
    return [url for url in addresses if provenance.tainted and not provenance.is_verified(url)]


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in JSON arguments, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from (str(key), *strings_in(item))
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from strings_in(item)


@dataclass
class _Provenance:
    traits: Mapping[str, Traits]
    wanted: Set[str]
    """The addresses, in canonical form."""
    tainted: bool = False
    _program_ran: bool = False
    """Whether a program ran after that: the model may have composed its output and files."""
    seen: set[str] = field(default_factory=set[str])
    _domains: set[Domain] = field(default_factory=set[Domain])
    _written: list[AIMessage] = field(default_factory=list[AIMessage])
    """The model's replies after that."""
    _entered: list[str] = field(default_factory=list[str])
    _given: list[str] = field(default_factory=list[str])
    """What they gave to other tools."""
    _calls: Calls = field(default_factory=Calls)

    @classmethod
    def of(
        cls,
        messages: Sequence[AnyMessage],
        addresses: Sequence[str],
        traits: Mapping[str, Traits],
        *,
        tainted: bool = False,
    ) -> "_Provenance":
        provenance = cls(traits, canonical_urls(addresses), tainted)
        for message in messages:
            for one in history.with_inner(message):
                provenance.read(one)
        return provenance

    def read(self, message: AnyMessage) -> None:
        self.tainted |= brings_untrusted(message)
        origin = origin_in(message)
        if isinstance(message, HumanMessage):
            if origin:
                links = "\n".join(origin["urls"])
                handed_on = _shown.get(message, lambda _: canonical_urls_in(links))
                self._add_links(handed_on, allowed=True)
            own = _own.get(message, lambda message: unquoted_text(person_words(message)))
            self.tainted |= own.quotes
            self._add_domains(message, lambda _: own.text)
            if history.LISTING in (facts := history.environment_of([message])["facts"]):
                self._add_links(canonical_urls_in(facts[history.LISTING]))
            if history.NOTES_KEY in message.additional_kwargs:  # earlier messages are gone
                self.tainted = self._program_ran = True
        elif origin is not None:  # a client supplied it: it shows no link, and opened none
            pass
        elif isinstance(message, AIMessage):
            self._read_reply(message)
        elif isinstance(message, ToolMessage):
            self._read_result(message)

    def is_verified(self, url: str) -> bool:
        """Return True if an address is verified, or invalid, so that it cannot be opened."""
        try:
            address, identity = parse_address(url), canonical_url(url)
        except ToolError:
            return True
        return identity in self.seen or is_of_domains(address, self._domains)

    def _read_reply(self, reply: AIMessage) -> None:
        self._calls |= {one["id"] or "": (one["name"], one["args"]) for one in reply.tool_calls}
        if not self.tainted:
            return
        self._written.append(reply)
        for call in reply.tool_calls:
            self._program_ran |= self._is_program(call["name"], call["args"])
            traits = self.traits.get(call["name"])
            if traits is not None and traits.page is not None:
                if traits.page(call["args"]).acts:
                    self._entered += strings_in(dict(call["args"]))
            elif traits is None or traits.addresses is None:
                self._given += (value for _, value in texts(call["args"]))

    def _read_result(self, result: ToolMessage) -> None:
        artifact: dict[str, Any] = result.artifact or {}
        if {"trusted_text", "listing"} & artifact.keys():  # our own text, or names of files
            return
        name, args = self._calls.get(result.tool_call_id, (result.name or "", {}))
        traits = self.traits.get(name)
        if traits is None:  # a tool of another agent, or one that is gone
            self.tainted = True
            return
        if traits.resource == PERSON:
            self._add_domains(result, lambda result: unquoted_text(result.text).text)
        else:
            self._read_shown(result, name, traits, args)
        # It was opened, so it had been allowed, unless the person had edited the call.
        edited = "edited" in artifact
        if traits.addresses is not None and result.status != "error" and not edited:
            addresses = traits.addresses
            opened = _opened.get(result, lambda _: canonical_urls_in("\n".join(addresses(args))))
            self._add_links(opened, allowed=True)
        effect = traits.effect_of(args)
        self.tainted |= traits.untrusted or traits.reads_files or effect != "read_only"

    def _read_shown(
        self, result: ToolMessage, name: str, traits: Traits, args: Mapping[str, Any]
    ) -> None:
        """Add the links that a result shows, if the model cannot have composed them."""
        artifact: dict[str, Any] = result.artifact or {}
        if traits.is_composed(args):
            self._add_links(canonical_urls(artifact.get("links", ())))
            return
        if traits.reads_files or self._is_program(name, args):
            shows = not self._program_ran
        else:  # a tool that only computes shows none
            shows = traits.untrusted or traits.effect_of(args) != "read_only"
        if not shows:
            return
        given = self._given if traits.addresses is None and not traits.reads_files else []
        if traits.page is not None:
            given = self._entered
        self._add_links(links_shown(result), given=given)
        if (site := artifact.get("site")) and self.wanted - self.seen:
            for path in _shown_paths.get(result, lambda result: paths_in(result.text)):
                urls = canonical_urls([site + path])
                if self.wanted & urls and not self._is_own(path, given):
                    self._add_links(urls, given=given)

    def _add_domains(self, message: M, words: Callable[[M], str]) -> None:
        self._domains |= _named.get(
            message, lambda said: frozenset(named_domains(plainly_written(words(said))))
        )

    def _add_links(
        self, urls: Set[str], *, given: Sequence[str] = (), allowed: bool = False
    ) -> None:
        """Add seen links, unless the model wrote them, or a tool joined its words."""
        new = (self.wanted & urls) - self.seen
        self.seen.update(link for link in new if allowed or not self._is_own(link, given))

    def _is_own(self, link: str, given: Sequence[str]) -> bool:
        written = (_words.get(reply, _words_in) for reply in self._written)
        return _is_written(link, written) or _is_joined(link, given)

    def _is_program(self, name: str, args: Mapping[str, Any]) -> bool:
        traits = self.traits.get(name)
        if traits is None:
            return True
        return traits.runs_agent or (traits.effect_of(args) == "workspace" and not traits.untrusted)


# A tool may repeat what it was asked for, or join pieces of it. Such a link was not seen: it can
# hold whatever the model has read.
_LINK_END = r"/?(?![\w/?&=%+~@:-]|\.\w)"
"""The end of an address, before a fragment."""
_LEAST_PIECE = 4
"""Letters and digits of a part of a text that show that a link was made from it."""
_MOST_ENCODINGS = 3
_TO_BASE64 = str.maketrans("-_", "+/")


def _words_in(reply: AIMessage) -> Words:
    """Read a reply so that its links are found in results in any spelling."""
    args = [call["args"] for call in reply.tool_calls]
    text = "\n".join([reply.text, *strings_in(args)])
    variants = [text, *spellings(text)]
    urls = frozenset[str]().union(*map(canonical_urls_in, variants))
    return frozenset(one.casefold() for one in variants), urls


def _is_written(link: str, words: Iterable[Words]) -> bool:
    """Return True if a canonical link, or a path of one, occurs whole in texts of the model."""
    identity = link.partition("#")[0].rstrip("/")
    plain = identity.casefold()
    for _ in range(_MOST_ENCODINGS):
        plain = unquote(plain)
    whole = re.compile(re.escape(plain) + _LINK_END)
    return any(
        identity in urls or any(plain in text and whole.search(text) for text in texts)
        for texts, urls in words
    )


def _is_joined(link: str, given: Iterable[str]) -> bool:
    """Return True if a link can be joined from values that tools were given, or their parts."""
    wanted = squeezed(link.partition("#")[0])
    pieces = {squeezed(form) for value in given for form in _forms(value)} - {""}
    within = "\0".join(pieces)
    reached = {0}
    for start in range(len(wanted)):
        if start not in reached:
            continue
        reached.update(start + len(one) for one in pieces if wanted.startswith(one, start))
        least, most = 0, len(wanted) - start  # of the longest part of a piece that begins here
        while least < most:
            middle = (least + most + 1) // 2
            if wanted[start : start + middle] in within:
                least = middle
            else:
                most = middle - 1
        reached.update(range(start + _LEAST_PIECE, start + least + 1))
    return bool(wanted) and len(wanted) in reached


def _forms(value: str) -> Iterator[str]:
    """Yield a value, and what it decodes to from base64 or hexadecimal digits."""
    yield from spellings(value)
    with suppress(ValueError):
        yield base64.b64decode(value.translate(_TO_BASE64) + "==").decode()
    with suppress(ValueError):
        yield bytes.fromhex(value).decode()


def person_words(message: HumanMessage) -> str:
    """Return the person's own text, without the summary of a compacted conversation.

    Clients put attachments into further text parts. Only the first part was typed.
    """
    if origin := origin_in(message):
        return origin["words"]
    if task := message.additional_kwargs.get(history.TASK_KEY):
        return str(task)
    return next(iter(_texts_in(message)), "")


def brings_untrusted(message: BaseMessage) -> bool:
    """Return True if a message holds untrusted content: by its origin, a picture or another text.

    Pictures, sound and video may come from anybody, even if a person attached them.
    """
    if (origin := origin_in(message)) is not None and origin["tainted"]:
        return True
    if history.listed_heads([message]):
        return True  # as if the agent had read those files
    noted: Any = message.artifact if isinstance(message, ToolMessage) else message.additional_kwargs
    if isinstance(noted, dict) and cast("dict[str, Any]", noted).get("images"):
        return True
    if isinstance(message.content, str) or isinstance(message, AIMessage):
        return False
    texts = _texts_in(message)
    return len(texts) < len(message.content) or (
        isinstance(message, HumanMessage) and origin is None and len(texts) > 1
    )


def _texts_in(message: BaseMessage) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [
        part if isinstance(part, str) else str(part.get("text", ""))
        for part in message.content
        if isinstance(part, str) or part.get("type") == "text"
    ]


def origin_in(message: BaseMessage) -> Origin | None:
    """Return what a flow or a client's server noted about a message; None for a person's own."""
    origin = message.additional_kwargs.get(history.ORIGIN_KEY)
    return cast("Origin", origin) if origin else None  # made by `origin_of`


def origin_of(message: HumanMessage | None, urls: Sequence[str], *, tainted: bool) -> Origin:
    """Return the `Origin` of a plan step, from a message and the `urls` that others have seen."""
    outer = origin_in(message) if message is not None else None
    origin = Origin(
        words="" if message is None else person_words(message),
        urls=[*(outer["urls"] if outer else ()), *urls],
        tainted=tainted or (message is not None and brings_untrusted(message)),
    )
    if outer and outer.get("names"):
        origin["names"] = True
    return origin


def origin_of_parts(words: str, text: str, *, names: bool = False) -> Origin | None:
    """Return the `Origin` of a message of which a person typed only `words`; None if all of it.

    `text` is the whole message. `names` tells whether names of files are added to it.
    """
    tainted = words.strip() != text.strip()
    if not (tainted or names):
        return None
    return Origin(words=words, urls=[], tainted=tainted, names=names)
