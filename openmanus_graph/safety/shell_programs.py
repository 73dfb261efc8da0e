"""Finds the commands that the program of a shell command runs in turn. Pure.

The tables describe how programs take the command that they run: `sudo -u root rm` runs `rm`, and
`tar --checkpoint-action=exec=CMD` runs CMD.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from openmanus_graph.safety import word_set
from openmanus_graph.safety.shell_tree import (
    Runs,
    Word,
    add_variable,
    hides_substitution,
    inline_code,
    joined,
    language_of,
    starts_programs,
)

MOST_READINGS = 32
"""Limit of the readings of one command, with nested wrappers and unknown options."""


@dataclass(frozen=True)
class _Wrapper:
    """A program that runs the command in its arguments, and the options before that command.

    An option that is not listed is read both with and without a value.
    """

    flags: str = ""
    """Short options without a value."""
    valued: str = ""
    """Short options with a value."""
    long: str = ""
    """Long options whose value is the next word."""
    operands: int = 0
    """Words before the command."""
    idle: str = ""
    """Short options with which no command runs."""
    text: str = ""
    """The short option whose value is a shell text."""
    joined: bool = False
    """Whether a shell reads the command's words, joined."""
    verbs: str = ""
    """The subcommands that run a command. If there are any, nothing else runs one."""


_WRAPPER_ROWS = (
    (
        "! { if then elif else while until do builtin busybox toybox nohup setpriv unshare nsenter "
        "prlimit systemd-run strace ltrace fakeroot firejail bwrap pkexec parallel unbuffer "
        "proxychains proxychains4 torsocks numactl tini dumb-init rlwrap xvfb-run linux32 linux64 "
        "i386 x86_64 ssh-agent valgrind screen chronic eatmydata cgexec dbus-run-session "
        "systemd-inhibit caffeinate catchsegv arch uvx pipx gdb xterm "
        "shell",  # of Makefiles
        _Wrapper(),
    ),
    ("gosu su-exec setuidgid faketime chrt taskset setarch", _Wrapper(operands=1)),
    (
        "uv poetry pipenv pdm hatch rye pixi conda mamba micromamba dotenv op doppler",
        _Wrapper("", "np", "name prefix project directory env-file package with", verbs="run"),
    ),
    ("pnpm yarn bundle mise asdf pyenv rbenv nodenv aws-vault", _Wrapper(verbs="exec x")),
    ("npx bunx", _Wrapper("y", "pc", "package", text="c")),
    ("npm", _Wrapper("", "c", verbs="exec x", text="c")),
    ("direnv", _Wrapper(operands=1, verbs="exec")),
    ("docker podman", _Wrapper("dit", "uvwep", "user volume", 1, verbs="run exec")),
    ("perf", _Wrapper("", "eo", "event output", verbs="stat record trace")),
    (
        "tmux",
        _Wrapper(
            "dP",
            "stncxy",
            joined=True,
            verbs="new new-session neww new-window splitw split-window respawn-pane popup "
            "display-popup run run-shell if if-shell send send-keys pipe-pane",
        ),
    ),
    ("hyperfine", _Wrapper("Ni", "wrmMpcSu", "warmup runs prepare cleanup setup", joined=True)),
    ("entr", _Wrapper("acdnprz", "s", text="s")),
    ("sg", _Wrapper("", "c", operands=1, text="c", joined=True)),
    ("sudo", _Wrapper("ABbEeHiKklNnPSsVv", "aCcDghpRrTtUu", "user group host prompt chdir chroot")),
    ("doas", _Wrapper("Lns", "aCu")),
    ("env", _Wrapper("i0v", "uCaS", "unset chdir argv0", text="S")),
    ("nice", _Wrapper("0123456789", "n", "adjustment")),
    ("ionice", _Wrapper("t", "cnpPu", "class classdata")),
    ("timeout", _Wrapper("fpv", "ks", "kill-after signal", operands=1)),
    ("stdbuf", _Wrapper("", "ioe", "input output error")),
    ("setsid", _Wrapper("cfw")),
    ("chroot", _Wrapper("", "", "groups userspec", operands=1)),
    ("exec", _Wrapper("cl", "a")),
    ("command", _Wrapper("p", idle="vV")),
    ("time", _Wrapper("pv")),
    ("watch", _Wrapper("bcdegtwx", "nq", "interval equexit", joined=True)),
    ("xargs", _Wrapper("0oprtxeil", "adEILnPs", "arg-file delimiter max-args max-chars max-procs")),
    ("ssh", _Wrapper("46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopQRSWw", operands=1, joined=True)),
    ("flock", _Wrapper("ensuxFo", "wEc", "timeout", operands=1, text="c")),
    ("runuser", _Wrapper("lmpP", "ugGsc", "user group shell", text="c")),
    ("su", _Wrapper("lmpP", "gGswc", "group shell", text="c")),
    ("script", _Wrapper("aefq", "BEIOmToc", text="c")),
)
WRAPPERS = {name: wrapper for names, wrapper in _WRAPPER_ROWS for name in names.split()}
HARMLESS_WRAPPERS = word_set("time timeout nice ionice stdbuf nohup command builtin")
"""Wrappers that do not change what a command may do. Who allows it also allows it with them."""
_SHELLS = word_set("bash sh dash zsh ksh mksh ash rbash fish")
_SHELL = _Wrapper("abefhiklmnprstuvxBCDEHPTc", "oO", "rcfile init-file")
_FINDS = {
    "find": {"-exec", "-execdir", "-ok", "-okdir"},
    "fd": {"-x", "-X", "--exec", "--exec-batch"},
}
_ASSIGNMENT = re.compile(r"\w+\+?=")


def runs_of(words: Sequence[Word]) -> Runs:
    name = PurePosixPath(words[0].text).name or words[0].text
    if not words[0].literal or words[0].wild or words[0].text.split() != [words[0].text]:
        # An empty variable leaves the next word.
        return Runs([(1, len(words))], hidden=True)
    if re.fullmatch(r"\{\w+\}", name):  # names a redirection's descriptor
        return Runs([(1, len(words))])
    runs = _runs_by_name(name, words)
    _add_options(runs, name, words)
    runs.programs += _named_programs(name, words)
    for word in words:
        variable, equals, value = word.text.partition("=")
        if equals:
            add_variable(runs, variable, Word(value, word.literal))
    if name in _SUBSCRIPTING:
        runs.hidden |= any(hides_substitution(word.text) for word in words[1:])
    _add_written(runs, name, words)
    return runs


def _add_options(runs: Runs, name: str, words: Sequence[Word]) -> None:
    """Add what options and inline code run."""
    spelled_out, texts, command = running_options(name, words)
    runs.spelled_out = max(runs.spelled_out, spelled_out)
    runs.texts += texts
    if command > 1:  # git's own options
        runs.also.append(" ".join(joined([Word(name, True), *words[command:]]).split()))
    if language := language_of(name):
        code, known = inline_code(words)
        runs.programs += re.findall(r"/s?bin/([\w.-]+)", code)
        runs.language, runs.hidden = language, runs.hidden or not known
        runs.code = code if starts_programs(language, code) else ""


def _runs_by_name(name: str, words: Sequence[Word]) -> Runs:
    if name in _SHELLS:
        return _runs_of_shell(words)
    if name in ("eval", "trap", "alias"):
        return _runs_of_texts(name, words)
    if name in _FINDS:
        return _runs_of_find(words, _FINDS[name])
    if name in WRAPPERS:
        return _runs_of_wrapper(name, words)
    if name in _SCHEDULERS:
        listing = any(word.text in ("-l", "-r", "-d", "-q") for word in words[1:])
        return Runs() if listing else Runs(hidden=True, runs_input=True, script="/dev/stdin")
    if name in (".", "source"):
        literal = all(word.literal for word in words)
        script = words[1].text if len(words) > 1 else ""
        unseen = not literal or script.startswith("/dev/")
        return Runs(hidden=unseen, runs_input=True, script=script)
    if name == "coproc":
        return Runs([(1, len(words)), (2, len(words))])
    own = name in _MAKES or ("/" in words[0].text and not _PROGRAM_PATH.search(words[0].text))
    return Runs(runs_input=own, script="" if name in _MAKES or not own else words[0].text)


_MAKES = word_set("make gmake just")
_SCHEDULERS = word_set("at batch crontab")
_SUBSCRIPTING = word_set(
    "let printf read unset declare typeset local export readonly test [ mapfile"
)
"""Builtins that take names of variables, whose subscripts are evaluated."""
_RENAMING = word_set("ln cp mv install hash rsync link")
_VIEWERS = word_set("ls file stat test [ [[ echo printf dpkg readlink realpath which type man")
_PROGRAM_PATH = re.compile(r"(?:^|[=:@])/(?:usr/)?(?:local/)?s?bin/(?:[^/]*/)*([^/\s]+)$")


def _named_programs(name: str, words: Sequence[Word]) -> Iterator[str]:
    """Yield the programs whose files a command is given: `ln -s /bin/rm x` runs as `./x`."""
    for word in words[1:] if name not in _VIEWERS else ():
        if match := _PROGRAM_PATH.search(word.text):
            yield match[1]
        if name in _RENAMING:
            yield PurePosixPath(word.text).name
            yield from () if word.literal else re.findall(r"[\w.-]+", word.text)


def _add_written(runs: Runs, name: str, words: Sequence[Word]) -> None:
    """Add what a command writes, as far as it is known."""
    if name in _WRITING or name in _FINDS or language_of(name):
        for word in words[1:]:
            runs.made |= {PurePosixPath(word.text).name, *re.findall(r"[\w.-]+", word.text)}
    if name not in ("echo", "printf"):
        return
    text = joined(words[1:])
    runs.written.append(re.sub(r"^(?:-[neE]+ )+", "", text).replace("\\n", "\n"))
    form = words[1].text if name == "printf" and len(words) > 1 else ""
    if re.search(r"\\(?![nt])|%(?!s|%)", form) or re.search(r"^-\w*e.*\\(?!n)|\\0", text):
        runs.written.append(_UNKNOWN)


_UNKNOWN = "$unknown"
"""A text that cannot be read."""
_WRITING = _RENAMING | word_set(
    "tee curl wget dd scp sftp tar unzip gunzip zcat xz base64 openssl git patch split sponge"
)
"""Programs whose arguments may name files that they write."""


def _runs_of_shell(words: Sequence[Word]) -> Runs:
    if len(words) == 2 and words[1].text in ("--version", "--help"):
        return Runs()
    starts = command_starts(words, _SHELL)
    end = starts[0] if starts else len(words)
    letters = {
        letter for word in words[1:end] if re.match(r"[-+]\w", word.text) for letter in word.text
    }
    if "c" in letters:
        filled_in = any("{}" in word.text for word in words)  # by xargs
        hidden = filled_in or not starts or not all(words[start].literal for start in starts)
        return Runs(
            texts=[words[start].text for start in starts],
            spelled_out=end + 1,
            hidden=hidden,
            runs_input=filled_in,
        )
    script = words[end].text if starts and "s" not in letters else "/dev/stdin"
    seen = script != "-" and not script.startswith("/dev/") and words[end].literal
    options = words[1:end]
    rc_file = next((two.text for one, two in zip(options, options[1:], strict=False)
                    if one.text in ("--rcfile", "--init-file")), "")  # fmt: skip
    return Runs(hidden=not seen, runs_input=True, script=rc_file or script)


def _runs_of_texts(name: str, words: Sequence[Word]) -> Runs:
    arguments = words[1:]
    if name == "eval":
        texts = [joined(arguments)]
    elif name == "trap":
        texts = [word.text for word in arguments if word.text[:1] != "-"][:1]
    else:
        texts = [word.text.partition("=")[2] for word in arguments]
    literal = all(word.literal for word in arguments)
    return Runs(texts=texts, spelled_out=len(words), hidden=not literal)


def _runs_of_find(words: Sequence[Word], options: set[str]) -> Runs:
    runs = Runs()
    for at, word in enumerate(words):
        if word.text in options:
            rest = range(at + 1, len(words))
            end = next((n for n in rest if words[n].text in (";", "+")), len(words))
            runs.commands.append((at + 1, end))
            runs.spelled_out = at + 2
            runs.hidden |= any("{}" in word.text for word in words[at + 1 : at + 2])
    return runs


def _runs_of_wrapper(name: str, words: Sequence[Word]) -> Runs:
    wrapper, end = WRAPPERS[name], len(words)
    starts = command_starts(words, wrapper)
    texts = list(_option_texts(words, wrapper.text)) if wrapper.text else []
    if wrapper.joined:
        texts += [joined(words[start:]) for start in starts]
    shell = name in ("su", "ssh", "script") and not texts
    commands = [(start, end) for start in starts]
    runs = Runs(commands, texts, end if wrapper.text and texts else 0, shell, shell)
    if name in _FILLING:
        runs.hidden |= any(_is_filled_in(words[:start], words[start:]) for start in starts)
    return runs


_FILLING = word_set("xargs parallel")


def _is_filled_in(options: Sequence[Word], command: Sequence[Word]) -> bool:
    """Return True if input that is filled into a command decides which program it runs."""
    marks = {"{}"}
    for one, two in zip(options, (*options[1:], Word("", True)), strict=True):
        if match := re.match(r"-[a-zA-Z]*?I(.*)|--replace=?(.*)", one.text):
            marks.add(match[1] or match[2] or two.text)
    inner = command
    while (name := PurePosixPath(inner[0].text).name) in WRAPPERS:
        starts = command_starts(inner, WRAPPERS[name])
        if not starts:
            return True  # `xargs env`: the program comes from the input
        inner = inner[starts[0] :]
    runs = _runs_by_name(name, inner)
    return any(mark in text for text in (name, *runs.texts) for mark in marks if mark)


def command_starts(words: Sequence[Word], wrapper: _Wrapper) -> list[int]:
    """Return the words at which the command that a wrapper runs may begin."""
    starts, seen, verbs = list[int](), set[int](), wrapper.verbs.split()
    behind_verb = (at + 1 for at, word in enumerate(words) if at and word.text in verbs)
    places = [*itertools.islice(behind_verb, 1)] if verbs else [1]
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
    """Return how many words an option and its value take; both counts if it is unknown."""
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

    Returns the number of words that an allowing rule must name, the shell texts that the options
    run, and the position of the word that says what is done, after git's own options.
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
