"""Decides whether the values of a call may leave: where each came from, whatever the model says.

A tool declares which of its arguments decide where something goes or whom it hits (`sends_to`).
Once untrusted content was read, such a value must be verified: the person said it, approved it, or
it is a whole value of a field that a trusted tool returned. `docs/information-flow.md` has the
rules.

No model is asked, and nothing is guessed: what cannot be found is unverified.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage

from openmanus_graph.conversation.history import (
    NOTES_KEY,
    ORIGIN_KEY,
    STEP_KEY,
    canonical_args,
)
from openmanus_graph.safety.argument_names import (
    DESTINATIONS,
    READ_FROM,
    Names,
    destination_test,
    destinations,
    leaves,
    names_destination,
    texts,
)
from openmanus_graph.safety.destinations import Part, approval_key, holds_address, parts_of
from openmanus_graph.safety.network_programs import hosts_named, opens_device, uses_network
from openmanus_graph.safety.openings import SharedOpenings, addresses_of
from openmanus_graph.safety.said_names import kinds_in
from openmanus_graph.safety.shell_commands import ShellText, read_shell_text
from openmanus_graph.safety.unquoted_text import without_mark
from openmanus_graph.safety.value_labels import ValueLabels, labels_of
from openmanus_graph.safety.values import (
    DATE,
    TIME,
    URL,
    Tokens,
    addresses_behind,
    addresses_in,
    is_address,
    reached_by,
    squeezed,
    tokens_of,
)
from openmanus_graph.state.addresses import has_scheme
from openmanus_graph.state.manus import FlowRule, PendingCall, UnverifiedValue, ValueSource
from openmanus_graph.state.tool_traits import PageUse, Traits

DOWNLOADS = frozenset({"downloads", "outputs"})
"""Folders of what the browser and the web tools bring."""
ANOTHER_PAGE = "another page"
"""Stands for the site of a page that only the call before will show."""
_UNKNOWN_PAGE = "https://page-not-known-yet.invalid"
"""Stands for it where openings are counted."""
_REPLY_MARKS = frozenset({"re", "fwd", "fw", "aw", "wg"})
_CONTEXT_CHARS, _DESCRIPTION_CHARS = 120, 600
_STRUCTURED = (DATE, TIME)
_CHINESE = re.compile(r"[\u3400-\u9fff]{2,40}")
"""Chinese has no spaces: where a name in it ends cannot be told."""
_PHONE = re.compile(r"(?<![A-Za-z0-9_+.-])(?:\+\d|0\d|1[3-9]\d)(?:[ ()./-]{0,2}\d){6,18}(?![\w-])")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
MOST_SHOWN = 10
"""Values that a question names; of more it says how many there are."""


def is_tainted(
    messages: Sequence[AnyMessage], traits: Mapping[str, Traits], *, tainted: bool = False
) -> bool:
    """Say whether untrusted content was read before the newest reply was written."""
    return labels_of(messages[: _place_of_reply(messages)], traits, tainted=tainted).tainted


def excess_addresses(
    call: PendingCall,
    messages: Sequence[AnyMessage],
    traits: Mapping[str, Traits],
    *,
    tainted: bool = False,
    shared: SharedOpenings | None = None,
) -> list[str]:
    """Return the links of a pending call that are too many to be opened without a question.

    Args:
        call: A call of the newest reply.
        messages: The conversation, that reply included.
        traits: The traits of each tool.
        tainted: Whether the prompt holds untrusted text.
        shared: The openings of the runs beside this one.
    """
    declared = traits.get(call["name"])
    if declared is None or declared.addresses is None or call["problem"] is not None:
        return []
    place = _place_of_reply(messages)
    labels = labels_of(messages[:place], traits, tainted=tainted)
    if not (labels.tainted and labels.read_private):
        return []
    reply = messages[place] if place < len(messages) else None
    made = _calls_at(messages, place)

    def opened(one: PendingCall | ToolCall) -> list[str]:
        if one["name"] not in traits:
            return []
        site = _site_before(one, made, traits[one["name"]], labels.site) or _UNKNOWN_PAGE
        return labels.unnamed(addresses_of(traits[one["name"]], one["args"], site))

    before = [
        url for one in takewhile(lambda one: one["id"] != call["id"], made) for url in opened(one)
    ]
    urls = opened(call)
    if shared is None or not isinstance(reply, AIMessage):
        return labels.openings.excess(urls, before)
    shared.see(messages)
    return shared.claim(reply, call["id"], labels.openings, urls, before)


def _place_of_reply(messages: Sequence[AnyMessage]) -> int:
    """Return the place of the newest reply; behind all messages if there is none."""
    places = range(len(messages) - 1, -1, -1)
    return next((n for n in places if isinstance(messages[n], AIMessage)), len(messages))


def unverified_values(
    call: PendingCall,
    messages: Sequence[AnyMessage],
    traits: Mapping[str, Traits],
    approved: Collection[str] = (),
    *,
    network: bool = False,
    tainted: bool = False,
) -> list[UnverifiedValue]:
    """Return the values of a pending call that need a person's approval.

    Args:
        call: A call of the newest reply.
        messages: The conversation, that reply included.
        traits: The traits of each tool; `sends_to` is filled in.
        approved: What the person approved for the rest of the thread, as `approval_of` names it.
        network: Whether the sandbox has the network.
        tainted: Whether the prompt holds untrusted text.
    """
    declared, args = traits.get(call["name"]), call["args"]
    if declared is None or call["problem"] is not None or not _may_send(declared, args, network):
        return []
    place = _place_of_reply(messages)
    labels = labels_of(messages[:place], traits, tainted=tainted)
    if not labels.tainted:
        return []
    judgement = _Judgement(labels, frozenset(approved), declared, call["name"])
    if declared.sandboxed:
        judged = judgement.of_program(args)
    elif declared.page is not None:
        site = _site_before(call, _calls_at(messages, place), declared, labels.site)
        judged = judgement.of_page(declared.page(args).entered, site)
    else:
        judged = judgement.of(args, external=declared.effect_of(args) == "external")
    found = dict.fromkeys(judged)
    return [
        UnverifiedValue(
            value=value,
            argument=argument,
            rule=rule,
            source=_source(value, messages, labels) if number < MOST_SHOWN else None,
        )
        for number, (argument, value, rule) in enumerate(found)
    ]


def _may_send(declared: Traits, args: Mapping[str, Any], network: bool) -> bool:
    """Say whether a call can send anything to where the rules must look."""
    if declared.sandboxed:
        return network
    if declared.page is not None:
        return bool(declared.page(args).entered)
    if declared.addresses is not None:  # a tool of ours that reaches addresses has its own rule
        return False
    return declared.effect_of(args) == "external" or bool(declared.sends_to)


def _calls_at(messages: Sequence[AnyMessage], place: int) -> Sequence[ToolCall]:
    reply = messages[place] if place < len(messages) else None
    return reply.tool_calls if isinstance(reply, AIMessage) else ()


def _site_before(
    call: PendingCall | ToolCall, made: Sequence[ToolCall], declared: Traits, site: str
) -> str:
    """Return the site of the page that a call is for; empty if nobody can know it before.

    Earlier calls of the same reply may open another one. Where a click leads is not known.
    """
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

    Of a tool that only reads they are addresses: what it reads there is told by them.
    """
    known = DESTINATIONS if traits.effect == "external" else READ_FROM
    return tuple(name for name in arguments if names_destination(name, known)) or None


def approval_of(value: UnverifiedValue) -> str:
    """Return the key by which the approval of a value is kept."""
    return approval_key(value["value"])


_Found = tuple[str, str, FlowRule]
"""Argument, value and the rule that it does not meet."""


@dataclass(frozen=True)
class _Judgement:
    """The rules, for one call."""

    labels: ValueLabels
    approved: frozenset[str]
    declared: Traits
    name: str
    """The tool's."""

    def of(self, args: Mapping[str, Any], *, external: bool) -> Iterator[_Found]:
        """Yield what in a call's arguments is unverified."""
        is_destination = destination_test(self.declared, external=external)
        places = list(destinations(args, is_destination))
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
            argument, value = next(leaves(args), ("", ""))
            rule: FlowRule = "destructive" if self.declared.destructive else "no_destination"
            yield argument, value, rule
        yield from self._private(args)

    def of_page(self, entered: Sequence[str], site: str) -> Iterator[_Found]:
        """Yield what is unverified in texts that are entered into a page."""
        untrusted = [text for text in entered if not self.labels.is_said(tokens_of(text))]
        if untrusted and not self._is_known_site(site):
            yield "page", site or ANOTHER_PAGE, "page"
        args = {"text": entered}
        yield from self._addresses(args)
        yield from self._private(args)

    def _is_known_site(self, site: str) -> bool:
        if not site:
            return False
        return self.is_verified(site) or self.labels.opened_unprompted(parts_of(site)[0].tokens[0])

    def of_program(self, args: Mapping[str, Any]) -> Iterator[_Found]:
        """Yield what is unverified in a program that has the network."""
        shell = self.declared.shell
        for argument, text in leaves(args):
            found = read_shell_text(text) if argument == shell else ShellText()
            bare_names = argument == shell and (uses_network(found) or opens_device(text))
            hosts = hosts_named(text, found) if argument == shell else ()
            for address in reached_by(text, hosts, bare_names=bare_names):
                if not (self.is_verified(address) or self.is_verified(f"https://{address}")):
                    yield argument, address, "address"
            for path in map(PurePosixPath, (*(path for path, _ in found.paths), *found.scripts)):
                if DOWNLOADS & set(path.parts[:-1]) and not self.is_verified(str(path)):
                    yield argument, str(path), "download"
        yield from self._private(args)

    def _addresses(
        self, args: Mapping[str, Any], but: Callable[[Names], bool] | None = None
    ) -> Iterator[_Found]:
        for argument, text in texts(args, but):
            for address in addresses_in(text):
                if not self.is_verified(address):
                    yield argument, address, "address"

    def _is_asked_for(self, args: Mapping[str, Any]) -> bool:
        """Say whether one argument is the person's, or one that the call may be about."""
        known = self.labels.trusted if self.declared.destructive else self.labels.plain
        return any(
            self.is_verified(value, kinds=self._kinds(argument)) or tokens_of(value) in known
            for argument, value in leaves(args)
        )

    def _kinds(self, argument: str) -> frozenset[str]:
        """Return the kinds of things that an argument may hold an id of."""
        return kinds_in(argument) or kinds_in(self.name)

    def _private(self, args: Mapping[str, Any]) -> Iterator[_Found]:
        labels = self.labels
        if not labels.private:
            return
        for argument, text in texts(args):
            shown = squeezed(text)
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
        """Say whether a value is verified, as a whole or by all its parts.

        Args:
            value: A destination, or an address out of a text.
            is_site: It is opened: then a name that only looks like a host has to be one.
            receives: It gets something: then a plain word has to be used as a name.
            kinds: Of things that it may be an id of.
        """
        if approval_key(value) in self.approved or self._is_written(value):
            return True
        if not (is_site or holds_address(value)) and self._is_composed(
            tokens_of(value), receives, kinds
        ):
            return True
        return all(
            self._is_verified_part(part, is_site, receives, kinds) for part in parts_of(value)
        )

    def _is_written(self, value: str) -> bool:
        """Say whether the person wrote a Chinese name, or this phone number in another way."""
        if _CHINESE.fullmatch(value):
            return any(value in text for text in self.labels.heard)
        if not _PHONE.fullmatch(value):
            return False
        said = (one[0] for text in self.labels.heard for one in _PHONE.finditer(text))
        return _digits(value) in map(_digits, said)

    def _is_verified_part(
        self, part: Part, is_site: bool, receives: bool, kinds: Collection[str]
    ) -> bool:
        first = part.tokens[0]
        if is_address(first) and first.startswith(URL) or (part.bare_host and is_site):
            said = self.labels.is_said(part.tokens)
            if self._was_given(part.tokens):
                return True
            if self.labels.names_domain_of(first):
                return said or all(map(self.is_verified, addresses_behind(first.removeprefix(URL))))
            # A name with a dot in it is no address only because somebody could open it.
            return said and (not is_site if part.bare_host else not _is_of_web(first))
        return self._is_composed(part.tokens, receives, kinds)

    def _is_composed(self, tokens: Tokens, receives: bool, kinds: Collection[str]) -> bool:
        if self._is_known(tokens, receives, kinds):
            return True
        parts = list(_parts(tokens))
        return parts not in ([], [tokens]) and all(
            self._is_known(one, receives, kinds) for one in parts
        )

    def _is_known(self, tokens: Tokens, receives: bool, kinds: Collection[str]) -> bool:
        named = self.labels.is_named(tokens, kinds)
        return (named and (not receives or self.labels.names.receives(tokens))) or self._was_given(
            tokens
        )

    def _was_given(self, tokens: Tokens) -> bool:
        """Say whether a value came from a trusted tool, or was allowed."""
        labels = self.labels
        return (
            tokens in labels.trusted
            or tokens in labels.reached
            or " ".join(tokens) in self.approved
        )


def _digits(phone: str) -> str:
    return re.sub(r"[^\d+]", "", phone.replace("(0)", ""))


def _is_of_web(token: str) -> bool:
    address = token.removeprefix(URL)
    return not has_scheme(address)  # the canonical form of a web address has none


def _parts(tokens: Tokens) -> Iterator[Tokens]:
    """Yield the parts of which a model may compose a value.

    They are dates and times, what stands between them, and what a reply's mark stands before.
    """
    start = 1 if len(tokens) > 1 and tokens[0] in _REPLY_MARKS else 0
    for place, token in enumerate(tokens):
        if token.startswith(_STRUCTURED):
            if start < place:
                yield tokens[start:place]
            yield (token,)
            start = place + 1
    if start < len(tokens):
        yield tokens[start:]


def _source(value: str, messages: Sequence[AnyMessage], labels: ValueLabels) -> ValueSource | None:
    """Return the text in which a value first stands; None if the model composed it."""
    wanted = value.casefold()
    for message in messages:
        if isinstance(message, AIMessage) or "trusted_text" in _artifact(message):
            continue
        text = without_mark(message.text)
        place = text.casefold().find(wanted)
        if place >= 0 and value:
            name, args = _place(message, labels)
            return ValueSource(tool=name, args=args, text=_sentence(text, place, len(value)))
    return None


def _artifact(message: AnyMessage) -> Mapping[str, Any]:
    return (isinstance(message, ToolMessage) and message.artifact) or {}


def _place(message: AnyMessage, labels: ValueLabels) -> tuple[str, str]:
    """Name the place of a text: a tool and its arguments, or what else holds untrusted text."""
    if isinstance(message, ToolMessage):
        name, args = labels.calls.get(message.tool_call_id, (message.name or "", {}))
        return name, canonical_args(args)
    if STEP_KEY in message.additional_kwargs:
        return "the text of the step", ""
    if NOTES_KEY in message.additional_kwargs:
        return "the notes of what was said before", ""
    if ORIGIN_KEY in message.additional_kwargs:
        return "what was sent with your message", ""
    return "a text that you quoted", ""


def _sentence(text: str, place: int, length: int) -> str:
    """Return the sentence around a place, of bearable length and without control characters."""
    start, end = max(0, place - _CONTEXT_CHARS), place + length + _CONTEXT_CHARS
    before = _SENTENCE_END.split(text[start:place])[-1]
    after = _SENTENCE_END.split(text[place + length : end])[0]
    return _readable(f"{before}{text[place : place + length]}{after}")


def _readable(text: str) -> str:
    kept = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text)
    return " ".join(kept.split())


def explain_values(name: str, description: str, values: Sequence[UnverifiedValue]) -> str:
    """Explain to the person which values of a call are unverified, and where they came from.

    Args:
        name: The tool's.
        description: What it does; its first sentence is shown.
        values: Those that need approval; not empty.
    """
    does = _SENTENCE_END.split(_readable(description).strip() or name)[0][:_CONTEXT_CHARS]
    shown = "; ".join(map(_explain, values[:MOST_SHOWN]))
    more = f"; and {len(values) - MOST_SHOWN} more like these" if len(values) > MOST_SHOWN else ""
    untrusted = f"values that neither you nor a trusted tool gave: {shown}{more}"
    return f"{name} ({does.rstrip('.')}) would use {untrusted}."


def explain_change(name: str, description: str) -> str:
    """Explain to the person that a server says something else of a tool than before."""
    says = json.dumps(_readable(description)[:_DESCRIPTION_CHARS], ensure_ascii=False)
    return (
        f"What its server says of {name} has changed since you added the server or last allowed a "
        f"call. Now it says: {says}"
    )


def _explain(one: UnverifiedValue) -> str:
    # ASCII, so that look-alike letters of other scripts are visible.
    value = json.dumps(one["value"], ensure_ascii=True)
    what = {
        "destination": f"{one['argument']} {value}",
        "address": f"the address {value} in {one['argument']}",
        "private": f"your private {value} in {one['argument']}",
        "destructive": f"it cannot be undone, and you did not name {one['argument']} {value}",
        "page": f"it enters what you did not say into a page of {value}, which you did not name",
        "download": f"it runs {value}, which was downloaded, with the network on",
        "no_destination": f"you asked for none of it, {one['argument']} {value} for example",
    }[one["rule"]]
    if not one["argument"]:
        what = "it has no argument that you named"
    source = one["source"]
    if source is None:
        return f"{what}, which the model composed"
    args = source["args"] if len(source["args"]) <= _CONTEXT_CHARS else "{...}"
    around = json.dumps(source["text"], ensure_ascii=False)
    place = f"{source['tool']} {args}".strip()
    return f"{what}, which came from {place}: {around}"
