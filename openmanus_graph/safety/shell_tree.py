"""Reads the words and the syntax of a shell text, and code in its arguments. Pure.

Code is only searched for words that start programs, so hidden starts are not found. The text is
parsed with tree-sitter's grammar of bash. The grammar misreads some texts without an error, so the
text between nodes is checked too.
Rejected: bashlex (GPL, knows less of bash) and mvdan/sh (Go, a second process).
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from openmanus_graph.safety import word_set

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class Word:
    text: str
    """Without quotes; expansions are left as written."""
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
    r"(?s)\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))"
)
_ANSI_NAMES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
               "e": "\x1b", "E": "\x1b"}  # fmt: skip


def read_word(raw: str) -> Word:
    """Remove the quotes from a word."""
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
    return " ".join(word.text for word in words)


RUNNING_VARIABLES = word_set(
    "BASH_ALIASES BASH_CMDS BROWSER EDITOR FCEDIT GIT_ASKPASS GIT_EDITOR GIT_EXTERNAL_DIFF "
    "GIT_PAGER GIT_PROXY_COMMAND GIT_SEQUENCE_EDITOR GIT_SSH GIT_SSH_COMMAND LESSCLOSE "
    "LESSOPEN MANPAGER PAGER PROMPT_COMMAND PS0 PS1 PS2 PS4 RSYNC_RSH SSH_ASKPASS "
    "SUDO_ASKPASS SYSTEMD_EDITOR VISUAL"
)
"""Variables whose value programs run."""
SOURCED_VARIABLES = word_set("BASH_ENV ENV")
"""Variables that name a script which shells read first."""


@dataclass
class Runs:
    """What a command's arguments say that it runs."""

    commands: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """First word and end of each command in the arguments."""
    texts: list[str] = field(default_factory=list[str])
    spelled_out: int = 0
    """Words that an allowing rule must name."""
    hidden: bool = False
    runs_input: bool = False
    """Whether it is a shell that reads commands from its input or a file."""
    script: str = ""
    """That file, if it is known."""
    language: str = ""
    """Language of an interpreter, which may also read code from its input or a file."""
    code: str = ""
    programs: list[str] = field(default_factory=list[str])
    """Names of programs that it may start, or rename, with unknown arguments."""
    also: list[str] = field(default_factory=list[str])
    written: list[str] = field(default_factory=list[str])
    made: set[str] = field(default_factory=set[str])
    """Names of files that it may write with unknown content."""


def hides_substitution(value: str) -> bool:
    """Return True if a value has a substitution in a subscript, which arithmetic runs."""
    return bool(re.search(r"\[[^]]*(?:\$\(|`)", value))


def add_variable(runs: Runs, name: str, value: Word) -> None:
    """Add what a variable makes programs run: `env PAGER='rm x' man ls`."""
    runs.hidden |= hides_substitution(value.text)
    if name.split("[")[0] in RUNNING_VARIABLES:
        runs.texts.append(value.text)
        runs.hidden |= not value.literal
    elif name in SOURCED_VARIABLES:
        runs.runs_input, runs.script = True, value.text
        runs.hidden |= not value.literal or bool(set("$`") & set(value.text))
    elif name == "PATH":  # a file that is written may bear a program's name
        runs.runs_input = True


_LANGUAGES = {
    "awk": r"[gmn]?awk|busybox awk",
    "editor": r"vim?|nvim|ex|view|vimdiff|rvim|ed|emacs|less|gdb|sqlite3|psql|mysql",
    "node": r"node|nodejs|bun|deno",
    "perl": r"perl[\d.]*",
    "python": r"i?python[\d.]*|pypy[\d.]*",
    "ruby": r"ruby[\d.]*|irb|php[\d.]*|lua[\d.]*|tclsh|expect|osascript|Rscript|julia",
    "sed": r"g?sed",
}
_STARTS = {
    "awk": r"\bsystem\b|\bgetline\b|\bprintf?\b[^;\n}]*(?<!\|)\|(?!\|)",
    "editor": r"!|\b(?:system|term|terminal|shell|python|pipe)\b",
    "node": r"child_process|execSync|spawn|\b(?:eval|Function)\(|process\.binding|Bun\.\$|Deno\.",
    "perl": r"`|\b(?:system|exec|fork|syscall|qx|readpipe|eval|require)\b|\bopen\b[^;]*[|]"
    r"|s/.*/e\w*;",
    "python": r"\bos\.(?:system|popen|exec|spawn|posix_spawn|fork)|\bsubprocess\b|\bpty\b|\bpopen\b"
    r"|\bposix\b|__import__|\bimportlib\b|(?<![.\w])(?:eval|exec|compile)\(|\bctypes\b|\brunpy\b"
    r"|from\s+os\s+import|\bos\s+as\b|getattr\(\s*(?:os|__)|vars\(\s*os|os\.__dict__"
    r"|asyncio\.create_sub|^\s*!",
    "ruby": r"`|%x|\b(?:system|exec|execute|spawn|popen|Open3|passthru|shell_exec|proc_open|eval"
    r"|run|shell)\b",
}
_SED_SUBSTITUTE = re.compile(r"(?s)s([^\w\s\\])(?:\\.|(?!\1)[^\n])*\1(?:\\.|(?!\1)[^\n])*\1([\w]*)")
_SED_EXECUTE = re.compile(r"(?:^|[;{}!\n]|[\d$/])\s*e(?:$|[\s;}])")


def language_of(name: str) -> str:
    """Return the language of an interpreter; empty for other programs."""
    return next((one for one, names in _LANGUAGES.items() if re.fullmatch(names, name)), "")


def starts_programs(language: str, code: str) -> bool:
    """Return True if code in a language has words that start other programs."""
    if language == "sed":
        flags = [match[2] for match in _SED_SUBSTITUTE.finditer(code)]
        rest = _SED_SUBSTITUTE.sub("", code)
        return any("e" in each for each in flags) or bool(_SED_EXECUTE.search(rest))
    return bool(re.search(_STARTS[language], code, re.MULTILINE))


def inline_code(words: Sequence[Word]) -> tuple[str, bool]:
    """Return what may be code in an interpreter's arguments, and whether all of it is known.

    Code from a variable or a substitution (`python -c "$code"`) is unknown.
    """
    options = {"-c", "-e", "-E", "-p", "-r", "--eval", "--expression"}
    before = ("", *(word.text for word in words[:-1]))
    known = not any(
        not word.literal and word.text[:1] in "$`" and (last in options or last == words[0].text)
        for last, word in zip(before, words, strict=True)
    )
    return "\n".join(word.text for word in words[1:]), known


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
        self.unclear: list[str] = []
        self.runs = Runs()
        """What its assignments and expansions run, its here-documents and here-strings, and the
        files that other programs than `echo` and the like write."""

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
                self.runs.made.add(PurePosixPath(read_word(self._text(target)).text).name)
            self.runs.hidden |= ">" in text and bool(_STARTUP_FILE.search(text))
        elif node.type == "heredoc_redirect":
            self._check_heredoc({one.type: self._text(one) for one in node.children})
        else:
            given = read_word(self._text(node).removeprefix("<<<").strip()).text
            self.runs.written.append(given)
            self.runs.hidden |= hides_substitution(given)

    def _writes_known_text(self, redirect: "Node") -> bool:
        """Return True if a redirection writes a here-document, or what `echo` prints."""
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
        self.runs.written.append(body)

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
