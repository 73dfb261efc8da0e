"""Finds the commands that a shell text would run, as far as that is known statically. Pure.

Rules that deny or ask are compared with every command in the text. Rules that allow cover only
texts of literal commands. If it is unknown what a text runs, the former ask and the latter do not
match.

The parser is slow on some texts that it cannot parse, so only short texts are parsed, with long
here-documents cut out. Of all other texts the words are compared.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from openmanus_graph.safety.shell_code import Word, joined, starts_programs
from openmanus_graph.safety.shell_programs import (
    HARMLESS_WRAPPERS,
    MOST_READINGS,
    WRAPPERS,
    Runs,
    command_starts,
    runs_of,
)
from openmanus_graph.safety.shell_tree import MAX_BYTES, ShellTree, without_long_bodies

_CR = "\ue00d"
"""Replaces carriage returns, which are spaces for the parser and letters for bash."""
_MAX_DEPTH = 8
"""Limit of nested texts (`bash -c "bash -c ..."`)."""


class Command(NamedTuple):
    """A command as written, with single spaces and without quotes."""

    text: str
    spelled_out: int = 0
    """Characters at its start that an allowing rule must name without wildcards, because they
    say what other program runs (`git -c core.pager=...`)."""


@dataclass
class ShellText:
    """The commands of a shell text."""

    found: list[str] = field(default_factory=list[str])
    """Every command that may run, also those run by others, with and without their path."""
    commands: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """The words of every command, without quotes."""
    unclear: list[str] = field(default_factory=list[str])
    """Parts that could not be parsed, as bare words."""
    visible: list[list[Command]] = field(default_factory=list[list[Command]])
    """Each command in the text itself, in its equivalent forms: `timeout 5 ls` is also `ls`."""
    simple: bool = True
    """Whether it holds only literal commands, joined by `;`, `&`, `|`, `&&`, `||`, `!`, brackets:
    no variables, substitutions, assignments, loops, functions or redirections to files."""
    hidden: bool = False
    """Whether it runs unknown commands: one named by a variable, a pipe into a shell."""
    programs: list[str] = field(default_factory=list[str])
    """Names of programs that it may start with unknown arguments."""
    paths: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Programs that are named by a path, and their arguments. The path may be a link."""
    scripts: list[str] = field(default_factory=list[str])
    """Paths of files that it runs as scripts."""
    beginnings: list[str] = field(default_factory=list[str])
    """The known start of commands with words from variables, substitutions, wildcards."""

    def runs(self, pattern: str) -> bool:
        """Return True if a rule that denies or asks matches the text.

        A pattern like `rm *` also matches `rm` alone, because `xargs` adds arguments.
        """
        return any(
            fnmatchcase(one, pattern) or fnmatchcase(f"{one} ", pattern) for one in self.found
        ) or any(_mentions(words, pattern) for words in self.unclear)

    def may_run(self, pattern: str) -> bool:
        """Return True if the text may run what a rule is about, without showing it."""
        literal = literal_start(pattern)
        program = literal.split(" ")[0]
        return (
            self.hidden
            or bool(program and program in self.programs)
            or any(
                literal.startswith(known) or (program and known.startswith(literal))
                for known in self.beginnings
            )
        )

    @property
    def parts(self) -> set[int]:
        """The parts that must be allowed: the visible commands by number, and the rest as -1."""
        return {*range(len(self.visible)), *(() if self.simple else (-1,))}

    def allowed_by(self, pattern: str) -> set[int]:
        """Return the parts that an allowing rule covers. The pattern `*` covers all of them."""
        if pattern == "*":
            return self.parts
        known = len(literal_start(pattern))
        return {
            number
            for number, forms in enumerate(self.visible)
            if any(known >= one.spelled_out and fnmatchcase(one.text, pattern) for one in forms)
        }


@lru_cache(maxsize=4)
def read_shell_text(text: str) -> ShellText:
    """Find the commands of a shell text. Never raises. Callers must not change the result."""
    return _Reader().read_all(text)


def one_line(text: str) -> str:
    return " ".join(text.split())


def literal_start(pattern: str) -> str:
    """Return a pattern up to its first wildcard."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


class _Reader:
    """Reads a text, and the texts in it, into one result."""

    def __init__(self) -> None:
        self.result = ShellText()
        self._seen: set[str] = set()
        self._budget = 4 * MAX_BYTES
        self._written: list[str] = []
        """Text that is passed to programs or written to files."""
        self._runs_input = False
        """Whether a shell reads commands that may be among these."""
        self._languages: set[str] = set()
        """Of interpreters that may read their code there."""
        self._made: set[str] = set()
        """Names of files whose content is not known."""

    def read_all(self, text: str) -> ShellText:
        """Read a text, and what it writes if shells or interpreters read that."""
        self._read(text, 0)
        for body in self._written:  # more are added as they are read
            if interpreter := re.match(r"#!.*?([\w.-]+)\s*(?:\n|$)", body):
                self.result.programs.append(interpreter[1])
            if self._runs_input:
                self._read(body, 1)
            if any(starts_programs(language, body) for language in self._languages):
                self._give_up(body)
        scripts = {PurePosixPath(path).name for path in self.result.scripts}
        self.result.hidden |= bool(scripts & self._made)
        return self.result

    def _read(self, text: str, depth: int) -> None:
        text = text.replace("\0", "").replace("\r", _CR)  # bash drops the one, and keeps the other
        if text in self._seen:
            return
        self._seen.add(text)
        short, bodies = without_long_bodies(text)
        data = short.encode("utf-8", "replace")
        self._budget -= len(data)
        if len(data) > MAX_BYTES or self._budget < 0 or depth > _MAX_DEPTH:
            self._give_up(text)
            return
        tree = ShellTree(data, bodies)
        for words in tree.commands():
            self._record(words, depth)
        self._add(tree.runs, depth)
        self._written += tree.written
        self._made |= tree.made
        self.result.simple &= tree.simple
        for body in tree.unclear:
            self.result.unclear += _bare_words(body)
        if tree.broken:
            self._give_up(text)

    def _give_up(self, text: str) -> None:
        self.result.unclear += _bare_words(text)
        self.result.hidden = True

    def _record(self, words: list[Word], depth: int) -> None:
        """Record a command and the commands that it runs."""
        spans, seen, spelled_out = [(0, len(words))], set[tuple[int, int]](), 0
        while spans:
            start, end = span = spans.pop()
            if span in seen or start >= end:
                continue
            if len(seen) == MOST_READINGS:
                self._give_up(joined(words))
                break
            seen.add(span)
            part = words[start:end]
            self._record_words(part)
            runs = runs_of(part)
            if runs.spelled_out:
                spelled_out = max(spelled_out, start + runs.spelled_out)
            spans += [(start + first, start + last) for first, last in runs.commands]
            self._add(runs, depth)
        if depth == 0:
            self.result.visible.append(list(_forms(words, spelled_out)))

    def _add(self, runs: Runs, depth: int) -> None:
        """Add what a command, or a text's variables, run."""
        self.result.hidden |= runs.hidden
        self.result.programs += runs.programs
        self.result.found += runs.also
        self._runs_input |= runs.runs_input
        self._languages |= {runs.language} - {""}
        self.result.scripts += [runs.script] if runs.script else []
        self._made |= runs.made
        self._written += runs.written
        if runs.code:
            self._give_up(runs.code)
        for text in runs.texts:
            self._read(text, depth + 1)

    def _record_words(self, words: Sequence[Word]) -> None:
        first, text = words[0], one_line(joined(words))
        name = PurePosixPath(first.text).name
        self.result.found += dict.fromkeys((text, text.lstrip("@-+")))  # of a Makefile's lines
        self.result.commands.append(tuple(word.text for word in words))
        if "/" in first.text:
            self.result.found.append(one_line(f"{name} {joined(words[1:])}"))
            self.result.paths.append((first.text, joined(words[1:])))
        if not first.literal and "{" in text:
            self.result.unclear += _bare_words(text)  # {rm,-f,x}
        known = next((n for n, word in enumerate(words) if not word.literal or word.wild), None)
        if known:
            self.result.beginnings.append(one_line(f"{name} {joined(words[1:known])}") + " ")


def _forms(words: Sequence[Word], spelled_out: int) -> Iterator[Command]:
    """Yield a command as written, and without harmless wrappers around it."""
    at = 0
    while at < len(words):
        named = one_line(joined(words[at:spelled_out]))
        yield Command(one_line(joined(words[at:])), len(named))
        name = words[at].text
        starts = command_starts(words[at:], WRAPPERS[name]) if name in HARMLESS_WRAPPERS else []
        at += starts[0] if len(starts) == 1 else len(words)


_SEPARATORS = str.maketrans({**dict.fromkeys("'\"\\"), **dict.fromkeys(";&|(){}<>`$,", " ")})


def _bare_words(text: str) -> tuple[str, str]:
    """Return a text's words as written, and without quotes and separators."""
    joined = re.sub(r"\$\{\w+:?[-+=]", " ", text.replace("\\\n", "")).translate(_SEPARATORS)
    return f" {one_line(text)} ", f" {one_line(joined)} "


def _mentions(words: str, pattern: str) -> bool:
    """Return True if the literal parts of a pattern occur among words, in order."""
    first, *others = re.split(r"\*|\?|\[[^]]*\]", pattern)
    begin = re.search(rf"(?<=[ /]){re.escape(first)}", words) if first else None
    if first and not begin:
        return False
    at = begin.end() if begin else 0
    for piece in others:
        found = words.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True
