"""Serves one of our agents to other agents by the A2A protocol."""
