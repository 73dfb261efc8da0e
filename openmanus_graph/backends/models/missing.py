"""A stand-in where tools run without a model, for the few that would ask one."""

from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from typing_extensions import override

from openmanus_graph.errors import ConfigError


class MissingModel(BaseChatModel):
    """Says, when it is asked, why there is none."""

    model_name: str = "none"
    why: str

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise ConfigError(self.why)

    @property
    @override
    def _llm_type(self) -> str:
        return "missing"
