"""The words of a shell command. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


def word_set(text: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Word:
    """One word of a command."""

    text: str
    """Without quotes; expansions stay as written."""
    literal: bool
    """Whether the program gets exactly this text."""
    wild: bool = False
    """Whether it holds a wildcard that the shell expands to file names."""


_PIECE = re.compile(
    r"""\\(?P<escaped>.) | \$'(?P<ansi>(?:[^'\\]|\\.)*)' | '(?P<raw>[^']*)'
    | \$?"(?P<double>(?:[^"\\]|\\.)*)" | (?P<plain>[^\\'"$]+) | (?P<odd>.)""",
    re.DOTALL | re.VERBOSE,
)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))",
    re.DOTALL,
)
_ANSI_NAMES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
               "e": "\x1b", "E": "\x1b"}  # fmt: skip


def read_word(raw: str) -> Word:
    """Take the quotes off a word."""
    text = bare = ""
    literal = True
    for piece in _PIECE.finditer(raw):
        kind, value = piece.lastgroup, piece[piece.lastgroup or 0]
        if kind == "ansi":
            value = _ANSI.sub(_ansi_character, value).split("\0")[0]  # bash, too, ends it there
        elif kind == "double":
            literal = literal and not re.search(r"(?<!\\)(?:\\\\)*[$`]", value)
            value = re.sub(r'\\([$`"\\])', r"\1", value)
        elif kind in ("plain", "odd"):
            literal = literal and not set(value) & set("$`<>()|;&\\'\"")
        bare += value if kind == "plain" else "q"
        text += value
    return Word(text, literal and not _BRACES.search(bare), bool(set(bare) & set("*?[")))


def _ansi_character(escape: re.Match[str]) -> str:
    two, four, eight, octal, other = escape.groups()
    if other:
        return _ANSI_NAMES.get(other, other if other in "\\'\"?" else escape[0])
    number = int(octal, 8) & 0xFF if octal else int(two or four or eight, 16)
    return chr(number) if number <= 0x10FFFF else "?"


def joined(words: Sequence[Word]) -> str:
    """Write words as a command."""
    return " ".join(word.text for word in words)
