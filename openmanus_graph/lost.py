"""What live handles held, and what of it is gone: pure functions over `held`."""

from collections.abc import Iterable, Set

from openmanus_graph.state.reducers import Holdings


def changes(known: Holdings, now: Holdings) -> Holdings:
    """Return of what handles hold now only what is not known."""
    return {
        identity: held
        for identity, held in now.items()
        if held["what"] != (known[identity]["what"] if identity in known else "")
    }


def lost(held: Holdings, live: Set[str], resource: str = "") -> list[str]:
    """Return what was held by handles that are gone, in words.

    Args:
        held: What is known of all handles.
        live: The identities of those that this process has.
        resource: Look at this one's handles only.
    """
    return [
        known["what"]
        for identity, known in sorted(held.items())
        if known["what"] and identity not in live and identity.startswith(resource)
    ]


def still_held(held: Holdings, live: Iterable[str]) -> Holdings:
    """Return what is held by handles that are there."""
    return {name: held[name] for name in live if name in held and held[name]["what"]}
