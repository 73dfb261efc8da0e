"""An agent of ours for other agents, by the A2A protocol."""
