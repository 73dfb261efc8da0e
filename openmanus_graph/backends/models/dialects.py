"""What a server wants and refuses of one model: known beforehand, and learnt from its refusals.

Pure. `learnt` keeps what was learnt, `model_calls.fitting` makes requests fit.
"""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal, cast
from urllib.parse import urlsplit

Reasoning = Literal["never", "calls", "every", "filled"]
Ids = Literal["any", "legal", "nine"]


@dataclass(frozen=True)
class Dialect:
    """What one server takes of one model. The defaults are what most servers take."""

    reasoning: Reasoning = "never"
    """Which replies are sent back with their reasoning: `calls`, those with tool calls that have
    some; `every`, all, with an empty text where there is none; `filled`, with a space there."""
    schemas: Literal["full", "plain"] = "full"
    """Of tools: `plain` has types, properties, enumerations and descriptions only."""
    tools: Literal["native", "text"] = "native"
    """How tools are called."""
    constrains: bool = True
    """Whether replies keep to the JSON schema of a response format."""
    forces: bool = True
    """Whether a reply has a call where `tool_choice` wants one."""
    roles: Literal["free", "alternate"] = "free"
    """`alternate`: user and model take turns, and nothing stands between a result and a reply."""
    system: Literal["free", "first", "none"] = "free"
    """Where instructions may stand; `none`: in the first message of the user."""
    system_role: Literal["system", "developer"] = "system"
    ids: Ids = "any"
    """Of calls: `legal` are up to 40 letters, digits, `_` and `-`; `nine`, letters or digits."""
    signatures: bool = False
    """Whether each step's first call has to carry a thought signature, as Gemini 3 wants it."""
    pictures: int | None = None
    """How many a request may hold. None: any number."""
    parameters: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Other names of parameters; None: it is left out."""

    def changed(self, changes: Mapping[str, Any]) -> "Dialect":
        """Return the dialect with some fields replaced; names of parameters are added."""
        new = changes.get("parameters", {})
        kept = {key: one for key, one in self.parameters.items() if key not in new.values()}
        both = {**kept, **new}
        return replace(self, **{**changes, "parameters": both})

    def name_of(self, parameter: str) -> str | None:
        """Return how a parameter is called; None if it is left out."""
        name: str | None = parameter
        for _ in self.parameters:  # each once: what was learnt may go in circles
            if name is None or name not in self.parameters:
                break
            name = self.parameters[name]
        return name

    def differences(self, other: "Dialect") -> dict[str, Any]:
        """Return the fields, as JSON, in which this one differs from another."""
        names = (one.name for one in fields(self))
        return {
            name: mine for name in names if (mine := getattr(self, name)) != getattr(other, name)
        }


SKIPPED_SIGNATURE = "skip_thought_signature_validator"
"""Documented by Google for calls that have no signature, such as another model's."""
_OWN_REASONING = ("deepseek.com", "moonshot.ai", "moonshot.cn", "xiaomimimo.com")
_NO_REASONING = ("api.groq.com", "api.mistral.ai", "api.cerebras.ai", "api.openai.com")
_PLAIN_SCHEMAS = (
    "generativelanguage.googleapis.com", "moonshot.ai", "moonshot.cn", "api.fireworks.ai",
    "api.x.ai", "api.cerebras.ai", "databricks.com",
)  # fmt: skip
_THINKERS = re.compile(r"deepseek|kimi|minimax|glm-|mimo|qwen|gpt-oss", re.IGNORECASE)


@lru_cache
def known_dialect(
    provider: str, base_url: str | None, model: str, reasoning_effort: str | None = None
) -> Dialect:
    """Return what is known beforehand, by a server's address and the model's name.

    Args:
        provider: Whose protocol it speaks, as `wire_provider` names it.
        base_url: The server's address. None: the provider's own.
        model: The model's name, without the provider.
        reasoning_effort: What the person has set.
    """
    if provider != "openai":
        return Dialect(ids="any" if provider in ("", "ollama") else "legal")
    host = _host(base_url)
    official, renames = is_openai(base_url), is_reasoning_model(model)
    parameters: dict[str, str | None] = {}
    if official or renames:
        parameters["max_tokens"] = "max_completion_tokens"
    if renames and "-chat" not in model and reasoning_effort != "none":
        parameters["temperature"] = None
    reasoning: Reasoning = "calls" if _THINKERS.search(model) else "never"
    if host.endswith(_NO_REASONING):
        reasoning = "never"
    elif host.endswith(_OWN_REASONING):
        reasoning = "every"
    mistral = host.endswith("api.mistral.ai")
    gemini_3 = host.endswith("googleapis.com") and re.search(r"gemini-[3-9]", model)
    return Dialect(
        reasoning=reasoning,
        schemas="plain" if host.endswith(_PLAIN_SCHEMAS) else "full",
        roles="alternate" if mistral else "free",
        system_role="developer" if official and re.match(r"o\d", model) else "system",
        ids="nine" if mistral else "legal" if official else "any",
        signatures=bool(gemini_3),
        parameters=parameters,
    )


def is_openai(base_url: str | None) -> bool:
    """Return True if an address is of OpenAI's own service, as none is."""
    host = _host(base_url)
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def is_reasoning_model(model: str) -> bool:
    """Return True if the name, behind any vendor prefix, is of OpenAI's o or GPT-5 family on."""
    return (
        re.match(r"(o[1-9]|gpt-([5-9]|\d\d))(\D|$)", model.lower().rpartition("/")[2]) is not None
    )


def _host(base_url: str | None) -> str:
    return (urlsplit(base_url).hostname or "") if base_url else "api.openai.com"


@dataclass(frozen=True)
class SentRequest:
    """What of a refused request can be the reason."""

    texts: Sequence[str]
    """Of its messages; a refusal may quote them."""
    parameters: Collection[str]
    """Names of those that were sent."""
    holds: Collection[str]
    """Fields of `Dialect` that change something in this request."""


@dataclass(frozen=True)
class Lesson:
    """One change that a refusal suggests."""

    changes: Mapping[str, Any]
    """Fields of `Dialect`."""
    words: str
    """What is done from now on, as the end of a sentence on the server."""
    lasts: bool = True
    """False: it is about this conversation, and holds for this run only."""


_Changes = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]


def lessons(refusal: str, sent: SentRequest) -> Iterator[Lesson]:
    """Yield what could make a server take a request that it has refused, the likeliest first.

    Args:
        refusal: The whole body of its answer: where servers put the reason differs.
        sent: The refused request.
    """
    text = _unquoted(refusal, sent.texts)
    for pattern, ladder in _RULES:
        if pattern.search(text):
            for changes, words, lasts in ladder:
                found = changes(text) if callable(changes) else changes
                if found.keys() <= set(sent.holds):
                    yield Lesson(found, words, lasts)
    named = [name for name in _named_parameters(text) if name in sent.parameters]
    if names := named or [name for name in sorted(sent.parameters) if _mentions(text, name)]:
        for changes in ({name: _RENAMED.get(name) for name in names}, dict.fromkeys(names)):
            yield Lesson({"parameters": changes}, _parameter_words(changes))


def words_of(changes: Mapping[str, Any]) -> str:
    """Say what fields of a dialect mean, as they were learnt."""
    said = [_parameter_words(changes.get("parameters", {}))]
    if changes.get("forces") is False:  # shown by a reply, not by a refusal
        said.append("requests never require a call")
    for _, ladder in _WRITTEN:
        for learnt, words, _ in ladder:
            if not callable(learnt) and learnt.items() <= changes.items():
                said.append(words)
    if (most := changes.get("pictures")) and isinstance(most, int):
        said.append(f"the newest {most} pictures are sent")
    return "; ".join(dict.fromkeys(filter(None, said)))


def _parameter_words(names: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{name} is left out" if new is None else f"{name} is called {new}"
        for name, new in names.items()
    )


def is_refusal(text: str) -> bool:
    """Return True if an answer says that the request is wrong, whatever its status says."""
    return any(pattern.search(text[:_READ_CHARS]) for pattern, _ in _RULES if pattern not in _VAGUE)


def _picture_limit(text: str) -> Mapping[str, Any]:
    found = _PICTURE_COUNT.search(text)
    return {"pictures": int(next(filter(None, found.groups()))) if found else 1}


_IMAGE = r"(?:image|picture|vision|multi-?modal|mmproj)"
_PICTURE_COUNT = re.compile(
    rf"(?:at most|up to|maximum of|max(?:imum)? allowed is|only include|limit of) (\d{{1,3}})\b"
    rf"|(\d{{1,3}}) {_IMAGE}",
    re.IGNORECASE,
)
_TEXT_TOOLS: tuple[_Changes, str, bool] = (
    {"tools": "text"}, "it is asked to write its calls as text", True
)  # fmt: skip
_UNCONSTRAINED: tuple[_Changes, str, bool] = (
    {"constrains": False}, "its steps are not constrained by a schema", True
)  # fmt: skip
_NO_SYSTEM: tuple[_Changes, str, bool] = (
    {"system": "none"}, "instructions stand in the user's first message", True
)  # fmt: skip
_ALTERNATE: tuple[_Changes, str, bool] = (
    {"roles": "alternate"}, "messages are joined so that user and model take turns", True
)  # fmt: skip
_NINE_IDS: tuple[_Changes, str, bool] = (
    {"ids": "nine"}, "ids of calls are nine letters or digits", True
)  # fmt: skip
_NO_TOOLS = (
    r"(?:does|do)(?:n't| not) support (?:\w+ )?(?:tools?|functions?)\b"
    r"|unsupported param(?:eter)?: tools"
    r"|(?<!\w)(?:tool|function)s?(?:[ _-](?:calls?|calling|use))?[`'\"]? (?:is|are) (?:not |un)"
    r"(?:supported|enabled)|tool choice requires --enable-auto-tool-choice"
    r"|tools param requires --jinja|--tool-call-parser if you want|tool parser could not locate"
    r"|no endpoints found that support tool use"
    r"|[`'\"]?tools[`'\"]? (?:is|are) not (?:supported|available|permitted)|takes no tools"
)
_REASONING = r"(?:reasoning(?:_content|_text|_details)?|content\[\]\.thinking)\b"
_REFUSED = r"(?:unsupported|not (?:permitted|supported|allowed)|unknown|unexpected|unrecogni[sz]ed)"
_KEYWORDS = (
    r"exclusiveM(?:in|ax)imum|multipleOf|\$ref|\$defs|patternProperties|propertyNames"
    r"|unevaluated\w+|(?:min|max)(?:Items|Length|Contains|Properties)"
)
_WRITTEN: tuple[tuple[str, tuple[tuple[_Changes, str, bool], ...]], ...] = (
    (r"thought_?signature", (({"signatures": True}, "calls without a thought signature carry "
                              "Google's stand-in for one", True),)),
    (rf"{_REASONING}.{{0,80}}(?:must be (?:passed|sent) back|(?:is|are) missing|is required)"
     rf"|missing.{{0,20}}{_REASONING}", (
        ({"reasoning": "every"}, "each reply is sent back with its reasoning", True),
        ({"reasoning": "filled"}, "each reply is sent back with its reasoning, or a space", True))),
    (rf"{_REASONING}.{{0,120}}(?:{_REFUSED}|extra inputs|intermediate result)"
     rf"|(?:{_REFUSED}|extra_forbidden|remove the).{{0,120}}{_REASONING}",
     (({"reasoning": "never"}, "replies are sent back without their reasoning", True),)),
    (r"system message must be|system.{0,40}at the (?:beginning|start)",
     (({"system": "first"}, "later instructions are sent as the user's", True), _NO_SYSTEM)),
    (r"system role (?:is )?(?:not|un) ?supported|role.{0,12}system.{0,30}not (?:supported|allowed)"
     r"|(?:unexpected|invalid|unknown) role.{0,6}system|developer instruction is not enabled",
     (_NO_SYSTEM,)),
    (r"(?:variant|value|role)\W{0,6}developer|developer.{0,40}(?:is not one of|not supported)",
     (({"system_role": "system"}, "instructions are sent in the role `system`", True),)),
    (r"length of (?:9|nine)\b", (_NINE_IDS,)),
    (r"tool.{0,12}call.{0,4}id.{0,120}(?:length|a-z|invalid|match)|tool_use\.id|tooluseid"
     r"|_?id\W.{0,40}(?:string too long|should match pattern)|string_above_max_length"
     r"|invalid_function_call",
     (({"ids": "legal"}, "other ids of calls are replaced", True),
      _NINE_IDS)),
    (r"response_?format|json_schema\b|structured output|guided_|json mode|response mime type"
     r"|grammar and tools", (_UNCONSTRAINED,)),
    (_NO_TOOLS, (_TEXT_TOOLS,)),
    (rf"(?:too many|at most|up to|maximum|max allowed|only include).{{0,60}}{_IMAGE}"
     rf"|exceed.{{0,40}}\d+ {_IMAGE}s?\b|{_IMAGE}s?.{{0,40}}(?:max allowed|exceeding the max)",
     ((_picture_limit, "only the newest pictures are sent", True),)),
    (rf"{_IMAGE}.{{0,80}}(?:not supported|unsupported|not a multimodal|need to provide)"
     rf"|(?:not|n't) support.{{0,40}}{_IMAGE}|not a multimodal model|support {_IMAGE} input"
     r"|unknown variant.{0,4}image_url|supported by certain models|content.{0,6}must be a string"
     r"|did not match any variant|allowed values: \['text'\]|only 'text' content"
     r"|invalid type: sequence, expected a string",
     (({"pictures": 0}, "pictures are left out", True),)),
    (rf"{_IMAGE}", (({"pictures": 0}, "pictures are left out", False),)),
    (r"stream_options|include_usage",
     (({"parameters": {"stream_options": None}}, "stream_options is left out", True),)),
    (r"(?:does not|doesn't) support stream|'stream' does not support"
     r"|stream(?:ing)?['\"]? (?:is |are )?not supported|must be verified to stream",
     (({"parameters": {"stream": None}}, "replies are not streamed", True),)),
    (r"jinja|roles? must alternate|unexpected role|successive (?:user|assistant)|expected last role"
     r"|message_order|call turn comes immediately|rendering prompt|template error|raise_exception"
     r"|while executing \w*expression|prefill|assistant messages at the end",
     (_ALTERNATE, _TEXT_TOOLS, _NO_SYSTEM)),
    (r"schema|failed to parse grammar|initialize samplers|xgrammar|grammar error|root must be an"
     r"|unimplemented keys|pattern must start|function_declarations"
     rf"|parameters\.(?:type|properties)|invalid_function_parameters|\b(?:{_KEYWORDS})\b",
     (_UNCONSTRAINED, ({"schemas": "plain"}, "tools are described by plain schemas", True),
      _TEXT_TOOLS)),
)  # fmt: skip
NO_TOOLS = re.compile(_NO_TOOLS, re.IGNORECASE)
_RULES = tuple((re.compile(pattern, re.I | re.S), ladder) for pattern, ladder in _WRITTEN)
_VAGUE = tuple(
    pattern for pattern, _ in _RULES if pattern.pattern in (_IMAGE, r"stream_options|include_usage")
)
"""Words that also stand in the failures of servers that are merely down."""

_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_NAME = r"[\"'`]?(?:body\.)?([A-Za-z_]\w*)"
_PARAMETER_NAMES = re.compile(  # a name may belong to several
    rf"(?=\b(?:(?:param(?:eter)?s?|supplied|unknown (?:field|name)|property|value):?"
    rf"\W{{0,4}}{_NAME}|body\W{{1,5}}{_NAME}|invalid {_NAME}|support (?:the |this )?{_NAME}"
    rf"|model: {_NAME}"
    rf"|{_NAME}[\"'`]? (?:and [\"'`]?\w+[\"'`]? )?(?:is|are|cannot|does|must)\b"
    rf"|{_NAME}[\"'`]? \S+ is incompatible))",
    re.IGNORECASE,
)


def _named_parameters(text: str) -> Iterator[str]:
    """Yield the parameters that a refusal may be about, in our spelling."""
    for found in _PARAMETER_NAMES.finditer(text):
        for name in filter(None, found.groups()):
            yield _our_spelling(name)


def _mentions(text: str, name: str) -> bool:
    """Return True if a name that is no common word stands in a text, in whatever spelling."""
    words = name.replace("_", "[ _-]")
    return "_" in name and re.search(rf"\b{words}\b", _our_spelling(text)) is not None


def _our_spelling(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", text).lower()


def _unquoted(refusal: str, texts: Sequence[str]) -> str:
    """Return a refusal without what it quotes of the request, which says nothing about it."""
    with contextlib.suppress(ValueError, RecursionError):
        refusal = json.dumps(_without_input(json.loads(refusal)), ensure_ascii=False)
    refusal = refusal[:_READ_CHARS]
    for text in texts:
        for written in {text, json.dumps(text, ensure_ascii=False)[1:-1]}:
            for _ in range(4):
                start = refusal.find(written[:_QUOTED_CHARS])
                if len(written) < _QUOTED_CHARS or start < 0:
                    break
                end = start + _shared(refusal[start:], written)
                refusal = refusal[:start] + " " + refusal[end:]
    return refusal


_READ_CHARS = 20_000
"""Of a refusal."""
_QUOTED_CHARS = 24
"""Of a message's beginning, which do not stand in a refusal by chance."""


def _shared(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _without_input(value: Any) -> Any:
    """Leave out what pydantic's errors repeat of the request."""
    if isinstance(value, list):
        return [_without_input(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {key: _without_input(one) for key, one in given.items() if key != "input"}
    return value
