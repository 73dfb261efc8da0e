"""Labels the values of a conversation: what the person said, what tools returned, what was reached.

Labels are extended as messages are appended, so that a step costs only what it adds. A result is
read once, in time that grows with its length.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.conversation import history
from openmanus_graph.conversation.caches import ConversationReader, MessageCache
from openmanus_graph.errors import ToolError
from openmanus_graph.safety import destinations, provenance, values
from openmanus_graph.safety.openings import Openings, addresses_of
from openmanus_graph.safety.said_names import SaidNames
from openmanus_graph.safety.unquoted_text import unquoted_text, without_mark
from openmanus_graph.safety.urls import Domain, domains_in, is_of_domains, named_domains
from openmanus_graph.safety.values import Tokens, tokens_of
from openmanus_graph.state.addresses import OWN_SITE, parse_address, with_scheme
from openmanus_graph.state.json_values import json_or
from openmanus_graph.state.manus import Origin
from openmanus_graph.state.tool_traits import Traits

_LEAST_PRIVATE_CHARS = 4
"""Letters and digits of a private value. Shorter ones occur in any text."""
_MOST_KEPT_CHARS, _MOST_KEPT_VALUES = 20_000, 1000
"""Limits of the person's words, and of other values, that a compaction keeps."""
_MOST_COUNTED_CHARS = 6
"""Characters of a number that may be a quantity. A longer number is an id."""
_MOST_FIELD_CHARS = 1000
"""Characters of a value. Longer fields are texts."""


Places = dict[str, list[tuple[int, int]]]


@dataclass
class ValueLabels:
    read_untrusted: bool = False
    """Whether untrusted content other than names of files was read."""
    read_names: bool = False
    said: list[Tokens] = field(default_factory=list[Tokens])
    texts_said: list[str] = field(default_factory=list[str])
    places: Places = field(default_factory=Places)
    """For each token in `said`, the texts and positions where it occurs."""
    names: SaidNames = field(default_factory=SaidNames)
    """Which numbers and small words the person used as names."""
    domains: set[Domain] = field(default_factory=set[Domain])
    trusted: set[Tokens] = field(default_factory=set[Tokens])
    """Whole fields that trusted tools returned."""
    plain: set[Tokens] = field(default_factory=set[Tokens])
    """Whole fields of tools that read nothing untrusted and no files, and run no programs."""
    private: dict[str, str] = field(default_factory=dict[str, str])
    """Whole fields of private tools, by their letters and digits."""
    reached: set[Tokens] = field(default_factory=set[Tokens])
    """Destinations of calls that ran. They were verified or approved."""
    site: str = ""
    opened: set[Domain] = field(default_factory=set[Domain])
    """Domains that were opened before untrusted content was read."""
    read_private: bool = False
    """Whether anything but the public web was read."""
    openings: Openings = field(default_factory=Openings)
    """Openings after that of links that the person did not name."""
    asked: str = ""
    """The model's last text, because a number alone may answer it."""
    calls: provenance.Calls = field(default_factory=provenance.Calls)

    @property
    def tainted(self) -> bool:
        """Whether values must be verified. Names of files alone do not cause the leak rule."""
        return self.read_untrusted or self.read_names

    def read(self, message: AnyMessage, traits: Mapping[str, Traits]) -> None:
        origin, taints = provenance.origin_in(message), provenance.brings_untrusted(message)
        self.read_untrusted |= taints
        self.read_private |= taints if origin is None else origin.get("private", taints)
        if origin is not None:
            self.read_names |= origin.get("names", False)
            self.openings.counted.update(origin.get("openings", {}))
        if isinstance(message, HumanMessage):
            self.read_names |= history.LISTING in history.environment_of([message])["facts"]
            if history.NOTES_KEY in message.additional_kwargs:  # earlier messages are gone
                self.read_untrusted = self.read_private = True
            self._read_words(provenance.person_words(message), self.asked)
            if kept := message.additional_kwargs.get(history.VERIFIED_KEY):
                self._restore(kept)
        elif origin is not None:  # a client or a plan supplied it: it verifies nothing
            pass
        elif isinstance(message, AIMessage):
            self.asked = message.text
            self.calls |= {
                one["id"] or "": (one["name"], one["args"]) for one in message.tool_calls
            }
        elif isinstance(message, ToolMessage):
            self._read_result(message, traits)

    def _restore(self, kept: Mapping[str, Any]) -> None:
        """Read what a conversation had verified before it was compacted."""
        self.reached.update(map(tuple, kept["reached"]))
        self.trusted.update(map(tuple, kept["trusted"]))
        self.private.update(kept["private"])
        self.site = kept.get("site", "")
        self.opened.update((host, port) for host, port in kept.get("opened", ()))
        self.openings.counted.update(kept.get("openings", {}))
        self.openings.allowed.update(kept.get("openings_allowed", {}))
        for text in kept["said"]:
            self._read_words(text)

    def kept(self) -> dict[str, Any]:
        """Return what outlives a compaction, as JSON. Values beyond the limits are left out."""
        said, left = list[str](), _MOST_KEPT_CHARS
        for text in reversed(self.texts_said):
            left -= len(text)
            if left >= 0:
                said.append(text)
        return {
            "said": said[::-1],
            "reached": sorted(map(list, self.reached))[:_MOST_KEPT_VALUES],
            "trusted": sorted(map(list, self.trusted))[:_MOST_KEPT_VALUES],
            "private": dict(self.private),
            "site": self.site,
            "opened": sorted(map(list, self.opened), key=str)[:_MOST_KEPT_VALUES],
            "openings": dict(self.openings.counted.most_common(_MOST_KEPT_VALUES)),
            "openings_allowed": dict(self.openings.allowed),
        }

    def _read_words(self, text: str, asked: str = "") -> None:
        own = unquoted_text(text)
        if own.text.strip() and own.text not in self.texts_said:
            self.texts_said.append(own.text)
        self.read_untrusted |= own.quotes
        self.read_private |= own.quotes
        plain = values.plainly_written(own.text)
        for tokens in map(tokens_of, dict.fromkeys((own.text, plain))):
            for place, token in enumerate(tokens):
                self.places.setdefault(token, []).append((len(self.said), place))
            self.said.append(tokens)
        self.names.read(plain, asked)
        self.domains.update(named_domains(plain))

    def _read_result(self, result: ToolMessage, traits: Mapping[str, Traits]) -> None:
        artifact: dict[str, Any] = result.artifact or {}
        for text in artifact.get("said", ()):
            self._read_words(str(text))
            self.read_private = True
        self.openings.counted.update(artifact.get("openings", {}))
        name, args = self.calls.get(result.tool_call_id, (result.name or "", {}))
        declared = traits.get(name)
        if declared is not None and declared.addresses is not None and self.read_private:
            urls = self.unnamed(addresses_of(declared, args, self.site))
            self.openings.note(urls, ran=result.status != "error")
        self.openings.results.append(result)
        # Notes are private even if only the person wrote them.
        outlasts = declared is not None and declared.outlasts_thread
        self.read_private |= outlasts and result.status != "error"
        if "trusted_text" in artifact:
            return
        if "listing" in artifact:
            self.read_names = True
            return
        if declared is None:
            self.read_untrusted = self.read_private = True
            was = Traits(private=artifact.get("private", False))
            self._read_fields(result, was, args, plain=False)
            return
        if declared.resource == provenance.PERSON:
            self._read_words(
                result.text, " ".join(value for _, value in destinations.leaves_of(dict(args), ()))
            )
            self.read_private = True
            return
        if result.status != "error" and "edited" not in artifact:
            self._note_reached(declared, args)
        self.site = artifact.get("site") or self.site
        untrusted = declared.untrusted or declared.reads_files
        effect = declared.effect_of(args)
        self._read_fields(result, declared, args, plain=not untrusted and effect != "workspace")
        reads = untrusted or effect != "read_only"
        self.read_untrusted |= reads
        is_web = declared.addresses is not None and not (declared.reads_files or declared.private)
        self.read_private |= reads and not is_web

    def unnamed(self, urls: Sequence[str]) -> list[str]:
        """Return the addresses whose domain the person did not name."""
        return [url for url in urls if not self.names_domain_of(url)]

    def _note_reached(self, declared: Traits, args: Mapping[str, Any]) -> None:
        """Note where a call went, because that was verified or approved."""
        is_external = declared.effect_of(args) == "external"
        test = destinations.destination_test(declared, external=is_external)
        for one in destinations.destinations(args, test) if declared.addresses is None else ():
            self.reached.update(part.tokens for part in destinations.parts_of(one.value))
            if not destinations.holds_address(one.value):
                self.reached.add(tokens_of(one.value))
        if declared.page is None:
            return
        use = declared.page(args)
        # What the person said may be entered anywhere: that tells nothing of the site.
        if self.site not in ("", OWN_SITE) and any(
            not self.is_said(tokens_of(text)) for text in use.entered
        ):
            self.reached.update(part.tokens for part in destinations.parts_of(self.site))
        if not self.tainted:
            self.opened.update(domains_in(use.opens))

    def _read_fields(
        self, result: ToolMessage, declared: Traits, args: Mapping[str, Any], *, plain: bool
    ) -> None:
        """Note the fields of a result. A field that echoes an argument verifies nothing."""
        if not (plain or declared.trusted or declared.private):
            return
        failed = result.status == "error"
        asked = _marked(
            [token for _, text in destinations.texts(args) for token in (*tokens_of(text), "")]
        )
        known = (self.trusted, self.plain, self.reached)
        for names, value in _fields.get(result, lambda one: _fields_in(one.text)):
            forms = _forms(names, value, named=not isinstance(declared.trusted, bool))
            reported = {
                one
                for one in forms
                if _marked(one) not in asked
                or self.is_named(one)
                or any(one in each for each in known)
            }
            if _covers(declared.trusted, names) and not failed:
                self.trusted.update(reported)
            if plain and not failed:
                self.plain.update(reported)
            if _covers(declared.private, names):
                key = values.squeezed(value)
                if len(key) >= _LEAST_PRIVATE_CHARS:
                    self.private[key] = value

    def is_said(self, tokens: Tokens) -> bool:
        """Return True if the person said these tokens in a row."""
        if len(tokens) == 1 and tokens[0].startswith(values.DATE):
            return any(one == tokens[0] or values.same_date(one, tokens[0]) for one in self.places)
        if not tokens or any(token not in self.places for token in tokens):
            return False
        rarest = min(range(len(tokens)), key=lambda n: len(self.places[tokens[n]]))
        return any(
            self.said[text][max(0, place - rarest) : place - rarest + len(tokens)] == tokens
            for text, place in self.places[tokens[rarest]]
        )

    def is_named(self, tokens: Tokens, kinds: Collection[str] = ()) -> bool:
        """Return True if the person said these tokens as the name of a thing of these kinds."""
        return self.is_said(tokens) and (len(tokens) != 1 or self.names.names(tokens[0], kinds))

    def names_domain_of(self, token: str) -> bool:
        """Return True if the person named the domain of a URL."""
        return is_within_domains(token, self.domains)


def is_within_domains(token: str, domains: Collection[Domain]) -> bool:
    """Return True if the token of a URL is valid and lies in one of these domains."""
    try:
        return is_of_domains(parse_address(with_scheme(token.removeprefix(values.URL))), domains)
    except ToolError:
        return False


def handed_on(
    messages: Sequence[AnyMessage],
    traits: Mapping[str, Traits],
    urls: Sequence[str] = (),
    *,
    tainted: bool = False,
    openings: Mapping[str, int] | None = None,
) -> Origin:
    """Return the `Origin` of a text that a model writes for another agent.

    `messages` are all that the model was shown; if `tainted`, it may have been shown more. Results
    of tools without `traits` count as private. `urls` are seen links in addition to those that
    earlier runs handed on, and `openings` those by site that are not in the messages.
    """
    labels = labels_of(messages, traits, tainted=tainted)
    known = [
        url for one in messages if (origin := provenance.origin_in(one)) for url in origin["urls"]
    ]
    user = history.last_user_message(messages)
    return Origin(
        words="" if user is None else provenance.person_words(user),
        urls=[*known, *urls],
        tainted=labels.read_untrusted,
        private=labels.read_private or tainted,
        names=labels.read_names,
        openings=dict(Counter(labels.openings.by_site()) + Counter(openings or {})),
    )


def openings_since(messages: Sequence[AnyMessage], traits: Mapping[str, Traits]) -> dict[str, int]:
    """Return how many links a run opened that the person did not name, by site.

    `traits` has only the tools that open addresses. Results of others count as private.
    """
    found = Counter(labels_of(messages, traits).openings.by_site())
    for message in messages:
        if origin := provenance.origin_in(message):
            found.subtract(origin.get("openings", {}))
    return dict(+found)


_labels = ConversationReader[ValueLabels]()


def labels_of(
    messages: Sequence[AnyMessage], traits: Mapping[str, Traits], *, tainted: bool = False
) -> ValueLabels:
    """Return the labels of a conversation's values. Callers must not change them.

    `traits` has `sends_to` filled in. `tainted` tells whether the prompt holds untrusted text.
    """
    labels, start = _labels.advance(
        messages, lambda: ValueLabels(read_untrusted=tainted), key=(dict(traits), tainted)
    )
    for message in messages[start:]:
        for one in history.with_inner(message):
            labels.read(one, traits)
    return labels


def _fields_in(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Return the fields of a JSON result. A short other result is one field."""
    content = without_mark(text).strip()
    return [
        (names, value)
        for names, value in destinations.leaves_of(json_or(content, content), ())
        if len(value) <= _MOST_FIELD_CHARS
    ]


_fields = MessageCache[list[tuple[tuple[str, ...], str]]]()


def _forms(names: destinations.Names, value: str, *, named: bool) -> set[Tokens]:
    """Return the forms in which a whole field verifies a value.

    A short number does so only if the tool's declaration names its fields, or the name says it is
    an id.
    """
    tokens, parts = tokens_of(value), destinations.parts_of(value)
    if len(tokens) == 1 and tokens[0].startswith(values.NUMBER):
        reported = (
            named
            or (names and destinations.names_id(names[-1]))
            or len(value) > _MOST_COUNTED_CHARS
        )
        return {tokens} if reported else set()
    return {tokens, parts[0].tokens} if len(parts) == 1 else {tokens}


def _marked(tokens: Sequence[str]) -> str:
    """Return tokens as one text, in which other marked tokens can be found."""
    return "\0".join(("", *tokens, ""))


def _covers(declared: bool | Collection[str], names: Sequence[str]) -> bool:
    """Return True if a tool's declaration covers a field, by any name on the way to it."""
    if isinstance(declared, bool):
        return declared
    return any(name in declared for name in names)
