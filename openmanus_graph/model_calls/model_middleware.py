"""Runs the `wrap_model_call` hooks of LangChain's `AgentMiddleware` around an agent step's call.

Our request is converted to LangChain's `ModelRequest` and back, so that a changed model, prompt,
list of messages or selection of tools is sent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.runtime import Runtime

from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls import budget
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.runtime.limits import LimitReached, RunStopping
from openmanus_graph.runtime.middleware import Handler, command_update, wrapped
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState, Usage

if TYPE_CHECKING:
    from openmanus_graph.runtime.middleware import Middleware


ModelCallHandler = Callable[[ProviderRequest], Awaitable[AIMessage]]


class ModelCallHooks:
    """The hooks of one agent step; `updates` is what they write to the state besides the reply."""

    def __init__(
        self,
        middleware: Sequence["Middleware"],
        tools: Mapping[str, BaseTool],
        state: ManusState,
        runtime: Runtime[Context],
        session: Session,
    ) -> None:
        self._middleware, self._tools = middleware, tools
        self._state, self._runtime = state, runtime
        self._session = session
        self._calls = budget.ExternalModelCalls()
        self.updates: list[dict[str, Any]] = []

    async def wrap_model_call(
        self, request: ProviderRequest, handler: ModelCallHandler
    ) -> AIMessage:
        """Return the reply that the hooks let through. They may call it several times, or never."""
        passing: list[Exception] = []
        self.updates.clear()  # of a request for a summary before this one

        async def innermost(changed: ModelRequest[Any]) -> ModelResponse[Any]:
            self.updates.clear()  # of an attempt that a hook repeats
            try:
                with budget.exclude_from_external_calls():
                    return ModelResponse([await handler(self._read(changed, request))])
            except (LimitReached, RunStopping, ConfigError) as ends:
                passing.append(ends)
                raise

        layer: Handler = innermost
        for one in reversed(self._middleware):
            layer = partial(self._through, wrapped([one], "wrap_model_call", layer))
        with budget.counting_external_calls() as self._calls:
            try:
                response: ModelResponse[Any] = await layer(self._langchain_request(request))
            except Exception:
                if passing:
                    raise passing[0] from None
                raise
        if passing:  # also where a hook that catches everything has caught it
            raise passing[0]
        return _reply_of(response)

    async def spent(self) -> Usage:
        """Return the cost of the hooks' own model calls, without the handler."""
        return await self._calls.spent(self._session, self._runtime.stream_writer)

    async def _through(self, hook: Handler, request: Any) -> ModelResponse[Any]:
        """Call a hook, and note its update of the state."""
        result: Any = await hook(request)
        if isinstance(result, ExtendedModelResponse):
            extended = cast("ExtendedModelResponse[Any]", result)
            if extended.command is not None:
                self.updates.append(command_update(extended.command))
            return extended.model_response
        if isinstance(result, AIMessage):
            return ModelResponse([result])
        return cast("ModelResponse[Any]", result)

    def _langchain_request(self, request: ProviderRequest) -> ModelRequest[Any]:
        messages: list[Any] = request.messages
        system = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
        state: Any = self._state  # LangChain's state has other keys
        offered = {one["function"]["name"] for one in request.tools}
        return ModelRequest(
            model=request.model.client,
            messages=messages[1:] if system else list(messages),
            system_message=system,
            tools=[tool for name, tool in self._tools.items() if name in offered],
            state=state,
            runtime=self._runtime,
        )

    def _read(self, changed: ModelRequest[Any], request: ProviderRequest) -> ProviderRequest:
        """Return the request to send. ConfigError: a hook set something that is not supported."""
        if changed.response_format is not None:
            raise ConfigError(
                "A middleware set response_format, which this graph does not take from a request. "
                "Pass Context(response_format=...) instead."
            )
        first: list[BaseMessage] = [changed.system_message] if changed.system_message else []
        options = dict(changed.model_settings)
        if changed.tool_choice is not None:
            options["tool_choice"] = changed.tool_choice
        model = request.model
        if changed.model is not model.client:
            model = instance_model(changed.model)
        definitions = {one["function"]["name"]: one for one in request.tools}
        return replace(
            request,
            messages=[*first, *changed.messages],
            tools=[self._definition(tool, definitions) for tool in changed.tools],
            model=model,
            options=options,
        )

    def _definition(
        self, tool: BaseTool | dict[str, Any], known: Mapping[str, dict[str, Any]]
    ) -> dict[str, Any]:
        if isinstance(tool, dict):
            return tool  # the provider's own, which it runs by itself
        if tool.name not in self._tools:
            raise ConfigError(
                f"A middleware offers the model {tool.name!r}, which the agent does not have. Put "
                "it in the middleware's `tools`."
            )
        own = self._tools[tool.name] is tool and tool.name in known
        return known[tool.name] if own else convert_to_openai_tool(tool)


def _reply_of(response: Any) -> AIMessage:
    match response:
        case ModelResponse(result=[AIMessage() as reply], structured_response=None):
            return reply
        case _:
            raise ConfigError(
                "A middleware's wrap_model_call returned something else than one AIMessage. For a "
                "structured answer pass Context(response_format=...)."
            )
