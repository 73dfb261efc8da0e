"""What stands beside a field's type in `state.settings`, and makes it a setting.

From one such declaration come: what a file, the environment and `Context` may say, the names of
unknown keys, what needs trust, and the tables of `docs/configuration.md`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


def _whole(value: Any) -> Any:
    return value


def _nothing(value: Any) -> Any:
    del value


@dataclass(frozen=True)
class Trust:
    """A value in the working folder that counts only once the person trusts that folder."""

    risky: Callable[[Any], Any] = _whole
    """Returns what of the value needs trust; nothing does if that is empty or false."""
    harmless: Callable[[Any], Any] = _nothing
    """Returns what of a risky value counts without trust. None: it is as if not set."""
    words: str = ""
    """Which values are risky, for the documentation. Empty: all."""
    also_left_out: tuple[str, ...] = ()
    """Keys that are left out together with this one."""


ALWAYS = Trust()


@dataclass(frozen=True)
class AlternativeKey:
    """Another key that sets the same field: OpenManus's name, or one part of a table."""

    key: str
    part: str = ""
    """The table's entry that it sets. Empty: the whole field."""
    env: tuple[str, ...] = ()
    moved: str = ""
    """OpenManus's key, and how it is written here."""


@dataclass(frozen=True)
class Setting:
    """How a person sets a field. Its default is the field's, its text the field's docstring."""

    key: str | None = ""
    """In the table of the field's class. Empty: as the field; None: only alternatives."""
    written: Any = None
    """The type in a file, where it is not the field's."""
    alternative_keys: tuple[AlternativeKey, ...] = ()
    context: str | None = ""
    """The field of `Context`. Empty: of the same name; None: there is none that is written so."""
    option: str = ""
    """The command's option."""
    env: tuple[str, ...] = ()
    """Environment variables; the first that is not empty counts."""
    env_prefix: str = ""
    """Each variable that begins so is an entry of this table, by the rest of its name."""
    trust: Trust | None = None
    merged: bool = False
    """Whether the entries of a table are collected from all places; else the first place counts."""
    parse: Callable[[Any], Any] | None = None
    """Makes the field's value of what is written. ConfigError says what is wrong with it."""
    join: Callable[[Sequence[tuple[str, Any]]], Any] | None = None
    """Makes it of what all places say: pairs of a place's name and its value, the first counts
    most. ConfigError as `parse`."""
    shown: str = ""
    """What the documentation has as its default, where that is more than a value."""
    accepts: tuple[str, ...] = ()
    """The values, for the documentation, where the type does not list them."""
    moved: str = ""
    """That OpenManus has this key, and how it is written here."""
