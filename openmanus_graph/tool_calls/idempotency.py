"""Gives tools the key of their call, by which the other side knows one that is made again."""

from collections.abc import Container
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import BaseModel
from typing_extensions import override

IDEMPOTENCY_KEY = "idempotency_key"
"""Parameter by which a tool asks for it; models are not shown it."""


def with_idempotency_key(request: ToolCallRequest, key: str) -> ToolCallRequest:
    """Return a request whose tool gets the key, if it asks for one."""
    tool = request.tool
    if tool is None or IDEMPOTENCY_KEY not in _parameters(tool):
        return request
    keyed = _KeyedTool(name=tool.name, description=tool.description, tool=tool, key=key)
    return request.override(tool=keyed)


def _parameters(tool: BaseTool) -> Container[str]:
    """Return the names of all that a tool takes, also of what no model is shown."""
    schema = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_fields
    return tool.args


class _KeyedTool(BaseTool, defer_build=True):
    """Invokes a tool with a key; LangGraph takes hidden arguments out of calls before."""

    tool: BaseTool
    key: str

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self.tool.invoke(self._keyed(input), config, **kwargs)

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await self.tool.ainvoke(self._keyed(input), config, **kwargs)

    def _keyed(self, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "args": {**call["args"], IDEMPOTENCY_KEY: self.key}}

    @override
    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError  # `invoke` goes to the tool itself
