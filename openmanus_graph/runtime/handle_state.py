"""The state of live handles (kernel, shell, browser), and which of it is lost. Pure."""

from collections.abc import Iterable, Set

from openmanus_graph.state.reducers import HandleStates


def changed_state(known: HandleStates, now: HandleStates) -> HandleStates:
    """Return the handle states that differ from the known ones."""
    return {
        identity: state
        for identity, state in now.items()
        if state["what"] != (known[identity]["what"] if identity in known else "")
    }


def lost_state(states: HandleStates, live: Set[str], resource: str = "") -> list[str]:
    """Return descriptions of the state of handles that this process does not have.

    Args:
        states: The known states of all handles.
        live: The identities of the handles of this process.
        resource: Only handles of this resource; empty for all.
    """
    return [
        known["what"]
        for identity, known in sorted(states.items())
        if known["what"] and identity not in live and identity.startswith(resource)
    ]


def open_state(states: HandleStates, live: Iterable[str]) -> HandleStates:
    """Return the non-empty states of the handles of this process."""
    return {name: states[name] for name in live if name in states and states[name]["what"]}
