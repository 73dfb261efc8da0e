"""Finds the commands that a shell text would run, as far as that can be known statically. Pure.

The text is parsed with tree-sitter's grammar of bash. Rules that deny or ask are compared with
every command in it; rules that allow cover only texts of literal commands. In doubt, the former
match and the latter do not.

The grammar misreads some texts without an error, so the text between two nodes is checked, too.
It is slow on some texts that it cannot parse, so only short texts are parsed, with long
here-documents cut out; of all others only the words are compared.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from openmanus_graph.safety.shell_programs import (
    HARMLESS_WRAPPERS,
    MOST_READINGS,
    WRAPPERS,
    Word,
    command_starts,
    joined,
    read_word,
    runs_of,
    word_set,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_BYTES = 4096
"""Bytes that are parsed: some texts of this size take half a second, of twice the size two."""
_MAX_DEPTH = 8
"""Limit of nested texts (`bash -c "bash -c ..."`)."""


@dataclass(frozen=True)
class Command:
    """A command as written, with single spaces and without quotes."""

    text: str
    spelled_out: int = 0
    """Characters at its start that an allowing rule must name without wildcards, because they
    say what other program runs (`git -c core.pager=...`)."""

    def is_allowed_by(self, pattern: str) -> bool:
        """Say whether a pattern covers the command."""
        literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
        return len(literal) >= self.spelled_out and fnmatchcase(self.text, pattern)


@dataclass
class ShellText:
    """The commands of a shell text."""

    found: list[str] = field(default_factory=list[str])
    """Every command that may run, also those run by others, with and without their path."""
    unclear: list[str] = field(default_factory=list[str])
    """Parts that could not be parsed, as bare words."""
    visible: list[list[Command]] = field(default_factory=list[list[Command]])
    """Each command written in the text itself, in its equivalent forms (`timeout 5 ls` is also
    `ls`)."""
    simple: bool = True
    """Whether it holds only literal commands, joined by `;`, `&`, `|`, `&&`, `||`, `!`, brackets:
    no variables, substitutions, assignments, loops, functions or redirections to files."""
    hidden: bool = False
    """Whether it runs unknown commands: one named by a variable, a pipe into a shell."""

    def may_run(self, pattern: str) -> bool:
        """Say whether a rule that denies or asks matches the text; in doubt it does.

        A pattern like `rm *` also matches `rm` alone: `xargs` adds arguments.
        """
        return any(
            fnmatchcase(one, pattern) or fnmatchcase(f"{one} ", pattern) for one in self.found
        ) or any(_mentions(words, pattern) for words in self.unclear)

    @property
    def parts(self) -> set[int]:
        """The parts to be allowed: the visible commands by number, and everything else as -1."""
        return {*range(len(self.visible)), *(() if self.simple else (-1,))}

    def allowed_by(self, pattern: str) -> set[int]:
        """Return the parts that an allowing rule covers. The pattern `*` covers all of them."""
        if pattern == "*":
            return self.parts
        return {
            number
            for number, forms in enumerate(self.visible)
            if any(form.is_allowed_by(pattern) for form in forms)
        }


@lru_cache(maxsize=4)
def read_shell_text(text: str) -> ShellText:
    """Find the commands of a shell text; never raises. Callers must not change the result."""
    reader = _Reader()
    reader.read(text, 0)
    return reader.result


def one_line(text: str) -> str:
    """Write every run of whitespace as one space."""
    return " ".join(text.split())


_PLAIN_NODES = word_set(
    "program list pipeline negated_command subshell compound_statement redirected_statement "
    "command command_name comment word number string string_content raw_string ansi_c_string "
    "translated_string concatenation file_redirect file_descriptor"
)
_PLAIN_TOKENS = word_set('&& || | |& ; & ! ( ) { } " $ < > >> >| >& <& &> &>> >&- <&-') | {"\n"}
_TEXT_NODES = word_set("string heredoc_body expansion translated_string regex")
"""What lies between the parts of these is text."""
_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_NO_WORDS = frozenset(
    {"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect", "comment"}
)
_WORDS = word_set(
    "word number string raw_string ansi_c_string translated_string concatenation simple_expansion "
    "expansion command_substitution process_substitution arithmetic_expansion brace_expression"
)
_ONE_WORD = frozenset(["simple_expansion", "concatenation", "variable_assignment"])
_GAP = re.compile(rb"(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*")
_NO_FILE = re.compile(r"\d*(?:&>>?|[<>]|>>|>\|)\s*/dev/null|\d*[<>]&\s*(?:\d+|-)")


_BEFORE_COMMENTS = (b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")")


class _Reader:
    """Reads a text and the texts in it into one result."""

    def __init__(self) -> None:
        self.result = ShellText()
        self._seen: set[str] = set()
        self._budget = 4 * _MAX_BYTES

    def read(self, text: str, depth: int) -> bool:
        """Read a text; return whether it starts a shell that reads commands from another source."""
        text = text.replace("\0", "")  # bash drops them
        if text in self._seen:
            return False
        self._seen.add(text)
        short, bodies = _without_long_bodies(text)
        data = short.encode("utf-8", "replace")
        self._budget -= len(data)
        if len(data) > _MAX_BYTES or self._budget < 0 or depth > _MAX_DEPTH:
            self._give_up(text)
            return False
        tree = _Tree(data, bodies, self.result)
        for words in tree.commands():
            self._record(words, tree, depth)
        if tree.broken:
            self._give_up(text)
        for body in tree.written if tree.runs_input else ():
            self.read(body, depth + 1)
        return tree.runs_input

    def _give_up(self, text: str) -> None:
        self.result.unclear += _bare_words(text)
        self.result.hidden = True

    def _record(self, words: list[Word], tree: "_Tree", depth: int) -> None:
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
            self._record_words(part, tree)
            runs = runs_of(part)
            self.result.hidden |= runs.hidden
            tree.runs_input |= runs.runs_input
            if runs.spelled_out:
                spelled_out = max(spelled_out, start + runs.spelled_out)
            spans += [(start + first, start + last) for first, last in runs.commands]
            for text in runs.texts:
                tree.runs_input |= self.read(text, depth + 1)
        if depth == 0:
            self.result.visible.append(list(_forms(words, spelled_out)))

    def _record_words(self, words: Sequence[Word], tree: "_Tree") -> None:
        first, text = words[0], one_line(joined(words))
        name = PurePosixPath(first.text).name
        self.result.found.append(text)
        if "/" in first.text:
            self.result.found.append(one_line(f"{name} {joined(words[1:])}"))
        if not first.literal and "{" in text:
            self.result.unclear += _bare_words(text)  # {rm,-f,x}
        if name in ("echo", "printf"):
            tree.written.append(
                re.sub(r"^(?:-[neE]+ )+", "", joined(words[1:])).replace("\\n", "\n")
            )


def _forms(words: Sequence[Word], spelled_out: int) -> Iterator[Command]:
    """Yield a command as written, and without harmless wrappers around it."""
    at = 0
    while at < len(words):
        named = one_line(joined(words[at:spelled_out]))
        yield Command(one_line(joined(words[at:])), len(named))
        name = words[at].text
        starts = command_starts(words[at:], WRAPPERS[name]) if name in HARMLESS_WRAPPERS else []
        at += starts[0] if len(starts) == 1 else len(words)


class _Tree:
    """The tree of one text."""

    def __init__(self, data: bytes, bodies: dict[str, str], result: ShellText) -> None:
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        self._root = Parser(Language(tree_sitter_bash.language())).parse(data).root_node
        self._data = data
        self._bodies = bodies
        self._result = result
        self.broken = self._root.has_error
        self.written: list[str] = []
        """Text that is passed to programs or written to files: here-documents, output of `echo`."""
        self.runs_input = False
        """Whether a shell reads commands that may be among these."""

    def commands(self) -> list[list[Word]]:
        """Return the words of all commands, and check all other nodes."""
        found: list[tuple[int, list[Node]]] = []
        strays: list[Node] = []
        nodes = [self._root]
        self._check_gap(0, self._root.start_byte)
        self._check_gap(self._root.end_byte, len(self._data))
        while nodes:
            node = nodes.pop()
            self._check_node(node)
            if node.type in _COMMANDS:
                parts = node.children
                if node.type == "command":
                    parts = [one for one in parts if one.type not in _NO_WORDS]
                found.append((node.end_byte, parts))
            elif node.type in ("file_redirect", "heredoc_redirect"):
                inside = [one for one in node.children if one.type in _WORDS]
                strays += inside[1:] if node.type == "file_redirect" else inside
            nodes += node.children
        found.sort(key=lambda one: one[0])
        for stray in strays:  # the grammar counts what follows a redirection as a part of it
            before = [parts for end, parts in found if end <= stray.start_byte]
            if before:
                before[-1].append(stray)
        if self._bodies:
            self.broken = True  # the grammar takes one for something else
        return [words for _, parts in found if (words := self._words(parts))]

    def _check_node(self, node: "Node") -> None:
        """Detect anything but literal commands, and misreadings of the grammar."""
        children = node.children
        if node.type not in _TEXT_NODES:
            for one, other in itertools.pairwise(children):
                self._check_gap(one.end_byte, other.start_byte)
                self.broken |= node.type in _ONE_WORD and one.end_byte < other.start_byte
        if node.type not in (_PLAIN_NODES if node.is_named else _PLAIN_TOKENS):
            self._result.simple = False
        if node.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            self._check_redirect(node)
        else:
            self._check_reading(node)

    def _check_reading(self, node: "Node") -> None:
        """Detect text that bash reads differently from the grammar."""
        text = self._text(node) if node.type in ("word", "command_substitution") else ""
        if node.type == "comment":
            before = self._data[: node.start_byte][-1:]
            self.broken |= before not in (b"", *_BEFORE_COMMENTS)
        elif node.type == "word":
            self.broken |= "\\`" in text  # a substitution within a substitution
        elif text.startswith("`"):
            self.broken |= "\\" in text

    def _check_redirect(self, node: "Node") -> None:
        if node.type == "file_redirect":
            target = next((one for one in node.children if one.type in _WORDS), node)
            text = self._slice(node.start_byte, target.end_byte)
            self._result.simple &= bool(_NO_FILE.fullmatch(text) or text in (">&-", "<&-"))
        elif node.type == "heredoc_redirect":
            self._check_heredoc({one.type: self._text(one) for one in node.children})
        else:
            self.written.append(read_word(self._text(node).removeprefix("<<<").strip()).text)

    def _check_heredoc(self, parts: dict[str, str]) -> None:
        start, body = parts.get("heredoc_start", ""), parts.get("heredoc_body", "")
        cut = self._bodies.pop(body.strip(), None)
        body = body if cut is None else cut
        end = read_word(start).text
        if any(line.lstrip("\t") == end for line in body.split("\n")):
            self.broken = True
        if not set(start) & set("'\"\\") and ("`" in body or (cut is not None and "$(" in body)):
            self._result.unclear += _bare_words(body)
        self.written.append(body)

    def _words(self, nodes: list["Node"]) -> list[Word]:
        """Join nodes that touch; the grammar divides some words."""
        ranges: list[list[int]] = []
        for node in sorted(nodes, key=lambda one: one.start_byte):
            self._result.simple &= node.type != "subshell"
            if ranges and ranges[-1][1] >= node.start_byte:
                ranges[-1][1] = max(ranges[-1][1], node.end_byte)
            else:
                ranges.append([node.start_byte, node.end_byte])
        words = [read_word(self._slice(start, end)) for start, end in ranges]
        self._result.simple &= all(word.literal for word in words)
        return words

    def _check_gap(self, start: int, end: int) -> None:
        gap = self._data[start:end]
        if gap and not _GAP.fullmatch(gap):
            self.broken = True

    def _text(self, node: "Node") -> str:
        return self._slice(node.start_byte, node.end_byte)

    def _slice(self, start: int, end: int) -> str:
        return self._data[start:end].decode("utf-8", "replace")


_HEREDOC = re.compile(r"""<<-?[ \t]*(?:'([^'\n]+)'|"([^"\n]+)"|\\?([\w.-]+))""")
_CUT = 200
_MARK = "\ue000"
_SEPARATORS = str.maketrans({**dict.fromkeys("'\"\\"), **dict.fromkeys(";&|(){}<>`$,", " ")})


def _without_long_bodies(text: str) -> tuple[str, dict[str, str]]:
    """Replace long here-documents of a long text by marks; return the text, and them by mark.

    This only guesses; later it is checked that the grammar takes each for a here-document, too.
    """
    bodies: dict[str, str] = {}
    if len(text) <= _MAX_BYTES or _MARK in text:
        return text, bodies
    parts: list[str] = []
    at = 0
    while match := _HEREDOC.search(text, at):
        start = text.find("\n", match.end()) + 1
        name = re.escape(next(filter(None, match.groups())))
        end = re.compile(rf"^\t*{name}$", re.MULTILINE).search(text, start) if start else None
        if end is None:
            break
        body = text[start : end.start()]
        if len(body) > _CUT:
            mark = f"{_MARK}{len(bodies)}"
            bodies[mark], body = body, f"{mark}\n"
        parts += [text[at:start], body]
        at = end.start()
    return "".join([*parts, text[at:]]), bodies


def _bare_words(text: str) -> tuple[str, str]:
    """Return a text's words as they are, and without quotes and separators."""
    joined = re.sub(r"\$\{\w+:?[-+=]", " ", text.replace("\\\n", "")).translate(_SEPARATORS)
    return f" {one_line(text)} ", f" {one_line(joined)} "


def _mentions(words: str, pattern: str) -> bool:
    """Say whether the literal parts of a pattern occur among words, in their order."""
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
