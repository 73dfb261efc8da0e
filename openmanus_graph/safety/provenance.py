"""Tracks the provenance of addresses: which ones a run may open without asking the person first.

A page or file may instruct the model to send data somewhere, by opening an address with the data
in it. So once untrusted content or any file was read, an address must be verified: the person
named its domain, or exactly this address was seen as a link. Text of the model verifies nothing,
nor does output that the model could have composed by a program.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)

from openmanus_graph.conversation.environment import LISTING, environment_of, listed_heads
from openmanus_graph.conversation.history import (
    NOTES_KEY,
    ORIGIN_KEY,
    TASK_KEY,
    MessageCache,
)
from openmanus_graph.errors import ToolError
from openmanus_graph.safety.argument_names import texts
from openmanus_graph.safety.unquoted_text import UnquotedText, unquoted_text
from openmanus_graph.safety.urls import (
    canonical_url,
    canonical_urls,
    canonical_urls_in,
    named_domains,
    paths_in,
    urls_in,
)
from openmanus_graph.safety.values import plainly_written
from openmanus_graph.safety.written_links import Words, is_joined, is_written, words_of
from openmanus_graph.state.addresses import PORTS, parse_address, within
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.plan import Origin
from openmanus_graph.state.tool_traits import Traits

M = TypeVar("M", HumanMessage, ToolMessage)

PERSON = "person"
"""The resource of tools whose output is written by the person."""

# Cached, because each step reads the earlier messages again.
_shown = MessageCache[frozenset[str]]()
_shown_paths = MessageCache[frozenset[str]]()
_opened = MessageCache[frozenset[str]]()
_named = MessageCache[frozenset[tuple[str, int | None]]]()
_words = MessageCache[Words]()
_own = MessageCache[UnquotedText]()


def links_shown(result: ToolMessage) -> frozenset[str]:
    """Return the addresses that a result shows, in canonical form."""
    return _shown.get(result, lambda result: canonical_urls_in(result.text))


def passed_on(text: str, messages: Sequence[AnyMessage], traits: Mapping[str, Traits]) -> list[str]:
    """Return the links of a text that were seen in a conversation.

    Args:
        text: A plan step's result.
        messages: The plan step's conversation.
        traits: The traits of the tools whose links count.
    """
    urls = list(dict.fromkeys(urls_in(text)))
    provenance = _Provenance.of(messages, urls, traits)
    return [url for url in urls if canonical_urls([url]) & provenance.seen]


def unverified_addresses(
    call: PendingCall,
    messages: Sequence[AnyMessage],
    traits: Mapping[str, Traits],
    *,
    tainted: bool = False,
) -> list[str]:
    """Return the addresses of a pending call that need a person's approval.

    Args:
        call: A call of the newest reply.
        messages: The conversation, that reply included.
        traits: The traits of each tool.
        tainted: Whether the prompt holds untrusted text.
    """
    declared = traits.get(call["name"])
    if declared is None or declared.addresses is None or call["problem"] is not None:
        return []
    addresses = declared.addresses(call["args"])
    if not addresses:
        return []
    earlier = newest_reply(messages)[1]
    provenance = _Provenance.of(earlier, addresses, traits, tainted=tainted)
    return [url for url in addresses if provenance.tainted and not provenance.is_verified(url)]


def newest_reply(
    messages: Sequence[AnyMessage], *, with_calls: bool = False
) -> tuple[AIMessage | None, Sequence[AnyMessage]]:
    """Return the newest reply, or the newest with calls, and the messages before it.

    Without one, all messages are returned.
    """
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, AIMessage) and (message.tool_calls or not with_calls):
            return message, messages[:place]
    return None, messages


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in JSON arguments, keys among them."""
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
    """The provenance of some addresses, collected from a conversation message by message."""

    traits: Mapping[str, Traits]
    wanted: Set[str]
    """The addresses, in canonical form."""
    tainted: bool = False
    """Whether untrusted content, or a file, was read."""
    _program_ran: bool = False
    """Whether a program ran after that: its output and files may be composed by the model."""
    seen: set[str] = field(default_factory=set[str])
    _domains: set[tuple[str, int | None]] = field(default_factory=set[tuple[str, int | None]])
    _written: list[AIMessage] = field(default_factory=list[AIMessage])
    """The model's replies after that."""
    _entered: list[str] = field(default_factory=list[str])
    """What they gave to pages."""
    _given: list[str] = field(default_factory=list[str])
    """What they gave to tools that are not ours."""
    _calls: dict[str, tuple[str, dict[str, Any]]] = field(
        default_factory=dict[str, tuple[str, dict[str, Any]]]
    )

    @classmethod
    def of(
        cls,
        messages: Sequence[AnyMessage],
        addresses: Sequence[str],
        traits: Mapping[str, Traits],
        *,
        tainted: bool = False,
    ) -> "_Provenance":
        """Read the provenance of addresses from a conversation."""
        provenance = cls(traits, canonical_urls(addresses), tainted)
        for message in messages:
            provenance.read(message)
        return provenance

    def read(self, message: AnyMessage) -> None:
        """Read the next message."""
        self.tainted |= brings_untrusted(message)
        origin = origin_in(message)
        if isinstance(message, HumanMessage):
            if origin:
                links = "\n".join(origin["urls"])
                self._add_links(
                    _shown.get(message, lambda _: canonical_urls_in(links)), allowed=True
                )
            own = _own.get(message, lambda message: unquoted_text(person_words(message)))
            self.tainted |= own.quotes
            self._add_domains(message, lambda _: own.text)
            if LISTING in (facts := environment_of([message])["facts"]):
                self._add_links(canonical_urls_in(facts[LISTING]))
            if NOTES_KEY in message.additional_kwargs:  # the messages before the notes are gone
                self.tainted = self._program_ran = True
        elif origin is not None:  # a client supplied it: it shows no link, and opened none
            pass
        elif isinstance(message, AIMessage):
            self._read_reply(message)
        elif isinstance(message, ToolMessage):
            self._read_result(message)

    def is_verified(self, url: str) -> bool:
        """Say whether an address is verified, or invalid, so that it cannot be opened."""
        try:
            address, identity = parse_address(url), canonical_url(url)
        except ToolError:
            return True
        return identity in self.seen or any(
            within(address.host, domain)
            and (address.port == port if port else address.port in PORTS.values())
            for domain, port in self._domains
        )

    def _read_reply(self, reply: AIMessage) -> None:
        for call in reply.tool_calls:
            self._calls[call["id"] or ""] = (call["name"], call["args"])
            if self.tainted:
                self._program_ran |= self._is_program(call["name"], call["args"])
                self._note_given(self.traits.get(call["name"]), call["args"])
        if self.tainted:
            self._written.append(reply)

    def _note_given(self, traits: Traits | None, args: Mapping[str, Any]) -> None:
        if traits is not None and traits.page is not None:
            if traits.page(args).acts:
                self._entered += strings_in(dict(args))
        elif traits is None or traits.addresses is None:
            self._given += (value for _, value in texts(args))

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
        """Add the links that a result shows of others."""
        artifact: dict[str, Any] = result.artifact or {}
        if traits.is_composed(args):
            self._add_links(canonical_urls(artifact.get("links", ())))
        elif self._shows_links(name, traits, args):
            given = self._given_to(traits)
            self._add_links(links_shown(result), given=given)
            if site := artifact.get("site"):
                paths = _shown_paths.get(result, lambda result: paths_in(result.text))
                self._add_links_of_site(site, paths, given)

    def _shows_links(self, name: str, traits: Traits, args: Mapping[str, Any]) -> bool:
        """Say whether the links of a result are those of others."""
        if traits.reads_files or self._is_program(name, args):
            return not self._program_ran
        return traits.untrusted or traits.effect_of(args) != "read_only"  # else it only computes

    def _given_to(self, traits: Traits) -> Sequence[str]:
        """Return what a tool may have joined to the links that it shows."""
        if traits.page is not None:
            return self._entered
        return self._given if traits.addresses is None and not traits.reads_files else ()

    def _add_domains(self, message: M, words: Callable[[M], str]) -> None:
        """Add the domains in a text of the person."""
        self._domains |= _named.get(
            message, lambda said: frozenset(named_domains(plainly_written(words(said))))
        )

    def _add_links(
        self, urls: Set[str], *, given: Sequence[str] = (), allowed: bool = False
    ) -> None:
        """Add seen links, but none that the model wrote itself, or that was joined of its words."""
        new = (self.wanted & urls) - self.seen
        self.seen.update(link for link in new if allowed or not self._is_own(link, given))

    def _add_links_of_site(self, site: str, paths: Set[str], given: Sequence[str]) -> None:
        """Add the links that a page shows without its own site."""
        for path in paths if self.wanted - self.seen else ():
            if self.wanted & (urls := canonical_urls([site + path])) and not self._is_own(
                path, given
            ):
                self._add_links(urls, given=given)

    def _is_own(self, link: str, given: Sequence[str]) -> bool:
        written = (_words.get(reply, _words_in) for reply in self._written)
        return is_written(link, written) or is_joined(link, given)

    def _is_program(self, name: str, args: Mapping[str, Any]) -> bool:
        traits = self.traits.get(name)
        if traits is None:
            return True
        return traits.runs_agent or (traits.effect_of(args) == "workspace" and not traits.untrusted)


def _words_in(reply: AIMessage) -> Words:
    args = [call["args"] for call in reply.tool_calls]
    return words_of("\n".join([reply.text, *strings_in(args)]))


def person_words(message: HumanMessage) -> str:
    """Return the person's own text, without the model's notes of a compacted conversation.

    Clients put what a person attached into further text parts: only the first one was typed.
    """
    if origin := origin_in(message):
        return origin["words"]
    if task := message.additional_kwargs.get(TASK_KEY):
        return str(task)
    return next(iter(_texts_in(message)), "")


def brings_untrusted(message: BaseMessage) -> bool:
    """Return True if a message holds untrusted content: by its origin, a picture, another text.

    What a picture, sound or video shows was made by anybody, also where a person attached it.
    """
    if (origin := origin_in(message)) is not None and origin["tainted"]:
        return True
    if listed_heads([message]):
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
    """Return the text parts of a message."""
    if isinstance(message.content, str):
        return [message.content]
    return [
        part if isinstance(part, str) else str(part.get("text", ""))
        for part in message.content
        if isinstance(part, str) or part.get("type") == "text"
    ]


def origin_in(message: BaseMessage) -> Origin | None:
    """Return what a flow or a client's door says of a message; None of a person's own message."""
    origin = message.additional_kwargs.get(ORIGIN_KEY)
    return cast("Origin", origin) if origin else None  # made by `origin_of`


def origin_of(
    message: HumanMessage | None,
    urls: Sequence[str],
    *,
    tainted: bool,
    openings: Mapping[str, int] | None = None,
) -> Origin:
    """Return the `Origin` of a plan step, made from a message of the person or of an outer flow.

    Args:
        message: The user message.
        urls: Links that the plan steps before it have seen.
        tainted: Whether there were such steps.
        openings: Links that they opened, by site (`ValueLabels.openings`).
    """
    outer = origin_in(message) if message is not None else None
    known = outer["urls"] if outer else []
    origin = Origin(
        words="" if message is None else person_words(message),
        urls=[*known, *urls],
        tainted=tainted or (message is not None and brings_untrusted(message)),
    )
    if openings:
        origin["openings"] = dict(openings)
    if outer and outer.get("names"):
        origin["names"] = True
    return origin


def origin_of_parts(words: str, text: str, *, names: bool = False) -> Origin | None:
    """Return the `Origin` of a message of which a person typed only a part; else None.

    Args:
        words: What the person typed.
        text: All of the message, before names of files are added.
        names: Whether names of files are added.
    """
    tainted = words.strip() != text.strip()
    if not (tainted or names):
        return None
    return Origin(words=words, urls=[], tainted=tainted, names=names)
