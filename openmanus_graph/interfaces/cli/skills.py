"""`openmanus skills` and `trust`: skills, and what came with a folder and needs your trust."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from openmanus_graph.config import homes, instructions
from openmanus_graph.config.claude_files import untrusted_files
from openmanus_graph.config.files import Layer, config_home, read_layer
from openmanus_graph.config.instructions import SHIPPED
from openmanus_graph.config.mcp import INPUT, missing_inputs
from openmanus_graph.config.model import store_key
from openmanus_graph.config.resolve import WORKING_FOLDER_FILES, read_layers
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.threads import JsonLinesOption, command_group
from openmanus_graph.runtime.output import printable
from openmanus_graph.safety.open_beneath import read_beneath
from openmanus_graph.state.addresses import RedisUrl

app = command_group("Skills: folders of instructions and scripts for certain tasks.")


_REPOSITORY = re.compile(r"(https|ssh|file)://.+|[\w.-]+@[\w.-]+:.+")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_UNPACKED_BYTES, MAX_UNPACKED_FILES = 100 * 1024 * 1024, 10_000
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_skills(as_json: JsonLinesOption = False) -> int:
    """List the skills, where they are, and what keeps one from being used."""
    found = instructions.find_skills()
    known = {one.skill.name for one in found if one.skill}
    folders = filter(instructions.skill_file, sorted(SHIPPED.iterdir()))
    shipped = [skill for skill in map(instructions.read_skill, folders) if skill.name not in known]
    if as_json:
        found += [instructions.FoundSkill(skill.folder, "shipped", skill) for skill in shipped]
        for one in found:
            sys.stdout.write(json.dumps(one.as_json(), ensure_ascii=False) + "\n")
        return 0
    for one in found:
        name, about = one.folder.name, one.skill.description if one.skill else ""
        lines = [f"{name} ({one.place})\n    {about}".rstrip()]
        lines += [f"    not used: {problem}" for problem in one.problems]
        sys.stdout.writelines(printable(line) + "\n" for line in lines)
    for skill in shipped:
        about = f"{skill.name} (openmanus skills add {skill.name})\n    {skill.description}"
        sys.stdout.write(printable(about) + "\n")
    return 0


@app.command("show")
def show_skill(name: Annotated[str, typer.Argument(help="The skill's name.")]) -> int:
    """Print a skill's instructions; its files on stderr."""
    named = [one for one in instructions.find_skills() if one.folder.name == name]
    named.sort(key=lambda one: bool(one.problems))  # one that is used counts first
    if not named and not (SHIPPED / name / "SKILL.md").is_file():
        raise ConfigError(f"There is no skill {name}. `openmanus skills list` lists them.")
    folder = named[0].folder if named else SHIPPED / name
    file = instructions.skill_file(folder)
    if file is None:
        raise ConfigError(f"{folder} has no file SKILL.md.")
    here = Path.cwd().resolve()
    try:
        if folder.absolute().is_relative_to(here):  # a cloned folder's files must be inside it
            text = read_beneath(here, file.absolute(), instructions.MAX_FILE_BYTES)
        else:
            text = read_beneath(folder.resolve(), file.name, instructions.MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    sys.stdout.write(printable(text.decode("utf-8", "replace").rstrip()) + "\n")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != file:
            sys.stderr.write(printable(f"{path.relative_to(folder)}") + "\n")
    return 0


@app.command("add")
def add_skill(
    source: Annotated[
        str, typer.Argument(help="Its folder, an archive, a git address, or a shipped one's name.")
    ],
    yes: YesOption = False,
) -> int:
    """Copy skills to your own, for all folders; those from elsewhere after they were shown."""
    given = Path(source).expanduser()
    with tempfile.TemporaryDirectory() as temporary:
        folder = SHIPPED / source if not given.exists() and (SHIPPED / source).is_dir() else given
        paths = [folder.parent if folder.is_file() else folder]
        fetched = _REPOSITORY.fullmatch(source) or given.name.endswith(_ARCHIVES)
        if fetched:
            _unpack(source, Path(temporary))
            paths = [one.parent for one in sorted(Path(temporary).rglob("SKILL.md"))]
        try:
            found = [instructions.read_skill(path) for path in paths]
        except instructions.SkillError as error:
            raise ConfigError(f"{source} is not a skill: {error}.") from error
        if not found:
            raise ConfigError(f"{source} has no skill: no folder with a SKILL.md.")
        for skill in found:
            target = config_home() / "skills" / skill.name
            if target.exists():
                raise ConfigError(f"{target} already exists. Remove it first.")
            names = sorted(str(one.relative_to(skill.folder)) for one in skill.folder.rglob("*"))
            about = printable(f"{skill.name}: {skill.description}\nIts files: {', '.join(names)}")
            if not fetched or yes or agrees(about):
                shutil.copytree(skill.folder, target, symlinks=True)
                sys.stderr.write(f"Added {skill.name}: {target}\n")
    return 0


def _unpack(source: str, folder: Path) -> None:
    """Bring a repository or an archive into a new folder. ConfigError: it cannot be."""
    name = re.sub(r"\.(git|zip|tar|tar\.gz|tgz)$", "", source.rstrip("/")).rpartition("/")[2]
    target = folder / name
    try:
        if _REPOSITORY.fullmatch(source):
            command = ["git", "-c", "core.symlinks=false", "-c", "core.hooksPath=/dev/null"]
            command += ["clone", "--quiet", "--depth", "1", "--", source, str(target)]
            subprocess.run(
                command, check=True, capture_output=True, text=True,
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"},
            )  # fmt: skip
            shutil.rmtree(target / ".git")
        elif source.endswith(".zip"):
            with zipfile.ZipFile(source) as packed:
                _check_size([one.file_size for one in packed.infolist()])
                packed.extractall(target)
        else:
            with tarfile.open(source) as archive:
                _check_size([one.size for one in archive])
                archive.extractall(target, filter="data")
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{source} cannot be fetched: {error.stderr.strip()}") from error
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{source} cannot be unpacked: {error}") from error


def _check_size(sizes: Sequence[int]) -> None:
    if sum(sizes) > MAX_UNPACKED_BYTES or len(sizes) > MAX_UNPACKED_FILES:
        raise ConfigError("The archive is too large for skills. Unpack it yourself.")


@app.command("remove")
def remove_skill(name: Annotated[str, typer.Argument(help="Its name.")]) -> int:
    """Remove a skill of your own."""
    folder = config_home() / "skills" / name
    if Path(name).name != name or not (folder / "SKILL.md").is_file():
        raise ConfigError(f"You have no skill {name}. `openmanus skills list` lists all.")
    shutil.rmtree(folder)
    sys.stderr.write(f"Removed {printable(name)}.\n")
    return 0


def trust() -> int:
    """Trust the configuration of the working folder as it is now."""
    home = homes.untrusted_home()
    if home is not None:
        _trust_home(home)
    found, files = list(_untrusted()), instructions.untrusted_instructions()
    if home is None and not found and not files:
        sys.stderr.write("Nothing in this folder needs your trust.\n")
    for about, _, accept in found:
        accept()
        sys.stderr.write(f"Trusted {about}\n")
    for path in files:
        instructions.trust_instructions(path)
        sys.stderr.write(f"Trusted {printable(str(path))}, which instructs agents\n")
    return 0


def ask_before_run(config: str | None) -> None:
    """Ask on a terminal whether to trust this folder's files, and for values of MCP servers.

    A configuration file that the person named (`config`) replaces it and needs no trust.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    home = homes.untrusted_home()
    contents = "" if home is None else printable(homes.describe_home(home))
    if home is not None and agrees(f"{home} is not registered as yours: {contents}"):
        _trust_home(home)
    for _, question, accept in () if config is not None else _untrusted():
        if agrees(question):
            accept()
    ask_inputs(read_layers(config)[0])


def ask_inputs(layers: Sequence[Layer]) -> None:
    """Ask on a terminal for the values that MCP servers need and nobody gave; store them."""
    for place, wanted in missing_inputs(layers) if sys.stdin.isatty() else ():
        options = ", ".join(map(str, wanted.get("options") or ()))
        about = wanted.get("description") or f"Value of {wanted['id']} for an MCP server"
        text = printable(f"{place.rpartition(' ')[0]}: {about}{options and f' ({options})'}")
        value = typer.prompt(
            text, default=wanted.get("default") or "", show_default=not wanted.get("password"),
            hide_input=bool(wanted.get("password")), err=True,
        )  # fmt: skip
        if value:
            sys.stderr.write(f"Stored in {store_key(INPUT, place, value)}.\n")


def agrees(about: str) -> bool:
    sys.stderr.write(f"{about}\nTrust it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _trust_home(home: Path) -> None:
    contents = printable(homes.describe_home(home))
    homes.trust_home(home)
    sys.stderr.write(f"Trusted {home}: {contents}\n")


def _untrusted() -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Yield configuration and skills: a description, a question, and how to trust it."""
    folder = Path.cwd()
    for layer in untrusted_layers():
        risky = homes.risky_settings(layer)
        risks = ", ".join(f"{key} = {_shown(value)}" for key, value in risky.items())
        accept = partial(homes.trust, folder, layer)
        yield f"{layer.path}: {risks}", f"{layer.path} wants: {risks}", accept
    if files := untrusted_files():
        about = "\n  ".join(printable(f"{one.path}: {one.about}") for one in files)
        digests = {str(one.path): one.digest for one in files}

        def trust_all() -> None:
            for path, digest in digests.items():
                homes.trust_content(folder, path, digest)

        yield about, about, trust_all
    for skill in instructions.untrusted_skills():
        about = printable(f"the skill {skill.folder}: {skill.description}")
        accept = partial(homes.trust_content, folder, instructions.trust_name(skill), skill.digest)
        yield about, about, accept


def untrusted_layers() -> list[Layer]:
    """Return the files of the working folder whose risky settings are not trusted."""
    folder = Path.cwd()
    layers = (read_layer(folder / name, folder) for name in WORKING_FOLDER_FILES)
    return [
        layer
        for layer in layers
        if layer and homes.risky_settings(layer) and not homes.is_trusted(folder, layer)
    ]


def _shown(value: object) -> str:
    """Return a setting as text, without the password of an address."""
    if isinstance(value, SecretStr):
        with suppress(ConfigError):
            return str(RedisUrl.parse(value))
    return repr(value)
