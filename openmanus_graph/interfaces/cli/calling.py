"""One tool call without a graph, through `run_call`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage

from openmanus_graph.backends.mcp.tool import ServerTool
from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.cli.event_sinks import TerminalSink
from openmanus_graph.interfaces.cli.user_input import StdinLines
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.manus import PendingCall, no_usage
from openmanus_graph.tool_calls.context import ToolCallContext
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset


async def call_once(
    name: str, args: Mapping[str, Any], tools: Sequence[ServerTool], session: Session
) -> ToolMessage:
    """Call a tool, by its own name or by ours, and return the message."""
    # Without the label for untrusted output, which is for models.
    known = {
        tool.name: tool.model_copy(update={"traits": replace(tool.traits, untrusted=False)})
        for tool in tools
    }
    own = {tool.listed_tool.name: tool.name for tool in tools}
    sink = TerminalSink()
    call = PendingCall(
        id="call", name=own.get(name, name), args=dict(args), occurrence=0, problem=None
    )

    def emit(event: dict[str, Any]) -> None:
        if event["type"] == "notice":
            sink.show(event)

    context = ToolCallContext(
        session=session,
        toolset=Toolset(known, None),
        config={"configurable": {}},
        emit=emit,
        branch="",
        thread=None,
        ledger=None,
        questions=_TerminalQuestions(sink),
        progress=Progress(0, no_usage(), 0.0),
    )
    return await run_call(call, context)


class _TerminalQuestions(Questions):
    """Asks on the terminal at once: there is no run that could pause."""

    def __init__(self, sink: TerminalSink) -> None:
        super().__init__(None)
        self._sink, self._lines = sink, StdinLines()

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        """Return the answer. ToolError: there is no terminal, or no answer."""
        self._sink.show({"type": "interrupt", "question": request["question"], "calls": []})
        if not self._lines.interactive:
            raise ToolError("Nobody is there to answer: run this on a terminal.")
        answer = await self._lines.ask("Your answer: ")
        if answer is None:
            raise ToolError("There was no answer: the input has ended. Call it again, and answer.")
        return answer
