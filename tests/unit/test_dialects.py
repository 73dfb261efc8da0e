"""What servers refuse, in their own words, and what is changed for it."""

import json
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from openmanus_graph.backends.models.dialects import (
    Dialect,
    LearntDialect,
    SentRequest,
    known_dialect,
    lessons,
)
from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.config.files import config_home
from openmanus_graph.model_calls.calls_as_text import plain_schema
from openmanus_graph.model_calls.fitting import Fitter
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import calls

ALL = {
    "reasoning", "schemas", "tools", "roles", "system", "system_role", "ids", "signatures",
    "pictures", "parameters",
}  # fmt: skip
PARAMETERS = {
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "parallel_tool_calls", "seed",
    "stream_options", "stream", "prompt_cache_key", "store", "tool_choice", "stop", "top_k",
    "frequency_penalty", "reasoning_effort",
}  # fmt: skip
MISSING = "thinking is enabled but reasoning_content is missing in assistant tool call message at 4"
JINJA = (
    "\n------------\nWhile executing CallExpression at line 19, column 27 in source:\n...\n"
    "Error: Jinja Exception: "
)
LOCAL_SCHEMA = "JSON schema conversion failed:\nPattern must start with '^' and end with '$'"
REFUSALS: list[tuple[Any, dict[str, Any]]] = [
    ("The `reasoning_content` in the thinking mode must be passed back to the API.",
     {"reasoning": "every"}),
    ("The reasoning_text in the thinking mode must be passed back to the API",
     {"reasoning": "every"}),
    ("Missing `reasoning_content` field in the assistant message at message index 3",
     {"reasoning": "every"}),
    ({"error": {"code": "400", "message": "Param Incorrect", "param":
      "The reasoning_content in the thinking mode must be passed back to the API.", "type": ""}},
     {"reasoning": "every"}),
    (MISSING, {"reasoning": "every"}),
    ("The reasoning_content is an intermediate result for display purposes only. Please remove the "
     "reasoning_content from your message", {"reasoning": "never"}),
    ({"message": "messages.2.assistant.reasoning_content: property "
      "'messages.2.assistant.reasoning_content' is unsupported", "param": "validation_error"},
     {"reasoning": "never"}),
    ("'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property "
     "'reasoning_content' is unsupported)]", {"reasoning": "never"}),
    ({"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 31, "assistant",
                  "reasoning_content"], "msg": "Extra inputs are not permitted", "input": "x"}]},
     {"reasoning": "never"}),
    (LOCAL_SCHEMA, {"schemas": "plain"}),
    ("Unable to generate parser for this template. Automatic parser generation failed: "
     + LOCAL_SCHEMA, {"schemas": "plain"}),
    ("Failed to initialize samplers: failed to parse grammar", {"schemas": "plain"}),
    ([{"error": {"code": 400, "message": "Invalid JSON payload received. Unknown name "
       '"exclusiveMinimum" at \'tools[0].function_declarations[1].parameters.properties[3].value\':'
       " Cannot find field.", "status": "INVALID_ARGUMENT"}}], {"schemas": "plain"}),
    ("tools.function.parameters is not a valid moonshot flavored json schema, details: <At path "
     "'properties.a': type is not defined>", {"schemas": "plain"}),
    ("Unsupported JSON schema fields: {'minItems', 'items'}", {"schemas": "plain"}),
    ("JSON Schema not supported: could not understand the instance `{'required': ['a']}`.",
     {"schemas": "plain"}),
    ("tools.61.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the "
     "top level", {"schemas": "plain"}),
    ("The value at toolConfig.tools.26.toolSpec.inputSchema.json.type must be one of the following:"
     " object.", {"schemas": "plain"}),
    ("tool parameter root must be an object type (root schema is an anyOf)", {"schemas": "plain"}),
    ('Grammar error: Unimplemented keys: ["propertyNames"]', {"schemas": "plain"}),
    (JINJA + "Conversation roles must alternate user/assistant/user/assistant/...",
     {"roles": "alternate"}),
    (JINJA + "After the optional system message, conversation roles must alternate user and "
     "assistant roles except for tool calls and results.", {"roles": "alternate"}),
    ("Unexpected role 'user' after role 'tool'", {"roles": "alternate"}),
    ("Expected last role User or Tool (or Assistant with prefix True) for serving but got "
     "assistant", {"roles": "alternate"}),
    ("deepseek-reasoner does not support successive user or assistant messages",
     {"roles": "alternate"}),
    ('Error rendering prompt with jinja template: "Cannot call something"', {"roles": "alternate"}),
    ("This model does not support assistant message prefill. The conversation must end with a user "
     "message.", {"roles": "alternate"}),
    (JINJA + "System message must be at the beginning.", {"system": "first"}),
    (JINJA + "System role not supported", {"system": "none"}),
    ("messages[1].role: unknown variant `developer`, expected one of `system`, `user`",
     {"system_role": "system"}),
    ("Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9.",
     {"ids": "nine"}),
    ("messages.5.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
     {"ids": "legal"}),
    ("Invalid 'messages[68].tool_calls[0].id': string too long. Expected a string with maximum "
     "length 40, but got a string with length 46 instead.", {"ids": "legal"}),
    ("Function call is missing a thought_signature in functionCall parts.", {"signatures": True}),
    ("Unable to submit request because function call `f` in the 2. content block is missing a "
     "`thought_signature`.", {"signatures": True}),
    ("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
     "'max_completion_tokens' instead.", {"parameters": {"max_tokens": "max_completion_tokens"}}),
    ("[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), 'msg': 'Extra inputs "
     "are not permitted'}]", {"parameters": {"max_completion_tokens": "max_tokens"}}),
    ("Unrecognized request argument supplied: max_completion_tokens",
     {"parameters": {"max_completion_tokens": "max_tokens"}}),
    ("Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) "
     "value is supported.", {"parameters": {"temperature": None}}),
    ("`temperature` is deprecated for this model.", {"parameters": {"temperature": None}}),
    ("BAD_REQUEST: Model eu.anthropic.claude-opus-5 does not support the temperature parameter.",
     {"parameters": {"temperature": None}}),
    ("invalid temperature: only 1 is allowed for this model",
     {"parameters": {"temperature": None}}),
    ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
     {"parameters": {"parallel_tool_calls": None}}),
    ("litellm.UnsupportedParamsError: anthropic does not support parameters: "
     "{'parallel_tool_calls': False}, for model=x", {"parameters": {"parallel_tool_calls": None}}),
    ("Unknown parameter: 'stream_options'.", {"parameters": {"stream_options": None}}),
    ("body.store: property 'body.store' is unsupported", {"parameters": {"store": None}}),
    ('Bad request: json: unknown field "prompt_cache_key"',
     {"parameters": {"prompt_cache_key": None}}),
    ("Thinking mode does not support this tool_choice", {"parameters": {"tool_choice": None}}),
    ("tool_choice 'specified' is incompatible with thinking enabled",
     {"parameters": {"tool_choice": None}}),
    ("Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
     {"parameters": {"tool_choice": None}}),
    ("Thinking may not be enabled when tool_choice forces tool use.",
     {"parameters": {"tool_choice": None}}),
    ("tool_choice: 'required' is not supported; only 'auto' is supported",
     {"parameters": {"tool_choice": None}}),
    ("The tool_choice parameter does not support being set to required or object in thinking mode",
     {"parameters": {"tool_choice": None}}),
    ("`tool_choice` value 'required' is not supported by this model",
     {"parameters": {"tool_choice": None}}),
    ("Invalid value for 'tool_choice': expected one of ['auto', 'none'], got 'required'",
     {"parameters": {"tool_choice": None}}),
    ("This model doesn't support the toolConfig.toolChoice.any field. Remove it and try again.",
     {"parameters": {"tool_choice": None}}),
    ("No endpoints found that support the provided 'tool_choice' value.",
     {"parameters": {"tool_choice": None}}),
    ("json: cannot unmarshal string into Go struct field ChatCompletionRequest.tool_choice",
     {"parameters": {"tool_choice": None}}),
    ("Forced tool choice is not available for this model",
     {"parameters": {"tool_choice": None}}),
    ("Argument not supported on this model: frequencyPenalty",
     {"parameters": {"frequency_penalty": None}}),
    ("Model grok-4-1-fast does not support parameter reasoningEffort.",
     {"parameters": {"reasoning_effort": None}}),
    ("top_k must be unset when thinking is enabled", {"parameters": {"top_k": None}}),
    ("stream is not supported by this model", {"parameters": {"stream": None}}),
    ("registry.ollama.ai/library/deepseek-r1:14b does not support tools", {"tools": "text"}),
    ("image input is not supported - hint: if this is unexpected, you may need to provide the "
     "mmproj", {"pictures": 0}),
    ("No endpoints found that support image input", {"pictures": 0}),
    ("Failed to deserialize the JSON body into the target type: messages[148]: unknown variant "
     "`image_url`, expected `text` at line 1 column 9", {"pictures": 0}),
    ("Invalid content type. image_url is only supported by certain models.", {"pictures": 0}),
    ("At most 1 image(s) may be provided in one request.", {"pictures": 1}),
    ("Too many images provided. This model supports up to 3 images", {"pictures": 3}),
    ("too many images in the message, max allowed is 16", {"pictures": 16}),
    ("Could not process image", {"pictures": 0}),
]  # fmt: skip
HARMLESS = [
    "The server is overloaded, try again later.",
    "Internal server error",
    "model 'x' not found",
    "This model's maximum context length is 8192 tokens.",
    "Your credit balance is too low.",
]


def sent(*texts: str, holds: set[str] | None = None) -> SentRequest:
    return SentRequest(texts, PARAMETERS, ALL if holds is None else holds)


def refusal(body: str | dict[str, Any] | list[Any]) -> str:
    if isinstance(body, str):
        body = {"error": {"message": body, "type": "invalid_request_error", "code": None}}
    return json.dumps(body)


@pytest.mark.parametrize(("body", "change"), REFUSALS)
def test_a_refusal_is_understood(body: str | dict[str, Any], change: dict[str, Any]) -> None:
    found = next(lessons(refusal(body), sent()), None)
    assert found is not None
    assert found.changes == change


@pytest.mark.parametrize(("body", "change"), REFUSALS)
def test_what_the_request_does_not_hold_is_not_changed(
    body: str | dict[str, Any], change: dict[str, Any]
) -> None:
    holds = ALL - change.keys()
    nothing = SentRequest((), {"model"}, holds)
    assert change not in [one.changes for one in lessons(refusal(body), nothing)]


@pytest.mark.parametrize("said", HARMLESS)
def test_other_failures_teach_nothing(said: str) -> None:
    assert list(lessons(refusal(said), sent())) == []


@pytest.mark.parametrize(("body", "change"), REFUSALS)
def test_a_quoted_request_teaches_nothing(
    body: str | dict[str, Any], change: dict[str, Any]
) -> None:
    text = f"The log says: {refusal(body)}"
    for quoted in (text, text[:200]):
        said = refusal(f"Bad request. Your message was: {quoted}")
        assert list(lessons(said, sent(text))) == []


SCHEMAS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"type": "string"}),
    ({"type": "integer", "exclusiveMinimum": 0, "description": "d"},
     {"type": "integer", "description": "d"}),
    ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}], "title": "t"},
     {"type": "array", "items": {"type": "number"}}),
    ({"type": ["string", "null"], "pattern": "a", "format": "date"}, {"type": "string"}),
    ({"const": 3}, {"type": "integer", "enum": [3]}),
    ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
    ({"type": "object", "required": ["a", "b"], "properties": {"a": {"$ref": "#/$defs/A"}},
      "additionalProperties": False, "$defs": {"A": {"enum": ["x", "y"]}}},
     {"type": "object", "required": ["a"],
      "properties": {"a": {"type": "string", "enum": ["x", "y"]}}}),
    ({"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": True}}]},
     {"type": "object", "required": ["a"],
      "properties": {"a": {"type": "string"}, "b": {"type": "object"}}}),
    ({"type": "object", "properties": {"a": {"enum": None}}, "required": None, "anyOf": None,
      "allOf": None}, {"type": "object", "properties": {"a": {"enum": None, "type": "string"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "plain"), SCHEMAS)
def test_a_plain_schema_has_the_common_words_only(
    schema: dict[str, Any], plain: dict[str, Any]
) -> None:
    assert plain_schema(schema) == plain


def test_names_of_parameters_that_go_in_circles_end() -> None:
    circle = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
    assert Dialect().changed({"parameters": circle}).name_of("max_tokens") in circle
    left_out = Dialect().changed({"parameters": {"a": "b"}}).changed({"parameters": {"b": None}})
    assert (left_out.name_of("a"), left_out.name_of("c")) == (None, "c")


def test_a_schema_that_holds_itself_ends() -> None:
    node = {"type": "object", "properties": {str(n): {"$ref": "#/$defs/N"} for n in range(9)}}
    plain = plain_schema({**node, "$defs": {"N": node}})
    assert len(json.dumps(plain)) < 20_000


def test_a_schema_that_multiplies_itself_ends() -> None:
    names = [f"L{n}" for n in range(30)]
    definitions = {
        name: {"properties": {key: {"$ref": f"#/$defs/{below}"} for key in "abcd"}}
        for name, below in zip(names, [*names[1:], "end"], strict=True)
    }
    plain = plain_schema({"$ref": "#/$defs/L0", "$defs": definitions})
    assert len(json.dumps(plain)) < 1_000_000


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}


def fitted(dialect: Dialect, *messages: BaseMessage, tools: Any = ()) -> list[BaseMessage]:
    request = ProviderRequest(list(messages), tools, instance_model(ScriptedChatModel([])))
    return Fitter().fitted(request, dialect, as_text=False).messages


def said(messages: list[BaseMessage]) -> list[tuple[str, str]]:
    return [(one.type, one.text) for one in messages]


def test_reminders_are_folded_into_the_result_before_them() -> None:
    messages = fitted(
        Dialect(roles="alternate"),
        SystemMessage("s"),
        HumanMessage("task"),
        HumanMessage("more"),
        calls(("f", {})),
        ToolMessage("found", tool_call_id="c1"),
        HumanMessage("hint"),
    )
    assert said(messages) == [
        ("system", "s"),
        ("human", "task\n\nmore"),
        ("ai", ""),
        ("tool", "found\n\nhint"),
    ]


def test_pictures_after_a_result_get_a_turn_of_their_own() -> None:
    messages = fitted(
        Dialect(roles="alternate"),
        HumanMessage("task"),
        calls(("f", {})),
        ToolMessage("found", tool_call_id="c1"),
        HumanMessage([{"type": "text", "text": "Pictures: a.png"}, PICTURE]),
    )
    assert [one.type for one in messages] == ["human", "ai", "tool", "ai", "human"]
    assert messages[-1].content[-1] == PICTURE


def test_instructions_go_where_the_template_allows_them() -> None:
    given = [SystemMessage("s"), HumanMessage("task"), SystemMessage("later")]
    assert said(fitted(Dialect(system="first"), *given)) == [
        ("system", "s"),
        ("human", "task\n\nlater"),
    ]
    assert said(fitted(Dialect(system="none"), *given)) == [("human", "s\n\ntask\n\nlater")]


@pytest.mark.parametrize(
    ("ids", "call_id", "kept"),
    [
        ("any", "functions.bash:0", True),
        ("legal", "functions.bash:0", False),
        ("legal", "call_1-a", True),
        ("legal", "x" * 41, False),
        ("nine", "call_1234", False),
        ("nine", "abcDEF123", True),
    ],
)
def test_ids_of_calls_and_results_are_mapped_alike(ids: Any, call_id: str, kept: bool) -> None:
    reply = AIMessage(
        [{"type": "tool_use", "id": call_id, "name": "f", "input": {}}],
        tool_calls=[{"id": call_id, "name": "f", "args": {}}],
        additional_kwargs={"tool_call_extras": {call_id: {"extra_content": {"google": {}}}}},
    )
    sent = fitted(
        Dialect(ids=ids), HumanMessage("t"), reply, ToolMessage("r", tool_call_id=call_id)
    )
    asked, result = sent[1:]
    assert isinstance(asked, AIMessage)
    assert isinstance(result, ToolMessage)
    new = asked.tool_calls[0]["id"]
    assert result.tool_call_id == new
    assert (new == call_id) is kept
    assert list(asked.additional_kwargs["tool_call_extras"]) == [new]
    assert isinstance(asked.content[0], dict)
    assert asked.content[0]["id"] == new
    assert reply.tool_calls[0]["id"] == call_id, "the conversation stays as it is"


def test_a_call_without_a_signature_gets_the_documented_stand_in() -> None:
    signed = {"c1": {"extra_content": {"google": {"thought_signature": "real"}}}}
    own = calls(("f", {}), ("g", {})).model_copy(
        update={"additional_kwargs": {"tool_call_extras": signed}}
    )
    messages = fitted(Dialect(signatures=True), HumanMessage("t"), calls(("f", {}), ("g", {})), own)
    other, same = (one.additional_kwargs["tool_call_extras"] for one in messages[1:])
    assert other == {
        "c1": {
            "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}
        }
    }
    assert same == signed


def test_the_newest_pictures_are_sent() -> None:
    message = HumanMessage([{"type": "text", "text": "two"}, PICTURE, PICTURE])
    first, second = fitted(Dialect(pictures=1), message, HumanMessage([PICTURE]))
    assert "left out" in first.text
    assert second.content == [PICTURE]
    assert PICTURE not in list(first.content)


@pytest.mark.parametrize(
    ("provider", "base_url", "model", "expected"),
    [
        ("openai", None, "gpt-5", {"parameters": {"max_tokens": "max_completion_tokens",
                                                   "temperature": None}, "ids": "legal"}),
        ("openai", "https://api.mistral.ai/v1", "devstral", {"ids": "nine", "roles": "alternate"}),
        ("openai", "https://api.deepseek.com", "deepseek-chat", {"reasoning": "every"}),
        ("openai", "https://api.groq.com/openai/v1", "qwen3", {"reasoning": "never"}),
        ("openai", "http://127.0.0.1:8080/v1", "qwen3", {"reasoning": "calls"}),
        ("openai", "https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro",
         {"signatures": True, "schemas": "plain"}),
        ("anthropic", None, "claude-sonnet-5", {"ids": "legal"}),
        ("bedrock", None, "x", {"ids": "legal"}),
    ],
)  # fmt: skip
def test_big_providers_are_known_beforehand(
    provider: str, base_url: str | None, model: str, expected: dict[str, Any]
) -> None:
    known = known_dialect(provider, base_url, model)
    assert {name: getattr(known, name) for name in expected} == expected


ENTRY = {"learnt": "2999-01-01", "dialect": {"roles": "alternate", "parameters": {"seed": None}}}


def learnt_from(file: Any) -> Dialect:
    path = config_home() / "models.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file if isinstance(file, str) else json.dumps(file), encoding="utf-8")
    learnt = LearntDialect(Dialect(ids="nine"), "host:1", "m")
    learnt.load()
    return learnt.now


def test_what_was_learnt_is_added_to_what_is_known() -> None:
    now = learnt_from({"host:1": {"m": ENTRY, "other": {}}, "other:1": {"m": {}}})
    assert now == Dialect(ids="nine", roles="alternate", parameters={"seed": None})


@pytest.mark.parametrize(
    "file",
    [
        "{",
        [],
        {"host:1": []},
        {"host:1": {"m": None}},
        {"host:1": {"m": {"learnt": "2999-01-01", "dialect": {"roles": 3}}}},
        {"host:1": {"m": {"learnt": "2999-01-01", "dialect": {"unheard": "of"}}}},
        {"host:1": {"m": {"learnt": "2999-01-01", "dialect": {"parameters": ["a"]}}}},
        {"host:1": {"m": {**ENTRY, "learnt": "2020-01-01"}}},
        {"host:1": {"m": {**ENTRY, "learnt": 3}}},
        {"host:2": {"m": ENTRY}},
    ],
)
def test_a_file_that_is_damaged_or_old_teaches_nothing(file: Any) -> None:
    assert learnt_from(file) == Dialect(ids="nine")
