"""What servers refuse, each in its own words, as public reports quote them.

A rule is a pure function of a request's body. Wordings, statuses and envelopes are the servers'
own; only numbers and positions are of the request at hand.
"""

import base64
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, cast

from tests.support.zoo_envelopes import (
    Refusal,
    anthropic_text,
    cerebras_error,
    detail_error,
    gemini_error,
    jinja_error,
    litellm_error,
    llama_error,
    mistral_error,
    openai_error,
)

Body = dict[str, Any]
Message = dict[str, Any]


Rule = Callable[[Body], Refusal | None]


# ---- looking at a request


def numbered(body: Body, role: str = "assistant") -> Iterator[tuple[int, Message]]:
    """Yield the messages of a role, each with its position."""
    messages: list[Message] = body["messages"]
    return ((n, one) for n, one in enumerate(messages) if one["role"] == role)


def text_of(message: Message) -> str:
    """Return the text of a message."""
    content: str | list[Message] | None = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or ())


def schema_nodes(body: Body) -> Iterator[dict[str, Any]]:
    """Yield the schema of each tool, and all schemas in it."""
    tools: list[dict[str, Any]] = body.get("tools") or []
    for tool in tools:
        yield from _nodes(tool["function"].get("parameters"))


def _nodes(schema: object) -> Iterator[dict[str, Any]]:
    if not isinstance(schema, dict):
        return
    node = cast("dict[str, Any]", schema)
    yield node
    for key, value in node.items():
        if key in ("properties", "$defs", "definitions", "patternProperties"):
            for inner in value.values():
                yield from _nodes(inner)
        elif isinstance(value, list) and key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for inner in cast("list[object]", value):
                yield from _nodes(inner)
        elif key in ("items", "additionalProperties", "propertyNames", "not", "contains"):
            yield from _nodes(cast("object", value))


# ---- 1. thoughts


def wants_thoughts(
    refuse: Callable[[int], Refusal], *, calls_only: bool = False, not_empty: bool = False
) -> Rule:
    """Refuse an assistant message without its thoughts.

    Args:
        refuse: Says so, with the message's position.
        calls_only: Look at messages with calls alone.
        not_empty: An empty text counts as none.
    """

    def rule(body: Body) -> Refusal | None:
        for n, message in numbered(body):
            thought = message.get("reasoning_content")
            has = isinstance(thought, str) and bool(thought or not not_empty)
            if not has and (message.get("tool_calls") or not calls_only):
                return refuse(n)
        return None

    return rule


def refuses_thoughts(refuse: Callable[[Sequence[int]], Refusal]) -> Rule:
    """Refuse `reasoning_content` in any message."""

    def rule(body: Body) -> Refusal | None:
        found = [n for n, message in numbered(body) if "reasoning_content" in message]
        return refuse(found) if found else None

    return rule


def cerebras_thoughts(found: Sequence[int]) -> Refusal:
    """One line for each message."""
    places = [f"messages.{n}.assistant.reasoning_content" for n in found]
    lines = [f"{place}: property '{place}' is unsupported" for place in places]
    return cerebras_error("\n".join(lines), "validation_error")


def groq_thoughts(found: Sequence[int]) -> Refusal:
    """The first message."""
    place = f"'messages.{found[0]}'"
    return openai_error(
        f"{place} : for 'role:assistant' the following must be satisfied"
        f"[({place} : property 'reasoning_content' is unsupported)]"
    )


def mistral_thoughts(found: Sequence[int]) -> Refusal:
    """Each message."""
    return detail_error(
        *((("messages", n, "assistant", "reasoning_content"), "Hm.") for n in found)
    )


R1_TEXT = (
    "The reasoning_content is an intermediate result for display purposes only and will not be "
    "included in the context for inference. Please remove the reasoning_content from your message "
    "to reduce network traffic."
)
BACK_TEXT = "The `reasoning_content` in the thinking mode must be passed back to the API."


# ---- 2. schemas


def llama_pattern(body: Body) -> Refusal | None:
    """Take patterns from beginning to end alone."""
    found = [one["pattern"] for one in schema_nodes(body) if "pattern" in one]
    if all(one.startswith("^") and one.endswith("$") for one in found):
        return None
    text = "Pattern must start with '^' and end with '$'"
    prefix = "Unable to generate parser for this template. Automatic parser generation failed: "
    return llama_error(f"{prefix}JSON schema conversion failed:\n{text}")


def llama_grammar(body: Body) -> Refusal | None:
    """Take no long repetitions, no classes in patterns, no schema that holds itself."""
    for node in schema_nodes(body):
        counts = [node.get(f"{end}{what}", 0) for end in ("min", "max") for what in _COUNTED]
        if max(counts) >= 2000 or "\\" in node.get("pattern", "") or "$ref" in node:
            return llama_error("Failed to initialize samplers: failed to parse grammar")
    return None


_COUNTED = ("Length", "Items")


def names_keyword(unknown: Collection[str], refuse: Callable[[list[str]], Refusal]) -> Rule:
    """Refuse keywords of JSON schema."""

    def rule(body: Body) -> Refusal | None:
        keys = [key for node in schema_nodes(body) for key in node if key in unknown]
        return refuse(list(dict.fromkeys(keys))) if keys else None

    return rule


GEMINI_UNKNOWN = frozenset({
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "$schema", "const", "$ref", "$defs",
    "additionalProperties", "oneOf", "allOf", "not", "uniqueItems", "patternProperties",
    "propertyNames", "examples",
})  # fmt: skip


def gemini_keywords(found: list[str]) -> Refusal:
    """One line for each."""
    place = "tools[0].function_declarations[0].parameters.properties[3].value"
    lines = [f"Unknown name \"{key}\" at '{place}': Cannot find field." for key in found]
    return gemini_error("Invalid JSON payload received. " + "\n".join(lines))


def moonshot(body: Body) -> Refusal | None:
    """Moonshot's own flavour: types in the branches of `anyOf`, no keys beside `$ref`."""
    for node in schema_nodes(body):
        detail = ""
        if "anyOf" in node and "type" in node:
            detail = (
                "when using anyOf, type should be defined in anyOf items instead of the parent "
                "schema"
            )
        elif "$ref" in node and len(node) > 1:
            detail = "conflicting keywords found after $ref expansion: description"
        elif not node.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
            detail = "type is not defined"
        if detail:
            return openai_error(
                "Invalid request: tools.function.parameters is not a valid moonshot flavored json "
                f"schema, details: <At path 'properties.near': {detail}>"
            )
    return None


def fireworks(body: Body) -> Refusal | None:
    """Take no alternatives without a type."""
    for node in schema_nodes(body):
        for branch in node.get("anyOf", ()):
            if not branch.get("type"):
                return openai_error(
                    f"JSON Schema not supported: could not understand the instance `{branch}`."
                )
    return None


# ---- 3. roles

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."
ALTERNATE_BUT_CALLS = (
    "After the optional system message, conversation roles must alternate user and assistant roles "
    "except for tool calls and results."
)


def alternates(refuse: Callable[[], Refusal], *, skips_calls: bool) -> Rule:
    """Refuse user and assistant out of turn.

    Args:
        refuse: Says so.
        skips_calls: Calls and their results do not count; else results are the user's turn.
    """

    def rule(body: Body) -> Refusal | None:
        turns: list[str] = []
        for message in body["messages"]:
            role, calls = message["role"], message.get("tool_calls")
            if role == "system" or (skips_calls and (role == "tool" or calls)):
                continue
            if role == "tool" and turns and turns[-1] == "tool":
                continue  # results of one reply are shown as one
            turns.append(role)
        asked = [role != "assistant" for role in turns]
        return None if asked == [n % 2 == 0 for n in range(len(turns))] else refuse()

    return rule


def no_system(body: Body) -> Refusal | None:
    """Gemma 2's template: it knows no system message."""
    has = any(one["role"] == "system" for one in body["messages"])
    return jinja_error("System role not supported") if has else None


def late_system(body: Body) -> Refusal | None:
    """Qwen 3.5's template."""
    if all(one["role"] != "system" for one in body["messages"][1:]):
        return None
    prefix = "Unable to generate parser for this template. Automatic parser generation failed: "
    return jinja_error("System message must be at the beginning.", 400, prefix)


def mistral_order(body: Body) -> Refusal | None:
    """Mistral's API: results are followed by the assistant alone."""
    roles = [one["role"] for one in body["messages"]]
    for before, after in zip(roles, roles[1:], strict=False):
        if before == "tool" and after not in ("tool", "assistant"):
            text = f"Unexpected role '{after}' after role 'tool'"
            return mistral_error(text, "invalid_request_message_order", "3230")
    if roles[-1] == "assistant":
        text = "Expected last role User or Tool (or Assistant with prefix True) for serving but got"
        return mistral_error(f"{text} assistant", "invalid_request_message_order", "3230")
    return None


def no_successive(body: Body) -> Refusal | None:
    """DeepSeek R1: one message of user or assistant at a time."""
    roles = [one["role"] for one in body["messages"]]
    for n, (one, other) in enumerate(zip(roles, roles[1:], strict=False)):
        if one == other and one in ("user", "assistant"):
            return openai_error(
                "deepseek-reasoner does not support successive user or assistant messages "
                f"(messages[{n}] and messages[{n + 1}] in your input). You should interleave the "
                "user/assistant messages in the message sequence."
            )
    return None


# ---- 4. ids of calls


def ids_match(pattern: str, refuse: Callable[[str, int, int], Refusal]) -> Rule:
    """Refuse ids that a pattern does not match.

    Args:
        pattern: Of the whole id.
        refuse: Says so, with the id and the positions of message and call.
    """
    wanted = re.compile(pattern)

    def rule(body: Body) -> Refusal | None:
        for n, message in numbered(body):
            for position, call in enumerate(message.get("tool_calls") or ()):
                if not wanted.fullmatch(call["id"]):
                    return refuse(call["id"], n, position)
        return None

    return rule


def mistral_id(call_id: str, *_: int) -> Refusal:
    """Nine letters or digits."""
    text = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
    return mistral_error(text, "invalid_function_call", "3280")


def anthropic_id(_: str, n: int, position: int) -> Refusal:
    """Letters, digits, `_` and `-`; behind a proxy."""
    place = f"messages.{n}.content.{position}.tool_use.id"
    text = f"{place}: String should match pattern '^[a-zA-Z0-9_-]+$'"
    return litellm_error(anthropic_text(text))


def openai_id(call_id: str, n: int, position: int) -> Refusal:
    """At most forty characters."""
    return openai_error(
        f"Invalid 'messages[{n}].tool_calls[{position}].id': string too long. Expected a string "
        f"with maximum length 40, but got a string with length {len(call_id)} instead.",
        param=f"messages[{n}].tool_calls[{position}].id",
        code="string_above_max_length",
    )


# ---- 5. Gemini's signatures

SIGNATURE = "CiQB0e2Kb3ZvbmVvZnRoZXpvbw=="
STAND_INS = frozenset({
    "skip_thought_signature_validator", "context_engineering_is_the_way_to_go",
    base64.b64encode(b"skip_thought_signature_validator").decode(),
})  # fmt: skip


def signatures(body: Body) -> Refusal | None:
    """Refuse a step of the current turn whose first call has no signature."""
    messages: list[Message] = body["messages"]
    begin = max((n for n, one in enumerate(messages) if one["role"] == "user"), default=0)
    for n, message in numbered(body):
        calls = message.get("tool_calls")
        if n < begin or not calls:
            continue
        extra: Any = calls[0].get("extra_content") or {}
        of_google: dict[str, Any] = extra.get("google") or {}
        signature = of_google.get("thought_signature")
        if signature in (SIGNATURE, *STAND_INS):
            continue
        if signature:
            return gemini_error("Thought signature is not valid.")
        name = calls[0]["function"]["name"]
        return gemini_error(
            "Function call is missing a thought_signature in functionCall parts. This is required "
            "for tools to work correctly, and missing thought_signature may lead to degraded model "
            f"performance. Additional data, function call `default_api:{name}` , position {n}. "
            "Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more "
            "details."
        )
    return None


# ---- 6. parameters


def refuses(field: str, refuse: Callable[[Any], Refusal], *, taken: object = None) -> Rule:
    """Refuse a field of the request, except with one value."""

    def rule(body: Body) -> Refusal | None:
        if field not in body or body[field] == taken:
            return None
        return refuse(body[field])

    return rule


def unsupported(field: str, instead: str = "") -> Refusal:
    """OpenAI's words."""
    more = f" Use '{instead}' instead." if instead else ""
    text = f"Unsupported parameter: '{field}' is not supported with this model.{more}"
    return openai_error(text, param=field, code="unsupported_parameter")


# ---- several at once


def first_of(*rules: Rule) -> Rule:
    """Make one rule of several: the first that is broken is told of."""

    def rule(body: Body) -> Refusal | None:
        return next((refusal for one in rules if (refusal := one(body)) is not None), None)

    return rule
