"""A seeded generator of shell lines: one command, however deep it is hidden.

A line runs one program (`rm`, or a harmless one) behind constructs drawn from a grammar, or only
mentions it. Whether bash really starts it is the oracle's to say, not the grammar's: some lines
are broken, and some constructs swallow what they hold.
"""

import base64
import random
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

HARMLESS = ("ls", "cat", "touch", "grep", "head", "wc")
_ARGUMENTS = (
    "x", "-f x", "-- x", "'x' y.txt", "*.txt", '-r "x"', "$HOME/x", "x 2>/dev/null",
)  # fmt: skip
_SPELLINGS = (
    "{n}", "{n}", "{n}", "\\{n}", "{a}\\{z}", "'{n}'", '"{n}"', "{a}''{z}", '{a}""{z}',
    "{a}\\\n{z}", "$'{n}'", "$'\\x{h}{z}'", "$'\\{o}{z}'", "$'\\u00{h}'{z}", '$"{n}"', "/bin/{n}",
    "/usr/bin/{n}", "//bin//{n}", "/bin/../bin/{n}", "'/bin'/{n}", "/bin/{a}?{t}", "/b?n/{n}",
    "/bin/[{a}]{z}", "{a}$z{z}", "{a}${{z}}{z}", "{a}$(){z}", "{a}``{z}", "{a}$@{z}",
    "${{z:-{n}}}", "$(echo {n})", "`echo {n}`", '"$(printf {n})"', "{a}{{,}}{z}",
    "$(tr a-z a-z <<< {n})", "{n}$IFS",
)  # fmt: skip
"""Of a program's name: whole, its first letter and the rest, that letter in hex and octal."""

_BEFORE_COMMANDS = (
    "sudo {c}", "sudo -u root {c}", "sudo -n A=1 {c}", "doas -u a {c}", "env {c}", "env A=1 {c}",
    "env -u A {c}", "env -- {c}", "env -i PATH=/usr/bin {c}", "nohup {c}", "timeout 5 {c}",
    "timeout -k 1 --signal KILL 5 {c}", "nice -n 3 {c}", "nice -3 {c}", "setsid -w {c}",
    "stdbuf -o L {c}", "busybox {c}", "command {c}", "command -p {c}", "exec {c}",
    "exec -a n {c}", "builtin eval {c}", "time -p {c}", "time {c}", "! {c}", "A=1 {c}",
    "a[1]=2 {c}", ">/dev/null {c}", "2>&1 {c}", "<x {c}", "<<<a {c}", "{{fd}}>o {c}",
    "xargs {c} <<< a", "xargs -n 1 -I% {c} <<< a", "find . -maxdepth 0 -exec {c} {{}} +",
    "find . -maxdepth 0 -exec {c} \\;", "find . -maxdepth 0 -execdir {c} ';'",
    "yes | find . -maxdepth 0 -ok {c} \\;", "flock l {c}", "ionice -c 3 {c}", "chroot / {c}",
    "coproc {c}", "eval {c}", "command eval {c}", "$z {c}", "parallel {c} ::: a",
    'script -qc "{c}" /dev/null', "ssh -p 2 h {c}", "watch -n 1 {c}",
)  # fmt: skip
"""`{c}` is one simple command."""

_AROUND_TEXTS = (
    "{t}; true", "true; {t}", "true && {t}", "false || {t}", "{t} | cat", "true | {t}",
    "true |& {t}", "({t})", "( ( {t} ) )", "{{ {t}\n}}", "if true; then {t}\nfi",
    "if {t}\nthen :; fi", "while {t}\ndo break; done", "until false; do {t}\nbreak; done",
    "for i in x; do {t}\ndone", "for ((i=0; i<1; i++)); do {t}\ndone",
    "for ((i=0; i<1; i++)) {{ {t}\n}}", "case a in b) ;; *) {t}\n;; esac",
    "case $({t}) in *) :; esac", "select i in x; do {t}\nbreak; done <<< 1", "f() {{ {t}\n}}; f",
    "function f {{ {t}\n}}\nf", "function f (\n{t}\n); f", "f() if :; then {t}\nfi\nf",
    "echo $({t})", 'echo "$({t}\n)"', "echo `{t}`", 'echo "a`{t}`"', "cat <({t}\n)",
    "true > >({t}\n); wait", "{t} &\nwait", "v=$({t}\n)", "v=($({t}\n))", "echo ${{z:-$({t}\n)}}",
    "echo $(( $({t}\n) 1 ))", "[[ -z $({t}\n) ]]", '[ -z "$({t}\n)" ]', "a[$({t}\n)1]=1",
    "cat <<E\n$({t}\n)\nE\n", "cat <<< $({t}\n)", "export v=$({t}\n)",
    "local=1; declare v=$({t}\n)", "coproc N {{ {t}\n}}; wait", "time {{ {t}\n}}", "# it's\n{t}",
    "echo \\ #; {t}", "echo ''#; {t}", "cat <<'A B'\nq\nA B\n{t}", "cat <<A <<B\na\nA\nb\nB\n{t}",
    "{t} # c", "echo 'a\nb'\n{t}", "true\r\n{t}", "[[ a == a ]] && {t}", "((1)) && {t}",
    "{t}\n\n\ntrue", "set -e; {t}", 'echo "a\\"b"; {t}', "echo $'a\\'b'; {t}",
    "x() {{ :; }}; {t}", "cat <<-E\n\tb\n\tE\n{t}",
)  # fmt: skip
"""`{t}` is any text."""

_AS_WORDS = (
    "bash -c {q}", "sh -c {q}", "bash -ec {q}", "bash -o errexit -c -- {q}", "eval {q}",
    "trap {q} EXIT", "trap -- {q} DEBUG; true", "trap {q} ERR; false", "env -S {e}", "env -S{e}",
    "bash <<< {q}", "bash -s <<< {q}", "echo {q} | sh", "printf '%s\\n' {q} | bash",
    "printf %s\\\\n {q} | env bash", "echo {q} > s; sh s", "echo {q} > s && . ./s",
    "echo {q} > s; bash < s", "echo {q} > s; chmod +x s; ./s", "echo {q} | tee s; sh s",
    "echo {q} > s; cat s | sh", "sh <(echo {q})", ". <(echo {q})", "source /dev/stdin <<< {q}",
    "echo {q} > s; BASH_ENV=s bash -c :", "echo {q} > s; export BASH_ENV=s; bash -c :",
    "echo {q} > s; bash --rcfile s -i", "PROMPT_COMMAND={q} bash -i", "PS4='$('{q}')' bash -xc :",
    "mapfile -c 1 -C {q} v < x", "script -qc {q} /dev/null", "flock l -c {q}", "ssh h {q}",
    "su -c {q}", "su - a --command={q}", "watch {q}", "find . -maxdepth 0 -exec sh -c {q} \\;",
    "echo {q} | xargs -I{{}} sh -c '{{}}'", 'v={q}; eval "$v"', "v={q}; eval $v", "v={q}; $v",
    'v={q}; bash -c "$v"', "v={q} bash -c 'eval \"$v\"'", "git -c alias.z='!'{q} z",
    "make -s -f <(printf 'a:\\n\\t@%s\\n' {q})", "printf 'a:\\n\\t%s\\n' {q} > m; make -f m",
    "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec={q} x", "vim -es -c '!'{q} -c q",
    "GIT_PAGER={q} git -p -c core.pager={q} --version",
    "echo {q} > Makefile.sh; sh ./Makefile.sh", "alias r={q}\nr",
    "shopt -s expand_aliases; alias r={q}\nr", "sh -c 'eval \"$0\"' {q}", "sh -c '$0' {q}",
    "v='$('{q}')'; eval echo $v", "v='a[$('{q}')]'; echo $((v))", "let 'a[$('{q}')]=1'",
    "printf -v 'a[$('{q}')]' z", "v='$('{q}')'; echo ${{v@P}}", "[[ -v 'a[$('{q}')]' ]]",
    "read 'a[$('{q}')]' <<< 1", 'f() {{ eval "$1"; }}; f {q}', 'f() {{ "$@"; }}; f sh -c {q}',
    "cat > s <<'E'\n{t}\nE\nsh s", "cat <<'E' > s\n{t}\nE\nbash ./s", "sh <<'E'\n{t}\nE\n",
    "bash -s <<-'E'\n\t{t}\n\tE\n", "cat <<'E' | sh\n{t}\nE\n", "sudo bash <<E\n{t}\nE\n",
    "v=$(cat <<'E'\n{t}\nE\n); eval \"$v\"", "python3 -c \"import os; os.system('''\"{q}\"''')\"",
    "perl -e 'system(q{{'{q}'}})'", "perl -e '`'{q}'`'", "awk 'BEGIN{{system(\"'{q}'\")}}'",
    "awk 'BEGIN{{\"'{q}'\" | getline}}'", "sed '1e '{q} x", "sed 's/.*/'{q}'/e' x",
    "node -e 'require(\"child_process\").execSync(`'{q}'`)'",
    "python3 <<'E'\nimport subprocess\nsubprocess.run('''{t}''', shell=True)\nE\n",
    "perl <<'E'\nsystem(q{{{t}}})\nE\n", "echo {q} > a.mk; : > x; xargs -a x -I% sh a.mk",
)  # fmt: skip
"""`{q}` is a text as one word, `{e}` a simple command as one."""

_BY_NAME = (
    "v={n}; $v x", 'v={n}; "$v" x', 'v=({n} x); "${{v[@]}}"', "v={a}; $v{z} x",
    "v={a} w={z}; $v$w x", "printf -v v {n}; $v x", "read v <<< {n}; $v x",
    "read -r v w <<< '{n} x'; $v $w", "for v in {n}; do $v x; done", "v=w; w={n}; ${{!v}} x",
    "declare -n v=w; w={n}; $v x", 'set -- {n} x; "$@"', "set -- {n}; $1 x",
    'f() {{ "$1" x; }}; f {n}', "f() {{ $1 $2; }}; f {n} x", "ln -s /bin/{n} foo; ./foo x",
    'ln -sf "$(command -v {n})" foo; ./foo x', "cp /bin/{n} foo; PATH=.:$PATH foo x",
    "mkdir b; ln -s /bin/{n} b/ls; PATH=b:$PATH; ls x", "hash -p /bin/{n} ls; ls x",
    "v=/bin/*; for p in $v; do case $p in */{n}) $p x; esac; done", "cd /bin; ./{n} x",
    "cd /bin && ./{a}* x", "echo {n} | xargs -I% % x", "echo x | xargs {n}",
    "echo '{n} x' | xargs env", "xargs -a <(echo x) {n}", "find x -exec {n} {{}} \\;",
    "find /bin/{n} -exec {{}} x \\;", "find /bin -name {n} -exec {{}} x +", "alias r={n}\nr x",
    "alias r='{n} '\nr x", "{n}() {{ command {n} x; }}; {n}", "enable -n echo; {n} x",
    "{a}={z}; {a}{z} x", "v={n}$IFS; ${{v}}x", "{n}${{IFS}}x", "IFS=,; v={n},x; $v",
    'eval "$(echo {n} x)"', "eval $(printf '%s ' {n} x)", "$(echo {n} x)",
    "sh -c \"$(printf '{n} x')\"", "echo {r} | rev | sh", "echo {b} | base64 -d | sh",
    "{{{n},x}}", "{{{n},-f,x}}", "v=$'\\x{h}'; ${{v}}{z} x", "printf '\\x{h}{z} x' | sh",
    "$'\\x{h}\\x{i}' x", "echo $({n} x)", "env $(echo {n}) x", "timeout 5 $(echo {n}) x",
    "exec -c /bin/{n} x", "command -v {n} && {n} x", "sudo -s {n} x", "coproc {n} x",
    "trap '{n} x' EXIT", "time sudo env nice {n} x", "printf x | xargs -0 {n}",
    "bash -c '{n} \"$1\"' _ x", "bash -c '$0 x' {n}", "bash -c '\"$@\"' _ {n} x",
    "v='{n}'\n$v\\\n x", "compgen -C '{n} x'", "${{z-{n}}} x", "${{z:={n}}} x", "a=1 {n} x",
    "python3 -c \"import os; os.execlp('{n}','{n}','x')\"",
    'python3 -c \'import subprocess as s; s.run(["{n}", "x"])\'', "perl -e 'exec qw({n} x)'",
    "tar cf - x --to-command={n}", "git -c core.sshCommand={n} ls-remote ssh://h/x",
    "git -c core.pager={n} -p log", "EDITOR={n} git -c user.name=a -c user.email=b@c config -e",
    "tar cf a.tar -I {n} x", "sort --compress-program={n} x",
)  # fmt: skip
"""`{n}` is the program's name; also split, reversed, in base64 and in hex."""

_MENTIONS = (
    "echo '{t}'", 'echo "{n} x"', "grep '{n} x' y.txt", "grep -rn {n} .",
    "git log --grep='{n} x'", "git grep '$({n})'", "cat > s.md <<'E'\n{t}\nE\n",
    "cat > n.py <<'E'\nprint('{n} x')\nE\n", "# {t}", "ls # {n} x", "command -v {n}", "which {n}",
    "type {n}", "man {n}", "docker run --{n} x", 'for f in {n} x; do echo "$f"; done',
    "v='{n} x'", "v=({n} x)", "bash build.sh {n} x", "printf '%s\\n' '{n} x'",
    "sed 's/{n} x/ls/' y.txt", "cat <<'E'\n{t}\nE\n", "cat <<E\n{n} x\nE\n", "ls {n}",
    "touch {n} x", "mkdir -p {n}/x", "test -e {n} && echo x", "[[ a == {n} ]] || true",
    "git commit -m '{n} x'", "git rm x", "find . -name '{n}*'", "awk '/{n}/' y.txt",
    "case {n} in x) ls;; esac", "tee {n} < x", "cat {n} x > /dev/null", "head -n 1 <<< '{n} x'",
    "ls -- {n} | wc -l", "wc -l < x; echo {n}", "export MSG='use {n} x'", "unset {n}",
    "echo $((1+2)) {n} x", "tar cf {n}.tar x", "python3 n.py {n} x", "echo x >{n}",
    "cd {n} 2>/dev/null || true", "true {n} x", "[ {n} = x ]", "expr {n} : x", "printf {n}",
    "echo {n}; echo x",
)  # fmt: skip
"""They start no such program."""


class ShellLines:
    """Draws lines about one program."""

    def __init__(self, chance: random.Random, program: str) -> None:
        """Begin.

        Args:
            chance: Draws.
            program: The program that the lines run, or mention.
        """
        self._chance, self._program = chance, program

    def line(self) -> str:
        """Return a line that runs the program, if bash can make sense of it."""
        text = self._text(self._chance.choice((1, 2, 2, 3, 3)))
        return self._chance.choice(("{}", "{}", "{}", "cd . ; {}", "{}\r", " {}", "{}\n")).format(
            text
        )

    def mention(self) -> str:
        """Return a line that only names the program."""
        named = self._fill(self._chance.choice(_MENTIONS), f"{self._program} x")
        around = self._chance.choice((*_AROUND_TEXTS, *["{t}"] * len(_AROUND_TEXTS)))
        return self._fill(around, named)

    def _text(self, depth: int) -> str:
        if depth == 1:
            return self._chance.choice((self._command, self._command, self._by_name))()
        kind = self._chance.choice((_BEFORE_COMMANDS, _AROUND_TEXTS, _AS_WORDS, _AS_WORDS))
        template = self._chance.choice(kind)
        if kind is _BEFORE_COMMANDS:
            return self._fill(template, self._command(depth - 1))
        return self._fill(template, self._text(depth - 1))

    def _command(self, depth: int = 1) -> str:
        """Return a simple command, behind others."""
        if depth > 1:
            return self._fill(self._chance.choice(_BEFORE_COMMANDS), self._command(depth - 1))
        spelling = self._fill(self._chance.choice(_SPELLINGS), "")
        return f"{spelling} {self._chance.choice(_ARGUMENTS)}"

    def _by_name(self) -> str:
        return self._fill(self._chance.choice(_BY_NAME), "")

    def _fill(self, template: str, text: str) -> str:
        """Put a text and the program's name into a template."""
        name = self._program
        quote: Callable[[str], str] = self._chance.choice(
            (shlex.quote, shlex.quote, _double, _ansi)
        )
        return template.format(
            t=text, c=text, q=quote(text), e=shlex.quote(text.replace("\n", " ")),
            n=name, a=name[0], z=name[1:], r=f"'x {name[::-1]}'", b=_base64(f"{name} x\n"),
            h=f"{ord(name[0]):02x}", i=f"{ord(name[1]):02x}", o=f"{ord(name[0]):03o}",
        )  # fmt: skip


def _double(text: str) -> str:
    """Quote for a shell in double quotes."""
    return '"' + "".join(f"\\{c}" if c in '"\\$`' else c for c in text) + '"'


def _ansi(text: str) -> str:
    """Quote for bash in ANSI-C quotes."""
    return "$'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass(frozen=True)
class Line:
    """One drawn line."""

    text: str
    kind: Literal["denied", "harmless", "mention"]
    """Whether it is to run `rm`, is to run something else, or only mentions `rm`."""


def drawn_lines(chance: random.Random, count: int) -> Iterator[Line]:
    """Yield lines: half are to run `rm`, a quarter something harmless, a quarter mention it."""
    for number in range(count):
        if number % 2:
            yield Line(ShellLines(chance, "rm").line(), "denied")
        elif number % 4:
            yield Line(ShellLines(chance, "rm").mention(), "mention")
        else:
            yield Line(ShellLines(chance, chance.choice(HARMLESS)).line(), "harmless")
