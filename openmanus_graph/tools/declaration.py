"""How a tool is declared, once: schema, effect, resource, time limit, trust.

From this one declaration come the model's schema, the approval rule, the ledger entry
and the order in which parallel calls run.
"""

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_origin, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime

from openmanus_graph.state.plan import Plans
from openmanus_graph.state.reducers import Usage

Effect = Literal["pure", "workspace", "external"]
"""`pure` may run twice; `workspace` changes files or processes of the sandbox; `external`
reaches the world outside, where nothing can be undone."""

_TRAITS = "openmanus"


@dataclass(frozen=True)
class Traits:
    """What the graph must know of a tool beside its schema."""

    effect: Effect | Callable[[Mapping[str, Any]], Effect] = "external"
    """What a call may change; a function gets the arguments."""
    resource: str | Callable[[Mapping[str, Any]], str] | None = None
    """Calls that share it run one after another, in call order; a function gets the arguments."""
    timeout_s: float = 120
    """Seconds after which the call is cut off. A tool with a `timeout_s` argument gets that many
    and some grace instead."""
    untrusted: bool = False
    """The output comes from outside (a web page, a foreign server)."""
    approval: bool = False
    """Policy `ask` pauses before each call."""
    addresses: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    """Returns the web addresses that a call with these arguments would reach. Those that nobody
    named are asked about once untrusted content or a file was read (`provenance`)."""
    reads_files: bool = False
    """The output holds content of the workspace; that of a `workspace` effect may in any case."""
    shell: str = ""
    """The argument that is a shell text: rules of the policy look at each command in it."""

    def effect_of(self, args: Mapping[str, Any]) -> Effect:
        """Say what a call with these arguments may change."""
        return self.effect(args) if callable(self.effect) else self.effect

    def resource_of(self, args: Mapping[str, Any]) -> str | None:
        """Name the resource that a call with these arguments uses."""
        return self.resource(args) if callable(self.resource) else self.resource


@dataclass(frozen=True)
class Observation:
    """What a tool call came to, for the model."""

    text: str
    images: tuple[str, ...] = ()
    """Paths of pictures a model that sees should look at, relative to the workspace."""
    failed: bool = False
    """The call did its work, and the outcome is a failure (a command's exit code, say)."""
    own_words: bool = False
    """Nothing in it comes from outside, although the tool reads there."""
    bounded: bool = False
    """The tool keeps to a limit of its own, and its text is not cut again."""
    usage: Usage | None = None
    """What the tool's own questions to the model cost; set by `run_call`."""
    edited: bool = False
    """A person had changed the arguments; set by `run_call`."""
    structured: Any = None
    """The validated object of `create_chat_completion`."""
    ends_run: Literal["answer", "success", "failure"] | None = None
    """How the run ends once the other calls of the step have succeeded."""
    plans: Plans | None = None
    """The thread's plans after the call, if it changed them."""


ToolFunction = Callable[..., Any]


def manus_tool(
    *,
    effect: Effect | Callable[[Mapping[str, Any]], Effect],
    resource: str | Callable[[Mapping[str, Any]], str] | None = None,
    timeout_s: float = 120,
    untrusted: bool = False,
    approval: bool | None = None,
    addresses: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
    reads_files: bool = False,
    shell: str = "",
) -> Callable[[ToolFunction], BaseTool]:
    """Declare a function as a tool.

    The Google-style docstring is what the model reads; a parameter annotated
    `ToolRuntime[Context]` is filled by the graph and not shown. The function returns a string
    or an `Observation`, and raises `ToolError` when the model should try something else.

    Args:
        effect: What the call may change; a function is given the arguments.
        resource: Calls that share it run in call order.
        timeout_s: Seconds after which a call is cut off.
        untrusted: Whether the output comes from outside.
        approval: Whether policy `ask` pauses first; by default for external effects.
        addresses: Returns the web addresses that a call with these arguments would reach.
        reads_files: Whether the output may hold content of the workspace's files.
        shell: The argument that is a shell text, whose commands the policy's rules look at.
    """
    asks = effect == "external" if approval is None else approval
    traits = Traits(effect, resource, timeout_s, untrusted, asks, addresses, reads_files, shell)

    def declare(function: ToolFunction) -> BaseTool:
        tool = StructuredTool.from_function(
            func=_without_runtime(function),
            name=function.__name__,
            parse_docstring=True,
            response_format="content_and_artifact",
            metadata={_TRAITS: traits},
        )
        asynchronous = inspect.iscoroutinefunction(function)
        tool.func = None if asynchronous else _with_artifact(function)
        tool.coroutine = _with_artifact(function) if asynchronous else None
        return tool

    return declare


def _without_runtime(function: ToolFunction) -> ToolFunction:
    """Return a stand-in that has only the parameters which a model fills in.

    To describe a `ToolRuntime`, too, takes pydantic longer than all else of a tool.
    """
    hints = get_type_hints(function, include_extras=True)
    injected = {name for name, hint in hints.items() if (get_origin(hint) or hint) is ToolRuntime}
    signature = inspect.signature(function)
    shown = [one for name, one in signature.parameters.items() if name not in injected]

    def stand_in() -> None: ...

    stand_in = functools.update_wrapper(stand_in, function)
    del stand_in.__wrapped__
    stand_in.__annotations__ = {name: hint for name, hint in hints.items() if name not in injected}
    vars(stand_in)["__signature__"] = signature.replace(parameters=shown)
    return stand_in


class ForeignTool(BaseTool):
    """A tool whose arguments somebody else describes and checks; any name may be one of them.

    LangChain is not asked to read that description, or to pass the arguments on by name.
    """

    parameters: dict[str, Any]
    """JSON schema that models are shown."""
    traits: Traits

    @abstractmethod
    def problems(self, args: Mapping[str, Any]) -> list[str]:
        """Say what is wrong with a call's arguments."""

    @abstractmethod
    async def observe(self, args: Mapping[str, Any], config: RunnableConfig) -> Observation:
        """Do the call. ToolError says what the model should try instead."""

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} runs in a graph of openmanus_graph only")


def traits_of(tool: BaseTool) -> Traits:
    """Read a tool's declaration; a plain LangChain tool counts as external.

    It is not asked about, though: whoever passed it to the builder has decided. Its author may
    declare more by `metadata={"effect": "pure", "resource": ..., "timeout_s": ...}`.
    """
    if isinstance(tool, ForeignTool):
        return tool.traits
    metadata = tool.metadata or {}
    declared = metadata.get(_TRAITS)
    if isinstance(declared, Traits):
        return declared
    known = Traits.__dataclass_fields__.keys()
    return Traits(**{key: value for key, value in metadata.items() if key in known})


def _with_artifact(function: ToolFunction) -> ToolFunction:
    """Give LangChain the text as content and the whole observation as artifact."""

    def split(result: str | Observation) -> tuple[str, Observation]:
        observation = result if isinstance(result, Observation) else Observation(str(result))
        return observation.text, observation

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> tuple[str, Observation]:
            return split(await function(*args, **kwargs))

        return asynchronous

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> tuple[str, Observation]:
        return split(function(*args, **kwargs))

    return synchronous
