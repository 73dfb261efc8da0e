"""Figures of a list of numbers."""


def mean(values):
    return sum(values) / len(values)


def median(values):
    """Return the middle one, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle]
