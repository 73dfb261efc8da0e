"""Parses a shell text with tree-sitter's grammar of bash. Pure.

The grammar misreads some texts without an error, so the text between nodes is checked too.
Rejected: bashlex (GPL, knows less of bash) and mvdan/sh (Go, a second process).
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from openmanus_graph.safety import word_set
from openmanus_graph.safety.shell_code import Word, read_word
from openmanus_graph.safety.shell_programs import Runs, add_variable, hides_substitution

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES = 4096
"""Bytes that are parsed. Some texts of this size take 0.5 s, of twice the size 2 s."""
_PLAIN_NODES = word_set(
    "program list pipeline negated_command subshell compound_statement redirected_statement "
    "command command_name comment word number string string_content raw_string ansi_c_string "
    "translated_string concatenation file_redirect file_descriptor"
)
_PLAIN_TOKENS = word_set('&& || | |& ; & ! ( ) { } " $ < > >> >| >& <& &> &>> >&- <&-') | {"\n"}
_TEXT_NODES = word_set("string heredoc_body expansion translated_string regex")
"""Between the parts of these nodes is text."""
_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_NO_WORDS = frozenset(
    {"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect", "comment"}
)
_WORDS = word_set(
    "word number string raw_string ansi_c_string translated_string concatenation simple_expansion "
    "expansion command_substitution process_substitution arithmetic_expansion brace_expression"
)
_ONE_WORD = frozenset(["simple_expansion", "concatenation", "variable_assignment"])
_GAP = re.compile(rb"(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*(?:-[ \t]+)?")
"""The grammar drops a lone `-` before a here-document."""
_STARTUP_FILE = re.compile(
    r"hooks/|\.git/|/\.?gitconfig|\.(?:bash\w+|profile|gitconfig|inputrc|vimrc|z\w+)[\"']?$"
)
"""Files that programs read, and run, at their next start."""
_NO_FILE = re.compile(r"\d*(?:&>>?|[<>]|>>|>\|)\s*/dev/null|\d*[<>]&\s*(?:\d+|-)")

_BEFORE_COMMENTS = (b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")")


class ShellTree:
    """The tree of one text."""

    def __init__(self, data: bytes, bodies: dict[str, str]) -> None:
        """`bodies` has the here-documents that were cut out of the text, by their marks."""
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        self._root = Parser(Language(tree_sitter_bash.language())).parse(data).root_node
        self._data = data
        self._bodies = bodies
        self.broken = self._root.has_error
        """Whether bash may read it differently."""
        self.simple = True
        """Whether it holds only literal commands: see `ShellText`."""
        self.written: list[str] = []
        """Its here-documents and here-strings."""
        self.unclear: list[str] = []
        """Parts that are not parsed."""
        self.made: set[str] = set()
        """Names of the files that other programs than `echo` and the like write."""
        self.runs = Runs()
        """What its assignments and expansions run."""

    def commands(self) -> list[list[Word]]:
        commands: list[Node] = []
        redirects: list[Node] = []
        nodes = [self._root]
        self._check_gap(0, self._root.start_byte)
        self._check_gap(self._root.end_byte, len(self._data))
        while nodes:
            node = nodes.pop()
            self._check_node(node)
            if node.type in _COMMANDS:
                commands.append(node)
            elif node.type in ("file_redirect", "heredoc_redirect"):
                redirects.append(node)
            nodes += node.children
        if self._bodies:
            self.broken = True  # the grammar takes one for something else
        found = _parts_of(commands, redirects)
        return [words for parts in found if (words := self._words(parts))]

    def _check_node(self, node: "Node") -> None:
        """Detect anything but literal commands, and misreadings of the grammar."""
        children = node.children
        if node.type not in _TEXT_NODES:
            for one, other in itertools.pairwise(children):
                self._check_gap(one.end_byte, other.start_byte)
                self.broken |= node.type in _ONE_WORD and one.end_byte < other.start_byte
        if node.type not in (_PLAIN_NODES if node.is_named else _PLAIN_TOKENS):
            self.simple = False
        if node.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            self._check_redirect(node)
        else:
            self._check_reading(node)

    def _check_reading(self, node: "Node") -> None:
        """Detect text that bash reads differently from the grammar."""
        text = self._text(node) if node.type in ("word", "command_substitution") else ""
        if node.type == "variable_assignment":
            name, _, value = self._text(node).partition("=")
            add_variable(self.runs, name.removesuffix("+"), read_word(value))
        elif node.type == "expansion":
            self.runs.hidden |= "@P" in self._text(node)  # expands the value as a prompt
            self.broken |= "`" in self._text(node)  # taken for text
        elif node.type == "test_command":
            self.runs.hidden |= hides_substitution(self._text(node).lstrip("[ "))
        if node.type == "comment":
            before = self._data[: node.start_byte][-1:]
            self.broken |= before not in (b"", *_BEFORE_COMMENTS)
        elif node.type == "word":
            # A substitution within a substitution; two commands, read as one word.
            self.broken |= "\\`" in text or "\n" in text.replace("\\\n", "")
        elif text.startswith("`"):
            self.broken |= "\\" in text

    def _check_redirect(self, node: "Node") -> None:
        if node.type == "file_redirect":
            target = next((one for one in node.children if one.type in _WORDS), node)
            text = self._slice(node.start_byte, target.end_byte)
            self.simple &= bool(_NO_FILE.fullmatch(text) or text in (">&-", "<&-"))
            if ">" in text and not self._writes_known_text(node):
                self.made.add(PurePosixPath(read_word(self._text(target)).text).name)
            self.runs.hidden |= ">" in text and bool(_STARTUP_FILE.search(text))
        elif node.type == "heredoc_redirect":
            self._check_heredoc({one.type: self._text(one) for one in node.children})
        else:
            given = read_word(self._text(node).removeprefix("<<<").strip()).text
            self.written.append(given)
            self.runs.hidden |= hides_substitution(given)

    def _writes_known_text(self, redirect: "Node") -> bool:
        """Return True if a redirection writes text in `written`, or what `echo` prints."""
        statement = redirect.parent
        if statement is None or statement.type != "redirected_statement":
            return False
        first = statement.children[0]
        first = first.children[-1] if first.type == "pipeline" else first
        program = self._text(first).split(None, 1)[0] if self._text(first).split() else ""
        heredoc = any(one.type == "heredoc_redirect" for one in statement.children)
        return program in ("echo", "printf") or (program == "cat" and heredoc)

    def _check_heredoc(self, parts: dict[str, str]) -> None:
        start, body = parts.get("heredoc_start", ""), parts.get("heredoc_body", "")
        cut = self._bodies.pop(body.strip(), None)
        body = body if cut is None else cut
        end = read_word(start).text
        if any(line.lstrip("\t") == end for line in body.split("\n")):
            self.broken = True
        if not set(start) & set("'\"\\") and ("`" in body or (cut is not None and "$(" in body)):
            self.unclear.append(body)
        self.written.append(body)

    def _words(self, nodes: list["Node"]) -> list[Word]:
        """Join nodes that touch, because the grammar divides some words."""
        ranges: list[list[int]] = []
        for node in sorted(nodes, key=lambda one: one.start_byte):
            self.simple &= node.type != "subshell"
            if ranges and ranges[-1][1] >= node.start_byte:
                ranges[-1][1] = max(ranges[-1][1], node.end_byte)
            else:
                ranges.append([node.start_byte, node.end_byte])
        words = [read_word(self._slice(start, end)) for start, end in ranges]
        self.simple &= all(word.literal for word in words)
        return words

    def _check_gap(self, start: int, end: int) -> None:
        gap = self._data[start:end]
        if gap and not _GAP.fullmatch(gap):
            self.broken = True

    def _text(self, node: "Node") -> str:
        return self._slice(node.start_byte, node.end_byte)

    def _slice(self, start: int, end: int) -> str:
        return self._data[start:end].decode("utf-8", "replace")


def _parts_of(commands: Sequence["Node"], redirects: Sequence["Node"]) -> list[list["Node"]]:
    """Return the words of each command, in order.

    The grammar counts what follows a redirection as a part of it. It belongs to the command before,
    or is a command if the statement has no other.
    """
    found: list[tuple[int, list[Node]]] = []
    for command in commands:
        skipped = _NO_WORDS if command.type == "command" else ()
        words = [one for one in command.children if one.type not in skipped]
        found.append((command.end_byte, words))
    alone: dict[int, list[Node]] = {}
    strays: list[Node] = []
    for redirect in redirects:
        words = [one for one in redirect.children if one.type in _WORDS]
        words = words[1:] if redirect.type == "file_redirect" else words
        statement = redirect.parent
        if statement and all(one.type.endswith("_redirect") for one in statement.children):
            alone.setdefault(statement.id, []).extend(words)
        else:
            strays += words
    found += [(words[0].start_byte, words) for words in alone.values() if words]
    found.sort(key=lambda one: one[0])
    for stray in strays:
        before = [words for end, words in found if end <= stray.start_byte]
        if before:
            before[-1].append(stray)
    return [words for _, words in found]


_HEREDOC = re.compile(r"""<<-?[ \t]*(?:'([^'\n]+)'|"([^"\n]+)"|\\?([\w.-]+))""")
_CUT = 200
_MARK = "\ue000"


def without_long_bodies(text: str) -> tuple[str, dict[str, str]]:
    """Replace long here-documents of a long text by marks. Return the text, and them by mark.

    This is a guess. `ShellTree` checks that the grammar takes each for a here-document.
    """
    bodies: dict[str, str] = {}
    if len(text) <= MAX_BYTES or _MARK in text:
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
