"""One strict model server: it looks at a request as a whole, and answers by `zoo_tasks.brain`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from typing_extensions import override

from tests.support import zoo_manners as manners
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer, Request
from tests.support.strict_openai import complaint
from tests.support.zoo_envelopes import Refusal, openai_error
from tests.support.zoo_pictures import pictures
from tests.support.zoo_rules import Body, Rule, text_of
from tests.support.zoo_tasks import brain

Topic = Literal[
    "plain", "thoughts", "schemas", "roles", "ids", "signatures", "parameters", "pictures",
    "windows", "thoughts in text", "calls as text", "bad input",
]  # fmt: skip
CHARS_PER_TOKEN = 4
PICTURE_TOKENS = 800


def _takes_all(_: Body) -> Refusal | None:
    return None


@dataclass(frozen=True)
class Animal:
    """One server and its model."""

    name: str
    topic: Topic
    refuse: Rule = _takes_all
    """Its own rule; a pure function of a request's body."""
    changes: int = 1
    """How many things about a request may have to be changed, each for one refusal."""
    model: str = ""
    """Its model's name; that of the animal, where none is told by what it is known for."""
    manner: manners.Manner = manners.plain
    """How its model writes."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What its user has set as `model_options`."""
    preface: str = ""
    """Stands before each task of its user."""
    window: int = 0
    """Tokens; it cuts what is longer without a word. 0: none that matters."""
    keeps: int = 1
    """How many messages at the beginning are never cut."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What it answers beside chat completions."""
    moods: tuple[Refusal, ...] = ()
    """It refuses each request, for another of these reasons each time."""
    survivable: bool = True
    """Whether any request is answered at all."""

    @property
    def model_name(self) -> str:
        """What it calls its model."""
        return self.model or self.name


class ZooServer(OpenAIServer):
    """Serves one animal; a context manager."""

    def __init__(self, animal: Animal, *, out_of_quota_after: int | None = None) -> None:
        super().__init__(models=(animal.model_name,))
        self.animal = animal
        self.refuse = animal.refuse
        """Can be changed, as by an upgrade."""
        self.facts = dict(animal.facts)
        self.refusals: list[Refusal] = []
        self.out_of_quota_after = out_of_quota_after
        """It answers so many requests, and then none any more."""

    @override
    def next_reply(self, request: Request) -> tuple[Reply, int]:
        self.requests.append(request)
        number = len(self.requests)
        if self.out_of_quota_after is not None and number > self.out_of_quota_after:
            text = "You exceeded your current quota, please check your plan and billing details."
            spent = openai_error(text, 429, kind="insufficient_quota", code="insufficient_quota")
            return _raw(spent), number
        refusal = _common(request.body) or self.refuse(request.body)
        if moods := self.animal.moods:
            refusal = moods[(number - 1) % len(moods)]
        if refusal is not None:
            self.refusals.append(refusal)
            return _raw(refusal), number
        shown, tokens = self._shown(request.body)
        reply = self.animal.manner(brain(shown), number - len(self.refusals))
        return replace(reply, usage=_usage(tokens, reply)), number

    def _shown(self, body: Body) -> tuple[Body, int]:
        """Return what the model sees of a request, and its tokens: the newest messages at least."""
        messages: list[Any] = body["messages"]
        first, rest = messages[: self.animal.keeps], messages[self.animal.keeps :]
        while self.animal.window and len(rest) > 1 and tokens_of(body) > self.animal.window:
            rest = rest[1:]
            body = {**body, "messages": [*first, *rest]}
        return body, min(tokens_of(body), self.animal.window or 10**9)


def tokens_of(body: Body) -> int:
    """Count about as a model's own tokenizer does."""
    tools = len(json.dumps(body.get("tools", ()))) // CHARS_PER_TOKEN
    return tools + sum(map(_tokens, body["messages"]))


def _tokens(message: Body) -> int:
    seen = PICTURE_TOKENS * len(list(pictures({"messages": [message]})))
    calls = json.dumps(message.get("tool_calls", ""))
    return seen + (len(text_of(message)) + len(calls)) // CHARS_PER_TOKEN + 4


def _usage(tokens: int, reply: Reply) -> dict[str, int]:
    written = 10 + len(reply.text + reply.reasoning) // CHARS_PER_TOKEN
    return {
        "prompt_tokens": tokens, "completion_tokens": written, "total_tokens": tokens + written
    }  # fmt: skip


def _common(body: Body) -> Refusal | None:
    """Refuse what hardly any server takes."""
    fault = complaint({**body, "messages": [_usual(one) for one in body.get("messages", ())]})
    return None if fault is None else openai_error(fault)


def _usual(message: Body) -> Body:
    """Fill in what nearly all servers let people leave out."""
    if message.get("tool_calls") and message.get("content") is None:
        return {**message, "content": ""}
    if message["role"] == "system" and message.get("content") == "":
        return {**message, "content": "Empty."}
    return message


def _raw(refusal: Refusal) -> Reply:
    return Reply(status=refusal.status, raw=(refusal.body, refusal.kind))
