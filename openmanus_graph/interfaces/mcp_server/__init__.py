"""Our tools as an MCP server, for other agents."""
