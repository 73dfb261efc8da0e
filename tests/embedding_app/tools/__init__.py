"""An app's own package with a name that agents' authors like, too."""


def double(number: int) -> int:
    """Double a number."""
    return 2 * number
