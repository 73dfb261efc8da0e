"""Asks the client's person questions by MCP's elicitation."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError

from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.runs import question_text
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.tool_calls.questions import Questions


class Elicitation:
    """Sends questions within one request of the client; the answer is None if there is none."""

    def __init__(self, session: ServerSession, request_id: types.RequestId) -> None:
        self._session = session
        self._request_id = request_id

    @property
    def possible(self) -> bool:
        """Whether the client can show forms."""
        known = self._session.client_capabilities
        offered = known.elicitation if known else None
        return offered is not None and (offered.form is not None or offered.url is None)

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the answer in the form that an interrupt is resumed with."""
        if not self.possible:
            return None
        kind = str(request.get("kind", "question"))
        schema = answer_schema(kind)
        try:
            result = await self._session.elicit_form(
                question_text(request), schema, related_request_id=self._request_id
            )
        except MCPError:
            return None  # the client cannot after all
        return read_answer(kind, result)

    async def answer(self, interrupt: Any) -> Any:
        """Answer a question of a whole run."""
        return await self.ask(interrupt_event(interrupt))


class ElicitedQuestions(Questions):
    """Asks a call's questions at once, while the client waits for its result."""

    def __init__(self, elicitation: Elicitation) -> None:
        super().__init__(None)
        self._elicitation = elicitation

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        """Return the answer. ToolError when nobody gives one."""
        value = await self._elicitation.ask(request)
        if value is not None:
            return value
        why = (
            "nobody answered"
            if self._elicitation.possible
            else "this client cannot ask its person (it has no elicitation)"
        )
        raise ToolError(
            f"{key.tool} was not run. {request['question']} A person must decide that, and {why}. "
            "Use a client that can ask, or start the server with --policy auto."
        )


def answer_schema(kind: str) -> dict[str, Any]:
    """Return the form for an answer."""
    answer = {"type": "string", "title": "Answer"}
    if kind == "question":
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    choices = ["approve", "reject", *(["answer"] if kind == "unknown_outcome" else [])]
    decision = {"type": "string", "title": "Decision", "enum": choices}
    further = answer if kind == "unknown_outcome" else {"type": "string", "title": "Reason"}
    name = "answer" if kind == "unknown_outcome" else "reason"
    return {
        "type": "object",
        "properties": {"decision": decision, name: further},
        "required": ["decision"],
    }


def read_answer(kind: str, result: types.ElicitResult) -> Any:
    """Turn a filled form into the value that a question is answered with; None if it was closed."""
    content: dict[str, Any] = dict(result.content or {})
    if result.action == "cancel":
        return None
    if kind == "question":
        text = str(content.get("answer") or "")
        return text if result.action == "accept" else "The person declined to answer."
    decision = content.get("decision") if result.action == "accept" else "reject"
    text = str(content.get("reason") or content.get("answer") or "")
    match decision:
        case "approve" | "reject":
            return {"type": decision, "message": text}
        case "answer":
            return {"type": "respond", "message": text}
        case _:
            return None
