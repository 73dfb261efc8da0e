"""What the readers of documents return."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class File:
    """A file that comes with the text of a document, such as the picture of a page."""

    name: str
    suffix: str
    data: bytes
    seen: bool = False
    """Whether a model that sees is to look at it."""


@dataclass
class Extras:
    """What a reader may add to the text, as far as it was reached."""

    wanted: bool = False
    ocr: str | None = None
    """Path of the OCR engine of this machine, tesseract."""
    recognized: int = 0  # pages that the engine has read
    files: list[File] = field(default_factory=list[File])


@dataclass(frozen=True)
class Document:
    name: str
    unit: str  # what its parts are called; empty if it has none
    total: int
    page: Callable[[Any], Iterable[str]]  # returns the lines of a part that was chosen
    choose: Callable[[str | None], list[Any]] | None = None  # by number from 1, unless given
    contents: str = ""  # its parts, if they have names
