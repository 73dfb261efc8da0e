"""`openmanus trust`, and the question on a terminal."""

import sys
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from openmanus_graph.config.declared import Layer
from openmanus_graph.config.files import read_layer
from openmanus_graph.config.homes import (
    describe_home,
    is_trusted,
    risky_settings,
    trust,
    trust_content,
    trust_home,
    untrusted_home,
)
from openmanus_graph.config.instructions import (
    trust_instructions,
    trust_name,
    untrusted_instructions,
    untrusted_skills,
)
from openmanus_graph.config.resolve import WORKING_FOLDER_FILES
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.addresses import RedisUrl
from openmanus_graph.state.context import Skill


def trust_folder() -> int:
    """Trust the working folder's home folder, configuration and skills, and say which."""
    home = untrusted_home()
    if home is not None:
        _trust_home(home)
    layers, skills = untrusted_layers(), untrusted_skills()
    instructions = untrusted_instructions()
    if home is None and not layers and not skills and not instructions:
        sys.stderr.write("Nothing in this folder needs your trust.\n")
    for layer in layers:
        trust(Path.cwd(), layer)
        sys.stderr.write(f"Trusted {layer.path}: {describe(layer)}\n")
    for skill in skills:
        _trust_skill(skill)
        sys.stderr.write(f"Trusted {_said(skill)}\n")
    for path in instructions:
        trust_instructions(path)
        sys.stderr.write(f"Trusted {printable(str(path))}, which tells agents what to do\n")
    return 0


def ask_for_trust(config: str | None) -> None:
    """Ask on a terminal whether what came with this folder may be used.

    Args:
        config: The file that the person named instead, which needs no trust.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    home = untrusted_home()
    if home is not None and _agreed(f"{home} is not registered as yours: {_content_of(home)}"):
        _trust_home(home)
    if config is not None:
        return
    for layer in untrusted_layers():
        if _agreed(f"{layer.path} wants: {describe(layer)}"):
            trust(Path.cwd(), layer)
    for skill in untrusted_skills():
        if _agreed(_said(skill)):
            _trust_skill(skill)


def _agreed(said: str) -> bool:
    sys.stderr.write(f"{said}\nTrust it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _trust_home(home: Path) -> None:
    content = _content_of(home)
    trust_home(home)
    sys.stderr.write(f"Trusted {home}: {content}\n")


def _content_of(home: Path) -> str:
    return printable(describe_home(home))


def _said(skill: Skill) -> str:
    return printable(f"the skill {skill.folder}: {skill.description}")


def _trust_skill(skill: Skill) -> None:
    trust_content(Path.cwd(), trust_name(skill), skill.digest)


def untrusted_layers() -> list[Layer]:
    """Return the files of the working folder whose risky settings are not trusted."""
    folder = Path.cwd()
    layers = [read_layer(folder / name, folder) for name in WORKING_FOLDER_FILES]
    found = [layer for layer in layers if layer is not None]
    return [layer for layer in found if risky_settings(layer) and not is_trusted(folder, layer)]


def describe(layer: Layer) -> str:
    """Say what the risky settings of a file are."""
    return ", ".join(f"{key} = {_shown(value)}" for key, value in risky_settings(layer).items())


def _shown(value: object) -> str:
    """Write a setting; of an address that may hold a password, where it leads."""
    if isinstance(value, SecretStr):
        with suppress(ConfigError):
            return str(RedisUrl.parse(value))
    return repr(value)
