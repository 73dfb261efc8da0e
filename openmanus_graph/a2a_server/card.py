"""The agent card: who this is, what it can do, and how to reach it."""

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from langchain_core.tools import BaseTool

from openmanus_graph.agents import describe_agent
from openmanus_graph.tools import (
    browser_tools,
    closing_tools,
    data_analysis_tools,
    default_tools,
    planner_tools,
    swe_tools,
)

PROTOCOLS = ("1.0", "0.3")
TEXT, ANY = "text/plain", "application/octet-stream"
_TOOLS = {
    "manus": default_tools,
    "planning": default_tools,
    "planner": planner_tools,
    "browser": browser_tools,
    "swe": swe_tools,
    "data_analysis": data_analysis_tools,
}


def agent_card(agent: str, url: str, version: str, *, guarded: bool) -> AgentCard:
    """Return the card of an agent.

    Args:
        agent: Its name.
        url: Of the server, without a last slash.
        version: Of this package.
        guarded: Whether clients must send a bearer token.
    """
    purpose = describe_agent(agent) or "does tasks with tools"
    card = AgentCard(
        name=f"OpenManus {agent}",
        description=f"Does whole tasks with tools of its own. For {purpose}.",
        version=version,
        supported_interfaces=[
            AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version=protocol)
            for protocol in PROTOCOLS
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=[TEXT, "application/json", "image/png", "image/jpeg", ANY],
        default_output_modes=[TEXT, "application/json", ANY],
        skills=[_whole(agent, purpose), *map(_skill, _tools_of(agent))],
    )
    if guarded:
        scheme = HTTPAuthSecurityScheme(scheme="bearer", description="The server's token.")
        card.security_schemes["bearer"].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    return card


def _whole(agent: str, purpose: str) -> AgentSkill:
    return AgentSkill(
        id=agent,
        name="Do a task",
        description=f"Does a whole task, stated in plain words, and hands over an answer and "
        f"files. For {purpose}.",
        tags=[agent, "task"],
        examples=["Summarise sales.csv and draw the monthly totals"],
    )


def _skill(tool: BaseTool) -> AgentSkill:
    summary = tool.description.strip().partition("\n\n")[0]
    return AgentSkill(id=tool.name, name=tool.name, description=summary, tags=["tool"])


def _tools_of(agent: str) -> list[BaseTool]:
    """Return what an agent works with; of other people's agents nothing is known."""
    closing = {tool.name for tool in closing_tools()}
    tools = _TOOLS[agent]() if agent in _TOOLS else []
    return [tool for tool in tools if tool.name not in closing]
