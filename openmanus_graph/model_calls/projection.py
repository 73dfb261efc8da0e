"""The request as a projection of the state, with its pictures, sounds and videos.

Its prefix stays the same, byte for byte, from step to step, so that providers' prompt caches hit.
What changes (the reminder, the live state) is added at its end and never stored. A tool message is
never separated from its call: strict servers refuse such conversations.
"""

import base64
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeGuard, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from openmanus_graph.backends.files.file_content import media_type_of, read_picture
from openmanus_graph.backends.models.spec import wire_provider
from openmanus_graph.conversation.caches import is_unchanged
from openmanus_graph.conversation.history import (
    calls_in_order,
    is_cut_text,
    run_messages,
    shown_environment,
)
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.recorder import fact_of_run, without_data
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import read_file
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.json_values import as_object

Block = dict[str, Any]
MAX_MEDIA_BYTES = 14 * 1024 * 1024
"""Of one file: as base64, with the rest of a request, more than services take in one."""
MAX_PICTURE_BYTES = 100 * 1024**2
"""Of a file; what is sent of it is smaller."""


def with_cache_marks(
    messages: Sequence[BaseMessage], provider: str, model_name: str, stable: int | None = None
) -> list[BaseMessage]:
    """Return the request with the cache marks of its provider, if it has any.

    The end of the system message is marked, since it is the same in every run, and the end of
    the part that later requests begin with: so many `stable` messages, or all.
    """
    marked, model = list(messages), model_name.lower()
    claude, nova = "claude" in model, "nova" in model
    in_block = provider == "anthropic" or (provider == "openrouter" and claude)
    if not in_block and not (provider == "bedrock" and (claude or nova)):
        return marked
    ends = {0} if marked and isinstance(marked[0], SystemMessage) else set[int]()
    last = (len(marked) if stable is None else stable) - 1
    while last > 0 and _inline_pictures(marked[last]):
        last -= 1  # tools' pictures are in no later request
    if last >= 0 and not nova:  # Nova takes no mark next to tool results
        ends.add(last)
    for position in ends:
        marked[position] = _marked(marked[position], in_block=in_block)
    return marked


def _marked(message: BaseMessage, *, in_block: bool) -> BaseMessage:
    """Mark the end of a message, in its last block or by another one."""
    content = message.content
    parts = [content] if isinstance(content, str) else content
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    # An empty text takes no mark, and thinking must not be changed.
    if not blocks or blocks[-1].get("type") != "text" or not blocks[-1].get("text"):
        return message
    if in_block:
        blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
    else:
        blocks.append({"cachePoint": {"type": "default"}})
    return message.model_copy(update={"content": blocks})


Pictures = Mapping[str, str]
"""Workspace-relative path, or the data of a picture inside of a message -> data URL, or a note
that begins with `[` and says why the picture is not shown."""

CUT_OFF = (
    "This call has no result. Nobody allowed it, so it did not run; or it was cut off, and may "
    "have run in part or in full. Look at what is there before you repeat it."
)


def project(
    messages: Sequence[AnyMessage],
    *,
    system: str,
    reminder: HumanMessage | None,
    pictures: Pictures | None,
) -> list[BaseMessage]:
    """Return the messages of a request, with the reminder at its end.

    An empty system prompt, which providers refuse, is not sent. `pictures` is None if the model
    does not see. Those that tools made are sent until the model has replied to them, then a line
    names their files: each costs as much as a page of text.
    """
    first = [SystemMessage(system)] if system else []
    last = [] if reminder is None else [reminder]
    return [*first, *_shown(messages, pictures), *last]


def without_other_providers_blocks(
    messages: Sequence[BaseMessage], provider: str
) -> list[BaseMessage]:
    """Return a request in which replies of other providers' models are only text and calls.

    This provider, as `wire_provider` names it, would refuse their thoughts and signatures.
    """
    return [
        message.model_copy(update={"content": message.text})
        if isinstance(message, AIMessage)
        and not isinstance(message.content, str)
        and provider != wire_provider(message.response_metadata.get("model_provider", ""))
        else message
        for message in messages
    ]


class Projector:
    """Makes the requests of one conversation, and keeps the parts that cannot change any more.

    A conversation grows at its end, so all but its newest turn are the same as at the last step.
    """

    def __init__(self) -> None:
        self._system = SystemMessage("")
        self._known: list[AnyMessage] = []
        self._pictured: list[AnyMessage] = []
        self._with_media: list[AnyMessage] = []
        self._request: list[BaseMessage] = []
        """The known messages, as they are sent to a model that does not see."""

    def pictured(self, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        self._learn(messages)
        return [*self._pictured, *pictured(messages[len(self._known) :])]

    def with_media(self, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        self._learn(messages)
        return [*self._with_media, *with_media(messages[len(self._known) :])]

    def project(
        self,
        messages: Sequence[AnyMessage],
        *,
        system: str,
        reminder: HumanMessage | None,
        pictures: Pictures | None,
    ) -> list[BaseMessage]:
        if pictures is not None:  # which of them are shown may change
            return project(messages, system=system, reminder=reminder, pictures=pictures)
        self._learn(messages)
        if self._system.content != system:
            self._system = SystemMessage(system)
        newest = messages[len(self._known) :]
        rest = project(newest, system="", reminder=reminder, pictures=None)
        return [*([self._system] if system else []), *self._request, *rest]

    def _learn(self, messages: Sequence[AnyMessage]) -> None:
        if not is_unchanged(self._known, messages):
            self._known, self._pictured, self._with_media, self._request = [], [], [], []
        known = self._known
        end = len(messages) - 1
        while end > 0 and messages[end].type == "tool":
            end -= 1
        while end > 0 and _is_continued(messages[end - 1], messages[end]):
            end -= 1
        new = messages[len(known) : max(end, len(known))]
        self._pictured += pictured(new)
        self._with_media += with_media(new)
        self._request += _shown(new, None)
        known += new


def _shown(messages: Sequence[AnyMessage], pictures: Pictures | None) -> list[BaseMessage]:
    request: list[BaseMessage] = []
    position, newest = 0, max((n for n, m in enumerate(messages) if _is_whole(m)), default=0)
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, AIMessage):
            answered = position <= newest
            while position < len(messages) and _is_continued(message, messages[position]):
                message = _joined(message, cast("AIMessage", messages[position]))
                position += 1
            results: dict[str, ToolMessage] = {}
            while position < len(messages) and messages[position].type == "tool":
                result = cast("ToolMessage", messages[position])
                results.setdefault(result.tool_call_id, result)
                position += 1
            request += _turn(message, results, {} if answered and pictures else pictures)
        elif message.type != "tool":
            paths = picture_paths(message)
            request.append(_with_pictures(shown_environment(message), paths, pictures))
    return request


def _is_whole(message: BaseMessage) -> bool:
    """Return True for a reply that answers what came before it, and is not to be continued."""
    if not isinstance(message, AIMessage) or is_cut_text(message):
        return False
    return bool(message.text.strip() or calls_in_order(message))


def _is_continued(reply: BaseMessage, following: BaseMessage) -> bool:
    """Return True if a reply of text alone is continued in the next message.

    Both are sent as one: strict servers require that user and model take turns.
    """
    if not isinstance(reply, AIMessage) or not isinstance(following, AIMessage):
        return False
    return not (reply.tool_calls or reply.invalid_tool_calls)


def _joined(reply: AIMessage, following: AIMessage) -> AIMessage:
    text = reply.text
    if not text.strip():
        return following
    gap = "" if is_cut_text(reply) or not following.text.strip() else "\n\n"
    if isinstance(following.content, str):
        return following.model_copy(update={"content": f"{text}{gap}{following.content}"})
    blocks = following.content  # the model's thoughts come first in it
    texts = (n for n, b in enumerate(blocks) if isinstance(b, str) or b.get("type") == "text")
    position = next(texts, len(blocks))
    block = {"type": "text", "text": f"{text}{gap}"}
    return following.model_copy(update={"content": [*blocks[:position], block, *blocks[position:]]})


def reminder_message(
    text: str, heading: str = "", live_state: str = "", picture: str | None = None
) -> HumanMessage | None:
    """Return the message at the end of one request only, if there is anything to say.

    `text` and `heading` are our words, `live_state` those of a page or program. It must not be able
    to speak as the user: its text and picture, a data URL, come last, between the tags of text from
    outside.
    """
    if not live_state:
        return HumanMessage(text) if text else None
    whole = "\n\n".join(filter(None, (text, f"{heading}\n{mark_untrusted(live_state)}")))
    if picture is None:
        return HumanMessage(whole)
    before, _, closing_tag = whole.rpartition("\n")
    return HumanMessage(
        [
            {"type": "text", "text": before},
            {"type": "image_url", "image_url": {"url": picture}},
            {"type": "text", "text": closing_tag},
        ]
    )


def pictured(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    return [m for m in messages if m.type != "ai" and (picture_paths(m) or _inline_pictures(m))]


def with_media(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    return [m for m in messages if m.type == "human" and media_paths(m)]


def picture_paths(message: BaseMessage) -> Sequence[str]:
    """Return the workspace pictures that belong to a message."""
    return tuple(path for path in _noted_paths(message) if media_type_of(path) is None)


def media_paths(message: BaseMessage) -> Sequence[str]:
    """Return the sounds and videos that a person gave with a message."""
    return tuple(path for path in _noted_paths(message) if media_type_of(path) is not None)


def _noted_paths(message: BaseMessage) -> Sequence[str]:
    noted = as_object(getattr(message, "artifact", None) or message.additional_kwargs)
    images: Sequence[str] = noted.get("images", ())
    return images


def _turn(
    reply: AIMessage, results: Mapping[str, ToolMessage], pictures: Pictures | None
) -> list[BaseMessage]:
    if reply.invalid_tool_calls:  # servers that parse their arguments would refuse the request
        readable = [
            ToolCall(id=call.id, name=call.name or "unknown", args=call.args, type="tool_call")
            for call in calls_in_order(reply)
        ]
        reply = reply.model_copy(update={"tool_calls": readable, "invalid_tool_calls": []})
    if not reply.tool_calls and not reply.text.strip():
        return []  # strict servers refuse an empty reply
    turn: list[BaseMessage] = [reply]
    shown: list[str] = []
    for call_id in [call["id"] or "" for call in reply.tool_calls]:
        result = results.get(call_id)
        turn.append(result or ToolMessage(CUT_OFF, tool_call_id=call_id, status="error"))
        if pictures is not None and result is not None:
            shown += picture_paths(result)
    if shown:
        seen = "" if pictures else " (shown before; open a file to see it again)"
        named = HumanMessage(f"Pictures: {', '.join(shown)}{seen}")
        turn.append(_with_pictures(named, shown, pictures))
    return turn


def _with_pictures(
    message: BaseMessage, paths: Sequence[str], pictures: Pictures | None
) -> BaseMessage:
    inline = _inline_pictures(message)
    if pictures is None:
        if not paths and not inline:
            return message
        note = f"[{len(paths) or len(inline)} picture(s) not shown: this model does not see.]"
        return HumanMessage(f"{message.text}\n{note}", id=message.id)
    found = [pictures[path] for path in paths if path in pictures]
    sent = [pictures.get(_data_of(block), block) for block in inline]
    if not found and sent == inline:
        return message
    shown = [one for one in (*sent, *found) if not isinstance(one, str) or one[:1] != "["]
    notes = [one for one in (*sent, *found) if one not in shown]
    text = "\n".join([message.text, *cast("list[str]", notes)])
    if not shown:
        return HumanMessage(text, id=message.id)
    content: list[str | Block] = [{"type": "text", "text": text}]
    content += [
        {"type": "image_url", "image_url": {"url": one}} if isinstance(one, str) else one
        for one in shown
    ]
    return HumanMessage(content, id=message.id)


def _data_of(block: Block) -> str:
    """Return the data of a picture's block, in any provider's form; empty if it is an address."""
    given: Any = block.get("image_url") or block.get("source") or block
    if fields := as_object(given):
        given = fields.get("url") or fields.get("data") or fields.get("base64")
    return "" if not isinstance(given, str) or given.startswith(("http:", "https:")) else given


def _inline_pictures(message: BaseMessage) -> list[Block]:
    content = message.content
    return [] if isinstance(content, str) else [block for block in content if is_picture(block)]


def is_picture(block: Any) -> TypeGuard[Block]:
    """Return True if a block of a message is a picture, in any provider's form."""
    return as_object(block).get("type") in ("image", "image_url")


async def add_media(
    request: Sequence[BaseMessage],
    given: Sequence[AnyMessage],
    session: Session,
    *,
    taken: Set[str],
    provider: str,
) -> list[BaseMessage]:
    """Return a request with the sound and video of its messages, or a note for each.

    Args:
        given: The conversation's messages with sound or video; the request's have the same ids.
        taken: What the model accepts: `audio`, `video`.
        provider: Whose protocol is used, as `wire_provider` names it.
    """
    blocks: dict[str | None, list[dict[str, Any]]] = {}
    for message in given:
        blocks[message.id] = [
            await fact_of_run(
                session,
                f"media {path} {provider} {' '.join(sorted(taken))}",
                partial(_block, path, session, taken, provider),
                kept=without_data,
            )
            for path in media_paths(message)
        ]
    messages = list(request)
    for position, one in enumerate(request):
        if one.id in blocks:
            content = one.content
            first = [{"type": "text", "text": content}] if isinstance(content, str) else content
            messages[position] = HumanMessage([*first, *blocks[one.id]], id=one.id)
    return messages


def _block(path: str, session: Session, taken: Set[str], provider: str) -> dict[str, Any]:
    media_type = media_type_of(path) or ""
    kind = media_type.partition("/")[0]
    if kind not in taken:
        return _note(path, f"this model takes no {kind}; work with the file by tools")
    try:
        content = read_file(session.workspace, path, MAX_MEDIA_BYTES)
    except ToolError as error:
        return _note(path, str(error).rstrip("."))
    data = base64.b64encode(content).decode()
    if kind == "video" and provider == "openai":  # LangChain has no form of it for this protocol
        return {"type": "video_url", "video_url": {"url": f"data:{media_type};base64,{data}"}}
    return {"type": kind, "base64": data, "mime_type": media_type}


def _note(path: str, why: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{path} is not sent: {why}.]"}


def in_this_run(shown: Sequence[AnyMessage], history: Sequence[AnyMessage]) -> bool:
    """Return True if one of the messages with pictures is the newest user message or later."""
    run = history[-len(run_messages(history)) - 1 :] if shown else ()
    return any(message is shown[-1] for message in run)


async def load_pictures(shown: Sequence[AnyMessage], session: Session) -> Pictures:
    """Return the pictures of messages as they are sent, or why one is not shown."""
    paths = dict.fromkeys(path for message in shown for path in picture_paths(message))
    found: dict[str, str] = {
        path: await fact_of_run(
            session, f"picture {path}", partial(_data_url, session, path), kept=without_data
        )
        for path in paths
    }
    blocks = (block for message in shown for block in _inline_pictures(message))
    for data in filter(None, map(_data_of, blocks)):  # data URLs or base64
        sent = await session.cached_off_loop((load_pictures, data), partial(_of_data, data))
        if not sent.endswith(data):  # else the block is not changed
            found[data] = sent
    return found


def _data_url(session: Session, path: str) -> str:
    try:
        return read_picture(read_file(session.workspace, path, MAX_PICTURE_BYTES)).url
    except ToolError as error:
        return f"[{path} is not shown: {str(error).rstrip('.')}.]"


def _of_data(data: str) -> str:
    """Return the picture of a data URL, or of base64 alone."""
    try:
        return read_picture(base64.b64decode(data.rpartition(",")[2])).url
    except ToolError as error:
        return f"[A picture is not shown: {error}.]"
    except ValueError:
        return "[A picture is not shown: its data is not base64.]"
