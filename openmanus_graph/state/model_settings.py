"""The models of a run: the keys that name them, and the record that code reads of each.

Declared as the other settings are: see `state.settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt, SecretStr

from openmanus_graph.state.context import (
    MEDIA_KINDS,
    Effort,
    MediaKind,
    ModelInstance,
    ModelSize,
    ToolCalling,
)
from openmanus_graph.state.setting_declaration import (
    AlternativeKey,
    Setting,
    Trust,
    rerouting_options,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_Positive = Field(gt=0)


@dataclass(frozen=True)
class ModelSettings:
    """One model and how to reach it."""

    model: "str | BaseChatModel"
    """`PROVIDER:NAME` or an instance."""
    base_url: str | None = None
    api_key: SecretStr | None = None
    """None: the provider's environment variable."""
    stored_key: SecretStr | None = None
    """The key that the user stored for this provider, if neither of them has one."""
    api_version: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Passed to the client unchanged."""
    vision: bool | None = None
    """Whether the model sees pictures. None: known by its name."""
    context_window: int | None = None
    """Tokens of one request. None: known by its name."""
    takes_media: tuple[MediaKind, ...] | None = None
    """Whether sound and video can be sent. None: known by its name."""
    tool_calling: ToolCalling = "auto"
    """How it calls tools."""
    profile: ModelSize = "auto"
    """Whether it is asked as small models are."""
    effort: Effort | None = None
    """How much it reasons. None: as its provider decides."""
    requests_per_minute: int | None = None
    """Of all agents together. None: no limit."""
    tokens_per_minute: int | None = None
    """Of all agents together, in and out. None: no limit."""


@dataclass(frozen=True)
class ModelKeys:
    """The keys that name the models; `config.model` makes `Settings.main` and `.vision` of them."""

    model: Annotated[
        str | None, Setting(passed=str | ModelInstance, option="--model", env=("OPENMANUS_MODEL",))
    ] = None
    """The main model: `PROVIDER:NAME`, such as `openai:gpt-5-mini`. In Python, you can also pass a
    LangChain chat model."""
    vision_model: Annotated[
        str | None,
        Setting(passed=str | ModelInstance, alternative_keys=(AlternativeKey("llm.roles.vision"),)),
    ] = None
    """Model for requests with pictures, if `model` does not accept pictures."""
    base_url: Annotated[
        str | None,
        Setting(
            option="--base-url",
            shown="the provider's address",
            trust=Trust(also_left_out=("llm.api_key",)),
        ),
    ] = None
    """Address of the model's server."""
    model_options: Annotated[
        dict[str, Any] | None,
        Setting(
            passed=Mapping[str, Any],
            trust=Trust(rerouting_options, words="it contains more than tuning options"),
        ),
    ] = None
    """Options of the model's client, such as `temperature`, `max_tokens`, `timeout` (seconds to
    wait for a server that sends nothing, default 300) and `max_retries` (default 5). API keys are
    not allowed here."""


@dataclass(frozen=True)
class LlmKeys:
    """`[llm]`, `[llm.vision]`: OpenManus's model settings, and what no model's name tells."""

    model: Annotated[
        str | None, Setting(moved='used; in openmanus.toml write model = "PROVIDER:NAME"')
    ] = None
    """Name of the model, without a provider."""
    base_url: Annotated[str | None, Setting(trust=Trust(also_left_out=("api_key",)))] = None
    """Address of the model's server."""
    api_key: Annotated[
        SecretStr | None,
        Setting(
            moved="used for this file's base_url only; better in the environment (OPENAI_API_KEY)"
        ),
    ] = None
    """API key. It is sent only to the address in this file. `OPENAI_API_KEY` takes precedence."""
    api_type: Annotated[
        str, Setting(moved="used; here it is the PROVIDER of model (azure, bedrock, else openai)")
    ] = ""
    """Type of the server: `azure` or `aws`. Any other value means OpenAI's protocol."""
    api_version: Annotated[str | None, Setting()] = None
    """The version of Azure's API."""
    max_tokens: Annotated[
        int | None, Setting(moved="used; in openmanus.toml it is in [model_options]")
    ] = None
    """Maximum number of tokens in a reply."""
    temperature: Annotated[
        float | None, Setting(moved="used; in openmanus.toml it is in [model_options]")
    ] = None
    """Sampling temperature of the model."""
    max_input_tokens: Annotated[
        int | None,
        Setting(moved="used as max_total_tokens: the tokens of one run, not of the process"),
    ] = None
    """Same as `max_total_tokens`."""
    context_window: Annotated[int | None, Setting(shown="known for most models")] = None
    """Maximum number of tokens in a request."""
    sees_images: Annotated[bool | None, Setting(shown="known for most models")] = None
    """Whether the model accepts pictures."""


@dataclass(frozen=True)
class ProfileKeys:
    """`[llm.profiles.NAME]`: a model by a name of your choice, for `fallback` and roles."""

    model: str
    """The model: `PROVIDER:NAME`."""
    base_url: str | None = None
    """Address of the model's server."""
    api_key: SecretStr | None = None
    """API key. Default: the provider's environment variable."""
    api_version: str | None = None
    """The version of Azure's API."""
    model_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the model's client, as `model_options` at the top level."""
    context_window: int | None = None
    """Maximum number of tokens in a request. Default: known for most models."""
    sees_images: bool | None = None
    """Whether the model accepts pictures. Default: known for most models."""
    takes_media: tuple[MediaKind, ...] | None = None
    """Whether the model accepts sound and video, as in `[llm]`."""
    tool_calling: ToolCalling = "auto"
    """How this model calls tools, as in `[llm]`."""
    profile: ModelSize = "auto"
    """How this model is used, as in `[llm]`."""
    effort: Effort | None = None
    """How much this model reasons, as in `[llm]`."""
    requests_per_minute: PositiveInt | None = None
    """Maximum number of requests per minute to this model."""
    tokens_per_minute: PositiveInt | None = None
    """Maximum number of input and output tokens per minute for this model."""


def rerouting_profiles(profiles: Mapping[str, ProfileKeys]) -> dict[str, ProfileKeys]:
    """Return the profiles that may send a key, or the conversation, to another server."""
    return {
        name: profile
        for name, profile in profiles.items()
        if profile.base_url or rerouting_options(profile.model_options)
    }


@dataclass(frozen=True)
class ModelUseKeys:
    """`[llm]`: the fallback models, and how models are used."""

    fallback: Annotated[
        tuple[str, ...], Setting(context="fallback", passed=tuple[str | ModelInstance, ...])
    ] = ()
    """Models or profile names to try if a model cannot answer, in this order. That is the case if
    the server is down or overloaded, the quota is used up, or the server does not know the
    model."""
    tool_calling: Annotated[ToolCalling, Setting(context="tool_calling")] = "auto"
    """How the main model calls tools. `native`: through the provider's protocol. `text`: as text,
    for models without tool calls. `constrained`: the server forces each step to match a JSON
    schema. `auto`: `native` until a server refuses it, and `constrained` for small models."""
    profile: Annotated[ModelSize, Setting(context="profile")] = "auto"
    """How the main model is used. `small`: a short prompt, few tools, one step at a time and strict
    answer checks. `standard`: the normal prompt. `auto`: `small` below 8 billion parameters, if the
    server or the name shows the size."""
    effort: Annotated[
        Effort | None,
        Setting(context="effort", option="--effort", shown="the provider's"),
    ] = None
    """How much the main model reasons before it replies. It has no effect on models that do not
    reason."""
    takes_media: Annotated[
        tuple[MediaKind, ...] | None, Setting(shown="known for most models", accepts=MEDIA_KINDS)
    ] = None
    """Whether the main model accepts sound and video: a list of what it accepts."""
    requests_per_minute: Annotated[int | None, _Positive, Setting(shown="none")] = None
    """Maximum number of requests per minute to the main model and other models of its provider. All
    agents of the process share this limit."""
    tokens_per_minute: Annotated[int | None, _Positive, Setting(shown="none")] = None
    """Maximum number of input and output tokens per minute, shared in the same way."""
    profiles: Annotated[
        Mapping[str, ProfileKeys],
        Setting(
            written=dict[str, ProfileKeys],
            trust=Trust(
                rerouting_profiles,
                lambda profiles: {
                    name: profiles[name] for name in profiles.keys() - rerouting_profiles(profiles)
                },
                words="a profile has a `base_url` or more than tuning options",
            ),
        ),
    ] = field(default_factory=dict[str, ProfileKeys])
    """Tables `[llm.profiles.NAME]`, described below."""


@dataclass(frozen=True)
class RoleKeys:
    """`[llm.roles]`: models or profile names for work other than the agent's steps."""

    compaction: Annotated[str | None, Setting()] = None
    """Model that writes the summaries of long conversations."""
    check: Annotated[str | None, Setting()] = None
    """Model that judges whether a plan step is done."""
    extract: Annotated[str | None, Setting()] = None
    """Model that reads pages for `extract_content`."""
    plan: Annotated[str | None, Setting()] = None
    """Model that writes and fixes plans."""
