"""Where Python and shell run: confined to the workspace, without secrets, within limits."""
