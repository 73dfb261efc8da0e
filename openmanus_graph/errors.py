"""The errors whose text is written for people and models."""


class ToolError(Exception):
    """A tool's error for the model: what failed, why, and what to try next."""


class TrustedToolError(ToolError):
    """A ToolError that contains only our words and the call's own.

    It is not marked as untrusted, and does not taint the run.
    """


class NamesError(ToolError):
    """A ToolError that also contains names of files. It counts as a listing of these files."""


class ConfigError(ValueError):
    """Says what the developer or the command's user has to change, and to what.

    It is a `ValueError` because LangGraph's API sends its clients the text of such errors only.
    """


class StorageError(Exception):
    """A fault of a database or of stored data, as a sentence for people without any password."""


class UnavailableError(StorageError):
    """A database cannot be reached, is locked, is full or cannot be written. Later it may work."""


class RefusedDataError(StorageError):
    """Data from a file or a database that must not be read. None of it was run or used.

    Args:
        what: A noun that names what it holds.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"Stored data was refused: it holds {what}. It was written by another program or "
            "version, or was changed. Nothing of it was used. Start a new thread, or use another "
            "file."
        )


def install_extra(extra: str) -> str:
    """Return how to install an optional extra of this package, as the end of an error's text."""
    return (
        f'Install it with: pip install "openmanus-graph[{extra}]" '
        f"(in a clone: uv sync --extra {extra})."
    )
