"""The model, for tools: within the run's limits and on its account."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.budget import exclude_from_external_calls
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import LimitReached, Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import ModelRole
from openmanus_graph.state.manus import Usage, add_usage, no_usage


class ToolModel:
    """Answers the questions of one tool call, and counts what they cost."""

    def __init__(self, session: Session, progress: Progress, emit: Emit) -> None:
        self._session, self._progress, self._emit = session, progress, emit
        self._usage = no_usage()

    @property
    def spent(self) -> Usage:
        """What the questions cost."""
        return self._usage

    async def ask(self, system: str, question: str) -> str:
        """Ask the model for extraction and return its text.

        Raises:
            ToolError: The run's limits forbid it, or the model failed for good.
        """
        reply = await self._converse(system, [HumanMessage(question)], "extract")
        return reply.text.strip()

    async def converse(self, system: str, messages: Sequence[AnyMessage]) -> AIMessage:
        """Go on with a conversation and return the main model's reply. ToolError as `ask`."""
        return await self._converse(system, messages, None)

    async def _converse(
        self, system: str, messages: Sequence[AnyMessage], role: ModelRole | None
    ) -> AIMessage:
        # Steps are the agent's own model calls: a tool's question is none.
        progress = replace(
            self._progress, steps=0, usage=add_usage(self._progress.usage, self._usage)
        )
        call = ModelCall(
            system=system,
            history=messages,
            reminder="",
            tools=(),
            progress=progress,
            step=0,
            role=role,
            ends_on_interrupt=False,
        )
        try:
            with exclude_from_external_calls():
                reply, usage = await call_model(call, self._session, self._notices)
        except LimitReached as limit:
            raise ToolError(
                f"The model was not asked: the run's limit ({limit.reason}) is reached."
            ) from limit
        except ModelError as error:
            raise ToolError(f"The model gave no answer: {error.sentence}") from error
        self._usage = add_usage(self._usage, usage)
        return reply

    def _notices(self, event: dict[str, Any]) -> None:
        if event["type"] == "notice":  # its steps and tokens are not the agent's
            self._emit(event)
