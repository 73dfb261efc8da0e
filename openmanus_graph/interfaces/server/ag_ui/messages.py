"""Reads the messages of AG-UI's requests."""

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ag_ui.core import Context, DataSource, Message, TextPart
from ag_ui.core.types import ContentPart

from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.server.openai_api.prompts import Prompt, Turn
from openmanus_graph.interfaces.service.runs import Upload


def read_messages(messages: Iterable[Message], context: Iterable[Context]) -> Prompt:
    """Understand a conversation, oldest message first.

    Tools' results, reasoning and activities are left out: the thread has what the agent did.

    Args:
        messages: Of a request.
        context: What the application says beside them; the newest turn tells it.

    Raises:
        Refused: The newest message is not the user's, or is empty, or holds what is not taken.
    """
    instructions, turns = list[str](), list[Turn]()
    for message in messages:
        match message.role:
            case "system" | "developer":
                instructions.append(message.content)
            case "user":
                turns.append(_user_turn(message.content))
            case "assistant" if message.content:
                turns.append(Turn("assistant", message.content))
            case _:
                pass
    newest = turns[-1] if turns else None
    if newest is None or newest.role != "user" or not (newest.text.strip() or newest.files):
        raise Refused(422, "The last message must be the user's, and say something.")
    told = "\n".join(f"- {one.description}: {one.value}" for one in context)
    if told:
        turns[-1] = replace(newest, text=f"{newest.text}\n\nThe application says:\n{told}")
    return Prompt("\n\n".join(instructions), tuple(turns))


def _user_turn(content: str | Sequence[ContentPart]) -> Turn:
    if isinstance(content, str):
        return Turn("user", content, words=content)
    texts = [part.text for part in content if isinstance(part, TextPart)]
    files = [
        _upload(part, number)
        for number, part in enumerate(content, start=1)
        if not isinstance(part, TextPart)
    ]
    return Turn("user", "\n\n".join(texts), tuple(files), "".join(texts[:1]))


def _upload(part: ContentPart, number: int) -> Upload:
    """Return the file that a part holds. Refused: it names one that is elsewhere."""
    source = None if isinstance(part, TextPart) else part.source
    if not isinstance(source, DataSource):
        raise Refused(
            422,
            f"The {part.type} is not in the message. This server fetches no address by itself: "
            "send the bytes, or name the address in the text, and the agent can open it.",
        )
    try:
        data = base64.b64decode(source.value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, f"The {part.type}'s data is no base64: {error}.") from error
    suffix = mimetypes.guess_extension(source.mime_type) or ""
    return Upload(f"{part.type}-{number}{suffix}", data, source.mime_type)
