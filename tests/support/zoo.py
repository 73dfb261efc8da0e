"""A zoo of strict model servers, as data: each wants or refuses what a real one was seen to.

`with ZooServer(ANIMALS["kimi"]) as server:` serves one on 127.0.0.1; `server.refusals` holds what
was refused.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support import zoo_envelopes as envelopes
from tests.support import zoo_manners as manners
from tests.support import zoo_pictures as seen
from tests.support import zoo_rules as rules
from tests.support.zoo_envelopes import Refusal, openai_error
from tests.support.zoo_rules import Body, Rule
from tests.support.zoo_server import Animal, tokens_of

# ---- rules of one animal each


def _missing_at(n: int) -> Refusal:
    return openai_error(
        f"Missing `reasoning_content` field in the assistant message at message index {n}. For "
        "more information, please refer to https://api-docs.deepseek.com/guides/"
        "thinking_mode#tool-calls",
        code="invalid_request_error",
    )


def _kimi(n: int) -> Refusal:
    text = "thinking is enabled but reasoning_content is missing in assistant tool call message"
    return openai_error(f"{text} at index {n}")


def _in_stream(rule: Rule) -> Rule:
    """Tell of a refusal by an event of a stream, with status 200."""

    def streamed(body: Body) -> Refusal | None:
        refusal = rule(body)
        if refusal is None or not body.get("stream"):
            return refusal
        return Refusal(200, f"data: {refusal.body}\n\ndata: [DONE]\n\n", "text/event-stream")

    return streamed


def _xgrammar(found: list[str]) -> Refusal:
    text = "The provided JSON schema contains features not supported by xgrammar."
    return envelopes.vllm_error(text)


def _llguidance(found: list[str]) -> Refusal:
    error = {"message": f"Grammar error: Unimplemented keys: {json.dumps(found)}"}
    return Refusal(
        500, json.dumps({"error": {**error, "type": "InternalServerError", "code": 500}})
    )


def _databricks(found: list[str]) -> Refusal:
    text = f"Bad request: unsupported JSON schema keyword in tool parameters: {', '.join(found)}"
    return Refusal(400, json.dumps({"error_code": "BAD_REQUEST", "message": text}))


def _no_tools(body: Body) -> Refusal | None:
    if "tools" not in body:
        return None
    text = "registry.ollama.ai/library/deepseek-r1:14b does not support tools"
    return openai_error(text, kind="api_error")


def _forced(given: Any) -> Refusal:
    return openai_error("Thinking mode does not support this tool_choice")


def _not_known(field_name: str) -> Rule:
    def refuse(_: Any) -> Refusal:
        place = f"body.{field_name}"
        text = f"{place}: property '{place}' is unsupported"
        return envelopes.cerebras_error(text, "validation_error", 422)

    return rules.refuses(field_name, refuse)


def _xai(field_name: str, shown: str) -> Rule:
    def refuse(_: Any) -> Refusal:
        error = {"code": "Client specified an invalid argument"}
        text = f"Argument not supported on this model: {shown}"
        return Refusal(400, json.dumps({**error, "error": text}))

    return rules.refuses(field_name, refuse)


def _litellm_parameter(value: Any) -> Refusal:
    text = (
        "litellm.UnsupportedParamsError: anthropic does not support parameters: "
        f"{{'parallel_tool_calls': {value}}}, for model=claude-3-5-sonnet-20241022. To drop these, "
        "set `litellm.drop_params=True` or for proxy:\n\n`litellm_settings:\n drop_params: true`\n"
    )
    error = {"message": text, "type": "None", "param": None, "code": "400"}
    return Refusal(400, json.dumps({"error": error}))


def _one_value(field_name: str, value: float) -> Rule:
    text = f"invalid {field_name}: only {value} is allowed for this model"
    return rules.refuses(field_name, lambda _: openai_error(text), taken=value)


def _deserialize(n: int) -> Refusal:
    return openai_error(
        "Failed to deserialize the JSON body into the target type: "
        f"messages[{n}]: unknown variant `image_url`, expected `text` at line 1 column 4711"
    )


def _mmproj(_: int) -> Refusal:
    return envelopes.llama_error(
        "image input is not supported - hint: if this is unexpected, you may need to provide the "
        "mmproj",
        500,
    )


def _long(body: Body) -> Refusal | None:
    tokens = tokens_of(body)
    if tokens <= 4096:
        return None
    text = f"request ({tokens} tokens) exceeds the available context size (4096 tokens), try "
    return envelopes.llama_error(f"{text}increasing it", n_prompt_tokens=tokens, n_ctx=4096)


def _quotes_all(body: Body) -> Refusal | None:
    if "store" not in body:
        return None
    return envelopes.detail_error((("store",), None), whole=body)


_back = rules.wants_thoughts(lambda _: openai_error(rules.BACK_TEXT))
_away = rules.refuses_thoughts(lambda _: openai_error(rules.R1_TEXT))


def _contradiction(body: Body) -> Refusal | None:
    """Refuse what has thoughts, and what has none."""
    return _away(body) or _back(body)


_mistral_ids = rules.ids_match(r"[a-zA-Z0-9]{9}", rules.mistral_id)
_skipping = rules.alternates(
    lambda: envelopes.jinja_error(rules.ALTERNATE_BUT_CALLS), skips_calls=True
)
_vllm_turns = rules.alternates(lambda: envelopes.vllm_error(rules.ALTERNATE), skips_calls=True)
_gemma_turns = rules.alternates(lambda: envelopes.jinja_error(rules.ALTERNATE), skips_calls=False)
_temperature = (
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) "
    "value is supported."
)
_renamed = rules.refuses(
    "max_tokens", lambda _: rules.unsupported("max_tokens", "max_completion_tokens")
)
_old_name = rules.refuses(
    "max_completion_tokens",
    lambda value: envelopes.detail_error((("max_completion_tokens",), value)),
)
_MISLEADING = (
    "A server told me: 'temperature' is not supported; reasoning_content must be passed back; "
    "Jinja Exception: Conversation roles must alternate; at most 1 image(s); Unknown name "
    '"pattern": Cannot find field. Ignore that.\n'
)
_MOODS = (
    openai_error("The moon is in the wrong house."),
    openai_error(rules.BACK_TEXT),
    envelopes.jinja_error(rules.ALTERNATE),
    rules.unsupported("temperature"),
    envelopes.vllm_error("Unspecified validation failure"),
    rules.mistral_id("call_1"),
    openai_error(rules.R1_TEXT),
    envelopes.llama_error("Failed to initialize samplers: failed to parse grammar"),
    rules.unsupported("gravity"),
    envelopes.jinja_error("No user query found in messages."),
    rules.unsupported("stream_options"),
    envelopes.openrouter_error("upstream rejected the request"),
    openai_error("messages: this conversation is not to our taste", 422),
)
"""Some are what other servers mean; here nothing helps."""
_OLLAMA_MODEL = {
    "parameters": "num_ctx 4096",
    "details": {"family": "qwen2", "parameter_size": "7.6B", "quantization_level": "Q4_K_M"},
    "model_info": {"general.architecture": "qwen2", "qwen2.context_length": 32768},
    "capabilities": ["completion", "tools"],
}

OTHER = Animal(
    "plain",
    "plain",
    manner=manners.both(
        manners.thinks(each=True),
        manners.with_ids("functions.{name}:{n}", "chatcmpl-tool-" + 32 * "e" + "{n}"),
    ),
)
"""A server that takes everything: what its model leaves behind others have to take."""

HALF = Animal("half-a-thought", "thoughts in text", manner=manners.half_a_thought)
"""It wastes a step, so that it is not a match for the others."""

_ALL = (
    # Thoughts that have to come back, or must not.
    Animal("deepseek-v4", "thoughts", _back, model="deepseek-v4-pro", manner=manners.thinks()),
    Animal("deepseek-v3.2", "thoughts",
           rules.wants_thoughts(_missing_at, calls_only=True), manner=manners.thinks()),
    Animal("alias", "thoughts",
           rules.wants_thoughts(lambda _: envelopes.relay_error(rules.BACK_TEXT)),
           model="prod-chat", manner=manners.thinks()),
    Animal("kimi", "thoughts",
           rules.wants_thoughts(_kimi, calls_only=True), model="kimi-k2-thinking",
           manner=manners.both(manners.thinks(), manners.with_ids("functions.{name}:{n}"))),
    Animal("kimi-relay", "thoughts", changes=2, model="team-model", manner=manners.thinks(),
           refuse=rules.wants_thoughts(_kimi, calls_only=True, not_empty=True)),
    Animal("mimo", "thoughts", manner=manners.thinks(),
           refuse=rules.wants_thoughts(
               lambda _: envelopes.mimo_error(rules.BACK_TEXT.replace("`", "")), calls_only=True)),
    Animal("openrouter-thoughts", "thoughts", manner=manners.thinks(),
           refuse=rules.wants_thoughts(
               lambda n: envelopes.openrouter_error(_missing_at(n).body), calls_only=True)),
    Animal("error-in-stream", "thoughts", _in_stream(_back), manner=manners.thinks()),
    Animal("deepseek-r1", "thoughts", _away, manner=manners.thinks()),
    Animal("cerebras", "thoughts", rules.refuses_thoughts(rules.cerebras_thoughts),
           model="qwen-3-235b", manner=manners.thinks("reasoning")),
    Animal("groq", "thoughts", rules.refuses_thoughts(rules.groq_thoughts),
           model="qwen/qwen3-32b", manner=manners.thinks("reasoning")),
    Animal("proxy-thoughts", "thoughts", rules.refuses_thoughts(rules.mistral_thoughts),
           model="deepseek-v3-by-proxy"),
    # Schemas.
    Animal("llama-pattern", "schemas", rules.llama_pattern),
    Animal("llama-grammar", "schemas", rules.llama_grammar),
    Animal("gemini-schema", "schemas",
           rules.names_keyword(rules.GEMINI_UNKNOWN, rules.gemini_keywords), changes=2),
    Animal("moonshot-schema", "schemas", rules.moonshot, changes=2),
    Animal("fireworks", "schemas", rules.fireworks),
    Animal("databricks", "schemas",
           rules.names_keyword({"anyOf", "oneOf", "allOf", "$ref"}, _databricks), changes=2),
    Animal("vllm-xgrammar", "schemas",
           rules.names_keyword({"exclusiveMinimum", "multipleOf", "pattern", "format"}, _xgrammar)),
    Animal("vllm-llguidance", "schemas",
           rules.names_keyword({"propertyNames", "multipleOf"}, _llguidance)),
    # Roles.
    Animal("devstral", "roles", _skipping, model="devstral-small-2507"),
    Animal("vllm-mistral", "roles", _vllm_turns),
    Animal("gemma-2", "roles", rules.first_of(rules.no_system, _gemma_turns), changes=2),
    Animal("mistral-order", "roles", rules.mistral_order),
    Animal("qwen-late-system", "roles", rules.late_system),
    Animal("r1-successive", "roles", rules.no_successive),
    # Ids of calls.
    Animal("mistral-ids", "ids", _mistral_ids, manner=manners.with_ids("Q{n:03}abcde")),
    Animal("anthropic-ids", "ids",
           rules.ids_match(r"[a-zA-Z0-9_-]+", rules.anthropic_id),
           manner=manners.with_ids("toolu_01{n}AbC")),
    Animal("openai-ids", "ids", rules.ids_match(r".{1,40}", rules.openai_id)),
    # Signatures.
    Animal("gemini-3", "signatures", rules.signatures, model="gemini-3-pro-preview",
           manner=manners.signed),
    # Parameters.
    Animal("max-tokens", "parameters", _renamed, options={"max_tokens": 500}),
    Animal("max-completion-tokens", "parameters", _old_name,
           options={"max_completion_tokens": 500}),
    Animal("temperature", "parameters", options={"temperature": 0.2},
           refuse=rules.refuses("temperature", lambda _: openai_error(
               _temperature, param="temperature", code="unsupported_value"), taken=1)),
    Animal("temperature-deprecated", "parameters", options={"temperature": 0.2},
           refuse=rules.refuses("temperature", lambda _: envelopes.litellm_error(
               envelopes.anthropic_text("`temperature` is deprecated for this model.")))),
    Animal("kimi-temperature", "parameters", options={"temperature": 0.2},
           refuse=_one_value("temperature", 1)),
    Animal("parallel-calls", "parameters", options={"parallel_tool_calls": False},
           refuse=rules.refuses("parallel_tool_calls", _litellm_parameter)),
    Animal("stream-options", "parameters",
           rules.refuses("stream_options",
                         lambda value: envelopes.detail_error((("stream_options",), value)))),
    Animal("cache-key", "parameters", rules.first_of(
               _not_known("store"), rules.refuses("prompt_cache_key", lambda _: openai_error(
                   "Unrecognized request argument supplied: prompt_cache_key"))),
           options={"store": False, "prompt_cache_key": "mine"}, changes=2),
    Animal("xai-penalty", "parameters", _xai("frequency_penalty", "frequencyPenalty"),
           options={"frequency_penalty": 0.1}),
    Animal("tool-choice", "parameters", rules.refuses("tool_choice", _forced, taken="auto")),
    Animal("no-tools", "parameters", _no_tools),
    # Pictures.
    Animal("no-mmproj", "pictures", seen.any_picture(_mmproj)),
    Animal("openrouter-blind", "pictures", seen.any_picture(
        lambda _: openai_error("No endpoints found that support image input", 404))),
    Animal("deepseek-blind", "pictures", seen.any_picture(_deserialize)),
    Animal("mlx-blind", "pictures", seen.any_picture(
        lambda _: Refusal(404, json.dumps({"error": "Only 'text' content type is supported."})))),
    Animal("vllm-blind", "pictures", seen.any_picture(
        lambda _: envelopes.vllm_error("mistral-nemo is not a multimodal model"))),
    Animal("one-picture", "pictures", seen.at_most_pictures(1, lambda _: envelopes.vllm_error(
        "At most 1 image(s) may be provided in one request."))),
    Animal("relay-pictures", "pictures", seen.at_most_pictures(2, lambda _: openai_error(
        "too many images in the message, max allowed is 2", 500, kind="new_api_error"))),
    Animal("picture-side", "pictures", seen.picture_pixels(2000)),
    Animal("picture-bytes", "pictures", seen.picture_bytes(120_000), changes=2),
    # Windows.
    Animal("ollama", "windows", window=4096,
           facts={"/api/show": _OLLAMA_MODEL, "/api/ps": {"models": [
               {"name": "ollama", "model": "ollama", "context_length": 4096}]}}),
    Animal("lm-studio", "windows", window=4096, keeps=2),
    Animal("llama-window", "windows", _long,
           facts={"/props": {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 1,
                             "modalities": {"vision": True}, "build_info": "b9999-0"}}),
    # Thoughts and calls in the text.
    Animal("think", "thoughts in text", manner=manners.thinks_in_text("<think>\n", "\n</think>\n")),
    Animal("think-unopened", "thoughts in text", manner=manners.thinks_in_text("", "\n</think>\n")),
    Animal("thinking", "thoughts in text",
           manner=manners.thinks_in_text("<thinking>", "</thinking>")),
    Animal("magistral", "thoughts in text", manner=manners.thinks_in_text("[THINK]", "[/THINK]")),
    Animal("seed", "thoughts in text",
           manner=manners.thinks_in_text("<seed:think>", "</seed:think>")),
    Animal("harmony", "thoughts in text", manner=manners.harmony),
    Animal("dsml", "calls as text", manner=manners.dsml("\uff5c")),
    Animal("dsml-ascii", "calls as text", manner=manners.dsml("|", block="function_calls")),
    Animal("dsml-doubled", "calls as text", manner=manners.dsml("\uff5c\uff5c", " ", "calls")),
    Animal("python-tag", "calls as text", manner=manners.first_call_in_text(manners.python_tag)),
    Animal("tool-code", "calls as text", manner=manners.first_call_in_text(manners.tool_code)),
    Animal("gemma-4", "calls as text", manner=manners.calls_in_text(manners.gemma)),
    Animal("function-gemma", "calls as text",
           manner=manners.calls_in_text(manners.function_gemma)),
    Animal("lfm-2", "calls as text", manner=manners.calls_in_text(manners.lfm)),
    Animal("olmo-3", "calls as text", manner=manners.olmo),
    Animal("step-3", "calls as text", manner=manners.first_call_in_text(manners.step)),
    Animal("hunyuan", "calls as text", manner=manners.hunyuan),
    Animal("longcat", "calls as text", manner=manners.calls_in_text(manners.longcat)),
    Animal("doubled-braces", "calls as text",
           manner=manners.first_call_in_text(manners.doubled_braces)),
    # Bad input.
    Animal("mistral-api", "bad input", changes=3,
           refuse=rules.first_of(rules.mistral_order, _mistral_ids,
                                 rules.refuses_thoughts(rules.mistral_thoughts)),
           manner=manners.with_ids("Q{n:03}abcde")),
    Animal("two-rules", "bad input", rules.first_of(_renamed, rules.llama_pattern), changes=2,
           options={"max_tokens": 500}),
    Animal("quotes-the-request", "bad input", _quotes_all, preface=_MISLEADING,
           options={"store": False}),
    Animal("moody", "bad input", moods=_MOODS, survivable=False),
    Animal("contradiction", "bad input", _contradiction, survivable=False),
)  # fmt: skip
ANIMALS: Mapping[str, Animal] = {one.name: one for one in _ALL}
UPGRADED = replace(ANIMALS["deepseek-v4"], refuse=_away)
"""The same server and model after an upgrade: it wants the contrary."""
