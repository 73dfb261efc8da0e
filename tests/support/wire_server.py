"""The protocols of Anthropic, Google and OpenAI's Responses on the model server of the tests.

Each protocol is a module's: `anthropic_wire`, `google_wire`, `responses_wire` build the events of
a reply as documented, and say why their service would refuse a request.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer, Request

Body = dict[str, Any]
Complaint = Callable[[Body], str | None]
"""Returns why a request is refused; None if it is taken."""


@dataclass(frozen=True)
class WireReply:
    """One answer."""

    events: Sequence[Mapping[str, Any]] = ()
    """Streamed as they are; one with a `type` is named by it."""
    status: int = 200
    error: object = None
    """The body of an error status."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class WireServer(OpenAIServer):
    """Serves a script to any path; a context manager.

    Args:
        script: Replies in order.
        complaint: Returns why a request is refused.
        error_of: Makes the body of such a refusal.
    """

    endings = ("",)

    def __init__(
        self,
        script: Iterable[WireReply],
        complaint: Complaint,
        error_of: Callable[[str], object],
    ) -> None:
        super().__init__()
        self.replies, self.complaint, self.error_of = list(script), complaint, error_of

    @property
    def address(self) -> str:
        return self.base_url.removesuffix("/v1")

    @property
    def bodies(self) -> list[Body]:
        return [request.body for request in self.requests]

    @override
    def next_reply(self, request: Request) -> tuple[Reply, int]:
        self.requests.append(request)
        fault = self.complaint(request.body)
        if fault is None and not self.replies:
            fault = "the script has run out"
        reply = self.replies.pop(0) if fault is None else WireReply(status=400)
        if reply.status == 200:
            raw = ("".join(map(_event, reply.events)), "text/event-stream")
        else:
            error = reply.error if fault is None else self.error_of(fault)
            raw = (json.dumps(error), "application/json")
        answer = Reply(
            status=reply.status, raw=raw, headers={"Connection": "close", **reply.headers}
        )
        return answer, len(self.requests)


def _event(event: Mapping[str, Any]) -> str:
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event)}\n\n"
