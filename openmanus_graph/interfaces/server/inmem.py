"""Access to the in-memory store of LangGraph's development server; nothing else touches it.

`langgraph_runtime_inmem` keeps threads, runs and assistants in `GLOBAL_STORE`, a dictionary that it
loads from a pickle in the working folder as it starts. There is no public way to prevent that:
`LANGGRAPH_DISABLE_FILE_PERSISTENCE` only stops writing while the server runs, and the API creates
idle threads without questions only. Written for version 0.36 of the runtime. A server with a
database has no such package; nothing is done there.
"""

from typing import Any, cast


def ignore_pickles() -> None:
    """Keep the server from loading pickles of the working folder; call it before it starts."""
    store = _global_store()
    if store is not None:
        store.flag = "n"  # what `PersistentDict` calls a new file: it loads none


def known_threads() -> list[dict[str, Any]] | None:
    """Return the server's own list of threads, to be added to; None if it has a database."""
    store = _global_store()
    return None if store is None else cast("list[dict[str, Any]]", store["threads"])


def _global_store() -> Any:  # a dictionary with attributes, of a package without types
    try:
        from langgraph_runtime_inmem.database import GLOBAL_STORE
    except ImportError:
        return None
    return GLOBAL_STORE
