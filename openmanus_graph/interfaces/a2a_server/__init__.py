"""Our agents, for other agents."""
