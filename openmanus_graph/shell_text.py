"""Reading a shell text far enough to see which commands it would run: pure, and no parser.

Spaces, quotes, line continuations, `&&`, `sudo`, `bash -c` and substitutions do not hide a command;
a program that puts one together as it runs does. What keeps commands in is the sandbox.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

_SEPARATORS = frozenset(";&|()\n")
_OPENERS = frozenset({
    "{", "}", "!", "if", "then", "else", "elif", "fi", "while", "until", "do", "done", "case",
    "esac", "time", "sudo", "doas", "env", "command", "builtin", "exec", "nohup", "nice", "setsid",
    "stdbuf", "xargs",
})  # fmt: skip
"""What may stand before a command."""
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "eval"})
_ASSIGNMENT = re.compile(r"\w+\+?=")
_INNER = re.compile(r"\$\(([^()]*)\)|`([^`]*)`|[<>]\(([^()]*)\)")
_HIDES = re.compile(r"\$\(|`|[<>]\(|<<|\$'")
_DEEPEST = 4


@dataclass(frozen=True)
class Commands:
    """The simple commands of a text, each with single spaces and without quotes."""

    commands: list[str]
    hidden: bool
    """Whether there may be more than is seen."""

    def every_name(self) -> Iterator[str]:
        """Yield the commands, also with the program's name instead of its path."""
        for command in self.commands:
            yield command
            program, space, rest = command.partition(" ")
            if "/" in program:
                yield f"{PurePosixPath(program).name}{space}{rest}"


def commands_in(text: str) -> Commands:
    """Find the commands of a shell text."""
    return _read(text, 0)


def _read(text: str, depth: int) -> Commands:
    text = text.replace("\\\n", "")
    hidden = bool(_HIDES.search(text)) or depth > _DEEPEST
    try:
        words = list(_words(text))
    except ValueError:  # a quote is not closed, as in a here-document
        parts = (" ".join(part.split()) for part in re.split(r"[;&|()\n]+", text))
        return Commands([part for part in parts if part], hidden=True)
    found: list[str] = []
    inner = ["".join(filter(None, match.groups())) for match in _INNER.finditer(text)]
    for command in _simple(words):
        found.append(" ".join(command))
        if PurePosixPath(command[0]).name in _SHELLS:
            inner += [word for word in command[1:] if not word.startswith("-")]
            hidden = True
    for part in inner if depth < _DEEPEST else ():
        found += _read(part, depth + 1).commands
    return Commands(found, hidden)


def _words(text: str) -> Iterator[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    yield from lexer


def _simple(words: list[str]) -> Iterator[list[str]]:
    """Yield the words of each command, without what may stand before it."""
    command: list[str] = []
    for word in (*words, ";"):
        if word and set(word) <= _SEPARATORS:
            if command:
                yield command
            command = []
        elif command or not (word in _OPENERS or word[:1] == "-" or _ASSIGNMENT.match(word)):
            command.append(word)
