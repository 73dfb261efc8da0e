"""Makes requests fit what a model's server accepts, and learns from its refusals.

What concerns the messages alone is done here, for every provider. What only chat completions have
(reasoning, names of parameters) is done by `OpenAICompatibleModel`, in the same dialect.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from openmanus_graph.backends.models import dialects, failures
from openmanus_graph.conversation.caches import ConversationCache
from openmanus_graph.model_calls.calls_as_text import (
    joined_users,
    plain_schema,
    tools_as_text,
    turns_as_text,
)
from openmanus_graph.model_calls.projection import is_picture
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.state.json_values import as_object

MAX_LESSONS = 8
"""For one request: a server that refuses for a new reason each time is not asked forever."""
LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
NINE_ID = re.compile(r"[A-Za-z0-9]{9}")


class Fitter:
    """Fits the requests of one conversation; each message is changed once."""

    def __init__(self) -> None:
        self._dialect: dialects.Dialect | None = None
        self._messages: ConversationCache[BaseMessage] = ConversationCache()

    def fitted(
        self, request: ProviderRequest, dialect: dialects.Dialect, *, as_text: bool
    ) -> ProviderRequest:
        """Return a request in a server's dialect, in which calls may be text."""
        messages, tools, options = request.messages, request.tools, request.options
        if dialect.ids != "any" or dialect.signatures:
            if dialect != self._dialect:
                self._dialect, self._messages = dialect, ConversationCache()
            messages = self._messages.get(messages, lambda one: _fitted_message(one, dialect))
        if dialect.pictures is not None:
            messages = _with_newest_pictures(messages, dialect.pictures)
        if as_text:
            options = {key: value for key, value in options.items() if key != "tool_choice"}
            messages, tools = tools_as_text(turns_as_text(messages), tools), ()
        if dialect.system != "free":
            messages = _with_system_first(messages, may_stay=dialect.system == "first")
        if dialect.roles == "alternate":
            messages = _alternating(messages)
        if dialect.schemas == "plain":
            tools = [_with_plain_schema(tool) for tool in tools]
        return replace(request, messages=list(messages), tools=tools, options=options)


def _fitted_message(message: BaseMessage, dialect: dialects.Dialect) -> BaseMessage:
    if isinstance(message, ToolMessage):
        new = _fitted_id(message.tool_call_id, dialect)
        same = new == message.tool_call_id
        return message if same else message.model_copy(update={"tool_call_id": new})
    if not isinstance(message, AIMessage) or not message.tool_calls:
        return message
    ids = {call["id"] or "": _fitted_id(call["id"] or "", dialect) for call in message.tool_calls}
    extras = dict(message.additional_kwargs.get("tool_call_extras", {}))
    if dialect.signatures and "extra_content" not in extras.get(next(iter(ids)), {}):
        google = {"google": {"thought_signature": dialects.SKIPPED_SIGNATURE}}
        extras[next(iter(ids))] = {"extra_content": google}
    extras = {ids.get(old, old): extra for old, extra in extras.items()}
    known = message.additional_kwargs
    if all(old == new for old, new in ids.items()) and extras == known.get("tool_call_extras", {}):
        return message
    calls = [{**call, "id": ids[call["id"] or ""]} for call in message.tool_calls]
    kwargs = {**known, **({"tool_call_extras": extras} if extras else {})}
    content = message.content
    if isinstance(content, list):  # Anthropic's has the calls there, too
        content = [
            block
            if isinstance(block, str) or block.get("id") not in ids
            else {**block, "id": ids[block["id"]]}
            for block in content
        ]
    update = {"tool_calls": calls, "additional_kwargs": kwargs, "content": content}
    return message.model_copy(update=update)


def _fitted_id(call_id: str, dialect: dialects.Dialect) -> str:
    legal = {"nine": NINE_ID, "legal": LEGAL_ID}.get(dialect.ids)
    if legal is None or legal.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _picture_count(message: BaseMessage) -> int:
    if isinstance(message.content, str):
        return 0
    return sum(map(is_picture, message.content))


def _with_newest_pictures(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    """Return messages with so many of their pictures, and notes in place of the others."""
    left, changed = most, list[BaseMessage]()
    for message in reversed(messages):
        count = _picture_count(message)
        if count > left:
            blocks, excess = list[str | dict[str, Any]](), count - left
            for block in message.content:
                if excess and is_picture(block):
                    excess -= 1
                    note = "[A picture is left out: the server refused it.]"
                    block = {"type": "text", "text": note}
                blocks.append(block)
            message = message.model_copy(update={"content": blocks})
        left = max(0, left - count)
        changed.append(message)
    return changed[::-1]


def _with_system_first(messages: Sequence[BaseMessage], *, may_stay: bool) -> list[BaseMessage]:
    """Return messages with later instructions as the user's; without `may_stay` the first, too."""
    changed = [
        HumanMessage(one.content)
        if isinstance(one, SystemMessage) and (position or not may_stay)
        else one
        for position, one in enumerate(messages)
    ]
    return joined_users(changed)


def _alternating(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return messages in which user and model take turns, and only a reply follows a result."""
    changed = list[BaseMessage]()
    for message in joined_users(messages):
        last = changed[-1] if changed else None
        if isinstance(last, ToolMessage) and isinstance(message, HumanMessage):
            if not _picture_count(message):
                text = f"{last.text}\n\n{message.text}"
                changed[-1] = last.model_copy(update={"content": text})
                continue
            changed.append(AIMessage("I look at the pictures."))
        elif isinstance(last, AIMessage) and isinstance(message, AIMessage):
            changed.append(HumanMessage("Go on."))
        changed.append(message)
    if changed and isinstance(changed[-1], AIMessage):
        changed.append(HumanMessage("Go on."))
    return changed


def _with_plain_schema(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool  # a provider's own
    schema = plain_schema(as_object(as_object(function).get("parameters")))
    plain: dict[str, Any] = {"properties": {}, **schema, "type": "object"}
    kept = {key: value for key, value in as_object(function).items() if key != "strict"}
    return {**tool, "function": {**kept, "parameters": plain}}


class Learning:
    """What was tried so far so that a server accepts one request.

    `parameters` are the names of those that the client sends.
    """

    def __init__(self, request: ProviderRequest, parameters: Collection[str]) -> None:
        self._model = request.model
        self._parameters = parameters
        self.now = self.lasting = request.model.dialect.now
        self._before: tuple[dialects.Dialect, dialects.Dialect] | None = None
        self._refusal = ""
        self._tried = set[str]()
        self._forgot = False

    def unlearn(self, **changes: bool) -> None:
        """Note that the server does not do what was asked, though it did not refuse it."""
        self.now, self.lasting = self.now.changed(changes), self.lasting.changed(changes)

    def learn(
        self, error: failures.ModelError, sent: ProviderRequest, notice: Callable[[str], None]
    ) -> None:
        """Change the dialect so that the server may accept the request.

        The request was `sent` before it was made to fit. ModelError: the same, if nothing more can
        be done.
        """
        text = failures.refusal_text(error)
        if text is None or len(self._tried) >= 2 * MAX_LESSONS:
            raise error
        if text == self._refusal and self._before is not None:
            self.now, self.lasting = self._before  # the last change did not help
        self._refusal, self._before = text, (self.now, self.lasting)
        lesson = self._next(text, sent)
        if lesson is not None:
            self.now = self.now.changed(lesson.changes)
            if lesson.lasts:
                self.lasting = self.lasting.changed(lesson.changes)
            notice(f"{error.sentence} It is asked again: {lesson.words}.")
            return
        known = self._model.dialect.known
        if self._forgot or self.now == known:
            raise error
        self._forgot, self.now, self.lasting = True, known, known
        notice(f"{error.sentence} It is asked again without what was learned about it before.")

    def _next(self, text: str, sent: ProviderRequest) -> dialects.Lesson | None:
        """Return the first change that is new, and that the settings allow."""
        for lesson in dialects.lessons(text, self._possible_reasons(sent)):
            if "tools" in lesson.changes and self._model.settings.tool_calling != "auto":
                continue
            old = {name: getattr(self.now, name) for name in lesson.changes}
            if "parameters" in old:  # only those that would change
                known, new = old["parameters"], lesson.changes["parameters"]
                old["parameters"] = {one: known.get(one, one) for one in new}
            new_key = json.dumps(lesson.changes, sort_keys=True)
            if old != lesson.changes and new_key not in self._tried:
                self._tried |= {json.dumps(old, sort_keys=True), new_key}
                return lesson
        return None

    def _possible_reasons(self, request: ProviderRequest) -> dialects.SentRequest:
        messages = request.messages
        replies = [one for one in messages if isinstance(one, AIMessage)]
        holds = {"parameters", "system_role", "roles"}
        holds |= {"reasoning"} if replies else set()
        holds |= {"ids", "signatures"} if any(one.tool_calls for one in replies) else set()
        holds |= {"schemas", "tools"} if request.tools else set()
        holds |= {"constrains"} if {"response_format", "format"} & request.options.keys() else set()
        holds |= {"system"} if any(isinstance(one, SystemMessage) for one in messages) else set()
        holds |= {"pictures"} if any(map(_picture_count, messages)) else set()
        names = filter(None, map(self.now.name_of, self._parameters))
        return dialects.SentRequest(
            [one.text for one in messages], {*names, *request.options}, holds
        )
