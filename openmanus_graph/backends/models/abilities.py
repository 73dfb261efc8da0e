"""What a model can take: the size of its context window, and pictures."""

import re
from functools import lru_cache

from langchain_core.language_models import BaseChatModel

from openmanus_graph.backends.models.build import model_name
from openmanus_graph.backends.models.prices import find_price, is_local, name_query
from openmanus_graph.state.settings import ModelSettings

UNKNOWN_WINDOW = 128_000
UNKNOWN_LOCAL_WINDOW = 32_000
"""Local servers are often started with less than the model could take."""

# By the name behind any vendor prefix, the first match counts; profiles and prices go before.
_WINDOWS = (
    (r"gpt-4\.1|gemini|llama-?4", 1_000_000),
    (r"gpt-[5-9]", 272_000),
    (r"kimi-k2|qwen3-(coder|max)", 256_000),
    (r"claude|o[1-9](-|$)", 200_000),
    (r"gpt-3\.5", 16_000),
    (r"gpt-4(-0613|$)|llama-?3(:|-8b|-70b|$)|gemma-?2", 8_000),
    (r"gpt-4|deepseek|qwen|llama-?3|mistral|mixtral|grok|glm|gpt-oss|gemma|command", 128_000),
)
_TEXT_ONLY = re.compile(
    r"o1-(mini|preview)|o3-mini|gpt-oss|gpt-4-0|gpt-4$|gpt-3|kimi-k2-|gemma-?3.?1b"
)
_VISION = re.compile(
    r"gpt-4o|gpt-4\.\d|gpt-4-turbo|gpt-4-vision|gpt-[5-9]|chatgpt-4o|(^|/)o[1-9](-|$)"
    r"|claude-(3|[4-9]|opus|sonnet|haiku)|gemini|gemma-?[34]|pixtral|llava|vision|multimodal|omni"
    r"|\bvl\b|-vl|vl-|\dvl|internvl|minicpm-v|moondream|llama-?4|glm-[\d.]+v|kimi-k2\.5|grok-4"
    r"|mistral-(small|medium|large)-(3|latest|25)|phi-.*vision|step-\d.*v|qvq"
)


def context_window(model: BaseChatModel, settings: ModelSettings) -> int:
    """Return how many tokens one request may hold."""
    if settings.context_window:
        return settings.context_window
    profile = model.profile or {}
    if tokens := profile.get("max_input_tokens"):
        return tokens
    local = is_local(settings.base_url) or model_name(settings).startswith("ollama:")
    if local:
        return UNKNOWN_LOCAL_WINDOW
    return _window_by_name(_plain_name(settings))


def sees_images(model: BaseChatModel, settings: ModelSettings) -> bool:
    """Say whether pictures can be sent; an unknown model counts as text only."""
    if settings.vision is not None:
        return settings.vision
    profile = model.profile or {}
    if "image_inputs" in profile:
        return profile["image_inputs"]
    name = _plain_name(settings)
    return _TEXT_ONLY.search(name) is None and _VISION.search(name) is not None


def _plain_name(settings: ModelSettings) -> str:
    name = model_name(settings).lower()
    if isinstance(settings.model, str):
        name = name.partition(":")[2]
    return name.rpartition("/")[2]


@lru_cache
def _window_by_name(name: str) -> int:
    entry = find_price(name_query(name))
    if entry is not None and entry.model.context_window:
        return entry.model.context_window
    return next((size for pattern, size in _WINDOWS if re.search(pattern, name)), UNKNOWN_WINDOW)
