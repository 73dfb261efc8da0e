"""The `wrap_tool_call` hooks of LangChain's `AgentMiddleware`, around one tool call.

Their handler is the whole of `run_call`. So a call that a hook changes is checked and recorded as
what it is. Each call of the handler is a separate execution, which is not repeated after a crash
once it has ended.
"""

import copy
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt, is_invalid_resume
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolRuntime
from langgraph.types import Command

from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.budget import (
    counting_external_calls,
    exclude_from_external_calls,
)
from openmanus_graph.runtime.events import plan_step_of
from openmanus_graph.runtime.middleware import added_messages, command_update, wrapped
from openmanus_graph.state.interrupts import as_approval
from openmanus_graph.state.manus import PendingCall, add_usage, no_usage
from openmanus_graph.tool_calls.call_hooks import judge_changed
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.run_call import run_call, run_to_message
from openmanus_graph.tool_calls.toolset import tool_call_request

if TYPE_CHECKING:
    from openmanus_graph.runtime.middleware import Middleware

log = logging.getLogger(__name__)


async def run_wrapped_call(
    call: PendingCall, context: ToolCallContext, *, middleware: Sequence["Middleware"]
) -> ToolMessage:
    """Run one tool call inside the hooks, and return the message that answers it.

    `middleware` are those that have the hook, the outermost first.
    """
    if call["problem"] is not None:
        return await run_call(call, context)  # no call: its arguments could not be read
    key = CallExecution(call, context, execution_id="around").key

    async def run() -> ToolMessage:
        return await _WrappedCall(call, context).run(middleware)

    return await context.questions.run_with_answers(key, run)


class _WrappedCall:
    """One call inside the hooks, which may run it several times or not at all."""

    def __init__(self, call: PendingCall, context: ToolCallContext) -> None:
        self._call, self._context = call, context
        self._messages: Sequence[AnyMessage] = ()
        self._executions = 0
        self._raised: list[tuple[Exception, ToolMessage]] = []
        self._usage = no_usage()
        self._passing: Exception | None = None
        """What no hook may catch, such as a question to a person."""
        self._changed = False

    async def run(self, middleware: Sequence["Middleware"]) -> ToolMessage:
        request = await self._request()
        through = wrapped(middleware, "wrap_tool_call", self._execute)
        with counting_external_calls() as calls:
            result = await self._result(through(request))
        spent = await calls.spent(self._context.session, self._context.emit)
        self._usage = add_usage(self._usage, spent)
        message = self._message_of(result)
        if not self._executions:
            execution = CallExecution(self._call, self._context)
            execution.announce(self._call["args"])
            execution.announce_end(message.text, ok=message.status == "success")
        artifact: Any = message.artifact
        noted = dict(cast("dict[str, Any]", artifact)) if isinstance(artifact, dict) else {}
        if self._usage["model_calls"]:  # what all executions cost
            noted["usage"] = self._usage
        if self._changed:
            noted["edited"] = True
        name = message.name or self._call["name"]
        return message.model_copy(update={"artifact": noted or None, "name": name})

    async def _request(self) -> ToolCallRequest:
        call, tools = self._call, self._context.toolset.tools
        args = copy.deepcopy(call["args"])  # which a hook may change in place
        request = await tool_call_request({**call, "args": args}, self._context.config)
        self._messages = request.state["messages"]
        found = cast("ToolRuntime[Any, Any]", request.runtime)  # its stub knows no context
        runtime = replace(found, tools=list(tools.values()))
        return replace(request, tool=tools.get(call["name"]), runtime=runtime)

    async def _execute(self, request: ToolCallRequest) -> ToolMessage | Command[Any]:
        """Run the call as the hooks pass it on. They get what the tool raised."""
        call, number = await self._call_of(request), self._executions
        self._executions += 1
        execution_id = str(number) if number else ""
        if call is not self._call:
            execution_id = f"{number} for {self._call['name']} {canonical_args(self._call['args'])}"
        execution = CallExecution(call, self._context, execution_id=execution_id)
        try:
            with exclude_from_external_calls():
                message = await run_to_message(execution)
        except Exception as passing:  # a question, or our own fault: a tool's exception is noted
            self._passing = passing
            raise
        noted: dict[str, Any] = message.artifact or {}
        self._usage = add_usage(self._usage, noted.get("usage", no_usage()))
        if execution.raised is not None:
            self._raised.append((execution.raised, message))
            raise execution.raised
        if execution.update is None:
            return message
        others: list[Any] = execution.update.get("messages", [])
        return Command(update={**execution.update, "messages": [*others, message]})

    async def _call_of(self, request: ToolCallRequest) -> PendingCall:
        """Return the call that a hook passes on: the model's own, or a changed one."""
        name, args = request.tool_call["name"], request.tool_call["args"]
        if (name, args) == (self._call["name"], self._call["args"]):
            return self._call
        self._changed = True
        call = PendingCall(
            id=self._call["id"],
            name=name,
            args=args,
            occurrence=self._call["occurrence"],
            problem=None,
        )
        await judge_changed(call, self._messages, self._context)
        return call

    async def _result(self, through: Awaitable[Any]) -> Any:
        """Return the hooks' result; an exception becomes an observation here."""
        try:
            result = await through
        except GraphInterrupt as asked:
            plan_step = plan_step_of(self._context.config)
            raise GraphInterrupt([as_approval(one, plan_step) for one in asked.args[0]]) from None
        except (GraphBubbleUp, ConfigError):
            raise
        except Exception as error:  # as a tool's, a hook's must not end the run
            if self._passing is not None:
                raise self._passing from None
            if is_invalid_resume(error):
                raise  # of an answer, which is asked for again
            answered = [message for raised, message in self._raised if raised is error]
            if answered:
                return answered[-1]
            log.warning("a middleware raised around %s", self._call["name"], exc_info=error)
            text = f"{type(error).__name__}: {error}"
            return ToolMessage(text, tool_call_id=self._call["id"], status="error")
        if self._passing is not None:  # a hook that catches everything has caught it
            raise self._passing
        return result

    def _message_of(self, result: Any) -> ToolMessage:
        """Return the message for the call, and note the hook's other updates."""
        given: Any = [result]
        if isinstance(result, Command):
            update = added_messages(command_update(cast("Command[Any]", result)))
            given = update.pop("messages", [])
            others = [one for one in given if not self._is_answer(one)]
            if others:
                update["messages"] = others
            if update:
                self._context.updates.append(update)
        answers = [one for one in given if self._is_answer(one)]
        if not answers:
            raise ConfigError(
                "A middleware's wrap_tool_call returned no ToolMessage for the call that it was "
                f"given ({self._call['name']}), nor a Command with one."
            )
        message: ToolMessage = answers[-1]
        return message

    def _is_answer(self, message: Any) -> bool:
        return isinstance(message, ToolMessage) and message.tool_call_id == self._call["id"]
