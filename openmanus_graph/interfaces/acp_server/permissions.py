"""Asks the editor's person to allow calls."""

import logging
from typing import Any

from acp import RequestError
from acp.helpers import text_block, tool_content
from acp.interfaces import Client
from acp.schema import PermissionOption, ToolCallUpdate

from openmanus_graph.interfaces.service.runs import question_text
from openmanus_graph.runtime.events import interrupt_event

_APPROVAL = (
    PermissionOption(option_id="approve", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)
_UNKNOWN_OUTCOME = (
    PermissionOption(option_id="approve", name="Run it again", kind="allow_once"),
    PermissionOption(option_id="reject", name="Leave it", kind="reject_once"),
)
log = logging.getLogger(__name__)


class EditorPerson:
    """Answers approvals by the editor's dialogue; a question is answered by the next prompt."""

    def __init__(self, client: Client, session: str) -> None:
        self._client, self._session = client, session

    async def answer(self, interrupt: Any) -> Any:
        """Return the decision, None if the person made none or is asked something else."""
        event = interrupt_event(interrupt)
        if event["kind"] == "question":
            return None
        nothing: dict[str, Any] = {"call_id": event["id"], "args": {}}
        call = event["calls"][0] if event["calls"] else nothing
        try:
            response = await self._client.request_permission(
                session_id=self._session,
                tool_call=ToolCallUpdate(
                    tool_call_id=call["call_id"] or event["id"],
                    title=str(event["question"]),
                    status="pending",
                    content=[tool_content(text_block(question_text(event)))],
                    raw_input=call["args"],
                ),
                options=[*(_APPROVAL if event["kind"] == "approval" else _UNKNOWN_OUTCOME)],
            )
        except RequestError as error:
            log.warning("the editor asks nobody: %s", error)
            return None
        outcome = response.outcome
        return outcome.option_id if outcome.outcome == "selected" else None
