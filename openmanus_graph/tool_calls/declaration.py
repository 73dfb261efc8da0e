"""How a tool is declared: schema, effect, resource, time limit and trust in one place."""

import asyncio
import functools
import inspect
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any, get_origin, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from langgraph.prebuilt import ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import BaseModel, WithJsonSchema
from typing_extensions import override

from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.safety.information_flow import usual_destinations
from openmanus_graph.safety.open_beneath import named
from openmanus_graph.state.context import EffectName
from openmanus_graph.state.json_values import as_object
from openmanus_graph.state.tool_traits import (
    FILE,
    Effects,
    InformationFlow,
    Limits,
    Observation,
    Reconcile,
    Traits,
)

IDEMPOTENCY_KEY = "idempotency_key"
"""Parameter by which a tool asks for it; models are not shown it."""


def with_idempotency_key(request: ToolCallRequest, key: str) -> ToolCallRequest:
    """Return a request whose tool gets the key, if it asks for one."""
    tool = request.tool
    if tool is None:
        return request
    schema = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        known: Collection[str] = schema.model_fields  # hidden parameters as well
    else:
        known = tool.args
    if IDEMPOTENCY_KEY not in known:
        return request
    keyed = _KeyedTool(name=tool.name, description=tool.description, tool=tool, key=key)
    return request.override(tool=keyed)


class _KeyedTool(BaseTool, defer_build=True):
    """Invokes a tool with a key: LangGraph has removed hidden arguments from the call before."""

    tool: BaseTool
    key: str

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self.tool.invoke(self._keyed(input), config, **kwargs)

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await self.tool.ainvoke(self._keyed(input), config, **kwargs)

    def _keyed(self, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "args": {**call["args"], IDEMPOTENCY_KEY: self.key}}

    @override
    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError  # `invoke` goes to the tool itself


ToolFunction = Callable[..., Any]

# What a schema need not spend tokens on. Left out or null, a parameter is not given.
INTEGER: dict[str, Any] = {"type": "integer"}
"""Schema of a number whose bounds only the refusal of a wrong one names."""
MaybeText = Annotated[str | None, WithJsonSchema({"type": "string"})]
MaybeNumber = Annotated[int | None, WithJsonSchema(INTEGER)]

_TRAITS_KEY = "openmanus"
"""Key of a declaration's `Traits` in the metadata of the LangChain tool."""


_NO_EFFECTS, _NO_FLOW, _NO_LIMITS = Effects(), InformationFlow(), Limits()


def manus_tool(
    *,
    effect: EffectName | Callable[[Mapping[str, Any]], EffectName],
    resource: str | Callable[[Mapping[str, Any]], str] | None = None,
    timeout_s: float | None = 120,
    untrusted: bool = False,
    approval: bool | None = None,
    reads_files: bool = False,
    sends_to: Sequence[str] | None = None,
    trusted: bool | Sequence[str] = False,
    private: bool | Sequence[str] = False,
    destructive: bool = False,
    reconcile: Reconcile | None = None,
    effects: Effects = _NO_EFFECTS,
    flow: InformationFlow = _NO_FLOW,
    limits: Limits = _NO_LIMITS,
) -> Callable[[ToolFunction], BaseTool]:
    """Declare a function as a tool.

    The Google-style docstring is what the model reads. The graph fills a parameter annotated
    `ToolRuntime[Context]`, which is not shown to the model. A parameter named `idempotency_key` is
    not shown either: it gets the call's key, which is the same when the call is made again after a
    crash. The function returns a string or an `Observation`, and raises `ToolError` when the model
    should try something else.

    Args:
        effect: What the call may change; a function is given the arguments.
        resource: What calls must not use at the same time, `file:NAME` for a file.
        timeout_s: Seconds after which a call is cut off. None: the sandbox's limit.
        untrusted: Whether the output comes from outside.
        approval: Whether policy `ask` pauses first; by default for external effects.
        reads_files: Whether the output may hold content of the workspace's files.
        sends_to: The arguments that decide where something goes or whom it affects; `()` for none.
            By default those of an external tool that have a usual name (docs/information-flow.md).
        trusted: Whether whole JSON fields of the output verify destinations; or their names.
        private: Whether whole JSON fields of the output may leave only if a person allows it; or
            their names.
        destructive: Whether a call destroys what cannot be restored.
        reconcile: An async function for external calls that a crash cut off. It is given the
            arguments and the key, asks the other side and returns the call's result. If it returns
            None, nothing is known of the call and a person is asked.
        effects: What else a call does.
        flow: Where the call's data comes from and goes to.
        limits: How the call ends at its limit, and when the tool is offered.
    """
    traits = Traits(
        effect=effect,
        resource=resource,
        timeout_s=timeout_s,
        untrusted=untrusted,
        approval=effect == "external" if approval is None else approval,
        reads_files=reads_files,
        sends_to=sends_to,
        trusted=trusted,
        private=private,
        destructive=destructive,
        reconcile=reconcile,
        **vars(effects),
        **vars(flow),
        **vars(limits),
    )

    def declare(function: ToolFunction) -> BaseTool:
        tool = StructuredTool.from_function(
            func=_without_runtime(function),
            name=function.__name__,
            parse_docstring=True,
            response_format="content_and_artifact",
            metadata={_TRAITS_KEY: traits},
        )
        asynchronous = inspect.iscoroutinefunction(function)
        tool.func = None if asynchronous else _with_artifact(function)
        tool.coroutine = _with_artifact(function) if asynchronous else None
        return tool

    return declare


def with_function(tool: BaseTool, function: ToolFunction) -> BaseTool:
    """Return a tool with the declaration of another one that calls the person's function.

    The function is called off the event loop with those of the call's arguments that it takes, by
    name. It returns the text, or an object that is shown as JSON.
    """
    asynchronous = inspect.iscoroutinefunction(function)
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    names = {one.name for one in parameters}

    async def run(**args: Any) -> Observation:
        given = args if takes_all else {key: one for key, one in args.items() if key in names}
        calling = function(**given) if asynchronous else asyncio.to_thread(function, **given)
        found = await calling
        text = found if isinstance(found, str) else json.dumps(found, default=str)
        return Observation(text)

    return tool.model_copy(update={"func": None, "coroutine": _with_artifact(run)})


def _without_runtime(function: ToolFunction) -> ToolFunction:
    """Return a function that has only the parameters which a model fills in.

    Describing a `ToolRuntime` as well takes pydantic longer than the rest of a tool.
    """
    hints = get_type_hints(function, include_extras=True)
    injected = {name for name, hint in hints.items() if (get_origin(hint) or hint) is ToolRuntime}
    signature = inspect.signature(function)
    if IDEMPOTENCY_KEY in hints:
        hints[IDEMPOTENCY_KEY] = Annotated[hints[IDEMPOTENCY_KEY], InjectedToolArg]
    shown = [
        one.replace(annotation=hints.get(name, one.annotation))
        for name, one in signature.parameters.items()
        if name not in injected
    ]

    def described() -> None: ...

    described = functools.update_wrapper(described, function)
    del described.__wrapped__
    described.__annotations__ = {name: hint for name, hint in hints.items() if name not in injected}
    vars(described)["__signature__"] = signature.replace(parameters=shown)
    return described


def traits_of(tool: BaseTool) -> Traits:
    """Read a tool's declaration; a plain LangChain tool counts as external.

    Such a tool needs no approval: whoever passed it to the builder has decided. Its author may
    declare more by `metadata={"effect": "read_only", "resource": ..., "timeout_s": ...}`.
    """
    if isinstance(tool, JsonSchemaTool):
        return tool.traits
    if declared := declared_traits(tool):
        return declared
    known = Traits.__dataclass_fields__.keys()
    return Traits(**{key: value for key, value in (tool.metadata or {}).items() if key in known})


def flow_traits(tools: Mapping[str, BaseTool]) -> dict[str, Traits]:
    """Return the traits of tools, with the usual destinations of those that declare none."""
    traits = {name: traits_of(tool) for name, tool in tools.items()}
    for name, one in traits.items():
        if one.sends_to is None and one.addresses is None:
            usual = usual_destinations(_argument_names(tools[name]), one)
            traits[name] = replace(one, sends_to=usual, sends_to_by_name=True)
    return traits


def _argument_names(tool: BaseTool) -> Collection[str]:
    schema: Any = tool.parameters if isinstance(tool, JsonSchemaTool) else tool.args_schema
    if isinstance(schema, type):
        return as_object(getattr(schema, "model_fields", {})).keys()
    return as_object(as_object(schema).get("properties")).keys()


def declared_traits(tool: BaseTool) -> Traits | None:
    """Return what `manus_tool` declared of a tool; None of any other tool."""
    declared = (tool.metadata or {}).get(_TRAITS_KEY)
    return declared if isinstance(declared, Traits) else None


def file_resource(args: Mapping[str, Any]) -> str:
    """Name the file a call uses, so that calls on one file run in order.

    Uses the last part of its path, which is the same for an absolute and a relative path: a
    declaration does not know the workspace.
    """
    path = os.path.normpath(named(str(args.get("path", ""))))
    return FILE + PurePath(path).name.casefold()


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
