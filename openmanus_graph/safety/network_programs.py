"""Finds the hosts that the programs of a shell text name. Pure.

After `curl`, a word is a host whatever its ending. Values of options that are files or texts are no
hosts. A name without a dot belongs to the local network, and is not checked.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from openmanus_graph.errors import ToolError
from openmanus_graph.safety.shell_code import word_set
from openmanus_graph.safety.shell_commands import ShellText
from openmanus_graph.safety.urls import is_file_name
from openmanus_graph.state.addresses import is_loopback, literal_ip, normal_host

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
"""Commands of programs that take a host."""
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
"""Replaces a variable or a command in a word."""
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
            yield from (
                host for word in words[1:] for host in _hosts(word) if not is_file_name(host)
            )


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
        # Flags stand together: in `-sSo a.zip` the last one takes the value.
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
