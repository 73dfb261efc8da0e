"""`openmanus skills` and `trust`: skills, and what came with a folder and needs your trust."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from openmanus_graph.config import homes, instructions
from openmanus_graph.config.files import Layer, config_home, read_layer
from openmanus_graph.config.instructions import SHIPPED
from openmanus_graph.config.mcp import INPUT, missing_inputs
from openmanus_graph.config.model import store_key
from openmanus_graph.config.resolve import WORKING_FOLDER_FILES, read_layers
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.threads import JsonLinesOption
from openmanus_graph.runtime.output import printable
from openmanus_graph.safety.open_beneath import read_beneath
from openmanus_graph.state.addresses import RedisUrl

app = typer.Typer(
    help="Skills: folders of instructions and scripts for certain tasks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
            row = {
                "name": one.folder.name,
                "description": one.skill.description if one.skill else None,
                "place": one.place,
                "folder": str(one.folder),
                "problems": list(one.problems),
            }
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
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
    path: Annotated[str, typer.Argument(help="Its folder, or the name of one that is shipped.")],
) -> int:
    """Copy a skill to your own, for all folders."""
    given = Path(path).expanduser()
    folder = SHIPPED / path if not given.exists() and (SHIPPED / path).is_dir() else given
    try:
        skill = instructions.read_skill(folder.parent if folder.is_file() else folder)
    except instructions.SkillError as error:
        raise ConfigError(f"{folder} is not a skill: {error}.") from error
    target = config_home() / "skills" / skill.name
    if target.exists():
        raise ConfigError(f"{target} already exists. Remove it first.")
    shutil.copytree(skill.folder, target, symlinks=True)
    sys.stderr.write(f"Added {skill.name}: {target}\n")
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
    if home is not None and _agrees(f"{home} is not registered as yours: {contents}"):
        _trust_home(home)
    for _, question, accept in () if config is not None else _untrusted():
        if _agrees(question):
            accept()
    for place, wanted in missing_inputs(read_layers(config)[0]):
        options = ", ".join(map(str, wanted.get("options") or ()))
        about = wanted.get("description") or f"Value of {wanted['id']} for an MCP server"
        text = printable(f"{place.rpartition(' ')[0]}: {about}{options and f' ({options})'}")
        value = typer.prompt(
            text, default=wanted.get("default") or "", show_default=not wanted.get("password"),
            hide_input=bool(wanted.get("password")), err=True,
        )  # fmt: skip
        if value:
            sys.stderr.write(f"Stored in {store_key(INPUT, place, value)}.\n")


def _agrees(about: str) -> bool:
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
