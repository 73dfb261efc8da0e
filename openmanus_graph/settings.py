"""The settings of a run after everything was merged: no field is left open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel, SecretStr

from openmanus_graph.state.context import Policy, SandboxMode

MAX_COST_USD = 3.0


@dataclass(frozen=True)
class ModelSettings:
    """One model and how to reach it."""

    model: str | BaseChatModel
    """`PROVIDER:NAME` or an instance."""
    base_url: str | None = None
    api_key: SecretStr | None = None
    """None: the provider's own environment variable."""
    api_version: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Passed to the client as they are."""
    vision: bool | None = None
    """Whether the model sees pictures. None: known by its name."""
    context_window: int | None = None
    """Tokens of one request. None: known by its name."""


@dataclass(frozen=True)
class SandboxSettings:
    """How Python and shell are confined."""

    mode: SandboxMode = "auto"
    network: bool = False
    image: str = "python:3.12-slim"
    """Of the docker backend."""
    memory_mb: int = 4096
    """Of each process, and of all together where a control group can be made."""
    processes: int = 512
    disk_mb: int = 4096
    """How much the workspace and the temporary folder may grow, and the size of one file."""
    timeout_s: float = 120
    """Time limit of a call that names none."""


@dataclass(frozen=True)
class Settings:
    """Everything a run needs to know, resolved and validated."""

    main: ModelSettings
    vision: ModelSettings | None
    workspace: Path
    home: Path
    protected: tuple[Path, ...]
    """Configuration and key files that tools must not reach."""
    sandbox: SandboxSettings
    max_steps: int = 20
    max_cost_usd: float = MAX_COST_USD
    max_total_tokens: int | None = None
    timeout_s: float | None = None
    max_parallel_steps: int = 4
    step_timeout_s: float = 3600
    review_plan: bool = False
    policy: Policy = "ask"
    allow_hosts: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    browser: Mapping[str, Any] = field(default_factory=dict[str, Any])
    search: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prices: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    """Dollars per million tokens by model name: `input`, `cached`, `output`."""
    response_format: dict[str, Any] | type[BaseModel] | None = None
    instructions: str = ""
    """Text of AGENTS.md in the working folder."""
    warnings: tuple[str, ...] = ()
    """What was found odd while reading the configuration; each is shown once."""
