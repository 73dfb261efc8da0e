"""`openmanus trust`, and the question on a terminal."""

import sys
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from openmanus_graph.config.files import Layer, is_foreign, read_layer
from openmanus_graph.config.instructions import trust_instructions, untrusted_instructions
from openmanus_graph.config.resolve import WORKING_FOLDER_FILES
from openmanus_graph.config.skills import trust_name, untrusted_skills
from openmanus_graph.config.trust import is_trusted, risky_settings, trust, trust_content
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.skills import Skill
from openmanus_graph.state.storage_urls import RedisUrl


def trust_folder() -> int:
    """Trust the working folder's configuration and skills as they are now, and say which."""
    layers, skills = untrusted_layers(), untrusted_skills()
    instructions = untrusted_instructions()
    if not layers and not skills and not instructions:
        sys.stderr.write("Nothing in this folder's configuration needs your trust.\n")
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
    """Ask on a terminal whether this folder's risky settings may take effect.

    Args:
        config: The file that the person named instead, which needs no trust.
    """
    if config is not None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    for layer in untrusted_layers():
        sys.stderr.write(f"{layer.path} wants: {describe(layer)}\nTrust it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            trust(Path.cwd(), layer)
    for skill in untrusted_skills():
        sys.stderr.write(f"{_said(skill)}\nTrust it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            _trust_skill(skill)


def _said(skill: Skill) -> str:
    return printable(f"the skill {skill.folder}: {skill.description}")


def _trust_skill(skill: Skill) -> None:
    trust_content(Path.cwd(), trust_name(skill), skill.digest)


def untrusted_layers() -> list[Layer]:
    """Return the files of the working folder whose risky settings are not trusted."""
    folder = Path.cwd()
    paths = [folder / name for name in WORKING_FOLDER_FILES]
    layers = [read_layer(path) for path in paths if path.is_file() and not is_foreign(path)]
    return [layer for layer in layers if risky_settings(layer) and not is_trusted(folder, layer)]


def describe(layer: Layer) -> str:
    """Say what the risky settings of a file are."""
    return ", ".join(f"{key} = {_shown(value)}" for key, value in risky_settings(layer).items())


def _shown(value: object) -> str:
    """Write a setting; of an address that may hold a password, where it leads."""
    if isinstance(value, SecretStr):
        with suppress(ConfigError):
            return str(RedisUrl.parse(value))
    return repr(value)
