"""The errors people and models are meant to read."""


class ToolError(Exception):
    """What a tool tells the model: what failed, why, and what to try next."""


class TrustedToolError(ToolError):
    """A ToolError that holds nothing but our words and the call's own.

    It is not marked as coming from outside, and nothing foreign was read by it.
    """


class NamesError(ToolError):
    """A ToolError that holds names of files beside our words and the call's own.

    It counts as a listing of these files.
    """


class ConfigError(ValueError):
    """What the developer or the command's user has to change, and to what.

    A `ValueError`: LangGraph's API tells its clients the words of such errors, of others none.
    """


class StorageError(Exception):
    """A fault of a database or of stored data, as a sentence for people without any password."""


class UnavailableError(StorageError):
    """A database cannot be reached, is locked, is full or cannot be written. Later it may work."""


class RefusedDataError(StorageError):
    """Data from a file or a database that may not be read. Nothing of it was run or used.

    Args:
        what: It holds, as a noun.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"Stored data was refused: it holds {what}. It was written by another program or "
            "version, or was changed. Nothing of it was used. Start a new thread, or use another "
            "file."
        )


def install_extra(extra: str) -> str:
    """Say how an optional extra of this package is installed; the end of an error's text."""
    return (
        f'Install it with: pip install "openmanus-graph[{extra}]" '
        f"(in a clone: uv sync --extra {extra})."
    )
