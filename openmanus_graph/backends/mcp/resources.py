"""A server's resources, as one more tool of it that lists and reads them."""

from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from openmanus_graph.backends.mcp.listed_tools import SCHEMA_KEY, pages

READ_RESOURCE = "read_resource"
_DESCRIPTION = (
    "Reads a resource of this server: a file, a record, a page of documentation. Without `uri` it "
    "lists them, and templates such as file:///{path} whose names in braces you fill in."
)
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "Its address; leave out to list."}},
}


async def resource_tools(session: ClientSession, own: list[types.Tool]) -> list[types.Tool]:
    """Return the tool that reads resources, if the server has any and no tool of this name.

    Args:
        session: The server's.
        own: The tools that it lists itself.
    """
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.resources is None:
        return []
    if any(tool.name == READ_RESOURCE for tool in own) or not await _described(session):
        return []
    return [
        types.Tool(
            name=READ_RESOURCE,
            description=_DESCRIPTION,
            input_schema=_SCHEMA,
            annotations=types.ToolAnnotations(read_only_hint=True),
            _meta={SCHEMA_KEY: _SCHEMA},
        )
    ]


async def read_or_list(session: ClientSession, uri: str | None) -> types.CallToolResult:
    """Read a resource, or list them all.

    Raises:
        MCPError: There is no such resource.
    """
    if not uri:
        text = "\n".join(await _described(session)) or "There are none."
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])
    found = await session.read_resource(uri)
    blocks = [types.EmbeddedResource(type="resource", resource=one) for one in found.contents]
    return types.CallToolResult(content=[*blocks])


async def _described(session: ClientSession) -> list[str]:
    """Describe the resources and templates, a line each."""
    lines: list[str] = []
    try:
        async for page in pages(session.list_resources):
            lines += [_line(one.uri, one) for one in page.resources]
        async for templates in pages(session.list_resource_templates):
            lines += [_line(one.uri_template, one) for one in templates.resource_templates]
    except MCPError as error:
        if error.code != types.METHOD_NOT_FOUND:
            raise
    return lines


def _line(uri: str, one: types.Resource | types.ResourceTemplate) -> str:
    about = ": ".join(filter(None, (one.title or one.name, one.description)))
    kind = f" ({one.mime_type})" if one.mime_type else ""
    return f"{uri} - {about}{kind}".replace("\n", " ")
