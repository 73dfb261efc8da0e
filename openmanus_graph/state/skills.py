"""A skill, as the run that may use it knows it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Skill:
    """A folder with `SKILL.md`: instructions, scripts and references for certain tasks."""

    name: str
    description: str
    """What it does and when to use it, for the model."""
    folder: Path
    digest: str
    """Of the names and contents of all its files."""
