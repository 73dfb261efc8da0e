"""Serves one of our agents to editors by the Agent Client Protocol, over stdin and stdout."""
