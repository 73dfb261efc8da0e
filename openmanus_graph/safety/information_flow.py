"""Decides which values of a call need approval before they may leave.

A tool declares which arguments decide where something goes or whom it affects (`sends_to`). After
untrusted content was read, such a value must be verified: the person said it or approved it, or a
trusted tool returned it as a whole field. No model is asked, and nothing is guessed: a value that
is not found is unverified. `docs/information-flow.md` has the rules.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolCall

from openmanus_graph.safety import destinations, values
from openmanus_graph.safety.destinations import approval_key, parts_of
from openmanus_graph.safety.openings import Openings, SharedOpenings, addresses_of
from openmanus_graph.safety.policy import MOST_SHOWN, source_of
from openmanus_graph.safety.provenance import JudgedReply, newest_reply, unverified_addresses
from openmanus_graph.safety.said_names import kinds_in
from openmanus_graph.safety.shell_commands import (
    ShellText,
    hosts_named,
    read_shell_text,
    uses_network,
)
from openmanus_graph.safety.urls import Domain, domains_in
from openmanus_graph.safety.value_labels import ValueLabels, is_within_domains, labels_of
from openmanus_graph.safety.values import Tokens, tokens_of
from openmanus_graph.state.addresses import OWN_SITE, has_scheme, with_scheme
from openmanus_graph.state.manus import FlowRule, PendingCall, UnverifiedValue
from openmanus_graph.state.tool_traits import PageUse, Traits

DOWNLOADS = frozenset({"downloads", "outputs"})
"""Folders for what the browser and the web tools download."""
ANOTHER_PAGE = "another page"
"""The site of a page that only an earlier call of the reply will show."""
_UNKNOWN_PAGE = "https://page-not-known-yet.invalid"
_REPLY_MARKS = frozenset({"re", "fwd", "fw", "aw", "wg"})
_STRUCTURED = (values.DATE, values.TIME)
_CHINESE = re.compile(r"[\u3400-\u9fff]{2,40}")
"""Chinese has no spaces, so the end of a name in it is unknown."""
_PHONE = re.compile(r"(?<![A-Za-z0-9_+.-])(?:\+\d|0\d|1[3-9]\d)(?:[ ()./-]{0,2}\d){6,18}(?![\w-])")


def is_tainted(reply: JudgedReply) -> bool:
    """Return True if untrusted content was read before a reply was written."""
    return labels_of(reply.earlier, reply.traits, tainted=reply.untrusted_prompt).tainted


def add_questions(
    call: PendingCall, reply: JudgedReply, shared: SharedOpenings | None = None
) -> None:
    """Add to a pending call of a reply what a person must approve, if anything."""
    if unverified := unverified_addresses(call, reply):
        call["unverified"] = unverified
    if excess := excess_addresses(call, reply, shared):
        call["excess"] = excess
    if found := unverified_values(call, reply):
        call["unverified_values"] = found


LEFT_OUT = (
    "it was left out: private data was read before, and nobody named its site. Which pages are "
    "read can spell the data out"
)


def excess_addresses(
    call: PendingCall, reply: JudgedReply, shared: SharedOpenings | None = None
) -> list[str]:
    """Return the links of a pending call that are too many to open without approval."""
    traits = reply.traits
    declared = traits.get(call["name"])
    if declared is None or declared.addresses is None or call["problem"] is not None:
        return []
    labels = labels_of(reply.earlier, traits, tainted=reply.untrusted_prompt)
    if not (labels.tainted and labels.read_private):
        return []
    made = reply.message.tool_calls if reply.message else []

    def opened(one: PendingCall | ToolCall) -> list[str]:
        if one["name"] not in traits:
            return []
        site = _site_before(one, made, traits[one["name"]], labels.site) or _UNKNOWN_PAGE
        return labels.unnamed(addresses_of(traits[one["name"]], one["args"], site))

    earlier = takewhile(lambda one: one["id"] != call["id"], made)
    before = [url for one in earlier for url in opened(one)]
    if shared is None or reply.message is None:
        return labels.openings.excess(opened(call), before)
    shared.raise_limits(reply.messages)
    return shared.claim(reply.message, call["id"], labels.openings, opened(call), before)


class UnaskedOpenings:
    """Limits the links that calls of one reply open by themselves, such as search results.

    A person cannot approve these links in advance, because they are unknown before. Excess links
    are left out. The calls of a reply share one instance, because they run at the same time.
    """

    def __init__(
        self,
        messages: Sequence[AnyMessage],
        traits: Mapping[str, Traits],
        *,
        tainted: bool,
        shared: SharedOpenings | None,
    ) -> None:
        """`messages` include the reply that makes the calls.

        `traits` are those of the tools that open addresses; results of others count as private.
        """
        reply, earlier = newest_reply(messages, with_calls=True)
        self._labels = labels_of(earlier, traits, tainted=tainted)
        self._reply = reply or AIMessage("")
        self._shared = shared
        self._opened = self._labels.unnamed([
            url
            for call in self._reply.tool_calls
            if call["name"] in traits
            for url in addresses_of(traits[call["name"]], call["args"], self._labels.site)
        ])  # fmt: skip
        """Links of any call of the reply, approved or not."""

    @property
    def named(self) -> frozenset[Domain]:
        """The domains that the person named."""
        return frozenset(self._labels.domains)

    def may_open(self, url: str) -> bool:
        """Return True if an address may be opened, and count it."""
        labels = self._labels
        if not (labels.tainted and labels.read_private and labels.unnamed([url])):
            return True
        if self._shared is None:
            excess = labels.openings.excess([url], self._opened)
        else:
            call = f"unasked {len(self._opened)}"
            excess = self._shared.claim(self._reply, call, labels.openings, [url], self._opened)
        if excess:
            return False
        self._opened.append(url)
        return True

    def by_site(self, urls: Sequence[str]) -> dict[str, int]:
        """Return how many openings these addresses count as for later calls, by site."""
        if not self._labels.read_private:
            return {}
        opened = Openings()
        opened.note(self._labels.unnamed(urls), ran=True)
        return opened.by_site()


def unverified_values(call: PendingCall, reply: JudgedReply) -> list[UnverifiedValue]:
    """Return the values of a pending call of a reply that need a person's approval."""
    declared, args = reply.traits.get(call["name"]), call["args"]
    if declared is None or call["problem"] is not None:
        return []
    if not _may_send(declared, args, reply.network):
        return []
    labels = labels_of(reply.earlier, reply.traits, tainted=reply.untrusted_prompt)
    if not labels.tainted:
        return []
    judgement = _Judgement(labels, frozenset(reply.approved), declared, call["name"])
    if declared.sandboxed:
        judged = judgement.of_program(args)
    elif declared.page is not None:
        made = reply.message.tool_calls if reply.message else []
        site = _site_before(call, made, declared, labels.site)
        judged = judgement.of_page(declared.page(args).entered, site)
    else:
        judged = judgement.of(args, external=declared.effect_of(args) == "external")
    return [
        UnverifiedValue(
            value=value,
            argument=argument,
            rule=rule,
            source=source_of(value, reply.messages, labels.calls) if number < MOST_SHOWN else None,
        )
        for number, (argument, value, rule) in enumerate(dict.fromkeys(judged))
    ]


def named_hosts(call: PendingCall, reply: JudgedReply) -> set[Domain]:
    """Return the hosts that a call's program may reach: a person has named or approved them."""
    labels = labels_of(reply.earlier, reply.traits, tainted=reply.untrusted_prompt)
    asked = [one["value"] for one in call.get("unverified_values", ())]
    approved = [token for one in reply.approved for token in one.split()]
    tokens = [*approved, *(token for tokens in labels.reached for token in tokens)]
    urls = [one.removeprefix(values.URL) for one in tokens if one.startswith(values.URL)]
    return labels.domains | set(domains_in(" ".join(map(with_scheme, (*asked, *urls)))))


def _may_send(declared: Traits, args: Mapping[str, Any], network: bool) -> bool:
    """Return True if the rules must check a call, because it can send something."""
    if declared.sandboxed:
        return network
    if declared.page is not None:
        return bool(declared.page(args).entered)
    if declared.addresses is not None:  # a tool of ours that reaches addresses has its own rule
        return False
    return declared.effect_of(args) == "external" or bool(declared.sends_to)


def _site_before(
    call: PendingCall | ToolCall, made: Sequence[ToolCall], declared: Traits, site: str
) -> str:
    """Return the site of the page that a call works on; empty if earlier calls may leave it."""
    for one in made:
        if one["id"] == call["id"]:
            break
        if one["name"] != call["name"]:
            continue
        use = declared.page(one["args"]) if declared.page else PageUse()
        site = "" if use.switches else use.opens or site
    return site


def usual_destinations(arguments: Collection[str], traits: Traits) -> tuple[str, ...] | None:
    """Return which arguments of an undeclared tool are destinations by name; None if none is.

    Tools that only read have addresses as destinations: an address can carry data out.
    """
    known = destinations.DESTINATIONS if traits.effect == "external" else destinations.READ_FROM
    return tuple(name for name in arguments if destinations.names_destination(name, known)) or None


_Found = tuple[str, str, FlowRule]


@dataclass(frozen=True)
class _Judgement:
    labels: ValueLabels
    approved: frozenset[str]
    declared: Traits
    name: str

    def of(self, args: Mapping[str, Any], *, external: bool) -> Iterator[_Found]:
        is_destination = destinations.destination_test(self.declared, external=external)
        places = list(destinations.destinations(args, is_destination))
        for one in places:
            if not self.is_verified(
                one.value, is_site=one.is_site, receives=True, kinds=self._kinds(one.argument)
            ):
                yield one.argument, one.value, "destination"
        if not external:
            return
        yield from self._addresses(args, is_destination)
        names_nothing = bool(self.declared.sends_to) and not places
        if (names_nothing or self.declared.destructive) and not self._is_asked_for(args):
            argument, value = next(destinations.leaves(args), ("", ""))
            rule: FlowRule = "destructive" if self.declared.destructive else "no_destination"
            yield argument, value, rule
        yield from self._private(args)

    def of_page(self, entered: Sequence[str], site: str) -> Iterator[_Found]:
        if site == OWN_SITE:  # it sends nothing but to hosts that the person named
            return
        untrusted = [text for text in entered if not self.labels.is_said(tokens_of(text))]
        host = parts_of(site)[0].tokens[0]
        is_known = site and (self.is_verified(site) or is_within_domains(host, self.labels.opened))
        if untrusted and not is_known:
            yield "page", site or ANOTHER_PAGE, "page"
        args = {"text": entered}
        yield from self._addresses(args)
        yield from self._private(args)

    def of_program(self, args: Mapping[str, Any]) -> Iterator[_Found]:
        """Yield the unverified values in a program with network access."""
        shell = self.declared.shell
        for argument, text in destinations.leaves(args):
            found = read_shell_text(text) if argument == shell else ShellText()
            bare_names = argument == shell and uses_network(text, found)
            hosts = hosts_named(text, found) if argument == shell else ()
            for address in values.reached_by(text, hosts, bare_names=bare_names):
                if not (self.is_verified(address) or self.is_verified(f"https://{address}")):
                    yield argument, address, "address"
            for path in map(PurePosixPath, (*(path for path, _ in found.paths), *found.scripts)):
                if DOWNLOADS & set(path.parts[:-1]) and not self.is_verified(str(path)):
                    yield argument, str(path), "download"
        yield from self._private(args)

    def _addresses(
        self, args: Mapping[str, Any], but: Callable[[destinations.Names], bool] | None = None
    ) -> Iterator[_Found]:
        for argument, text in destinations.texts(args, but):
            for address in values.addresses_in(text):
                if not self.is_verified(address):
                    yield argument, address, "address"

    def _is_asked_for(self, args: Mapping[str, Any]) -> bool:
        """Return True if the person gave an argument, or the call may be about one."""
        known = self.labels.trusted if self.declared.destructive else self.labels.plain
        return any(
            self.is_verified(value, kinds=self._kinds(argument)) or tokens_of(value) in known
            for argument, value in destinations.leaves(args)
        )

    def _kinds(self, argument: str) -> frozenset[str]:
        return kinds_in(argument) or kinds_in(self.name)

    def _private(self, args: Mapping[str, Any]) -> Iterator[_Found]:
        labels = self.labels
        if not labels.private:
            return
        for argument, text in destinations.texts(args):
            shown = values.squeezed(text)
            for value in (value for key, value in labels.private.items() if key in shown):
                tokens = tokens_of(value)
                if not (labels.is_said(tokens) or approval_key(value) in self.approved):
                    yield argument, value, "private"

    def is_verified(
        self,
        value: str,
        *,
        is_site: bool = False,
        receives: bool = False,
        kinds: Collection[str] = (),
    ) -> bool:
        """Return True if a value is verified, as a whole or by all its parts.

        If it is opened (`is_site`), a name that looks like a host must be a known host. If it
        `receives` something, a word must have been used as a name. `kinds` are those of things
        whose id it may be.
        """
        if approval_key(value) in self.approved or self._is_written(value):
            return True
        if not (is_site or destinations.holds_address(value)) and self._is_composed(
            tokens_of(value), receives, kinds
        ):
            return True
        parts = parts_of(value)
        return all(self._is_verified_part(part, is_site, receives, kinds) for part in parts)

    def _is_written(self, value: str) -> bool:
        """Return True if the person wrote a Chinese name, or a phone number in any notation."""
        if _CHINESE.fullmatch(value):
            return any(value in text for text in self.labels.texts_said)
        if not _PHONE.fullmatch(value):
            return False
        said = (one[0] for text in self.labels.texts_said for one in _PHONE.finditer(text))
        plain, *known = (re.sub(r"[^\d+]", "", one.replace("(0)", "")) for one in (value, *said))
        return plain in known

    def _is_verified_part(
        self, part: destinations.Part, is_site: bool, receives: bool, kinds: Collection[str]
    ) -> bool:
        first = part.tokens[0]
        if not (first.startswith(values.URL) or (part.bare_host and is_site)):
            return self._is_composed(part.tokens, receives, kinds)
        said, url = self.labels.is_said(part.tokens), first.removeprefix(values.URL)
        if self._was_given(part.tokens):
            return True
        if self.labels.names_domain_of(first):
            return said or all(map(self.is_verified, values.addresses_behind(url)))
        # Not every name with a dot is an address. The canonical form of a web address has no
        # scheme.
        return said and (not is_site if part.bare_host else has_scheme(url))

    def _is_composed(self, tokens: Tokens, receives: bool, kinds: Collection[str]) -> bool:
        if self._is_known(tokens, receives, kinds):
            return True
        parts = [one for one in _parts(tokens) if one != tokens]
        return bool(parts) and all(self._is_known(one, receives, kinds) for one in parts)

    def _is_known(self, tokens: Tokens, receives: bool, kinds: Collection[str]) -> bool:
        if self._was_given(tokens):
            return True
        named = self.labels.is_named(tokens, kinds)
        return named and (not receives or self.labels.names.receives(tokens))

    def _was_given(self, tokens: Tokens) -> bool:
        """Return True if a trusted tool returned a value, or it was approved."""
        known = tokens in self.labels.trusted or tokens in self.labels.reached
        return known or " ".join(tokens) in self.approved


def _parts(tokens: Tokens) -> Iterator[Tokens]:
    """Yield the dates, times and texts between them that a model may compose: "Re: name date"."""
    start = 1 if len(tokens) > 1 and tokens[0] in _REPLY_MARKS else 0
    for place, token in enumerate(tokens):
        if token.startswith(_STRUCTURED):
            if start < place:
                yield tokens[start:place]
            yield (token,)
            start = place + 1
    if start < len(tokens):
        yield tokens[start:]
