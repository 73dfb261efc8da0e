"""Snapshots of workspaces: taken after a step that changed files, restored by going back.

Nodes take them, commands and the server's routes read and restore them; nothing below does.
"""
