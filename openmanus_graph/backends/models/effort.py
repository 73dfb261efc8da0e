"""How much a model reasons: `low`, `medium` or `high`, as each provider's parameter."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from openmanus_graph.backends.models.dialects import is_openai
from openmanus_graph.backends.models.spec import ModelSpec, base_url
from openmanus_graph.state.context import Effort
from openmanus_graph.state.model_settings import ModelSettings

_TOKENS = {"low": 2048, "medium": 8192, "high": 24_576}
"""Of thinking, for models that are given a number."""
_ANSWER_TOKENS = 16_384
"""Of the reply after the thinking, which one limit counts together."""
_OPTIONS: tuple[tuple[str, str, Callable[[Effort], Mapping[str, Any]]], ...] = (
    ("anthropic", r"claude-(opus-4-[5-9]|sonnet-4-[6-9]|[a-z]+-[5-9])",
     lambda effort: {"output_config": {"effort": effort}}),
    ("anthropic", r"claude-(3-7|(opus|sonnet)-4|haiku-4-5)", lambda effort: {
        "thinking": {"type": "enabled", "budget_tokens": _TOKENS[effort]},
        "max_tokens": _TOKENS[effort] + _ANSWER_TOKENS}),
    ("google", r"gemini-([3-9]|\d\d)",
     lambda effort: {"thinking_config": {"thinking_level": effort}}),
    ("google", r"gemini-2\.5", lambda effort: {"thinking_budget": _TOKENS[effort]}),
    ("ollama", r"gpt-oss", lambda effort: {"reasoning": effort}),
    ("ollama", r"qwen3|deepseek-(r1|v3)|magistral|.*thinking",
     lambda effort: {"reasoning": effort != "low"}),
    ("openrouter", r"", lambda effort: {"reasoning": {"effort": effort}}),
)  # fmt: skip
"""By provider and the beginning of a model's name, the options of its client."""
_REASONS_AT_OPENAI = re.compile(r"o[1-9]|gpt-([5-9]|\d\d)(?!.*-chat)")


def effort_options(spec: ModelSpec, settings: ModelSettings) -> Mapping[str, Any]:
    """Return the options of a model's client that set its effort; none if it has no such thing.

    A server with OpenAI's protocol that refuses the parameter is not sent it again: see `dialects`.
    """
    effort, name = settings.effort, spec.name.lower().rpartition("/")[2]
    if effort is None:
        return {}
    for provider, pattern, options in _OPTIONS:
        if provider == spec.provider.name and re.match(pattern, name):
            return options(effort)
    official = is_openai(base_url(spec, settings)) and not _REASONS_AT_OPENAI.match(name)
    unknown = spec.provider.package is not None or official
    return {} if unknown else {"reasoning_effort": effort}
