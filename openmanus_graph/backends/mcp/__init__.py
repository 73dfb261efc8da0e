"""The MCP client: tools of other servers. It is only loaded if a server is configured."""
