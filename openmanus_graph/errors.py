"""The two errors people and models are meant to read."""


class ToolError(Exception):
    """What a tool tells the model: what failed, why, and what to try next."""


class ConfigError(Exception):
    """What the developer or the command's user has to change, and to what."""
