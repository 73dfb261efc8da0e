"""What a server accepts for one model: known beforehand, and learnt from its refusals.

`model_calls.fitting` makes requests fit. What is learnt is kept in the configuration folder.
"""

import asyncio
import contextlib
import datetime
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from openmanus_graph.config.files import changed_object, config_home, read_object
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import PORTS
from openmanus_graph.state.json_values import as_list, as_object

log = logging.getLogger(__name__)
KEPT_DAYS = 30
"""How long what was learnt is believed: servers are upgraded, and no refusal reports that."""
Reasoning = Literal["never", "calls", "every", "filled"]
Ids = Literal["any", "legal", "nine"]


@dataclass(frozen=True)
class Dialect:
    """What one server accepts for one model. The defaults suit most servers."""

    reasoning: Reasoning = "never"
    """Which replies are sent back with their reasoning: `calls`, those with tool calls and some
    reasoning; `every`, all, with an empty text if there is none; `filled`, with a space instead."""
    schemas: Literal["full", "plain"] = "full"
    """Of tools: `plain` has only types, properties, enumerations and descriptions."""
    tools: Literal["native", "text"] = "native"
    constrains: bool = True
    """Whether replies follow the JSON schema of a response format."""
    forces: bool = True
    """Whether a reply has a call if `tool_choice` requires one."""
    roles: Literal["free", "alternate"] = "free"
    """`alternate`: user and model take turns, and a reply follows each result directly."""
    system: Literal["free", "first", "none"] = "free"
    """Where instructions may be; `none`: in the first message of the user."""
    system_role: Literal["system", "developer"] = "system"
    ids: Ids = "any"
    """Of calls: `legal` are up to 40 letters, digits, `_` and `-`; `nine`, letters or digits."""
    signatures: bool = False
    """Whether each step's first call must carry a thought signature, as for Gemini 3."""
    pictures: int | None = None
    """How many a request may hold. None: any number."""
    parameters: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Other names of parameters; None: it is left out."""

    def changed(self, changes: Mapping[str, Any]) -> "Dialect":
        """Return the dialect with some fields replaced; names of parameters are added."""
        new = changes.get("parameters", {})
        kept = {key: one for key, one in self.parameters.items() if key not in new.values()}
        return replace(self, **{**changes, "parameters": {**kept, **new}})

    def name_of(self, parameter: str) -> str | None:
        """Return how a parameter is called; None if it is left out."""
        name: str | None = parameter
        for _ in self.parameters:  # each once: what was learnt may be a circle
            if name is None or name not in self.parameters:
                break
            name = self.parameters[name]
        return name

    def differences(self, other: "Dialect") -> dict[str, Any]:
        theirs = vars(other)
        return {name: mine for name, mine in vars(self).items() if mine != theirs[name]}


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
    """Return what is known beforehand, by a server's address and the model's plain name.

    `wire_provider` names the provider. No address is the provider's own.
    """
    if provider != "openai":
        return Dialect(ids="any" if provider in ("", "ollama") else "legal")
    host = _host(base_url)
    official = is_openai(base_url)
    plain = model.lower().rpartition("/")[2]  # OpenAI's o and GPT-5 families, and later ones
    renames = re.match(r"(o[1-9]|gpt-([5-9]|\d\d))(\D|$)", plain) is not None
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
    """Return True if an address is of OpenAI's own service, as no address is."""
    host = _host(base_url)
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def _host(base_url: str | None) -> str:
    return (urlsplit(base_url).hostname or "") if base_url else "api.openai.com"


@dataclass(frozen=True)
class SentRequest:
    """The possible reasons in a refused request."""

    texts: Sequence[str]
    parameters: Collection[str]
    """Names of the parameters that were sent."""
    holds: Collection[str]
    """Fields of `Dialect` that change something in this request."""


@dataclass(frozen=True)
class Lesson:
    """One change that a refusal suggests."""

    changes: Mapping[str, Any]
    words: str
    """What is done from now on, as the end of a sentence about the server."""
    lasts: bool = True
    """False: it depends on this conversation, and is kept for this run only."""


_Changes = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]
_Step = tuple[_Changes, str, bool]
"""The fields of a `Lesson`; the changes may depend on the refusal."""


def lessons(refusal: str, sent: SentRequest) -> Iterator[Lesson]:
    """Yield changes that could make a server accept a refused request, the likeliest first.

    The refusal is the whole body of its answer: servers put the reason in different places.
    """
    text = _unquoted(refusal, sent.texts)
    for pattern, ladder in _RULES:
        if pattern.search(text):
            for changes, words, lasts in ladder:
                found = changes(text) if callable(changes) else changes
                if found.keys() <= set(sent.holds):
                    yield Lesson(found, words, lasts)
    # A name may match several alternatives.
    found_names = (name for match in _PARAMETER_NAMES.finditer(text) for name in match.groups())
    named = [one for one in map(_snake_case, filter(None, found_names)) if one in sent.parameters]
    written = _snake_case(text)
    if names := named or [
        name
        for name in sorted(sent.parameters)
        if "_" in name and re.search(rf"\b{name.replace('_', '[ _-]')}\b", written)
    ]:
        for changes in ({name: _RENAMED.get(name) for name in names}, dict.fromkeys(names)):
            yield Lesson({"parameters": changes}, _parameter_words(changes))


def words_of(changes: Mapping[str, Any]) -> str:
    said = [_parameter_words(changes.get("parameters", {}))]
    if changes.get("forces") is False:  # shown by a reply, not by a refusal
        said.append("tool calls are never forced")
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
    """Return True if an answer says that the request is wrong, whatever its status is."""
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
_TEXT_TOOLS: _Step = ({"tools": "text"}, "it is asked to write its calls as text", True)
_UNCONSTRAINED: _Step = ({"constrains": False}, "its steps are not constrained by a schema", True)
_NO_SYSTEM: _Step = ({"system": "none"}, "instructions are in the user's first message", True)
_ALTERNATE: _Step = (
    {"roles": "alternate"},
    "messages are joined so that user and model take turns",
    True,
)
_NINE_IDS: _Step = ({"ids": "nine"}, "ids of calls are nine letters or digits", True)
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
_WRITTEN: tuple[tuple[str, tuple[_Step, ...]], ...] = (
    (r"thought_?signature", (({"signatures": True}, "calls without a thought signature carry "
                              "Google's replacement for one", True),)),
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
"""Words that failures of servers which are merely down hold as well."""
_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_NAME = r"[\"'`]?(?:body\.)?([A-Za-z_]\w*)"
_PARAMETER_NAMES = re.compile(
    rf"(?=\b(?:(?:param(?:eter)?s?|supplied|unknown (?:field|name)|property|value):?"
    rf"\W{{0,4}}{_NAME}|body\W{{1,5}}{_NAME}|invalid {_NAME}|support (?:the |this )?{_NAME}"
    rf"|model: {_NAME}"
    rf"|{_NAME}[\"'`]? (?:and [\"'`]?\w+[\"'`]? )?(?:is|are|cannot|does|must)\b"
    rf"|{_NAME}[\"'`]? \S+ is incompatible))",
    re.IGNORECASE,
)


def _snake_case(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", text).lower()


def _unquoted(refusal: str, texts: Sequence[str]) -> str:
    """Return a refusal without its quotations of the request."""
    with contextlib.suppress(ValueError, RecursionError):
        refusal = json.dumps(_without_input(json.loads(refusal)), ensure_ascii=False)
    refusal = refusal[:_READ_CHARS]
    for text in texts:
        for written in {text, json.dumps(text, ensure_ascii=False)[1:-1]}:
            for _ in range(4):
                start = refusal.find(written[:_QUOTED_CHARS])
                if len(written) < _QUOTED_CHARS or start < 0:
                    break
                quoted = os.path.commonprefix([refusal[start:], written])
                refusal = refusal[:start] + " " + refusal[start + len(quoted) :]
    return refusal


_READ_CHARS = 20_000
"""Of a refusal."""
_QUOTED_CHARS = 24
"""Of a message's beginning; so many are in a refusal as a quotation, not by chance."""


def _without_input(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_input(one) for one in as_list(value)]
    if isinstance(value, dict):
        given = as_object(value)
        return {key: _without_input(one) for key, one in given.items() if key != "input"}
    return value


class LearntDialect:
    """The dialect of one server and model, which grows by refusals. Its file is shared by all.

    `server` names the server in the file. If it is empty, what is learnt is not stored.
    """

    def __init__(self, known: Dialect, server: str = "", model: str = "") -> None:
        self.known = self.now = self._lasting = known
        self._server, self._model = server, model

    def load(self) -> None:
        """Read what was learnt earlier. Blocks."""
        entry = read_learnt().get(self._server, {}).get(self._model)
        if entry is not None:
            with contextlib.suppress(ValidationError, TypeError):
                changed = vars(self.known.changed(entry["dialect"]))
                self.now = self._lasting = TypeAdapter(Dialect).validate_python(changed)

    async def learn(self, now: Dialect, lasting: Dialect) -> None:
        """Use a dialect that has worked from now on, and store its lasting part."""
        self.now = now
        if lasting != self._lasting:
            self._lasting = lasting
            if self._server:
                await asyncio.to_thread(self._store, lasting.differences(self.known))

    def _store(self, differences: Mapping[str, Any]) -> None:
        try:
            with changed_object(_path(), mode=0o644) as servers:
                models = servers.setdefault(self._server, {})
                models.pop(self._model, None)
                if differences:
                    models[self._model] = {"learnt": _today().isoformat(), "dialect": differences}
        except (ConfigError, AttributeError) as error:  # it is learnt again by the next process
            log.warning("What was learned about %s was not kept: %s", self._server, error)


def server_name(provider: str, base_url: str | None) -> str:
    """Return how a server is listed: by host and port, or by its provider's name."""
    if not base_url:
        return provider
    parts = urlsplit(base_url)
    return f"{parts.hostname}:{parts.port or PORTS.get(parts.scheme, 80)}"


def learnt_lines() -> list[str]:
    """Return what was learnt, one line for each server and model. Blocks."""
    return [
        f"{server}  {model}  (learned on {entry['learnt']}): {words_of(entry['dialect'])}"
        for server, models in sorted(read_learnt().items())
        for model, entry in sorted(models.items())
    ]


def read_learnt() -> dict[str, dict[str, Any]]:
    """Return what was learnt within `KEPT_DAYS`, by server and model. Blocks."""
    oldest = (_today() - datetime.timedelta(days=KEPT_DAYS)).isoformat()
    found: dict[str, dict[str, Any]] = {}
    for server, models in read_object(_path()).items():
        entries = as_object(models).items()
        if kept := {name: one for name, one in entries if _is_usable(as_object(one), oldest)}:
            found[server] = kept
    return found


def forget(server: str) -> bool:
    """Forget what was learnt about a server, and return True if there was anything. Blocks.

    It is named as it is listed, or by its address. ConfigError: the file cannot be read or written.
    """
    server = server_name("", server) if "://" in server else server
    if server not in read_object(_path()):
        return False
    with changed_object(_path(), mode=0o644) as servers:
        return servers.pop(server, None) is not None


def _path() -> Path:
    return config_home() / "models.json"


def _is_usable(entry: Mapping[str, Any], oldest: str) -> bool:
    date = entry.get("learnt")
    return isinstance(entry.get("dialect"), dict) and isinstance(date, str) and date >= oldest


def _today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()
