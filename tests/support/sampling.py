"""What is tried in the default run, where all of it would take too long: a sample by a seed.

The rest is marked `exhaustive`. The seed stands in pytest's header and draws the same again.
"""

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

SEED_VARIABLE = "OPENMANUS_TEST_SEED"


def chance(name: str) -> random.Random:
    """Return what draws for one purpose, the same in every process of a run."""
    return random.Random(f"{os.environ[SEED_VARIABLE]} {name}")


def sampled(
    values: Sequence[Any], count: int, name: str, *, rows: bool = False
) -> list[ParameterSet]:
    """Return the values of a test's parameter; all but some, drawn by the seed, are `exhaustive`.

    Args:
        values: All of them.
        count: How many every run tries.
        name: Of the test, so that each draws for itself.
        rows: Each value is a tuple with those of several parameters.
    """
    drawn = set(chance(name).sample(range(len(values)), count))
    return [
        pytest.param(
            *(value if rows else (value,)), marks=() if number in drawn else pytest.mark.exhaustive
        )
        for number, value in enumerate(values)
    ]
