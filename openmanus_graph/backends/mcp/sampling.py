"""Sampling: a server's request as messages for the run's model, and the reply as a result."""

import base64
import binascii
import mimetypes
from typing import Any, cast

import mcp_types as types
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph.runtime.workspace import Workspace

REQUEST_CHARS = 200_000


def conversation(
    params: types.CreateMessageRequestParams, workspace: Workspace
) -> list[AnyMessage]:
    """Turn a request into messages. Blocks: pictures become files, as all others."""
    messages: list[AnyMessage] = []
    for index, message in enumerate(params.messages):
        content: Any = message.content  # one block, or several
        blocks = cast("list[Any]", content if isinstance(content, list) else [content])
        text = "\n".join(block.text for block in blocks if block.type == "text")[:REQUEST_CHARS]
        if message.role == "assistant":
            messages.append(AIMessage(text, id=f"sampled-{index}"))
            continue
        pictures = [_save_image(block, workspace) for block in blocks if block.type == "image"]
        shown = [path for path in pictures if path]
        extra = {"images": shown} if shown else {}
        messages.append(HumanMessage(text, id=f"sampled-{index}", additional_kwargs=extra))
    return messages


def result_of(reply: AIMessage, model: str) -> types.CreateMessageResult:
    """Turn the model's reply into what the server gets."""
    model_name = str(reply.response_metadata.get("model_name") or model or "model")
    content = types.TextContent(type="text", text=reply.text.strip())
    return types.CreateMessageResult(
        role="assistant", content=content, model=model_name, stop_reason="endTurn"
    )


def refusal(why: str) -> types.ErrorData:
    """Return the error for a request that is not allowed or failed."""
    return types.ErrorData(code=types.INTERNAL_ERROR, message=why)


def _save_image(block: Any, workspace: Workspace) -> str | None:  # the SDK's ImageContent
    try:
        data = base64.b64decode(block.data)
    except (binascii.Error, ValueError):
        return None
    path = workspace.keep(data, mimetypes.guess_extension(block.mime_type) or ".png")
    return workspace.relative(path)
