"""Finds what programs run because of their options, variables and inline code. Pure.

`tar --checkpoint-action=exec=CMD` and `PAGER=CMD man ls` run a command, and `python -c CODE` may.
Code is only searched for words that start programs, so hidden starts are not found.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmanus_graph.safety import word_set


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

_RUNNING_OPTIONS = {
    "compgen": "C", "complete": "C",
    "git archive": "exec", "git clone": "c u config template upload-pack",
    "git fetch": "upload-pack", "git grep": "O open-files-in-pager",
    "git ls-remote": "exec upload-pack", "git pull": "upload-pack",
    "git push": "exec receive-pack", "git rebase": "x exec",
    "make": "eval", "nix-shell": "run command", "npx": "call",
    "man": "P H pager html", "mapfile": "C", "readarray": "C",
    "rg": "pre hostname-bin", "rsync": "e rsh", "scp": "D F o S",
    "sftp": "D F o S", "sort": "compress-program", "ssh": "F o",
    "tar": "F I checkpoint-action info-script new-volume-script rmt-command rsh-command to-command"
           " use-compress-program",
    "zip": "T TT unzip-command",
}  # fmt: skip
"""Options that run another program: short ones as letters, long ones by name."""
_GIT_VALUES = frozenset({"-C", "-c", "--config-env", "--exec-path", "--git-dir", "--namespace",
                         "--work-tree"})  # fmt: skip
_GIT_RUNS = ("-c", "--config-env", "--exec-path")
_GIT_COMMANDS = word_set("bisect config difftool filter-branch mergetool submodule")
"""Commands that run programs, or configure which ones git runs later."""


_KEY = re.compile(r"^(?:exec=|\w+Command[ =]|[\w-]+\.[\w.-]+=)?\s*!?")
"""What comes before a command in a value: `exec=`, `ProxyCommand=`, `alias.x=!`."""


def running_options(name: str, words: Sequence[Word]) -> tuple[int, list[str], int]:
    """Find the options of a command that run other programs.

    Returns:
        The number of words that an allowing rule must name, the shell texts that the options run,
            and
        the position of the word that says what is done, after git's own options.
    """
    end, at, texts = 0, 1, list[str]()
    if name == "git":
        end, at, texts = _git_options(words)
        command = words[at].text if at < len(words) else ""
        name = f"git {command}"
        if command in _GIT_COMMANDS:
            end = at + 1
            texts += [word.text for word in words[at + 1 :]] + [joined(words[at + 2 :])]
    options = _RUNNING_OPTIONS.get(name, "").split()
    for number in range(at, len(words)) if options else ():
        cluster = name == "tar" and number == 1
        if _is_among(words[number], options, cluster=cluster):
            end = number + 2
            texts += _values(words, number)
    return end, [_KEY.sub("", one) for one in texts], at


def _git_options(words: Sequence[Word]) -> tuple[int, int, list[str]]:
    """Return the number of words to be named, where the command is, and what values may run."""
    end, at, texts = 0, 1, list[str]()
    while at < len(words) and words[at].text.startswith("-"):
        option, equals, _ = words[at].text.partition("=")
        length = 2 if option in _GIT_VALUES and not equals else 1
        if option.startswith(_GIT_RUNS):
            end = at + length
            texts += _values(words, at)
        at += length
    return end, at, texts


def _values(words: Sequence[Word], at: int) -> Iterator[str]:
    """Yield what may be the value of an option: the rest of its word, and the next word."""
    text = words[at].text
    if text.startswith("--"):
        yield text.partition("=")[2]
    else:
        yield from (text[first:] for first in range(2, min(len(text), 8)))
    yield from (word.text for word in words[at + 1 : at + 2])


def _is_among(word: Word, options: Sequence[str], *, cluster: bool) -> bool:
    """Return True if a word is one of some options, also shortened or combined with others."""
    text = word.text
    if word.wild and text[:1] in "*?[":  # a file may have an option's name
        return True
    if text.startswith("--"):
        name = text[2:].split("=")[0]
        return bool(name) and any(option.startswith(name) for option in options if len(option) > 1)
    letters = {option[0] for option in options if len(option) <= 2}
    return (cluster or text.startswith("-")) and bool(letters & set(text))


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
