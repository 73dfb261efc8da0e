"""What an action did, and what its sentence says of the page already."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ActionReport:
    """A sentence for the model, and as data what it names, so that no change is told twice."""

    text: str = ""
    elements: tuple[int, ...] = ()
    """Indices of the elements that it names."""
    value: str | None = None
    """What the first of them holds now; None if it does not say that."""
    place: tuple[int, int] | None = None
    """The pixels above and below the window that it names."""
