"""Our tools as an MCP server, for other people's agents."""
