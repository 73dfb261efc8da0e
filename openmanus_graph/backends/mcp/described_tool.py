"""A tool as its server describes it; needs no MCP SDK."""

from collections.abc import Mapping
from typing import Any

from pydantic import PrivateAttr

from openmanus_graph.backends.mcp.schemas import Checker, problems_of
from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.state.validation import schema_checker


class DescribedTool(JsonSchemaTool):
    """Checks arguments as the server wants them."""

    argument_schema: dict[str, Any] | None
    """The schema that arguments are checked against; None if the server gave no valid one."""
    _checker: Checker | None = PrivateAttr(default=None)

    def problems(self, args: Mapping[str, Any]) -> list[str]:
        """Return the validation problems of a call's arguments."""
        if self.argument_schema is None:
            return []
        if self._checker is None:
            self._checker = schema_checker(self.argument_schema)
        return problems_of(self._checker, args)
