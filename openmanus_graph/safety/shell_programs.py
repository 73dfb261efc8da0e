"""The words of a shell command, and the commands that its program runs in turn. Pure.

The tables describe how programs take the command that they run: `sudo -u root rm` runs `rm`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

MOST_READINGS = 32
"""Limit of the readings of one command: nested wrappers, unknown options."""


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


@dataclass(frozen=True)
class _Wrapper:
    """A program that runs the command in its arguments, and the options before that command.

    An option that is not listed is read both with and without a value.
    """

    flags: str = ""
    """Short options without a value."""
    valued: str = ""
    """Short options with one."""
    long: str = ""
    """Long options whose value is the next word."""
    operands: int = 0
    """Words before the command."""
    idle: str = ""
    """Short options with which no command runs."""
    text: str = ""
    """The short option whose value is a shell text."""
    joined: bool = False
    """Whether the command's words are joined and read by a shell."""


_PLAIN = _Wrapper()
_ONE_OPERAND = _Wrapper(operands=1)
WRAPPERS: dict[str, _Wrapper] = {
    **dict.fromkeys(
        word_set(
            "! { if then elif else while until do builtin busybox toybox nohup setpriv unshare "
            "nsenter prlimit systemd-run strace ltrace fakeroot firejail bwrap pkexec parallel "
            "unbuffer proxychains proxychains4 torsocks numactl tini dumb-init rlwrap xvfb-run"
        ),
        _PLAIN,
    ),
    **dict.fromkeys(word_set("gosu su-exec setuidgid faketime chrt taskset"), _ONE_OPERAND),
    "sudo": _Wrapper("ABbEeHiKklNnPSsVv", "aCcDghpRrTtUu", "user group host prompt chdir chroot"),
    "doas": _Wrapper("Lns", "aCu"),
    "env": _Wrapper("i0v", "uCa", "unset chdir argv0", text="S"),
    "nice": _Wrapper("0123456789", "n", "adjustment"),
    "ionice": _Wrapper("t", "cnpPu", "class classdata"),
    "timeout": _Wrapper("fpv", "ks", "kill-after signal", operands=1),
    "stdbuf": _Wrapper("", "ioe", "input output error"),
    "setsid": _Wrapper("cfw"),
    "chroot": _Wrapper("", "", "groups userspec", operands=1),
    "exec": _Wrapper("cl", "a"),
    "command": _Wrapper("p", idle="vV"),
    "time": _Wrapper("pv"),
    "watch": _Wrapper("bcdegtwx", "nq", "interval equexit", joined=True),
    "xargs": _Wrapper("0oprtxeil", "adEILnPs", "arg-file delimiter max-args max-chars max-procs"),
    "ssh": _Wrapper("46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopQRSWw", operands=1, joined=True),
    "flock": _Wrapper("censuxFo", "wE", "timeout", operands=1, text="c"),
    "runuser": _Wrapper("lmpP", "ugGs", "user group shell", text="c"),
    "su": _Wrapper("lmpP", "gGsw", "group shell", text="c"),
    "script": _Wrapper("aefq", "BEIOmTo", text="c"),
}
HARMLESS_WRAPPERS = word_set("time timeout nice ionice stdbuf nohup command builtin")
"""Wrappers that change nothing about what a command may do: who allows it allows it so, too."""
_SHELLS = word_set("bash sh dash zsh ksh mksh ash rbash fish")
_SHELL = _Wrapper("abefhiklmnprstuvxBCDEHPTc", "oO", "rcfile init-file")
_FINDS = {
    "find": {"-exec", "-execdir", "-ok", "-okdir"},
    "fd": {"-x", "-X", "--exec", "--exec-batch"},
}
_ASSIGNMENT = re.compile(r"\w+\+?=")
_RUNNING_OPTIONS = {
    "git archive": "exec", "git clone": "c u config template upload-pack",
    "git fetch": "upload-pack", "git grep": "O open-files-in-pager",
    "git ls-remote": "exec upload-pack", "git pull": "upload-pack",
    "git push": "exec receive-pack", "git rebase": "x exec",
    "man": "P H pager html", "rg": "pre hostname-bin", "rsync": "e rsh", "scp": "D F o S",
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
"""They run programs, or say which ones git is to run later."""


@dataclass
class _Runs:
    """What a command's arguments say that it runs."""

    commands: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """First word and end."""
    texts: list[str] = field(default_factory=list[str])
    """Shell texts."""
    spelled_out: int = 0
    """Words that an allowing rule must name."""
    hidden: bool = False
    runs_input: bool = False
    """Whether it is a shell that reads commands from its input or a file."""


def runs_of(words: Sequence[Word]) -> _Runs:
    """Find what a command runs beside itself."""
    name = PurePosixPath(words[0].text).name
    if not words[0].literal or words[0].wild or words[0].text.split() != [words[0].text]:
        # An empty variable leaves the next word.
        return _Runs([(1, len(words))], hidden=True)
    if name in _SHELLS:
        return _runs_of_shell(words)
    if name in ("eval", "trap", "alias"):
        return _runs_of_texts(name, words)
    if name in _FINDS:
        return _runs_of_find(words, _FINDS[name])
    if name in WRAPPERS:
        return _runs_of_wrapper(name, words)
    if name in (".", "source"):
        return _Runs(hidden=not all(word.literal for word in words), runs_input=True)
    if name == "coproc":
        return _Runs([(1, len(words)), (2, len(words))])
    return _Runs(
        spelled_out=_running_options(name, words), runs_input=words[0].text.startswith(".")
    )


def _runs_of_shell(words: Sequence[Word]) -> _Runs:
    starts = command_starts(words, _SHELL)
    end = starts[0] if starts else len(words)
    letters = {
        letter for word in words[1:end] if re.match(r"[-+]\w", word.text) for letter in word.text
    }
    if "c" in letters:
        filled_in = any("{}" in word.text for word in words)  # by xargs
        hidden = filled_in or not starts or not all(words[start].literal for start in starts)
        return _Runs(
            texts=[words[start].text for start in starts],
            spelled_out=end + 1,
            hidden=hidden,
            runs_input=filled_in,
        )
    script = words[end].text if starts and "s" not in letters else "/dev/stdin"
    seen = script != "-" and not script.startswith("/dev/") and words[end].literal
    return _Runs(hidden=not seen, runs_input=True)


def _runs_of_texts(name: str, words: Sequence[Word]) -> _Runs:
    arguments = words[1:]
    if name == "eval":
        texts = [joined(arguments)]
    elif name == "trap":
        texts = [word.text for word in arguments if word.text[:1] != "-"][:1]
    else:
        texts = [word.text.partition("=")[2] for word in arguments]
    literal = all(word.literal for word in arguments)
    return _Runs(texts=texts, spelled_out=len(words), hidden=not literal)


def _runs_of_find(words: Sequence[Word], options: set[str]) -> _Runs:
    runs = _Runs()
    for at, word in enumerate(words):
        if word.text in options:
            rest = range(at + 1, len(words))
            end = next((n for n in rest if words[n].text in (";", "+")), len(words))
            runs.commands.append((at + 1, end))
            runs.spelled_out = at + 2
    return runs


def _runs_of_wrapper(name: str, words: Sequence[Word]) -> _Runs:
    wrapper, end = WRAPPERS[name], len(words)
    starts = command_starts(words, wrapper)
    texts = list(_option_texts(words, wrapper.text)) if wrapper.text else []
    if wrapper.joined:
        texts += [joined(words[start:]) for start in starts]
    shell = name in ("su", "ssh") and not texts
    spelled_out = end if wrapper.text and texts else _running_options(name, words)
    commands = [(start, end) for start in starts]
    return _Runs(commands, texts, spelled_out, hidden=shell, runs_input=shell)


def command_starts(words: Sequence[Word], wrapper: _Wrapper) -> list[int]:
    """Find the words at which the command may begin that a wrapper runs."""
    places, starts, seen = [1], list[int](), set[int]()
    while places and len(seen) <= MOST_READINGS:
        at = places.pop()
        if at >= len(words) or at in seen:
            continue
        seen.add(at)
        word = words[at].text
        if word == "--":
            starts.append(at + 1 + wrapper.operands)
        elif word[:1] in ("-", "+"):
            if set(word[1:]) & set(wrapper.idle):
                return []
            places += [at + length for length in _option_lengths(word, wrapper)]
        elif _ASSIGNMENT.match(word):
            places.append(at + 1)
        else:
            starts.append(at + wrapper.operands)
            if not words[at].literal:
                places.append(at + 1)
    return sorted({start for start in starts if start < len(words)})


def _option_lengths(word: str, wrapper: _Wrapper) -> tuple[int, ...]:
    """Say how many words an option and its value take; both, if it is not known."""
    if word.startswith("--"):
        return (1,) if "=" in word else (2,) if word[2:] in wrapper.long.split() else (1, 2)
    for at, letter in enumerate(word[1:], 2):
        if letter in wrapper.valued:
            return (2,) if at == len(word) else (1,)
        if letter not in wrapper.flags:
            return (1, 2)
    return (1,)


def _option_texts(words: Sequence[Word], letter: str) -> Iterator[str]:
    """Yield the values of an option that takes a shell text."""
    long = "--split-string" if letter == "S" else "--command"
    for at, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        if option == long or re.fullmatch(rf"-\w*{letter}", word.text):
            yield value if equals else joined(words[at + 1 :])
            yield joined(words[at + 1 : at + 2])
        elif match := re.match(rf"-[a-zA-Z]*?{letter}(.+)", word.text, re.DOTALL):
            yield match[1]


def _running_options(name: str, words: Sequence[Word]) -> int:
    """Count the words that an allowing rule must name: up to an option that runs a program."""
    end, at = 0, 1
    if name == "git":
        while at < len(words) and words[at].text.startswith("-"):
            option, equals, _ = words[at].text.partition("=")
            length = 2 if option in _GIT_VALUES and not equals else 1
            end = at + length if option.startswith(_GIT_RUNS) else end
            at += length
        command = words[at].text if at < len(words) else ""
        name, end = f"git {command}", at + 1 if command in _GIT_COMMANDS else end
    options = _RUNNING_OPTIONS.get(name, "").split()
    for number in range(at, len(words)) if options else ():
        if _is_among(words[number], options, cluster=name == "tar" and number == 1):
            end = number + 2
    return end


def _is_among(word: Word, options: Sequence[str], *, cluster: bool) -> bool:
    """Say whether a word is one of some options, also shortened, or joined with others."""
    text = word.text
    if word.wild and text[:1] in "*?[":  # a file may have an option's name
        return True
    if text.startswith("--"):
        name = text[2:].split("=")[0]
        return bool(name) and any(option.startswith(name) for option in options if len(option) > 1)
    letters = {option[0] for option in options if len(option) <= 2}
    return (cluster or text.startswith("-")) and bool(letters & set(text))
