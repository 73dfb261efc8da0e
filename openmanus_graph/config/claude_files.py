"""Reads what files describe in the forms of Claude Code: hooks, agents and slash commands.

Those of the working folder are used once the user trusts them.
"""

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from openmanus_graph.config import homes
from openmanus_graph.config.files import config_home, parse_json, read_text
from openmanus_graph.config.instructions import SkillError, front_matter
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, read_beneath
from openmanus_graph.state.context import Hook
from openmanus_graph.state.json_values import as_list, as_object

Kind = Literal["agents", "commands"]
FOLDERS = ("", ".openmanus", ".claude")
"""Of the working folder; the user's own is the folder of `config.toml`."""
HOOK_FILES = ("settings.json", "settings.local.json")
EVENTS = frozenset({
    "PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart", "PreCompact",
    "Notification",
})  # fmt: skip
OWN_AGENTS = frozenset({
    "manus", "browser", "swe", "data_analysis", "desktop", "mcp", "planner", "planning",
    "research",
})  # fmt: skip
"""Names that no file can take."""
_SHOWN = 3
MAX_SCRIPT_BYTES = 4 * 1024 * 1024
_TOOLS = {
    "Bash": "bash", "Read": "read_file", "Glob": "read_file", "Grep": "read_file",
    "LS": "read_file", "Write": "str_replace_editor", "Edit": "str_replace_editor",
    "MultiEdit": "str_replace_editor", "WebFetch": "fetch_page", "WebSearch": "web_search",
    "Task": "delegate", "TodoWrite": "planning",
}  # fmt: skip
"""Tools of Claude Code, and ours that do no more."""
_ARGUMENT = re.compile(r"\$(?:ARGUMENTS\b|([1-9]))")


@dataclass
class ClaudeFile:
    """A file with hooks, an agent or a command."""

    path: Path
    in_folder: bool
    """Whether it came with the working folder."""
    name: str = ""
    about: str = ""
    """What it does, for the question whether to trust it."""
    digest: str = ""
    """Empty if there is nothing to use."""
    problem: str = ""
    """Why it is not used; of hooks, which are not."""
    hooks: tuple[Hook, ...] = ()
    text: str = ""
    """The role of an agent, or what a command says."""
    tools: tuple[str, ...] | None = None
    """Of an agent, by our names. None: all."""
    model: str = ""
    """`PROVIDER:NAME`. Empty for the run's, as for other names."""

    @property
    def is_trusted(self) -> bool:
        place = str(self.path)
        return not self.in_folder or homes.is_trusted_content(Path.cwd(), place, self.digest)


def _places() -> Iterator[tuple[Path, bool]]:
    """Yield the folders that may have files, and whether they came with the working folder."""
    home = homes.untrusted_home()
    for name in FOLDERS:
        if home is None or name != homes.HOME:
            yield Path.cwd() / name, True
    yield config_home(), False


def untrusted_files() -> list[ClaudeFile]:
    """Return the files of the working folder that the user has not trusted. Blocks."""
    found = [*find_hooks(), *find_prompts("agents"), *find_prompts("commands")]
    return [one for one in found if one.digest and not one.is_trusted]


def find_hooks() -> list[ClaudeFile]:
    """Return the files that have hooks, trusted or not. Blocks."""
    found: list[ClaudeFile] = []
    for root, inside in _places():
        for name in HOOK_FILES if root != Path.cwd() else ():  # there it may be any program's
            file = ClaudeFile(root / name, inside)
            try:
                table = parse_json(read_text(file.path, Path.cwd() if inside else None) or "{}")
                file.hooks = tuple(_hooks_in(as_object(table), file))
            except (ConfigError, ValueError, RecursionError) as error:
                file.problem = f"its hooks are not used, because it cannot be read: {error}"
            runs = "; ".join(f"{one.event} {one.matcher}: {one.shown}" for one in file.hooks)
            file.about = f"hooks, which run outside of the sandbox: {runs}"
            keys = [[one.event, one.matcher, one.command, one.digest] for one in file.hooks]
            file.digest = hashlib.sha256(json.dumps(keys).encode()).hexdigest() if keys else ""
            found += [file] if file.hooks or file.problem else []
    return found


def usable_hooks() -> tuple[tuple[Hook, ...], list[str]]:
    """Return the hooks that a run uses, and warnings about all files that are not used. Blocks."""
    found, agents = find_hooks(), find_prompts("agents")
    warnings = [f"{one.path}: {one.problem}." for one in (*found, *agents) if one.problem]
    if untrusted := untrusted_files():
        names = ", ".join(str(one.path) for one in untrusted[:_SHOWN])
        more = f" and {len(untrusted) - _SHOWN} more" if len(untrusted) > _SHOWN else ""
        warnings.append(f"Not used until you trust them (openmanus trust): {names}{more}.")
    return tuple(hook for one in found if one.is_trusted for hook in one.hooks), warnings


def digest_of(folder: Path, files: Sequence[Path]) -> str:
    """Return the digest of a folder's files. Blocks. OSError if one cannot be read."""
    contents = (read_beneath(folder, path, MAX_SCRIPT_BYTES) for path in files)
    return hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in contents)).hexdigest()


def _hooks_in(table: dict[str, Any], file: ClaudeFile) -> Iterator[Hook]:
    """Yield the hooks of a file. ValueError, or ConfigError: it is wrong."""
    given = {} if table.get("disableAllHooks") is True else as_object(table.get("hooks"))
    if unknown := sorted(given.keys() - EVENTS):
        file.problem = f"there are no hooks of {', '.join(unknown)} here"
    for event in filter(EVENTS.__contains__, given):  # in order: trust covers the whole list
        for group in map(as_object, as_list(given[event])):
            for one in map(as_object, as_list(group.get("hooks"))):
                if one.get("type", "command") != "command" or not one.get("command"):
                    odd = f"only hooks of type command are run at {event}"
                    known = file.problem and f"{file.problem}; "
                    file.problem = file.problem if odd in known else f"{known}{odd}"
                else:
                    matcher = str(group.get("matcher") or "")
                    yield _hook(one, event, "" if matcher == "*" else matcher, file.in_folder)


def _hook(given: dict[str, Any], event: str, matcher: str, in_folder: bool) -> Hook:
    command, timeout, folder = str(given["command"]), given.get("timeout", 60), Path.cwd()
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise ValueError(f"the timeout of {command!r} is not a number of seconds")
    argv = [command, *map(str, as_list(given.get("args")))]
    if "args" not in given:
        argv = [shutil.which("bash") or "/bin/sh", "-c", command]
    try:
        re.compile(matcher)
        files = tuple(_named_files(argv, folder)) if in_folder else ()
        digest = digest_of(folder, files)
    except (re.error, UnsafeFileError) as error:
        raise ValueError(str(error)) from error
    blocks = given.get("onFailure") == "block"
    return Hook(event, matcher, tuple(argv), command, folder, timeout, blocks, files, digest)


def _named_files(argv: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the files of the folder that a command names."""
    text = re.sub(r"\$\{?CLAUDE_PROJECT_DIR\}?", str(folder), " ".join(argv))
    for word in dict.fromkeys(re.split(r"[\s;|&<>()='\"]+", text)):
        path = folder / word
        if path.is_file() and path.resolve().is_relative_to(folder):
            yield path


def find_prompts(kind: Kind) -> list[ClaudeFile]:
    """Return the agents or commands of all places, by precedence. Blocks."""
    places = [(path, inside) for root, inside in _places() for path in (root / kind).glob("*.md")]
    found = (_read_prompt(kind, path, inside) for path, inside in places)
    return [one for one in found if one is not None]


def usable_prompts(kind: Kind) -> dict[str, ClaudeFile]:
    """Return the agents or commands that can be used, by name; the first of each. Blocks."""
    usable = [one for one in find_prompts(kind) if one.digest and one.is_trusted]
    return {one.name: one for one in reversed(usable)}


def _read_prompt(kind: Kind, path: Path, in_folder: bool) -> ClaudeFile | None:
    """Read one file; None if it is another kind of document, without front matter."""
    found = ClaudeFile(path, in_folder, path.stem)
    try:
        text = read_text(path, Path.cwd() if in_folder else None) or ""
        if not text.startswith("---") and (kind == "agents" or path.parent.parent == Path.cwd()):
            return None  # a folder of this name may hold anything
        text = text if text.startswith("---") else f"---\n---\n{text}"
        head, _, body = text.removeprefix("---").partition("\n---")
        try:
            given = front_matter(text)
        except SkillError:  # programs write `[first] [second]`, which is no YAML
            given = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", head, re.MULTILINE))
    except ConfigError as error:
        found.problem = str(error).rstrip(".")
        return found
    fields, tools = {key: str(one) for key, one in given.items()}, given.get("tools")
    found.text = body.partition("\n")[2].strip()
    found.model = model if ":" in (model := fields.get("model", "")) else ""
    if kind == "agents":
        found.name = fields.get("name", path.stem)
        named = re.findall(r"[^\s,]+", tools) if isinstance(tools, str) else as_list(tools)
        known = dict.fromkeys(_TOOLS.get(one, one) for one in map(str, named))
        found.tools = None if tools is None else tuple(known)
    found.about = f"{kind[:-1]} {found.name}, {' '.join(fields.get('description', '').split())}"
    if not found.text:
        found.problem = "it says nothing below its front matter, two lines of ---"
    elif not re.fullmatch(r"[\w-]{1,64}", found.name):
        found.problem = "its name has other characters than letters, digits, _ and -"
    elif kind == "agents" and found.name in OWN_AGENTS:
        found.problem = f"there is an agent {found.name} already, which no file can replace"
    else:
        found.digest = hashlib.sha256(text.encode()).hexdigest()
    return found


def with_command(text: str) -> tuple[str, str]:
    """Return a task with its slash command filled in, and the command's model. Blocks.

    A text that begins with another word is returned as it is. `$ARGUMENTS` is what follows the
    command, `$1` its first word; without either it comes after the text. ConfigError: the command
    cannot be used.
    """
    name, _, argument = text.strip().partition(" ")
    command = usable_prompts("commands").get(name[1:]) if name.startswith("/") else None
    if command is None:
        return text, ""
    if re.search(r"!`[^`]+`", command.text):
        raise ConfigError(
            f"The command {name} wants to run programs before it is sent (!`...`), which is not "
            f"done here. Write into {command.path} that the agent is to run them."
        )
    try:
        words = [argument.strip(), *shlex.split(argument)]
    except ValueError:  # an open quote
        words = [argument.strip(), *argument.split()]
    wanted = [int(one or 0) for one in _ARGUMENT.findall(command.text)]
    if (most := max(wanted, default=0)) >= len(words):
        raise ConfigError(f"The command {name} needs {most} arguments. It is {command.path}.")
    filled = _ARGUMENT.sub(lambda found: words[int(found[1] or 0)], command.text)
    return filled if wanted else f"{filled}\n\n{words[0]}".strip(), command.model
