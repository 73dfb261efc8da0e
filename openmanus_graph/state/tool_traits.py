"""The declared traits of a tool, and the observation that a call of it returns."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal

from openmanus_graph.state.context import Effect, EffectName, as_effect
from openmanus_graph.state.manus import PendingCall, Plans, Usage
from openmanus_graph.state.settings import SandboxSettings

Reconcile = Callable[[dict[str, Any], str], Awaitable[Any]]
"""Asks the other side for the outcome of a call: given its arguments and its key, returns its
result, or None if it is unknown; then a person is asked."""
FILE = "file:"
"""Begins the name of a resource that is one file."""


@dataclass(frozen=True)
class PageUse:
    """What a call does with the page that its tool shows."""

    entered: Sequence[str] = ()
    """Texts, or names of files, that the page is given."""
    opens: str = ""
    """The address of the page that it opens."""
    switches: bool = False
    """Another page may be shown afterwards, and the call does not say which."""
    acts: bool = False
    """The page learns of the call: what was clicked, typed or chosen in it."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What a call does beyond the effect that is declared for it."""

    shell: str = ""
    """The argument that is a shell text: rules of the policy look at each command in it."""
    sandboxed: bool = False
    """The call is a program in the sandbox. It can send something out only if the sandbox has the
    network."""
    runs_agent: bool = False
    """The call runs another agent as a graph inside its task. The agent resumes where it was when
    the call runs again. Such calls run in parallel, each in its own task."""
    calls_tools: bool = False
    """The call is a program that may call the run's other tools (`code_mode`)."""
    outlasts_thread: bool = False
    """Other conversations read what a call writes. The call learns whether untrusted content was
    read before (`CallRuntime.tainted`)."""


@dataclass(frozen=True, kw_only=True)
class InformationFlow:
    """Where a call's data comes from and goes to, for tools that reach web pages."""

    addresses: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    """Returns the web addresses that a call with these arguments would reach. Addresses that only
    untrusted content named need approval once such content or a file was read (`provenance`)."""
    guarded: bool = False
    """The guard of the web tools checks each of these addresses before the call reaches it."""
    page: Callable[[Mapping[str, Any]], PageUse] | None = None
    """Returns what a call does with the page that the tool shows. What is entered goes to the
    page's site."""
    composed: bool | Callable[[Mapping[str, Any]], bool] = False
    """A model wrote the output, or may have: it shows no links except those in
    `Observation.links`. A function gets the arguments."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How a call ends at its time limit, and when the tool is offered at all."""

    stops_itself: bool = False
    """The tool ends its work at its time limit and returns what there is, as each tool with a
    `timeout_s` argument does. It is cut off only some grace period later."""
    needs_pictures: bool = False
    """It is offered only if pictures reach a model."""
    unavailable: Callable[[SandboxSettings], str] | None = None
    """Returns why it cannot be offered here, as a sentence; empty if it can. May block."""


@dataclass(frozen=True)
class Traits(Effects, InformationFlow, Limits):
    """What the graph must know of a tool in addition to its schema."""

    effect: EffectName | Callable[[Mapping[str, Any]], EffectName] = "external"
    """What a call may change; a function is given the arguments."""
    resource: str | Callable[[Mapping[str, Any]], str] | None = None
    """What calls must not use at the same time; a function gets the arguments. Calls on different
    files (`file:NAME`) run at once whatever they do to them."""
    timeout_s: float | None = 120
    """Seconds after which the call is cut off. None: the sandbox's `timeout_s`. A tool with a
    `timeout_s` argument gets that many, by default too, and some grace instead."""
    untrusted: bool = False
    """The output comes from outside (a web page, an untrusted server)."""
    approval: bool = False
    """Policy `ask` pauses before each call."""
    reads_files: bool = False
    """The output holds content of the workspace. The output of a `workspace` effect may anyway."""
    sends_to: Sequence[str] | None = None
    """Arguments, or fields in them, that decide where something goes or whom it affects. None: not
    declared; an external tool's are then known by their usual names (`information_flow`)."""
    sends_to_by_name: bool = False
    """`sends_to` was not declared: it is derived from the names of the arguments."""
    trusted: bool | Sequence[str] = False
    """Whole JSON fields of the output verify a destination; or only those of these names."""
    private: bool | Sequence[str] = False
    """Whole JSON fields of the output leave in external calls only if a person allows it; or those
    of these names."""
    destructive: bool = False
    """A call destroys what cannot be restored: the person must have named what it affects."""
    reconcile: Reconcile | None = None
    """Finds out the result of an external call that a crash cut off."""
    changed: Literal["", "new", "changed"] = ""
    """Whether its server describes it differently than when the user added the server or allowed a
    call. Such a description counts as untrusted text."""

    def __post_init__(self) -> None:
        if not callable(self.effect):
            object.__setattr__(self, "effect", as_effect(self.effect))

    def effect_of(self, args: Mapping[str, Any]) -> Effect:
        return as_effect(self.effect(args) if callable(self.effect) else self.effect)

    def resource_of(self, args: Mapping[str, Any]) -> str | None:
        return self.resource(args) if callable(self.resource) else self.resource

    def is_composed(self, args: Mapping[str, Any]) -> bool:
        """Return True if a model may have written the output of a call with these arguments."""
        return self.composed(args) if callable(self.composed) else self.composed

    def with_args(self, args: Mapping[str, Any]) -> "Traits":
        return replace(self, effect=self.effect_of(args), resource=self.resource_of(args))

    @property
    def reaches_out(self) -> bool:
        """Whether a call may send anything out of the sandbox."""
        return bool(self.addresses or self.sends_to) or self.effect == "external"

    @property
    def uses_one_file(self) -> bool:
        """Whether a call uses only one file. A name without a suffix may be a folder."""
        named = isinstance(self.resource, str) and self.resource.startswith(FILE)
        return named and bool(PurePath(str(self.resource)).suffix)


@dataclass(frozen=True)
class Observation:
    """The result of a tool call, for the model."""

    text: str
    images: tuple[str, ...] = ()
    """Paths of pictures a model that sees should look at: relative to the workspace, or outputs."""
    failed: bool = False
    """The call was refused, cut off or raised, or its result is a failure (an exit code, say)."""
    trusted_text: bool = False
    """Nothing in it comes from outside, although the tool reads there."""
    bounded: bool = False
    """The tool limits its output itself, and its text is not cut again."""
    listing: bool = False
    """It holds nothing but names of files: it verifies nothing, and does not arm the leak rule."""
    site: str = ""
    """The origin of the page whose links the text shows without it; `OWN_SITE` of the agent's."""
    usage: Usage | None = None
    """What the tool's own questions to the model cost; set by `run_call`."""
    links: Sequence[str] = ()
    """Links in a `composed` text that were really seen."""
    unsupported: Sequence[str] = ()
    """Claims of a `composed` text that nothing which its model saw has."""
    openings: Mapping[str, int] | None = None
    """Links that an agent within the call opened, by site (`ValueLabels.openings`)."""
    edited: bool = False
    """A person had changed the arguments; set by `run_call`."""
    said: Sequence[str] = ()
    """What a person wrote when asked about the call; set by `run_call`."""
    structured: Any = None
    """The validated object of `create_chat_completion`."""
    ends_run: Literal["answer", "success", "failure"] | None = None
    """How the run ends once the other calls of the step have succeeded."""
    plans: Plans | None = None
    """The thread's plans after the call, if it changed them."""
    update: str | None = None
    """What the tool's `Command` writes to the state in addition to its message, serialised."""
    repeatable: Mapping[str, Any] | None = None
    """What a later call needs in addition to its arguments to do the same again: plain data that no
    model is sent. None: it cannot be done again."""
    inner: Sequence[Mapping[str, Any]] = ()
    """The calls that a program has made, as `history.inner_messages` reads them."""
    calls: Sequence[PendingCall] = ()
    """Calls that a program has asked for and that run now that it has ended."""
    raised: tuple[str, str] | None = None
    """Type and text of the exception that the tool raised, for a middleware that looks at it."""
