"""What MCP servers offered, in the flight record: a replay offers it again, and starts none."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

from openmanus_graph.backends.mcp.schemas import DescribedTool
from openmanus_graph.model_calls.recorder import fact_of_run
from openmanus_graph.runtime.replaying import ReplayEndedError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import CallRuntime
from openmanus_graph.state.tool_traits import Traits

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.tool import ServerTools

    ServerToolsResolver = Callable[..., Awaitable[ServerTools]]


class RecordedTool(DescribedTool):
    """Offers a tool of a server that is not there; the record answers its calls."""

    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> NoReturn:
        """Refuse to run."""
        raise ReplayEndedError(f"{self.name} is of an MCP server, and a replay starts none.")


async def record_server_tools(
    session: Session, tools: Sequence[DescribedTool], changes: Sequence[str]
) -> None:
    """Write into the recording what servers offer to an agent step, and again if that changes.

    Args:
        session: Of the run.
        tools: The same objects as long as nothing has changed.
        changes: What the model is told about the servers.
    """
    key = (record_server_tools, tuple(map(id, tools)), tuple(changes))
    offered: dict[str, Any] = session.cached(key, lambda: _offered(tools, changes))
    session.server_tools = session.cached((*key, "name"), lambda: _name_of(offered))
    await fact_of_run(session, session.server_tools, lambda: offered)


def recorded_server_tools(offered: Mapping[str, Any], session: Session) -> Sequence[RecordedTool]:
    """Return the tools that servers had offered, the same objects as long as they are the same."""
    return session.cached((RecordedTool, _name_of(offered)), lambda: _tools(offered))


def _offered(tools: Sequence[DescribedTool], changes: Sequence[str]) -> dict[str, Any]:
    described = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "argument_schema": tool.argument_schema,
            "traits": {name: one for name, one in asdict(tool.traits).items() if one is not None},
        }
        for tool in tools
    ]
    return {"tools": described, "changes": [*changes]}


def _tools(offered: Mapping[str, Any]) -> tuple[RecordedTool, ...]:
    return tuple(
        RecordedTool.model_validate({**described, "traits": Traits(**described["traits"])})
        for described in offered["tools"]
    )


def _name_of(offered: Mapping[str, Any]) -> str:
    text = json.dumps(offered, sort_keys=True, default=str)
    return f"MCP tools {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
