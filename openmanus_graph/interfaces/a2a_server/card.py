"""The agent card: name, skills and address of the served agent."""

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

from openmanus_graph.graphs.catalog import agent_tools, describe_agent
from openmanus_graph.tools import closing_tools

PROTOCOLS = ("1.0", "0.3")
TEXT, ANY = "text/plain", "application/octet-stream"


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
        skills=_skills(agent, purpose),
    )
    if guarded:
        scheme = HTTPAuthSecurityScheme(scheme="bearer", description="Shown at the server's start.")
        card.security_schemes["bearer"].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    return card


def _skills(agent: str, purpose: str) -> list[AgentSkill]:
    """Return a skill for whole tasks, and one per tool of an agent of ours."""
    whole_task = AgentSkill(
        id=agent,
        name="Do a task",
        description=f"Does a whole task, stated in plain words, and hands over an answer and "
        f"files. For {purpose}.",
        tags=[agent, "task"],
        examples=["Summarise sales.csv and draw the monthly totals"],
    )
    closing = {tool.name for tool in closing_tools()}
    tools = [tool for tool in agent_tools(agent) if tool.name not in closing]
    summaries = [tool.description.strip().partition("\n\n")[0] for tool in tools]
    return [
        whole_task,
        *(
            AgentSkill(id=tool.name, name=tool.name, description=summary, tags=["tool"])
            for tool, summary in zip(tools, summaries, strict=True)
        ),
    ]
