"""Finds the commands that a shell text would run, and the hosts that they name. Pure.

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

from openmanus_graph.errors import ToolError
from openmanus_graph.safety import shell_programs, shell_tree, word_set
from openmanus_graph.safety.shell_programs import HARMLESS_WRAPPERS, WRAPPERS
from openmanus_graph.safety.urls import is_file_name
from openmanus_graph.state.addresses import is_loopback, literal_ip, normal_host

_CR = "\ue00d"
"""Replaces carriage returns, which are spaces for the parser and letters for bash."""
_MAX_DEPTH = 8


class Command(NamedTuple):
    """A command as written, with single spaces and without quotes."""

    text: str
    spelled_out: int = 0
    """Characters at its start that an allowing rule must name without wildcards, because they
    say what other program runs (`git -c core.pager=...`)."""


@dataclass
class ShellText:
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
    paths: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Programs that are named by a path, and their arguments. The path may be a link."""
    scripts: list[str] = field(default_factory=list[str])
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
    def __init__(self) -> None:
        self.result = ShellText()
        self._seen: set[str] = set()
        self._budget = 4 * shell_tree.MAX_BYTES
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
            if any(shell_tree.starts_programs(language, body) for language in self._languages):
                self._give_up(body)
        scripts = {PurePosixPath(path).name for path in self.result.scripts}
        self.result.hidden |= bool(scripts & self._made)
        return self.result

    def _read(self, text: str, depth: int) -> None:
        text = text.replace("\0", "").replace("\r", _CR)  # bash drops the one, and keeps the other
        if text in self._seen:
            return
        self._seen.add(text)
        short, bodies = shell_tree.without_long_bodies(text)
        data = short.encode("utf-8", "replace")
        self._budget -= len(data)
        if len(data) > shell_tree.MAX_BYTES or self._budget < 0 or depth > _MAX_DEPTH:
            self._give_up(text)
            return
        tree = shell_tree.ShellTree(data, bodies)
        for words in tree.commands():
            self._record(words, depth)
        self._add(tree.runs, depth)
        self.result.simple &= tree.simple
        for body in tree.unclear:
            self.result.unclear += _bare_words(body)
        if tree.broken:
            self._give_up(text)

    def _give_up(self, text: str) -> None:
        self.result.unclear += _bare_words(text)
        self.result.hidden = True

    def _record(self, words: list[shell_tree.Word], depth: int) -> None:
        """Record a command and the commands that it runs."""
        spans, seen, spelled_out = [(0, len(words))], set[tuple[int, int]](), 0
        while spans:
            start, end = span = spans.pop()
            if span in seen or start >= end:
                continue
            if len(seen) == shell_programs.MOST_READINGS:
                self._give_up(shell_tree.joined(words))
                break
            seen.add(span)
            part = words[start:end]
            self._record_words(part)
            runs = shell_programs.runs_of(part)
            if runs.spelled_out:
                spelled_out = max(spelled_out, start + runs.spelled_out)
            spans += [(start + first, start + last) for first, last in runs.commands]
            self._add(runs, depth)
        if depth == 0:
            self.result.visible.append(list(_forms(words, spelled_out)))

    def _add(self, runs: shell_tree.Runs, depth: int) -> None:
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

    def _record_words(self, words: Sequence[shell_tree.Word]) -> None:
        first, text = words[0], one_line(shell_tree.joined(words))
        name = PurePosixPath(first.text).name
        self.result.found += dict.fromkeys((text, text.lstrip("@-+")))  # of a Makefile's lines
        self.result.commands.append(tuple(word.text for word in words))
        if "/" in first.text:
            self.result.found.append(one_line(f"{name} {shell_tree.joined(words[1:])}"))
            self.result.paths.append((first.text, shell_tree.joined(words[1:])))
        if not first.literal and "{" in text:
            self.result.unclear += _bare_words(text)  # {rm,-f,x}
        known = next((n for n, word in enumerate(words) if not word.literal or word.wild), None)
        if known:
            self.result.beginnings.append(
                one_line(f"{name} {shell_tree.joined(words[1:known])}") + " "
            )


def _forms(words: Sequence[shell_tree.Word], spelled_out: int) -> Iterator[Command]:
    """Yield a command as written, and without harmless wrappers around it."""
    at = 0
    while at < len(words):
        named = one_line(shell_tree.joined(words[at:spelled_out]))
        yield Command(one_line(shell_tree.joined(words[at:])), len(named))
        name = words[at].text
        starts = (
            shell_programs.command_starts(words[at:], WRAPPERS[name])
            if name in HARMLESS_WRAPPERS
            else []
        )
        at += starts[0] if len(starts) == 1 else len(words)


_NO_SIGNS = str.maketrans({**dict.fromkeys("'\"\\"), **dict.fromkeys(";&|(){}<>`$,", " ")})


def _bare_words(text: str) -> tuple[str, str]:
    """Return a text's words as written, and without quotes and separators."""
    joined = re.sub(r"\$\{\w+:?[-+=]", " ", text.replace("\\\n", "")).translate(_NO_SIGNS)
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


# Hosts: after `curl`, a word is a host whatever its ending. Values of options that are files or
# texts are not hosts. A name without a dot belongs to the local network, and is not checked.
NETWORK_PROGRAMS = word_set(
    "curl wget nc ncat netcat socat ssh scp sftp rsync ftp lftp tftp telnet ping ping6 dig drill "
    "host nslookup getent resolvectl whois traceroute tracepath mtr http https xh openssl lynx w3m "
    "links elinks aria2c axel mosh nmap psql mysql mariadb redis-cli mongo mongosh smbclient swaks "
    "websocat git"
)
"""Programs after which a bare name is a host."""
_COPIES = word_set("scp rsync git")
"""Programs whose hosts have a colon. Other names are files, or names of the configuration."""
_CONNECT = {
    "git": word_set("clone push fetch pull remote ls-remote submodule"),
    "openssl": word_set("s_client s_time ocsp"),
}
_ONE_HOST = word_set("ssh mosh http https xh")
"""Programs with one host. Words after it, except options, are sent to it."""
_NO_HOSTS = {
    "curl": "-o --output -d --data --data-raw --data-binary --data-urlencode --data-ascii --json "
    "-T --upload-file -F --form --form-string -H --header -A --user-agent -e --referer -u --user "
    "-b --cookie -c --cookie-jar -X --request -w --write-out -m --max-time --connect-timeout "
    "--retry --retry-delay --limit-rate -r --range -E --cert --key --cacert -D --dump-header "
    "-K --config --output-dir -C -Q --quote --oauth2-bearer --url-query --trace "
    "--trace-ascii --stderr",
    "wget": "-O --output-document -o --output-file -a --append-output -P --directory-prefix -i "
    "--input-file -U --user-agent --header --post-data --post-file --body-data --body-file -T "
    "--timeout -w --wait -A --accept -R --reject --load-cookies --save-cookies --ca-certificate",
    "aria2c": "-o --out -d --dir -i --input-file -l --log --header -U --user-agent",
    "ssh": "-i -l -F -E -p -c -m -S",
    "scp": "-i -F -l -P -c -S",
    "sftp": "-i -F -l -P -c -S -b",
    "ping": "-i -w -W",
    "dig": "-f -k -y",
    "psql": "-c --command -f --file -o --output -v -L",
    "mysql": "-e --execute",
    "mariadb": "-e --execute",
}
"""Options whose value is a file or a text."""
_OPTION = re.compile(r"(?P<short>-[^\W\d_])(?P<attached>.*)|(?P<long>--[\w-]+)(?:=(?P<value>.*))?")
_EXPANSION = re.compile(r"\$\([^)]{0,200}\)|\$\{[^}]{0,200}\}|\$\w+|`[^`]{0,200}`")
_ANYTHING = "*"
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://|^//", re.IGNORECASE)
_SEPARATORS = re.compile(r"[=,;\s]+")
_IPV6 = re.compile(r"\[?((?:[\da-f]{0,4}:){2,7}[\da-f.]{0,15})(?:%\w+)?\]?(?::\d+)?", re.IGNORECASE)
_NAME = re.compile(r"(?:[\w*-]{1,63}\.)+[^\W\d_][\w-]{0,62}\.?")
_DOTTED_NUMBERS = re.compile(r"(?:0x[\da-f]+|[1-9]\d*)(?:\.(?:0x[\da-f]+|\d+)){1,3}", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"0x[\da-f]{1,8}|\d{6,10}", re.IGNORECASE)
"""An IPv4 address as one number; a shorter one is a port."""
_BRACKETS = re.compile(r"\[[\da-f:.]+\]", re.IGNORECASE)
_PROGRAM = re.compile(rf"(?<![\w.-])(?:{'|'.join(sorted(NETWORK_PROGRAMS))})(?=\s)")
_DEVICE = re.compile(r"/dev/(?:tcp|udp)/([^\s/'\"]+)")


def uses_network(text: str, shell: ShellText) -> bool:
    """Return True if a shell text runs a program of the network, or opens a connection in bash."""
    return _DEVICE.search(text) is not None or any(
        _connects(PurePosixPath(words[0]).name, words) for words in _commands(shell)
    )


def hosts_named(text: str, shell: ShellText) -> Iterator[str]:
    """Yield the hosts beyond this machine that a shell text names."""
    for device in _DEVICE.findall(text):
        yield from _hosts(device)
    for words in _commands(shell):
        program = PurePosixPath(words[0]).name
        if _connects(program, words):
            yield from _operands(program, words[1:])
        elif program.startswith("$"):  # any program: names of files are left out
            hosts = (host for word in words[1:] for host in _hosts(word))
            yield from (host for host in hosts if not is_file_name(host))


def _commands(shell: ShellText) -> Iterator[Sequence[str]]:
    """Yield the words of commands. Of unparsed parts, yield all from a network program on."""
    yield from filter(None, shell.commands)
    for body in shell.unclear:
        if found := _PROGRAM.search(body):
            yield body[found.start() :].split()


def _connects(program: str, words: Sequence[str]) -> bool:
    commands = _CONNECT.get(program)
    return program in NETWORK_PROGRAMS and (not commands or not commands.isdisjoint(words))


def _operands(program: str, words: Sequence[str]) -> Iterator[str]:
    found = False
    for option, word in _with_options(words, _NO_HOSTS.get(program, "").split()):
        if found and not option and program in _ONE_HOST:
            return
        copies = program in _COPIES and (not option or program == "git")
        hosts = list(_hosts(word, copies=copies))
        found |= bool(hosts)
        yield from hosts


def _with_options(words: Sequence[str], no_hosts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a command that may be hosts, each with the option before it."""
    option = ""
    for word in words:
        given = _OPTION.fullmatch(word)
        if given is None:
            if option not in no_hosts:
                yield option, word
            option = ""
            continue
        option, value = given["short"] or given["long"], given["attached"] or given["value"] or ""
        if not value:
            continue
        if option in no_hosts:
            option = ""
            continue
        yield option, value
        # Flags are joined: in `-sSo a.zip` the last one takes the value.
        option = f"-{value[-1]}" if given["short"] else ""


def _hosts(word: str, *, copies: bool = False) -> Iterator[str]:
    """Yield the hosts in a word; if it `copies`, only what is before a colon."""
    plain = _EXPANSION.sub(_ANYTHING, word).strip()
    if copies and not _SCHEME.match(plain):
        plain, colon, _ = plain.rpartition("@")[2].partition(":")
        if not colon or "/" in plain:
            return
    host = re.split(r"[/?#\\]", _SCHEME.sub("", plain), maxsplit=1)[0].rpartition("@")[2]
    if _WHOLE_NUMBER.fullmatch(host.partition(":")[0]):
        yield from _beyond(host.partition(":")[0])
    bracketed = _BRACKETS.findall(host)
    for part in (*bracketed, *_SEPARATORS.split(_BRACKETS.sub("", host) if bracketed else host)):
        found = _IPV6.fullmatch(part)
        for piece in [found[1]] if found else part.split(":"):
            if found or _NAME.fullmatch(piece) or _DOTTED_NUMBERS.fullmatch(piece):
                yield from _beyond(piece)


def _beyond(piece: str) -> Iterator[str]:
    """Yield a host unless it is this machine or a file. Of a composed host, yield its end."""
    _, composed, known = piece.rpartition(_ANYTHING)
    name = known.partition(".")[2] if composed else piece
    if "." not in name and composed:
        name = piece
    try:
        host = normal_host(name)
    except ToolError:
        host = ""
    ip = literal_ip(host)
    if not (is_loopback(host) or (ip and ip.is_unspecified) or is_file_name(name, only=True)):
        yield name.rstrip(".")
