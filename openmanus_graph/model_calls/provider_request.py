"""What one model is sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage

from openmanus_graph.backends.models.resolved import ResolvedModel


@dataclass(frozen=True)
class ProviderRequest:
    """A request as everybody's is; `fitting` makes it fit the model's server."""

    messages: list[BaseMessage]
    """A system message first, if there is one."""
    tools: Sequence[dict[str, Any]]
    """Definitions, as providers are sent them."""
    model: ResolvedModel
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Given to the model with this request: `tool_choice` and the like."""
    history: Sequence[AnyMessage] = ()
    """The conversation as it is stored."""
    only_answer: bool = False
    """Whether calls in the reply are not run."""
